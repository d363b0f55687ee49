// The two managed identities, deployed first: they need their roles before anything can start with them.
//   az deployment group create --resource-group GROUP --template-file identities.bicep
metadata description = 'Managed identities of the Claude Code agent.'

@description('Region of both.')
param location string = resourceGroup().location

@description('Name of the identity that the service acts as.')
param identityName string = 'mi-claude-code-api'

@description('Name of the identity that fetches the runner image.')
param pullIdentityName string = 'mi-claude-code-pull'

@description('Tags of both.')
param tags object = {}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: identityName
  location: location
  tags: tags
}

resource pullIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: pullIdentityName
  location: location
  tags: tags
}

@description('Object id of the identity of the service: it needs AcrPull, App Configuration Data Reader, Key Vault Secrets User and the roles of its stores.')
output identityPrincipalId string = identity.properties.principalId

@description('Client id of the identity of the service.')
output identityClientId string = identity.properties.clientId

@description('Object id of the identity that fetches the runner image: it needs AcrPull.')
output pullIdentityPrincipalId string = pullIdentity.properties.principalId
