"""What we answer to the platform, strict enough that its deserialiser never stumbles.

The reader is System.Text.Json of .NET 8: the discriminator ``type`` has to be the first property of a content item, a
null where it expects a number ends the operation, and artifact metadata may hold text only. None of that shows up
against a Python reader, so it is built into the types here: the field order is the wire order, numbers cannot be null,
and text is made encodable before it is kept.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, computed_field

CAPABILITY: Literal["FoundationaLLM.KnowledgeManagement"] = "FoundationaLLM.KnowledgeManagement"
"""The one ``agent_capability_category`` the Orchestration API can transform for agents like ours."""

OperationStatus = Literal["InProgress", "Completed", "Failed"]
"""The statuses the platform knows. Any other word makes it throw."""

INT32_MAX = 2_147_483_647


def well_formed(value: Any) -> Any:
    """Replace lone surrogates in a text by U+FFFD: sandbox output may hold them, UTF-8 cannot."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


WireText = Annotated[str, BeforeValidator(well_formed)]
"""Text that can always be written as UTF-8."""
TokenCount = Annotated[int, Field(ge=0, le=INT32_MAX)]
"""A count the platform reads into a 32-bit integer."""


class Outgoing(BaseModel):
    """A model of something we write: frozen, in wire order. Unknown fields of a record read back are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, protected_namespaces=())


class FileAnnotation(Outgoing):
    """A file linked from a text item. The Orchestration API adds the address."""

    type: Literal["file_path"] = "file_path"
    """The platform's word for a file link."""
    agent_capability_category: Literal["FoundationaLLM.KnowledgeManagement"] = CAPABILITY
    """Demanded by the platform on annotations too."""
    text: WireText
    """The file's name; ``(sandbox:/mnt/data/<name>)`` in the text becomes its link."""
    file_id: str = Field(min_length=1)
    """Id of the Context API file record."""


class TextItem(Outgoing):
    """A piece of Markdown."""

    type: Literal["text"] = "text"
    """The discriminator; first, because .NET 8 looks nowhere else."""
    agent_capability_category: Literal["FoundationaLLM.KnowledgeManagement"] = CAPABILITY
    """Demanded by the platform on every item."""
    annotations: list[FileAnnotation] = Field(default_factory=list)
    """Files linked from the text; empty, never null."""
    value: WireText
    """The text itself, never null."""


class ImageItem(Outgoing):
    """A picture shown in the message."""

    type: Literal["image_file"] = "image_file"
    """The discriminator; first, because .NET 8 looks nowhere else."""
    agent_capability_category: Literal["FoundationaLLM.KnowledgeManagement"] = CAPABILITY
    """Demanded by the platform on every item."""
    text: WireText | None = None
    """The file's name."""
    file_id: str = Field(min_length=1)
    """Id of the Context API file record."""


ContentItem = Annotated[TextItem | ImageItem, Field(discriminator="type")]
"""What a message may consist of. There is no top-level ``file_path`` item: it breaks the platform's transform."""


class AnalysisResult(Outgoing):
    """One step shown behind the portal's "Analysis" button."""

    tool_name: WireText | None = None
    """The tool's name."""
    tool_input: WireText | None = None
    """What it was asked, shown as code."""
    tool_output: WireText | None = None
    """What it answered."""
    agent_capability_category: Literal["FoundationaLLM.KnowledgeManagement"] = CAPABILITY
    """The same mark as on content items."""


class ContentArtifact(Outgoing):
    """Something a turn produced, shown as a chip under the message and stored with it."""

    id: WireText = Field(min_length=1)
    """The artifact's id; Python readers on the platform demand it."""
    title: WireText | None = None
    """Shown on the chip, from the last ``/`` on."""
    filepath: WireText | None = None
    """For files the id of the file record."""
    source: WireText | None = None
    """Who made it."""
    content: WireText | None = None
    """Its text."""
    type: WireText | None = None
    """Its kind: ``File``, ``ToolExecution``, ``WorkflowExecution``, ``git``, ``log``, ``source``."""
    metadata: dict[WireText, WireText] = Field(default_factory=dict)
    """Details, text only: the platform's reader refuses a number here."""


class CompletionResponse(Outgoing):
    """The result of an operation, intermediate or final."""

    id: str | None = None
    """A fixed id per operation, so that a store which keeps results by id keeps one."""
    operation_id: str
    """The operation this belongs to."""
    user_prompt: WireText = ""
    """What the user wrote; part of the portal's "View Prompt"."""
    user_prompt_rewrite: WireText | None = None
    """The rewriting that was worked on, if there was one."""
    full_prompt: WireText | None = None
    """What the model was told beside the user's prompt."""
    completion: WireText
    """The answer as plain text; the only thing the portal shows for a failed operation."""
    content: list[ContentItem] = Field(default_factory=list)
    """The answer as the portal shows it."""
    analysis_results: list[AnalysisResult] | None = None
    """Steps for the "Analysis" button."""
    content_artifacts: list[ContentArtifact] | None = None
    """What the turn produced."""
    conversation_name: WireText | None = None
    """A name for a new conversation. Each answer that carries one renames the conversation."""
    agent_name: WireText | None = None
    """The agent that answered."""
    prompt_tokens: TokenCount = 0
    """Tokens the model read."""
    completion_tokens: TokenCount = 0
    """Tokens the model wrote."""
    total_cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """What the turn cost in US dollars, as far as known."""
    errors: list[WireText] | None = None
    """Technical reasons for the log; users see ``completion``."""
    is_error: bool | None = None
    """Said for other readers; the platform looks at the operation's status only."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total_tokens(self) -> int:
        """Sum of both counts."""
        return self.prompt_tokens + self.completion_tokens


class LongRunningOperation(Outgoing):
    """The state of an operation, answered to its start and to every poll."""

    operation_id: str
    """The operation's id as the caller knows it."""
    status: OperationStatus
    """Where the operation stands."""
    status_message: WireText | None = None
    """A sentence for logs and for failures; the portal does not show it while running."""
    upn: str | None = None
    """The user who asked."""
    last_updated: datetime | None = None
    """When the state last changed, UTC."""
    prompt_tokens: TokenCount | None = None
    """Tokens the model read; left out until known."""
    result: CompletionResponse | None = None
    """Progress while running, the answer afterwards; always present with ``Completed`` and ``Failed``."""


class ServiceStatusInfo(Outgoing):
    """What this service says about itself to probes and to the platform."""

    name: str = "ClaudeCode"
    """The service's name as the platform knows it."""
    instance_id: str | None = None
    """The platform instance it serves."""
    instance_name: str | None = None
    """The replica that answered."""
    version: str | None = None
    """The service's version."""
    status: Literal["Initializing", "Ready", "Partially_Available", "Warning", "Error"] = "Ready"
    """The platform's word for its state."""
    message: WireText | None = None
    """A sentence about the state."""


def result_id(operation_id: str) -> str:
    """Return the fixed id of an operation's result, different from the operation's own, which a store may use."""
    return f"{operation_id}-result"


def progress_response(operation_id: str, text: str, *, prompt_tokens: int = 0, completion_tokens: int = 0) -> CompletionResponse:
    """Return an intermediate result: one text item, since the platform fills no file addresses before the end."""
    return CompletionResponse(
        id=result_id(operation_id),
        operation_id=operation_id,
        completion=text,
        content=[TextItem(value=text)],
        prompt_tokens=min(prompt_tokens, INT32_MAX),
        completion_tokens=min(completion_tokens, INT32_MAX),
    )


def failed_response(
    operation_id: str,
    completion: str,
    *,
    user_prompt: str = "",
    agent_name: str | None = None,
    errors: list[str] | None = None,
) -> CompletionResponse:
    """Return the result of a failed operation: ``completion`` is what the user reads, ``errors`` what the log keeps."""
    return CompletionResponse(
        id=result_id(operation_id),
        operation_id=operation_id,
        user_prompt=user_prompt,
        completion=completion,
        content_artifacts=[],
        agent_name=agent_name,
        errors=errors if errors is not None else [completion],
        is_error=True,
    )


def to_wire(model: BaseModel) -> bytes:
    """Return the JSON of a model as UTF-8 in wire order, absent values left out instead of written as null."""
    return model.model_dump_json(exclude_none=True, by_alias=True).encode()
