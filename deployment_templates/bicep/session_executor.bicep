// Lets somebody use a session pool: the Context API, and the service where it asks the pool itself.
metadata description = 'Role Azure ContainerApps Session Executor on a session pool.'

@description('Name of the pool, in this resource group.')
param poolName string

@description('Object id of the managed identity that calls the pool.')
param principalId string

var sessionExecutor = '0fb8eba5-a2bb-4abe-b1c1-49dfad359bb0'

resource pool 'Microsoft.App/sessionPools@2025-07-01' existing = {
  name: poolName
}

resource assignment 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(pool.id, principalId, sessionExecutor)
  scope: pool
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', sessionExecutor)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
