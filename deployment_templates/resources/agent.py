"""Makes the agent: its models, prompt and settings joined, in places that a save in the Management Portal leaves alone."""

from deployment_templates.profile import ModelSize, Profile
from deployment_templates.resources.agents import (
    Agent,
    AgentTool,
    AgentWorkflow,
    CacheSettings,
    GatekeeperSettings,
    HistorySettings,
    RewriteSettings,
    Use,
    UseProperties,
)
from deployment_templates.resources.models import SERVICE_ENDPOINT
from deployment_templates.values import AGENTS, AI_MODELS, PROMPTS, WORKFLOWS, object_id

HISTORY_ARTIFACTS = "File,WorkflowExecution"
"""Kinds of artifacts that come along with earlier messages; no space after the comma, the platform does not trim."""

_READ_PARTS = (
    "FoundationaLLM.Agent/workflows/read",
    "FoundationaLLM.Agent/tools/read",
    "FoundationaLLM.Prompt/prompts/read",
    "FoundationaLLM.AIModel/aiModels/read",
    "FoundationaLLM.Configuration/apiEndpointConfigurations/read",
)
_READ_KNOWLEDGE = ("FoundationaLLM.DataPipeline/dataPipelines/read", "FoundationaLLM.Context/knowledgeUnits/read")
_PACKAGE = "FoundationaLLM"


def agent(profile: Profile, virtual_security_group_id: str) -> Agent:
    """Return the agent."""
    name = profile.names.agent
    with_knowledge = profile.uploads.mode == "knowledge-tool"
    return Agent(
        type="generic-agent",
        name=name,
        object_id=object_id(profile.instance_id, AGENTS, name),
        display_name=profile.names.display_name,
        description="Writes, edits and runs code on the files of a conversation, in a sandbox without network.",
        cost_center="",
        properties={"welcome_message": profile.portal.welcome_message},
        inheritable_authorizable_actions=(*_READ_PARTS, *_READ_KNOWLEDGE) if with_knowledge else _READ_PARTS,
        sessions_enabled=True,
        conversation_history_settings=HistorySettings(enabled=True, max_history=10, history_content_artifact_types=HISTORY_ARTIFACTS),
        text_rewrite_settings=RewriteSettings(user_prompt_rewrite_enabled=False, user_prompt_rewrite_settings=None),
        cache_settings=CacheSettings(semantic_cache_enabled=False, semantic_cache_settings=None),
        gatekeeper_settings=GatekeeperSettings(use_system_setting=False, options=()),
        workflow=_workflow(profile),
        realtime_speech_settings=None,
        tools=(_settings_tool(profile), *((_knowledge_tool(profile),) if with_knowledge else ())),
        virtual_security_group_id=virtual_security_group_id,
        show_message_tokens=True,
        show_message_rating=True,
        show_view_prompt=False,
        show_file_upload=True,
        show_content_artifacts=True,
        owner_user_id=None,
    )


def sizes(profile: Profile) -> tuple[ModelSize, ...]:
    """Return the installed models, the agent's own first."""
    main = profile.models.main
    return (main, *(size for size in profile.models.installed if size != main))


def model_name(profile: Profile, size: ModelSize) -> str:
    """Return the name of a model resource."""
    return f"Claude{size.capitalize()}{profile.names.model_suffix}"


def _use(profile: Profile, kind: str, name: str, role: str | None = None) -> dict[str, Use]:
    key = object_id(profile.instance_id, kind, name)
    return {key: Use(object_id=key, properties=UseProperties(object_role=role) if role else UseProperties())}


def _workflow(profile: Profile) -> AgentWorkflow:
    """No settings here: the portal replaces them when it saves the agent, by those of the first workflow of the same type."""
    names = profile.names
    return AgentWorkflow(
        type=profile.workflow_type,
        name=names.workflow,
        package_name=_PACKAGE,
        class_name="ClaudeCodeAgentWorkflow",
        workflow_host=SERVICE_ENDPOINT,
        resource_object_ids={
            **_use(profile, WORKFLOWS, names.workflow),
            **_use(profile, AI_MODELS, model_name(profile, profile.models.main), "main_model"),
            **_use(profile, PROMPTS, names.prompt, "main_prompt"),
        },
        properties={},
    )


def _settings_tool(profile: Profile) -> AgentTool:
    """The one place for settings that the portal shows and keeps, and the only one from which further models are sent along."""
    models = profile.models
    small = models.small or ("haiku" if "haiku" in models.installed and "haiku" not in (models.main, *models.fallbacks) else None)
    uses: dict[str, Use] = {}
    if small is not None:
        uses |= _use(profile, AI_MODELS, model_name(profile, small), "small_model")
    for place, size in enumerate(models.fallbacks, start=1):
        role = "fallback_model" if place == 1 else f"fallback_model_{place}"
        uses |= _use(profile, AI_MODELS, model_name(profile, size), role)
    return AgentTool(
        name=profile.names.tool,
        description="Settings of Claude Code and its further models; not a tool to be called.",
        category="Generic",
        package_name=_PACKAGE,
        class_name="ClaudeCodeSettingsTool",
        resource_object_ids=uses,
        properties={"claude_code": dict(profile.workflow)},
    )


def _knowledge_tool(profile: Profile) -> AgentTool:
    """With it the platform takes uploaded text files; its category must not be `Knowledge Search`, which no agent can be saved with."""
    pipelines, units = "FoundationaLLM.DataPipeline/dataPipelines", "FoundationaLLM.Context/knowledgeUnits"
    uploads = profile.uploads
    return AgentTool(
        name=f"{profile.names.tool}Files",
        description="Takes uploaded text files through the platform's pipeline; not a tool to be called.",
        category="Generic",
        package_name=_PACKAGE,
        class_name="ClaudeCodeFilesTool",
        resource_object_ids={
            **_use(profile, pipelines, uploads.data_pipeline or "", "file_upload_data_pipeline"),
            **_use(profile, units, uploads.knowledge_unit or "", "conversation_knowledge_unit"),
            **_use(profile, units, uploads.private_store_knowledge_unit or "", "agent_private_store_knowledge_unit"),
        },
        properties={},
    )
