"""Makes the resources of an installation from its profile. Pure: the same profile gives the same resources, down to the identifiers."""

from importlib.resources import files
from typing import Any

from deployment_templates.profile import ModelSize, Profile
from deployment_templates.resources import agent as agents
from deployment_templates.resources import providers
from deployment_templates.resources.authorization import ALL_AGENTS_GROUP, RoleName, assign, stable_guid
from deployment_templates.resources.configuration import (
    CUSTOM_CONTAINERS,
    FEATURED_AGENTS,
    KNOWLEDGE_EXTENSIONS,
    SESSION_LANGUAGE,
    AppConfigurationEntry,
    FeaturedAgent,
    PastPipelines,
    PoolInSlot,
)
from deployment_templates.resources.members import NeededSecret, PlatformResource, ResourceSet, Restart, RoleMember, ServiceReady
from deployment_templates.resources.models import SERVICE_ENDPOINT, AIModel, AuthenticationParameters, Endpoint, Prompt, Tool, Workflow
from deployment_templates.values import AGENTS, AI_MODELS, ENDPOINTS, PROMPTS, TOOLS, WORKFLOWS, object_id


def build(profile: Profile) -> ResourceSet:
    """Return everything that makes up the installation that a profile describes."""
    service_key = providers.secret_entry(profile, SERVICE_ENDPOINT, "what the Orchestration API opens the service with")
    configuration = (service_key, *providers.entries(profile), *_sandbox_entries(profile), *_upload_entries(profile))
    return ResourceSet(
        instance_id=profile.instance_id,
        secrets=tuple(_secret(entry, generated=entry is service_key) for entry in configuration if entry.secret_name),
        configuration=configuration,
        service=ServiceReady(url=profile.service.url, why="the platform lists its orchestrators once, and sends work to them at once"),
        endpoints=(_service_endpoint(profile), _model_endpoint(profile)),
        models=tuple(_model(profile, size) for size in agents.sizes(profile)),
        prompts=(_prompt(profile),),
        seeded=(_workflow(profile), _tool(profile)),
        agents=(_agent(profile),),
        roles=tuple(_roles(profile)),
        portal=_portal_entries(profile),
        restarts=(
            Restart(service="OrchestrationAPI", why="it lists external orchestrators once, when it starts"),
            Restart(service="CoreAPI", why="only where the cache command could not be sent"),
            Restart(service="ManagementAPI", why="only where the cache command could not be sent"),
        ),
    )


def system_prompt() -> str:
    """Return the text of the system prompt."""
    return files("deployment_templates.resources").joinpath("system_prompt.txt").read_text(encoding="utf-8").strip()


def virtual_group(profile: Profile) -> str:
    """Return the agent's virtual security group: the profile's, or one that is always the same for instance and agent."""
    return profile.roles.virtual_security_group_id or stable_guid("virtual-security-group", profile.instance_id, profile.names.agent)


def _secret(entry: AppConfigurationEntry, *, generated: bool) -> NeededSecret:
    return NeededSecret(name=entry.secret_name or "", key=entry.key, why=entry.why, generated=generated)


def _endpoint(profile: Profile, name: str, why: str, **fields: Any) -> PlatformResource:
    resource = Endpoint(
        type="api-endpoint",
        name=name,
        object_id=object_id(profile.instance_id, ENDPOINTS, name),
        display_name=None,
        description=why,
        cost_center=None,
        url_exceptions=(),
        retry_strategy_name="ExponentialBackoff",
        **fields,
    )
    return PlatformResource(path=ENDPOINTS, resource=resource, reference_type="api-endpoint", why=why)


def _service_endpoint(profile: Profile) -> PlatformResource:
    return _endpoint(
        profile,
        SERVICE_ENDPOINT,
        "Claude Code orchestration service.",
        category="ExternalOrchestration",
        subcategory=None,
        authentication_type="APIKey",
        authentication_parameters=AuthenticationParameters(
            api_key_configuration_name=providers.key_name(SERVICE_ENDPOINT), api_key_header_name="X-API-KEY"
        ),
        url=profile.service.url,
        status_endpoint="/status",
        timeout_seconds=profile.service.timeout_seconds,
        provider=None,
        api_version=None,
        operation_type=None,
    )


def _model_endpoint(profile: Profile) -> PlatformResource:
    facts = providers.PROVIDERS[profile.models.provider]
    return _endpoint(
        profile,
        facts.endpoint,
        "Model endpoint for Claude models.",
        category="LLM",
        subcategory="AIModel",
        authentication_type="AzureIdentity" if profile.models.authentication == "identity" else "APIKey",
        authentication_parameters=providers.authentication(profile),
        url=profile.models.url or facts.url,
        status_endpoint=None,
        timeout_seconds=providers.MODEL_CALL_SECONDS,
        provider=facts.provider,
        api_version=facts.api_version,
        operation_type="chat",
    )


def _model(profile: Profile, size: ModelSize) -> PlatformResource:
    name = agents.model_name(profile, size)
    resource = AIModel(
        type="completion",
        name=name,
        object_id=object_id(profile.instance_id, AI_MODELS, name),
        display_name=f"Claude {size.capitalize()}",
        description=None,
        cost_center=None,
        endpoint_object_id=object_id(profile.instance_id, ENDPOINTS, providers.PROVIDERS[profile.models.provider].endpoint),
        version="0.0",
        deployment_name=profile.models.installed[size],
        model_parameters={},
    )
    return PlatformResource(path=AI_MODELS, resource=resource, reference_type="completion", why=f"the {size} model")


def _prompt(profile: Profile) -> PlatformResource:
    resource = Prompt(
        type="multipart",
        name=profile.names.prompt,
        object_id=object_id(profile.instance_id, PROMPTS, profile.names.prompt),
        display_name=None,
        description="System prompt of the Claude Code agent.",
        cost_center="",
        category="Workflow",
        prefix=system_prompt(),
        suffix=None,
        properties=None,
    )
    return PlatformResource(path=PROMPTS, resource=resource, reference_type="multipart", why="what the agent is told at the beginning")


def _workflow(profile: Profile) -> PlatformResource:
    resource = Workflow(
        type=profile.workflow_type,
        name=profile.names.workflow,
        object_id=object_id(profile.instance_id, WORKFLOWS, profile.names.workflow),
        display_name="Claude Code Agent Workflow",
        description="Works on the files of a conversation in a sandbox, by the ClaudeCode orchestration service.",
        cost_center=None,
        properties={},
    )
    return PlatformResource(path=WORKFLOWS, resource=resource, reference_type="workflow", why="shows in the Management Portal's list")


def _tool(profile: Profile) -> PlatformResource:
    resource = Tool(
        type="tool",
        name=profile.names.tool,
        object_id=object_id(profile.instance_id, TOOLS, profile.names.tool),
        display_name="Claude Code Settings",
        description="Carries settings of Claude Code and its further models.",
        cost_center=None,
        properties=None,
        category="Generic",
    )
    return PlatformResource(path=TOOLS, resource=resource, reference_type="tool", why="shows in the Management Portal's list")


def _agent(profile: Profile) -> PlatformResource:
    resource = agents.agent(profile, virtual_group(profile))
    return PlatformResource(path=AGENTS, resource=resource, reference_type="generic-agent", why="what users choose")


def _roles(profile: Profile) -> list[RoleMember]:
    instance, names = profile.instance_id, profile.names
    agent, workflow, tool, endpoint = (
        object_id(instance, AGENTS, names.agent),
        object_id(instance, WORKFLOWS, names.workflow),
        object_id(instance, TOOLS, names.tool),
        object_id(instance, ENDPOINTS, SERVICE_ENDPOINT),
    )
    found: list[RoleMember] = []

    def give(label: str, role: RoleName, principal_id: str, scope: str, description: str) -> None:
        made = assign(role, instance_id=instance, principal_id=principal_id, scope=scope, description=description)
        found.append(RoleMember(assignment=made, label=label))

    for place, group in enumerate(profile.roles.users):
        number = str(place + 1) if place else ""
        give(f"agentReader{number}", "Reader", group, agent, "Lets the group see and use the Claude Code agent.")
        give(f"endpointReader{number}", "Reader", group, endpoint, "Lets the group call the Claude Code service: it is called as the user.")
    for place, group in enumerate(profile.roles.editors):
        number = str(place + 1) if place else ""
        give(f"agentContributor{number}", "Contributor", group, agent, "Lets the group change the Claude Code agent.")
    tokens = virtual_group(profile)
    give("tokenAgentReader", "Reader", tokens, agent, "Lets holders of access tokens of this agent use it.")
    give("tokenEndpointReader", "Reader", tokens, endpoint, "Lets holders of access tokens of this agent call the Claude Code service.")
    give("workflowReader", "Reader", ALL_AGENTS_GROUP, workflow, "Lets every agent access token read the Claude Code workflow.")
    give("toolReader", "Reader", ALL_AGENTS_GROUP, tool, "Lets every agent access token read the Claude Code tool.")
    return found


def _sandbox_entries(profile: Profile) -> tuple[AppConfigurationEntry, ...]:
    if profile.sandbox.pool_url is None:
        return ()
    slot = profile.sandbox.slot
    merge = PoolInSlot(slot=slot, url=profile.sandbox.pool_url)
    asked = AppConfigurationEntry(key=SESSION_LANGUAGE, value=slot, why="which of the platform's pools the service asks for")
    return (
        *([asked] if slot != "Python" else []),
        AppConfigurationEntry(
            key=CUSTOM_CONTAINERS,
            value=merge.added(None),
            content_type="application/json",
            merge=merge,
            why=f"our session pool in the slot {slot!r}; the Context API uses the first of a slot",
        ),
    )


def _upload_entries(profile: Profile) -> tuple[AppConfigurationEntry, ...]:
    if profile.uploads.mode != "plain-files":
        return ()
    merge = PastPipelines(extensions=profile.uploads.plain_extensions)
    why = "text files go past the pipelines, for all agents: without a knowledge tool an agent could not be given any"
    return (AppConfigurationEntry(key=KNOWLEDGE_EXTENSIONS, value=merge.added(None), merge=merge, why=why),)


def _portal_entries(profile: Profile) -> tuple[AppConfigurationEntry, ...]:
    if not profile.portal.featured:
        return ()
    merge = FeaturedAgent(name=profile.names.agent, pinned=profile.portal.pinned)
    return (AppConfigurationEntry(key=FEATURED_AGENTS, value=merge.added(None), merge=merge, why="the agent among the featured ones"),)
