// The orchestration service as a container app that only its environment reaches.
metadata description = 'Orchestration service of the Claude Code agent.'

@description('Name of the container app; the platform calls it by its address.')
param name string

@description('Region of the app; that of its environment.')
param location string

@description('Resource id of the Container Apps environment of the platform.')
param environmentId string

@description('Workload profile the app runs on.')
param workloadProfile string

@description('The service image with its registry and tag or digest.')
param image string

@description('Server of a private registry; none where the image can be had by anybody.')
param registryServer string

@description('Resource id of the managed identity the service acts as; it fetches the image too.')
param identityId string

@description('Client id of that identity.')
param identityClientId string

@description('Address of the platform App Configuration: settings, and references to the keys in Key Vault.')
param appConfigurationUri string

@description('More settings, CLAUDE_CODE_…, as name and value. Secrets have no place here.')
param settings object

@description('Whether the app is reachable from outside of its environment; needed only where the Orchestration API is in another one.')
param externalIngress bool

@description('Processors of a replica, as text.')
param cpu string

@description('Memory of a replica: twice as many Gi as processors.')
param memory string

@description('How many replicas there are at least: two, so that turns of one that ends go on at once.')
@minValue(1)
param minReplicas int

@description('How many replicas there are at most.')
@minValue(1)
param maxReplicas int

@description('One more replica for so many requests in a second; each turn that somebody watches is asked for up to ten times a second.')
@minValue(1)
param requestsPerReplica int

@description('Tags of the app.')
param tags object

var apiPort = 8000
var probePort = 8081
var drainSeconds = 15
var own = [
  { name: 'FOUNDATIONALLM_APP_CONFIGURATION_URI', value: appConfigurationUri }
  { name: 'AZURE_CLIENT_ID', value: identityClientId }
  { name: 'CLAUDE_CODE_HOST', value: '0.0.0.0' }
  { name: 'CLAUDE_CODE_PORT', value: string(apiPort) }
  { name: 'CLAUDE_CODE_PROBE_PORT', value: string(probePort) }
  { name: 'CLAUDE_CODE_DATA_DIR', value: '/var/lib/claude-code' }
  { name: 'CLAUDE_CODE_DRAIN_SECONDS', value: string(drainSeconds) }
]
var more = map(items(settings), setting => { name: setting.key, value: string(setting.value) })

resource app 'Microsoft.App/containerApps@2025-07-01' = {
  name: name
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    environmentId: environmentId
    workloadProfileName: workloadProfile
    configuration: {
      activeRevisionsMode: 'Single'
      ingress: {
        external: externalIngress
        targetPort: apiPort
        transport: 'http'
        allowInsecure: false
      }
      registries: empty(registryServer) ? [] : [
        {
          server: registryServer
          identity: identityId
        }
      ]
    }
    template: {
      terminationGracePeriodSeconds: 90
      containers: [
        {
          name: 'service'
          image: image
          args: ['serve', '--replica']
          resources: {
            cpu: json(cpu)
            memory: memory
          }
          env: concat(own, more)
          probes: [
            {
              type: 'Startup'
              httpGet: {
                path: '/live'
                port: probePort
              }
              periodSeconds: 10
              timeoutSeconds: 5
              failureThreshold: 10
            }
            {
              type: 'Liveness'
              httpGet: {
                path: '/live'
                port: probePort
              }
              periodSeconds: 10
              timeoutSeconds: 5
              failureThreshold: 6
            }
            {
              type: 'Readiness'
              httpGet: {
                path: '/ready'
                port: probePort
              }
              periodSeconds: 5
              timeoutSeconds: 5
              failureThreshold: 3
            }
          ]
          volumeMounts: [
            {
              volumeName: 'data'
              mountPath: '/var/lib/claude-code'
            }
            {
              volumeName: 'scratch'
              mountPath: '/tmp'
            }
          ]
        }
      ]
      scale: {
        minReplicas: minReplicas
        maxReplicas: maxReplicas
        cooldownPeriod: 600
        pollingInterval: 15
        rules: [
          {
            name: 'watched-turns'
            http: {
              metadata: {
                concurrentRequests: string(requestsPerReplica)
              }
            }
          }
          {
            name: 'processor'
            custom: {
              type: 'cpu'
              metadata: {
                type: 'Utilization'
                value: '70'
              }
            }
          }
        ]
      }
      volumes: [
        {
          name: 'data'
          storageType: 'EmptyDir'
        }
        {
          name: 'scratch'
          storageType: 'EmptyDir'
        }
      ]
    }
  }
}

@description('Address of the service, for the API endpoint configuration named ClaudeCode.')
output url string = 'https://${app.properties.configuration.ingress.fqdn}'
