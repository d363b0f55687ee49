// Session pool, service, and who may use the pool: one deployment into the resource group of the platform's Context API.
//   az deployment group create --resource-group GROUP --template-file main.bicep --parameters main.parameters.json
metadata description = 'The Claude Code agent for FoundationaLLM on Azure Container Apps.'

@description('Region of everything here.')
param location string = resourceGroup().location

@description('Resource id of the Container Apps environment the service runs in: that of the platform.')
param environmentId string

@description('Workload profile of the service.')
param workloadProfile string = 'Consumption'

@description('Resource id of the Container Apps environment of the session pool, with workload profiles; one of its own is best.')
param poolEnvironmentId string

@description('Name of the session pool.')
@minLength(3)
@maxLength(63)
param poolName string = 'claudecodesessions'

@description('Name of the container app of the service.')
param serviceName string = 'claude-code-api'

@description('Name of the managed identity that the service acts as, from identities.bicep; it has its roles already.')
param identityName string = 'mi-claude-code-api'

@description('Name of the managed identity that fetches the runner image, from identities.bicep; it has AcrPull on the registry and nothing else.')
param pullIdentityName string = 'mi-claude-code-pull'

@description('Server of the private registry of both images; none where they can be had by anybody.')
param registryServer string = ''

@description('The runner image: what ./dev image builds.')
param runnerImage string

@description('The service image: what ./dev image --service builds.')
param serviceImage string

@description('Address of the platform App Configuration, https://NAME.azconfig.io.')
param appConfigurationUri string

@description('More settings of the service, CLAUDE_CODE_…; the addresses of Cosmos DB and Blob storage are needed, here or in App Configuration.')
param settings object = {}

@description('Object ids of the managed identities that call the session pool: that of the Context API.')
param sessionExecutors array

@description('Whether the service calls the session pool itself, with the embedded Context API.')
param serviceCallsPool bool = false

@description('Whether the service is reachable from outside of its environment.')
param externalIngress bool = false

@description('Processors of a sandbox. The stock pool of the platform has 0.25, on which a turn does not run.')
@allowed(['0.5', '0.75', '1.0', '1.25', '1.5', '1.75', '2.0'])
param sandboxCpu string = '1.0'

@description('Memory of a sandbox: twice as many Gi as processors.')
@allowed(['1.0Gi', '1.5Gi', '2.0Gi', '2.5Gi', '3.0Gi', '3.5Gi', '4.0Gi'])
param sandboxMemory string = '2.0Gi'

@description('How many sandboxes there are at most.')
@minValue(1)
param maxSessions int = 20

@description('How many sandboxes wait, started, for their first call.')
@minValue(0)
param readySessions int = 5

@description('Seconds after the last call until a sandbox is ended.')
@minValue(300)
@maxValue(3600)
param cooldownSeconds int = 300

@description('Whether sandboxes reach the network; turns need none.')
@allowed(['EgressDisabled', 'EgressEnabled'])
param egress string = 'EgressDisabled'

@description('Processors of a replica of the service.')
param serviceCpu string = '1.0'

@description('Memory of a replica of the service: twice as many Gi as processors.')
param serviceMemory string = '2.0Gi'

@description('How many replicas there are at least.')
@minValue(1)
param minReplicas int = 2

@description('How many replicas there are at most.')
@minValue(1)
param maxReplicas int = 10

@description('One more replica for so many requests in a second: ten for each turn that somebody watches.')
@minValue(1)
param requestsPerReplica int = 100

@description('Tags of everything here.')
param tags object = {}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: identityName
}

resource pullIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: pullIdentityName
}

module pool 'session_pool.bicep' = {
  name: 'claude-code-session-pool'
  params: {
    name: poolName
    location: location
    environmentId: poolEnvironmentId
    image: runnerImage
    registryServer: registryServer
    pullIdentityId: pullIdentity.id
    cpu: sandboxCpu
    memory: sandboxMemory
    maxSessions: maxSessions
    readySessions: readySessions
    cooldownSeconds: cooldownSeconds
    egress: egress
    tags: tags
  }
}

module service 'service.bicep' = {
  name: 'claude-code-service'
  params: {
    name: serviceName
    location: location
    environmentId: environmentId
    workloadProfile: workloadProfile
    image: serviceImage
    registryServer: registryServer
    identityId: identity.id
    identityClientId: identity.properties.clientId
    appConfigurationUri: appConfigurationUri
    settings: settings
    externalIngress: externalIngress
    cpu: serviceCpu
    memory: serviceMemory
    minReplicas: minReplicas
    maxReplicas: maxReplicas
    requestsPerReplica: requestsPerReplica
    tags: tags
  }
}

module executors 'session_executor.bicep' = [for principalId in sessionExecutors: {
  name: 'claude-code-executor-${uniqueString(principalId)}'
  params: {
    poolName: pool.outputs.name
    principalId: principalId
  }
}]

module ownExecutor 'session_executor.bicep' = if (serviceCallsPool) {
  name: 'claude-code-executor-service'
  params: {
    poolName: pool.outputs.name
    principalId: identity.properties.principalId
  }
}

@description('Endpoint of the pool, for the code execution keys of the platform.')
output poolEndpoint string = pool.outputs.endpoint

@description('Address of the service, for the API endpoint configuration named ClaudeCode.')
output serviceUrl string = service.outputs.url
