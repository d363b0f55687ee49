"""The words of the Context API's wire, in wire order.

Servers of several versions are out there: unknown fields are ignored, and a null means the same as a missing field.
Times stay text: .NET writes seven decimals, which no Python type keeps.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from context_client.size import SandboxSize

NOT_APPLICABLE = "N/A"
"""What records hold where they have no conversation or no agent."""


IDEMPOTENCY_KEY = "Idempotency-Key"
"""Header that names a call which must not take effect twice; a server that heeds it sends it back."""


def _text(value: Any) -> Any:
    return "" if value is None else value


def _map(value: Any) -> Any:
    return {} if value is None else value


def _list(value: Any) -> Any:
    return () if value is None else value


Text = Annotated[str, BeforeValidator(_text)]
TextMap = Annotated[Mapping[str, str], BeforeValidator(_map)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FileRecord(_Wire):
    """A file the platform keeps for a user (`ContextFileRecord`)."""

    id: str = Field(description="Case-sensitive id, `file-{time}-{22 characters}`.")
    type: Text = Field(default="file-record", description="Always `file-record`.")
    instance_id: Text = Field(default="", description="The platform instance that holds the record.")
    upn: Text = Field(default="", description="Owner, in exact case.")
    origin: Text = Field(default="", description="`user-upload` or `code-session`.")
    conversation_id: Text = Field(default=NOT_APPLICABLE, description="Conversation, or `N/A` for agent files.")
    agent_name: Text = Field(default=NOT_APPLICABLE, description="Agent, or `N/A` for outputs of a code session.")
    file_object_id: Text = Field(default="", description="Resource path of the file on the platform.")
    file_name: str = Field(description="Original name; may contain slashes and is hostile text.")
    content_type: Text = Field(default="", description="The type the server detected, not the one it was told.")
    file_path: Text = Field(default="", description="Where the blob lies inside the instance's container.")
    file_size_bytes: int = Field(default=0, description="Length as received, before text was re-encoded.")
    file_processing_type: Text = Field(default="none", description="`none`, `data_pipeline` or `completion_request_context`.")
    created_at: Text = Field(default="", description="ISO time of creation with offset.")
    created_by: Text = Field(default="", description="UPN of the creator.")
    updated_at: str | None = Field(default=None, description="ISO time of the last change, if any.")
    updated_by: str | None = Field(default=None, description="UPN of the last changer, if any.")
    deleted: Annotated[bool, BeforeValidator(bool)] = Field(default=False, description="True after a soft delete.")
    metadata: TextMap = Field(default_factory=dict, description="Where an output came from: upload id and folder.")
    repeatable: bool = Field(
        default=False, exclude=True, description="Not on the wire: whether a repetition under the same key gives this record again."
    )


class EndpointOverride(_Wire):
    """Sends a user's code sessions to a container of their own instead of the pool."""

    upn: str = Field(description="The only user it holds for.")
    endpoint: str = Field(description="Absolute http(s) URL of the container.")
    enabled: bool = Field(description="Must be true to be accepted.")


class CodeSession(_Wire):
    """A code session: the name of a sandbox, which starts on first use."""

    session_id: str = Field(description="Deterministic for pools: same conversation and context, same sandbox.")
    endpoint: Text = Field(default="", description="Address of the pool, for display.")


class SessionUpload(_Wire):
    """What became of one uploadFiles call."""

    operation_id: str = Field(description="Names this upload in downloadFiles.")
    file_upload_success: Annotated[Mapping[str, bool], BeforeValidator(_map)] = Field(
        default_factory=dict, description="Per asked name: whether it is in the sandbox now."
    )
    all_files_uploaded: Annotated[bool, BeforeValidator(bool)] = Field(
        default=False, description="True if every name made it; true for no names."
    )
    size: SandboxSize | None = Field(
        default=None, exclude=True, description="From a header: what the sandbox may use; absent where that is decided elsewhere."
    )


class ExecutionResult(_Wire):
    """What one executeCode call gave; `Succeeded` says only that the sandbox answered."""

    status: str = Field(description="`Succeeded` or `Failed`.")
    execution_result: Text = Field(default="", description="JSON text of named results, `{}` for none; or a hint.")
    standard_output: Text = Field(default="", description="What the code printed.")
    error_output: Text = Field(default="", description="What went wrong, in or around the code.")


class SessionDownload(_Wire):
    """New file records for everything found in the sandbox."""

    file_records: Annotated[Mapping[str, FileRecord], BeforeValidator(_map)] = Field(
        default_factory=dict, description="Records by id, in no meaningful order; names may repeat."
    )
    errors: Annotated[tuple[str, ...], BeforeValidator(_list)] = Field(
        default=(), description="Lost outputs as `{folder}/{name}`; a root file reads `//name`."
    )
    repeatable: bool = Field(
        default=False, exclude=True, description="Not on the wire: whether a repetition under the same key gives these records again."
    )


class ServiceStatus(_Wire):
    """What the server says of itself."""

    name: Text = Field(default="", description="`ContextAPI`.")
    instance_id: str | None = Field(default=None, description="The platform instance it serves.")
    instance_name: str | None = Field(default=None, description="The replica that answered.")
    version: str | None = Field(default=None, description="The server's version.")
    status: str | None = Field(default=None, description="`Ready` when it can work.")
    message: str | None = Field(default=None, description="A remark, rarely given.")


class FileContent(_Wire):
    """The bytes of one file."""

    file_name: Text = Field(default="", description="Name from the answer; hostile text, never a path to write to.")
    content_type: Text = Field(default="application/octet-stream", description="Type from the answer.")
    content: bytes = Field(description="The bytes as stored; text may have been re-encoded on its way in.")
