"""What the platform sends us: our own, forgiving reading of its completion request.

The request carries whole resources whose shape the platform changes from release to release. We read the few fields we
act upon, ignore the rest, and treat a null like an absent field, because the two mean the same thing to the sender.
Time stamps of resources are not read at all: the platform writes year 1 for "never", and time zones overflow there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

WORKFLOW_TYPES = frozenset({"external-agent-workflow", "generic-agent-workflow", "claude-code-agent-workflow"})
"""Spellings of ``agent.workflow.type`` that mean this service. The last one needs a platform that knows it."""

CONTEXT_FILES_SEGMENT = "/FoundationaLLM.Context/files/"


class Incoming(BaseModel):
    """A model of something the platform wrote: frozen, unknown fields ignored, nulls read as absent."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", use_attribute_docstrings=True, protected_namespaces=(), coerce_numbers_to_str=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data


class ResourceReference(Incoming):
    """One entry of ``resource_object_ids``: a resource the workflow uses, and the part it plays."""

    object_id: str = ""
    """The resource's object id; the key of the entry counts when this is absent."""
    properties: dict[str, Any] = Field(default_factory=dict)
    """The part the resource plays (``object_role``) and settings of that part (``model_parameters``)."""

    @property
    def role(self) -> str:
        """The part this resource plays, for example ``main_model``; empty when none is given."""
        role = self.properties.get("object_role")
        return role if isinstance(role, str) else ""


class Workflow(Incoming):
    """The workflow of an agent: who runs it, with which resources and settings."""

    type: str = ""
    """The platform's discriminator. Free text here, so that the planner can answer a wrong one in words."""
    name: str = ""
    """The workflow's name as the administrator sees it."""
    package_name: str = ""
    """The package that implements the workflow; not interpreted by this service."""
    class_name: str = ""
    """The class that implements the workflow; the platform looks at it when it stores agent files."""
    workflow_host: str = ""
    """The orchestration service the platform chose, for this service ``ClaudeCode``."""
    resource_object_ids: dict[str, ResourceReference] = Field(default_factory=dict)
    """The resources the workflow uses, keyed by object id."""
    properties: dict[str, Any] = Field(default_factory=dict)
    """Our own settings, as the administrator wrote them; read by the planner."""

    @property
    def is_ours(self) -> bool:
        """Whether ``type`` is one of the spellings this service answers to."""
        return self.type in WORKFLOW_TYPES

    def references(self, role: str) -> Iterator[tuple[str, ResourceReference]]:
        """Yield object id and reference of every resource that plays ``role``, in the order written."""
        for key, reference in self.resource_object_ids.items():
            if reference.role == role:
                yield reference.object_id or key, reference


class AgentTool(Incoming):
    """One tool of an agent. This service brings its own tools and reads these only for their settings."""

    name: str = ""
    """The tool's name; ``objects`` holds its parameters under the same name."""
    description: str = ""
    """What the tool is for, in the administrator's words."""
    category: str = ""
    """The platform's grouping, for example ``Generic``."""
    package_name: str = ""
    """The package that implements the tool."""
    class_name: str = ""
    """The class that implements the tool."""
    resource_object_ids: dict[str, ResourceReference] = Field(default_factory=dict)
    """Resources the tool uses, keyed by object id."""
    properties: dict[str, Any] = Field(default_factory=dict)
    """Settings of the tool; the second place where our overrides may be written."""


class Agent(Incoming):
    """The agent a user talks to."""

    type: str = ""
    """The platform's agent kind, ``generic-agent`` for every agent it hands to a workflow."""
    name: str = Field(min_length=1)
    """The agent's name; names file records and the answer."""
    object_id: str = ""
    """The agent's object id."""
    display_name: str = ""
    """The name shown to users."""
    description: str = ""
    """What the agent is for, in the administrator's words."""
    workflow: Workflow | None = None
    """The agent's workflow; without one the planner answers with what is missing."""
    tools: list[AgentTool] = Field(default_factory=list)
    """The agent's tools in the order written."""
    properties: dict[str, Any] = Field(default_factory=dict)
    """Free settings of the agent (text only on the platform); the portals keep these when they drop the workflow's."""
    show_content_artifacts: bool = True
    """Whether the portal shows artifacts of an answer."""


class AIModel(Incoming):
    """A model resource: which model to call and with what."""

    name: str = ""
    """The resource's name."""
    object_id: str = ""
    """The resource's object id."""
    endpoint_object_id: str = ""
    """Object id of the endpoint that serves the model."""
    version: str = ""
    """The model's version as the administrator wrote it; not sent to the provider."""
    deployment_name: str = ""
    """The model id to send to the provider."""
    model_parameters: dict[str, Any] = Field(default_factory=dict)
    """Sampling settings; the platform has already applied the few overrides it knows."""


class UrlException(Incoming):
    """Another address of an endpoint for one user, meant for debugging."""

    user_principal_name: str = ""
    """The user this address is for, compared without regard to case."""
    url: str = ""
    """The address to use instead."""
    enabled: bool = False
    """Whether the exception counts."""


class EndpointConfiguration(Incoming):
    """An API endpoint resource: where something is served and which key opens it. Never carries a secret."""

    name: str = ""
    """The resource's name."""
    object_id: str = ""
    """The resource's object id."""
    category: str = ""
    """The platform's grouping, for example ``LLM``."""
    authentication_type: str = ""
    """``APIKey`` or ``AzureIdentity``."""
    authentication_parameters: dict[str, Any] = Field(default_factory=dict)
    """Names of configuration keys and headers; the secret itself is elsewhere."""
    url: str = ""
    """The address of the endpoint."""
    url_exceptions: list[UrlException] = Field(default_factory=list)
    """Other addresses for single users."""
    timeout_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """How long one call may take."""
    provider: str = ""
    """Whose API it is, for example ``anthropic`` or ``bedrock``."""
    api_version: str = ""
    """The version of that API."""
    operation_type: str = ""
    """What the endpoint does, for example ``chat``."""

    def url_for(self, upn: str) -> str:
        """Return the address for this user: an enabled exception of theirs, else the endpoint's own."""
        for exception in self.url_exceptions:
            if exception.enabled and exception.url and exception.user_principal_name.casefold() == upn.casefold():
                return exception.url
        return self.url

    @property
    def api_key_configuration_name(self) -> str:
        """Name of the configuration key that holds the secret; empty when none is named."""
        name = self.authentication_parameters.get("api_key_configuration_name")
        return name if isinstance(name, str) else ""


class Prompt(Incoming):
    """A prompt resource, its templates already filled by the platform."""

    name: str = ""
    """The resource's name."""
    object_id: str = ""
    """The resource's object id."""
    prefix: str = ""
    """The text of the prompt."""
    suffix: str = ""
    """A second part that the platform's own workflows ignore."""
    category: str = ""
    """The platform's grouping, for example ``Workflow``."""


class HistoryArtifact(Incoming):
    """A content artifact of an earlier answer. Numbers and truth values are tolerated in its metadata."""

    id: str = ""
    """The artifact's id."""
    title: str = ""
    """The title shown in the portal."""
    type: str = ""
    """The artifact's kind, for example ``File``."""
    filepath: str = ""
    """For files the id of the file record."""
    source: str = ""
    """Who made it."""
    content: str = ""
    """Its text."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Whatever its maker added."""


class MessageHistoryItem(Incoming):
    """One earlier message of the conversation."""

    sender: str = ""
    """``User`` or ``Agent``."""
    text: str = ""
    """The message's text."""
    text_rewrite: str = ""
    """The platform's rewriting of a user's text, where it is on."""
    content_artifacts: list[HistoryArtifact] = Field(default_factory=list)
    """Artifacts of the message, as far as the agent's history settings let them through."""

    @property
    def is_from_user(self) -> bool:
        """Whether the user wrote it."""
        return self.sender.casefold() == "user"


class FileHistoryItem(Incoming):
    """One file of the conversation, from this message or an earlier one."""

    order: int = 0
    """Position in the conversation, from 1."""
    current_message_attachment: bool = False
    """Whether the file came with this message."""
    original_file_name: str = ""
    """The name the user gave it. Hostile: check before it becomes a path."""
    object_id: str = ""
    """The file record's object id."""
    file_path: str = ""
    """Where the platform stores it; the link to ``attachments``."""
    content_type: str = ""
    """The media type the platform found."""
    embed_content_in_request: bool = False
    """Whether the content is meant to be shown to the model directly, as images are."""

    @property
    def file_id(self) -> str:
        """Id of the Context API file record, empty when the file lives elsewhere."""
        _, found, rest = self.object_id.partition(CONTEXT_FILES_SEGMENT)
        return rest if found and "/" not in rest else ""


class AttachmentProperties(Incoming):
    """One attachment of this message. Carries no object id; ``file_history`` does."""

    original_file_name: str = ""
    """The name the user gave it. Hostile: check before it becomes a path."""
    content_type: str = ""
    """The media type the platform found."""
    provider: str = ""
    """Where it is stored, ``FoundationaLLM.Context`` for agents like ours."""
    provider_file_name: str = ""
    """Its path there, equal to ``file_path`` of the file history."""
    embed_content_in_request: bool = False
    """Whether the content is meant to be shown to the model directly."""


class CompletionRequest(Incoming):
    """One completion as the Orchestration API asks for it."""

    operation_id: str = ""
    """The caller's id of this operation, echoed in every answer; empty when we are to choose one."""
    session_id: str = ""
    """The conversation's id; empty outside a conversation."""
    is_new_conversation: bool = False
    """Whether the conversation had no messages: then it wants a name in the answer."""
    user_prompt: str
    """What the user wrote."""
    user_prompt_rewrite: str = ""
    """The platform's rewriting of it, to be used in its place when present."""
    agent: Agent
    """The agent that was asked."""
    objects: dict[str, Any] = Field(default_factory=dict)
    """Resources and constants by object id or name. Their ``type`` is unreliable: look them up by key only."""
    message_history: list[MessageHistoryItem] = Field(default_factory=list)
    """Earlier messages, oldest first, without the current one."""
    file_history: list[FileHistoryItem] = Field(default_factory=list)
    """All files of the conversation."""
    attachments: list[AttachmentProperties] = Field(default_factory=list)
    """Files of this message."""

    @property
    def prompt(self) -> str:
        """The text to work on: the rewriting when there is one, else the user's own words."""
        return self.user_prompt_rewrite or self.user_prompt

    @property
    def attached_files(self) -> list[FileHistoryItem]:
        """Files of this message, marked as such or matched to ``attachments`` by their stored path."""
        paths = {item.provider_file_name for item in self.attachments if item.provider_file_name}
        return [item for item in self.file_history if item.current_message_attachment or item.file_path in paths]
