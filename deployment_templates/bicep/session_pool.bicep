// Where sandboxes live: a pool of containers of the runner's image, without a way out and without an identity inside.
metadata description = 'Session pool for turns of the Claude Code agent.'

@description('Name of the pool: lower-case letters and digits.')
@minLength(3)
@maxLength(63)
param name string

@description('Region of the pool; that of its environment.')
param location string

@description('Resource id of the Container Apps environment, with workload profiles.')
param environmentId string

@description('The runner image with its registry and tag or digest, such as NAME.azurecr.io/claude-code-runner:0.1.0.')
param image string

@description('Server of a private registry, such as NAME.azurecr.io; none where the image can be had by anybody.')
param registryServer string

@description('Resource id of the managed identity that fetches the image; it may pull from the registry and nothing else.')
param pullIdentityId string

@description('Processors of a sandbox, in quarters, as text.')
param cpu string

@description('Memory of a sandbox: twice as many Gi as processors.')
param memory string

@description('How many sandboxes there are at most.')
@minValue(1)
param maxSessions int

@description('How many sandboxes wait, started, for their first call; the first turn of a conversation begins at once as long as there is one.')
@minValue(0)
param readySessions int

@description('Seconds after the last call until a sandbox is ended. Its work is sealed before; a shorter time gives room back sooner.')
@minValue(300)
@maxValue(3600)
param cooldownSeconds int

@description('Whether sandboxes reach the network. Turns need none: EgressEnabled is only for workflows that ask for the internet.')
@allowed(['EgressDisabled', 'EgressEnabled'])
param egress string

@description('Tags of the pool.')
param tags object

var targetPort = 8080

resource pool 'Microsoft.App/sessionPools@2025-07-01' = {
  name: name
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${pullIdentityId}': {}
    }
  }
  properties: {
    environmentId: environmentId
    poolManagementType: 'Dynamic'
    containerType: 'CustomContainer'
    scaleConfiguration: {
      maxConcurrentSessions: maxSessions
      readySessionInstances: readySessions
    }
    dynamicPoolConfiguration: {
      lifecycleConfiguration: {
        lifecycleType: 'Timed'
        cooldownPeriodInSeconds: cooldownSeconds
      }
    }
    sessionNetworkConfiguration: {
      status: egress
    }
    managedIdentitySettings: [
      {
        identity: pullIdentityId
        lifecycle: 'None' // it fetches the image; code in a sandbox gets no token of it
      }
    ]
    customContainerTemplate: {
      containers: [
        {
          name: 'runner'
          image: image
          resources: {
            cpu: json(cpu)
            memory: memory
          }
          env: [
            {
              name: 'CLAUDE_CODE_SERVER_PORT' // not 80: the server is nobody
              value: string(targetPort)
            }
          ]
        }
      ]
      ingress: {
        targetPort: targetPort
      }
      registryCredentials: empty(registryServer) ? null : {
        server: registryServer
        identity: pullIdentityId
      }
    }
  }
}

@description('Name of the pool.')
output name string = pool.name

@description('What the Context API calls: the first endpoint of a language in its configuration.')
output endpoint string = pool.properties.poolManagementEndpoint
