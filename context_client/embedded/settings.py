"""What can be chosen about the embedded Context API; the defaults are the real server's behaviour."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from context_client.embedded.azure_settings import AzureStorage
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME
from context_client.size import USUAL_SIZE, SandboxSize

_MIB = 1024 * 1024
_TEXT = "c cpp cs css html java js json jsonl md php py rb sh tex ts txt xml yaml yml".split()
_MEDIA = "gif jpeg jpg png wav".split()
_DOCUMENTS = "pdf docx pptx".split()
_OTHERS = "xlsx csv zip tar".split()


class FilePolicy(BaseModel):
    """Which files are taken, and how they are treated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: Literal["strict", "permissive"] = Field(
        default="strict",
        description="`strict` checks content against name as servers since December 2025 do; `permissive` takes all.",
    )
    allowed_extensions: frozenset[str] = Field(
        default=frozenset(_TEXT + _MEDIA + _DOCUMENTS + _OTHERS),
        description="Extensions users may upload, lower case without dot; outputs of sessions are not bound by it.",
    )
    pipeline_extensions: frozenset[str] = Field(
        default=frozenset(_TEXT + _MEDIA + _DOCUMENTS), description="Extensions that are indexed for search."
    )
    context_max_bytes: Mapping[str, int] = Field(
        default=dict.fromkeys(_TEXT, _MIB) | dict.fromkeys(_MEDIA, 20 * _MIB),
        description="Extensions that may go into the prompt whole, each with its largest size in bytes.",
    )
    safety_check: Literal["pass", "refuse"] = Field(
        default="pass",
        description="There is no safety pipeline here: `pass` behaves as if one agreed, `refuse` as if none existed.",
    )


class EmbeddedSettings(BaseModel):
    """The embedded Context API."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(description="Where records and files are kept; made if absent, owner only.")
    azure: AzureStorage | None = Field(
        default=None,
        description="Keeps records and files in the platform's own accounts; the folder then only holds files on their way in.",
    )
    instance_id: str = Field(min_length=1, description="The one instance it serves; others get 403.")
    api_key: SecretStr = Field(description="The key callers must send; whoever has it can act as any user.")
    api_key_header: str = Field(default="X-API-KEY", description="Header that carries the key.")
    instance_name: str = Field(default="context-api-embedded", description="Replica name in the status answer.")
    version: str = Field(default="0.9.8", description="Version of the real server whose behaviour this is.")
    body_limit_bytes: int = Field(default=512 * _MIB, gt=0, description="Longest request body; more gets 413.")
    answer_limit_bytes: int = Field(default=64 * _MIB, gt=0, description="Longest listing or execution answer read from a sandbox.")
    failed_delete_is_200: bool = Field(
        default=True, description="Answer a failed DELETE with status 200, as the real server does; else 500."
    )
    override_hosts: Literal["loopback", "any", "none"] = Field(
        default="loopback",
        description="Which hosts an endpoint override may name; `any` lets callers aim this server at any address.",
    )
    largest_sandbox: SandboxSize = Field(
        default=USUAL_SIZE, description="What a caller may ask for at most; more is refused. What is left out is without bound."
    )
    session_endpoint: str = Field(default="http://sandbox.embedded", description="Address told to callers of create; for display only.")
    azure_query_providers: frozenset[str] = Field(
        default=frozenset({DEFAULT_PROVIDER_NAME}), description="Providers whose sandboxes expect `api-version`."
    )
    files: FilePolicy = Field(default_factory=FilePolicy, description="Which files are taken.")
