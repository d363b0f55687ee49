"""The documented fields of an agent (contract: portals and deployment §2). It is a file of its own for its size."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from deployment_templates.resources.models import Resource
from deployment_templates.values import Guid, ObjectId, PlatformObject, ResourceName, WorkflowType

Role = Annotated[
    str,
    StringConstraints(
        pattern=r"^(?:main_model|main_prompt|router_prompt|files_prompt|final_prompt|file_upload_data_pipeline|conversation_knowledge_unit"
        r"|agent_private_store_knowledge_unit|tool_association|ai_project|small_model|fallback_model(?:_[1-9][0-9]?)?)$"
    ),
]
"""The part a resource plays for a workflow or tool. The last two are this service's own; to the platform they are texts like any other."""


class UseProperties(PlatformObject):
    """How a resource is used."""

    object_role: Role | None = None
    """The part it plays."""
    model_parameters: dict[str, Any] | None = None
    """Settings of a model that win over those of its resource; any key, and kept when the portal saves the agent."""
    text_embedding_model_name: str | None = None
    """Embedding model, for knowledge."""
    text_embedding_model_parameters: dict[str, Any] | None = None
    """Its settings."""


class Use(PlatformObject):
    """A resource that a workflow or tool uses."""

    object_id: ObjectId
    """Which one."""
    properties: UseProperties = Field(default_factory=UseProperties)
    """How."""


class AgentWorkflow(PlatformObject):
    """Who works for an agent, with which resources and settings."""

    type: WorkflowType
    """The discriminator; one the platform does not know stops every service that loads the agent."""
    name: str
    """The workflow's name."""
    package_name: str
    """Package of the workflow's code; wanted by the platform, not read by this service."""
    class_name: str | None = None
    """Class of the workflow's code; one particular name changes where agent files are stored."""
    workflow_host: str | None = None
    """The orchestrator; `ClaudeCode` for this service, LangChain when nothing is given."""
    resource_object_ids: dict[str, Use] = Field(default_factory=dict)
    """The resources used; one `main_model` and one `main_prompt` must be among them."""
    properties: dict[str, Any] | None = None
    """Settings; the portal replaces them by those of the workflow resource when it saves the agent."""

    @model_validator(mode="after")
    def _has_model_and_prompt(self) -> Self:
        """The platform fails before it calls anybody when one of them is missing (contract: orchestration, trap 24)."""
        _check_keys(self.resource_object_ids)
        roles = [use.properties.object_role for use in self.resource_object_ids.values()]
        for role in ("main_model", "main_prompt"):
            if roles.count(role) != 1:
                raise ValueError(f"a workflow needs exactly one resource with the role {role!r}, this one has {roles.count(role)}")
        return self


class AgentTool(PlatformObject):
    """A tool of an agent."""

    name: ResourceName
    """The tool's name."""
    description: str | None = None
    """What it is for."""
    category: Literal["Generic", "Code Interpreter", "Image Generation"] = "Generic"
    """The platform's grouping. `Knowledge Search` is left out on purpose: the platform refuses every agent that has it."""
    package_name: str
    """Package of the tool's code; wanted by the platform, not read by this service."""
    class_name: str | None = None
    """Class of the tool's code."""
    resource_object_ids: dict[str, Use] = Field(default_factory=dict)
    """The resources used."""
    properties: dict[str, Any] | None = None
    """Settings of any shape, kept when the portal saves the agent."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        _check_keys(self.resource_object_ids)
        return self


class HistorySettings(PlatformObject):
    """What of a conversation comes along."""

    enabled: bool
    """Whether earlier messages come along."""
    max_history: int = Field(ge=0)
    """How many turns, each of two messages."""
    history_content_artifact_types: str | None = Field(default=None, pattern=r"^(?:[^,\s]+(?:,[^,\s]+)*)?$")
    """Kinds of artifacts that come along, with commas and no spaces: the platform does not trim them."""


class RewriteSettings(PlatformObject):
    """Rewriting of prompts by the platform."""

    user_prompt_rewrite_enabled: bool
    """Whether prompts are rewritten."""
    user_prompt_rewrite_settings: dict[str, Any] | None = None
    """By which model and prompt."""


class CacheSettings(PlatformObject):
    """Answers from the platform's semantic cache."""

    semantic_cache_enabled: Literal[False]
    """Off: a cached answer does no work."""
    semantic_cache_settings: dict[str, Any] | None = None
    """Its settings."""


class GatekeeperSettings(PlatformObject):
    """Checks of what goes in and out."""

    use_system_setting: bool
    """Whether the installation decides."""
    options: tuple[
        Literal["AzureContentSafety", "AzureContentSafetyPromptShield", "LakeraGuard", "EnkryptGuardrails", "MicrosoftPresidio"], ...
    ] = ()
    """The checks; none bypasses the gatekeeper."""


class RealtimeSpeechSettings(PlatformObject):
    """Speaking instead of writing."""

    enabled: bool
    """Whether it can be used."""
    realtime_speech_ai_model_object_id: ObjectId | None = None
    """Model for it."""
    stop_words: tuple[str, ...] | None = None
    """Words that end it."""
    max_session_duration_seconds: int | None = None
    """Longest time."""
    show_transcriptions: bool | None = None
    """Whether the text is shown."""
    include_conversation_history: bool | None = None
    """Whether earlier messages come along."""


class Agent(Resource):
    """An agent users can choose."""

    type: Literal["generic-agent"]
    """The only kind of agent that is orchestrated."""
    sessions_enabled: bool = True
    """Whether it has conversations."""
    conversation_history_settings: HistorySettings | None = None
    """What of a conversation comes along."""
    text_rewrite_settings: RewriteSettings | None = None
    """Rewriting of prompts."""
    cache_settings: CacheSettings | None = None
    """The semantic cache."""
    gatekeeper_settings: GatekeeperSettings | None = None
    """Checks of what goes in and out."""
    workflow: AgentWorkflow | None = None
    """Who works for it."""
    realtime_speech_settings: RealtimeSpeechSettings | None = None
    """Speaking instead of writing."""
    tools: tuple[AgentTool, ...] = ()
    """Its tools."""
    virtual_security_group_id: Guid | None = None
    """Group that holders of the agent's access tokens are in."""
    show_message_tokens: bool | None = None
    """Whether users see token counts."""
    show_message_rating: bool | None = None
    """Whether users may rate answers."""
    show_view_prompt: bool | None = None
    """Whether users may see the prompt."""
    show_file_upload: bool | None = None
    """Whether users may attach files."""
    show_content_artifacts: bool | None = None
    """Whether users see artifacts of an answer."""
    owner_user_id: str | None = None
    """Whose agent it is."""


def _check_keys(uses: Mapping[str, Use]) -> None:
    wrong = [key for key, use in uses.items() if key != use.object_id]
    if wrong:
        raise ValueError(f"entries stand under another key than their object id: {', '.join(wrong)}")
