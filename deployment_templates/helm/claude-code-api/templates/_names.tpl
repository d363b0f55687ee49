{{- define "claude-code-api.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "claude-code-api.fullname" -}}
{{- $name := include "claude-code-api.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "claude-code-api.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "claude-code-api.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false, so serviceAccount.name has to name one that exists" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* The platform's own network rules and dashboards go by the label app. */ -}}
{{- define "claude-code-api.selector" -}}
app: {{ include "claude-code-api.name" . }}
app.kubernetes.io/name: {{ include "claude-code-api.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "claude-code-api.labels" -}}
{{ include "claude-code-api.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: orchestration
app.kubernetes.io/part-of: foundationallm
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "claude-code-api.image" -}}
{{- $repository := required "image.repository is missing: the registry and name under which you have put the image of ./dev image --service" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* What no schema can say about several values together. */ -}}
{{- define "claude-code-api.check" -}}
{{- $configured := or .Values.appConfig.uri .Values.existingSecret .Values.secretProviderClass -}}
{{- if not $configured -}}
{{- fail "The service has no configuration: set appConfig.uri to the platform's App Configuration, or existingSecret to a Secret with the CLAUDE_CODE_ variables" -}}
{{- end -}}
{{- if and .Values.azureWorkloadIdentity.enabled .Values.serviceAccount.create (not .Values.azureWorkloadIdentity.clientId) -}}
{{- fail "azureWorkloadIdentity.clientId is missing: the client id of the managed identity that is federated with the service account; or set azureWorkloadIdentity.enabled to false" -}}
{{- end -}}
{{- if le (int .Values.shutdown.terminationGracePeriodSeconds) (add (int .Values.shutdown.drainSeconds) 35) -}}
{{- fail "shutdown.terminationGracePeriodSeconds has to be more than shutdown.drainSeconds and 35 seconds: a replica would be killed before its turns are handed over" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
{{- end -}}
{{- end -}}
