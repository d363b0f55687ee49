"""The chart, rendered by a real helm: valid for clusters old and new, closed in, and in step with the code."""

import copy
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from fastapi import FastAPI
from kubernetes_validate import validate  # type: ignore[import-untyped]
from pydantic import SecretStr

from orchestration_service import app, keeper, vitals
from orchestration_service.routes import probes
from orchestration_service.settings import Settings, load_settings, variable_of
from tests.deployment_templates.helm_program import HelmMissing, find_helm
from tests.images.building import ROOT

pytestmark = pytest.mark.timeout(600)  # the first one to ask fetches helm

CHART = ROOT / "deployment_templates/helm/claude-code-api"
DOCUMENT = ROOT / "docs/kubernetes_and_container_apps.md"
NEEDED: Mapping[str, Any] = {
    "image": {"repository": "registry.example/claude-code-service"},
    "appConfig": {"uri": "https://name.azconfig.io"},
    "azureWorkloadIdentity": {"clientId": "11111111-2222-3333-4444-555555555555"},
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "keda": NEEDED,
    "hpa": {**NEEDED, "autoscaling": {"kind": "hpa"}, "imagePullSecrets": [{"name": "registry"}], "tolerations": [{"operator": "Exists"}]},
    "none": {
        "existingSecret": "keys",
        "secretProviderClass": "vault",
        "azureWorkloadIdentity": {"enabled": False},
        "serviceAccount": {"create": False, "name": "mine"},
        "autoscaling": {"kind": "none"},
        "settings": {"CLAUDE_CODE_MAX_BODY_BYTES": 67108864, "CLAUDE_CODE_SESSION_POOLS": [{"name": "west"}]},
        "networkPolicy": {"probers": [], "services": [], "internet": [{"cidr": "169.254.20.10/32", "port": 53, "protocol": "UDP"}]},
        "image": {"repository": "registry.example/service", "digest": "sha256:" + "a" * 64},
        "priorityClassName": "high",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"nodeAffinity": {}},
    },
}
SCALED_OBJECT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["scaleTargetRef", "triggers"],
            "properties": {
                "scaleTargetRef": {"type": "object", "required": ["name"]},
                "pollingInterval": {"type": "integer"},
                "minReplicaCount": {"type": "integer"},
                "maxReplicaCount": {"type": "integer"},
                "advanced": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"horizontalPodAutoscalerConfig": {"type": "object"}},
                },
                "triggers": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "type": {"const": "metrics-api"},
                            "metricType": {"enum": ["AverageValue", "Value", "Utilization"]},
                            "metadata": {
                                "type": "object",
                                "additionalProperties": {"type": "string"},
                                "required": ["url", "format", "valueLocation", "targetValue"],
                            },
                        },
                    },
                },
            },
        },
    },
}
"""What KEDA's documents say of a ScaledObject, as far as the chart goes; its definition is no part of Kubernetes."""


@pytest.fixture(scope="module")
def helm() -> Path:
    try:
        return find_helm()
    except HelmMissing as error:
        pytest.skip(str(error))


def call(helm: Path, *words: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Values are passed as JSON, which is YAML."""
    line = [str(helm), *words, "--namespace", "fllm", "--values", "-"]
    return subprocess.run(line, input=json.dumps(values), capture_output=True, text=True, check=False)


def render(helm: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    done = call(helm, "template", "claude-code-api", str(CHART), values=values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module", params=VARIANTS)
def rendered(helm: Path, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(helm, VARIANTS[request.param])


@pytest.fixture(scope="module")
def usual(helm: Path) -> dict[str, dict[str, Any]]:
    """What most clusters get, by kind and name."""
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in render(helm, NEEDED)}


@pytest.mark.parametrize("version", ["1.27", "1.34", "1.37"])
def test_every_object_fits_the_published_schema(rendered: list[dict[str, Any]], version: str) -> None:
    """Of the oldest version the chart admits, and of the newest; strict: no field that nobody knows."""
    for document in rendered:
        if document["kind"] == "ScaledObject":
            jsonschema.validate(document, SCALED_OBJECT)
        else:
            validate(document, version, strict=True)
    names = [(document["kind"], document["metadata"]["name"]) for document in rendered]
    assert len(set(names)) == len(names)


def test_no_object_holds_a_secret(rendered: list[dict[str, Any]]) -> None:
    assert "Secret" not in {document["kind"] for document in rendered}
    settings = next(document["data"] for document in rendered if document["kind"] == "ConfigMap")
    assert not [name for name in settings if name.endswith(("_KEY", "_TOKEN"))]
    assert all(isinstance(value, str) for value in settings.values())


def test_lint_finds_nothing(helm: Path) -> None:
    done = call(helm, "lint", str(CHART), "--strict", "--quiet", values=NEEDED)
    assert done.returncode == 0
    assert not [line for line in done.stdout.splitlines() if line.startswith(("[WARNING]", "[ERROR]"))]


def test_pods_are_restricted(usual: dict[str, Any]) -> None:
    """What the level `restricted` of the Pod Security Standards asks for, and no token of the cluster."""
    pod = usual["Deployment/claude-code-api"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"csi", "emptyDir"} >= {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert set(container["resources"]) == {"requests", "limits"}


def test_pods_act_as_the_managed_identity(usual: dict[str, Any]) -> None:
    labels = usual["Deployment/claude-code-api"]["spec"]["template"]["metadata"]["labels"]
    assert labels["azure.workload.identity/use"] == "true"
    account = usual["ServiceAccount/claude-code-api"]["metadata"]["annotations"]
    assert account["azure.workload.identity/client-id"] == NEEDED["azureWorkloadIdentity"]["clientId"]


def test_only_the_orchestration_api_reaches_the_service(usual: dict[str, Any]) -> None:
    """The probes' port is for the autoscaler; out go names, the platform's two services and TLS, and never the machines' metadata."""
    policy = usual["NetworkPolicy/claude-code-api"]["spec"]
    ways = {rule["ports"][0]["port"]: rule["from"] for rule in policy["ingress"]}
    assert ways == {
        8000: [{"podSelector": {"matchLabels": {"app": "orchestration-api"}}}],
        8081: [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}],
    }
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [[53, 53], [80], [80], [443]]
    assert policy["egress"][-1]["to"][0]["ipBlock"]["except"] == ["169.254.0.0/16"]
    assert policy["podSelector"]["matchLabels"] == usual["Deployment/claude-code-api"]["spec"]["selector"]["matchLabels"]
    assert usual["Service/claude-code-api"]["spec"]["ports"] == [{"name": "api", "port": 80, "targetPort": "api"}]


def test_probes_lead_to_routes_of_the_service(usual: dict[str, Any], tmp_path: Path) -> None:
    """And wait for an answer at least as long as the service waits for its store."""
    (container,) = usual["Deployment/claude-code-api"]["spec"]["template"]["spec"]["containers"]
    asked = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["httpGet"]["path"] for name, probe in asked.items()} == {
        "startup": "/live",
        "liveness": "/live",
        "readiness": "/ready",
    }
    served = {getattr(route, "path", "") for route in probes.probe_app(vitals.Vitals.__new__(vitals.Vitals)).routes}
    assert {probe["httpGet"]["path"] for probe in asked.values()} <= served
    assert min(probe["timeoutSeconds"] for probe in asked.values()) > vitals._PATIENCE_SECONDS


def test_every_variable_is_a_setting(usual: dict[str, Any]) -> None:
    (container,) = usual["Deployment/claude-code-api"]["spec"]["template"]["spec"]["containers"]
    named = {one["name"] for one in container["env"]} | set(usual["ConfigMap/claude-code-api"]["data"])
    known = {variable_of(name) for name in Settings.model_fields}
    assert named - known == {"AZURE_CLIENT_ID", "FOUNDATIONALLM_APP_CONFIGURATION_URI"}


def test_a_replica_is_not_killed_before_it_has_handed_its_turns_over(usual: dict[str, Any], tmp_path: Path) -> None:
    """The grace period against what the code takes for its end."""
    pod = usual["Deployment/claude-code-api"]["spec"]["template"]["spec"]
    drain = float(usual["ConfigMap/claude-code-api"]["data"]["CLAUDE_CODE_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] > drain + seconds_to_end(tmp_path)
    text = (CHART / "templates/_names.tpl").read_text(encoding="utf-8")
    margin = re.search(r"drainSeconds\) (\d+)\)", text)
    assert margin
    assert int(margin[1]) > seconds_to_end(tmp_path)


def seconds_to_end(folder: Path) -> float:
    """What the code gives requests that still run, the release of leases, and the port of the probes, at the most."""
    settings = load_settings(_env_file=None, instance_id="i", api_key="k" * 8, data_dir=folder)
    requests = app.server_config(FastAPI(), settings).timeout_graceful_shutdown
    assert requests is not None
    return requests + keeper._RELEASE_SECONDS + 5.0


def test_it_scales_on_figures_that_the_service_tells(helm: Path, usual: dict[str, Any]) -> None:
    source = (ROOT / "orchestration_service/routes/probes.py").read_text(encoding="utf-8")
    (trigger,) = usual["ScaledObject/claude-code-api"]["spec"]["triggers"]
    port = usual["Service/claude-code-api-probes"]["spec"]["ports"][0]["port"]
    assert trigger["metadata"]["url"] == f"http://claude-code-api-probes.fllm.svc:{port}/metrics"
    hpa = next(document for document in render(helm, VARIANTS["hpa"]) if document["kind"] == "HorizontalPodAutoscaler")
    for name in (trigger["metadata"]["valueLocation"], hpa["spec"]["metrics"][0]["pods"]["metric"]["name"]):
        assert f'_gauge("{name.removeprefix("claude_code_")}"' in source
    assert "replicas" not in usual["Deployment/claude-code-api"]["spec"], "an upgrade would undo what the autoscaler did"


REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "no-image": ({**NEEDED, "image": {}}, "image.repository"),
    "no-configuration": ({"image": NEEDED["image"]}, "appConfig.uri"),
    "no-identity": ({"image": NEEDED["image"], "appConfig": NEEDED["appConfig"]}, "azureWorkloadIdentity.clientId"),
    "secret": ({**NEEDED, "settings": {"CLAUDE_CODE_API_KEY": "x"}}, "CLAUDE_CODE_API_KEY"),
    "taken": ({**NEEDED, "settings": {"CLAUDE_CODE_PORT": 1}}, "CLAUDE_CODE_PORT"),
    "unknown": ({**NEEDED, "replicas": 3}, "replicas"),
    "short-grace": ({**NEEDED, "shutdown": {"drainSeconds": 30}}, "before its turns are handed over"),
    "range": ({**NEEDED, "autoscaling": {"minReplicas": 20}}, "minReplicas"),
    "account": ({**NEEDED, "serviceAccount": {"create": False}}, "serviceAccount.name"),
    "address": ({**NEEDED, "appConfig": {"uri": "http://plain"}}, "uri"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_values_that_cannot_be_meant_are_refused(helm: Path, what: str) -> None:
    values, word = REFUSED[what]
    done = call(helm, "template", "claude-code-api", str(CHART), values=values)
    assert done.returncode == 1
    assert word in done.stderr


def test_no_secret_of_the_service_can_be_a_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    usual = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(usual, schema)
    secrets = [name for name, field in Settings.model_fields.items() if SecretStr.__name__ in str(field.annotation)]
    assert len(secrets) > 5
    for name in secrets:
        values = copy.deepcopy(usual)
        values["settings"] = {f"CLAUDE_CODE_{name.upper()}": "x"}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values, schema)


def test_every_value_is_described() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert not [path for path, node in _described(schema, "") if not {"title", "description"} <= node.keys()]


def _described(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from _described(child, f"{path}.{name}")
    if "properties" in node.get("items", {}):
        yield from _described(node["items"], f"{path}[]")


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{chart["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert chart["appVersion"] == chart["version"]


def test_the_commands_of_the_document_render(helm: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [shlex.split(line) for line in text.splitlines() if line.startswith("helm upgrade")]
    assert found
    for line in found:
        words = line[line.index("claude-code-api") :]
        done = subprocess.run([str(helm), "template", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
