"""What differs from one installation to the next: read from one TOML or JSON file, checked whole before anything is made.

A profile never holds a secret; it names secrets at most. It is made to be kept in a repository and to be read by whoever comes next.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from deployment_templates.errors import ProfileError
from deployment_templates.values import Guid, ResourceName, WorkflowType
from workflow_schemas import read_properties

ModelProvider = Literal["anthropic", "foundry", "bedrock", "vertex", "gateway"]
ModelSize = Literal["sonnet", "opus", "haiku"]

TEXT_EXTENSIONS: Sequence[str] = tuple("c cpp cs css html java js json jsonl md php py rb sh tex ts txt xml yaml yml".split())
"""Files that are text, and that the platform as shipped sends through a pipeline."""

SECRET_WORDS = re.compile(r"(?:^|_)(?:api_?key|secret|token|password|credentials?|connection_?string)(?:$|_)", re.IGNORECASE)
SECRET_TEXTS = re.compile(
    r"sk-ant-[A-Za-z0-9]|\bAKIA[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY|AccountKey=|\beyJ[\w-]{10,}\.[\w-]{10,}\.|\bgh[pousr]_\w{20,}"
)
"""Texts that are a secret whatever key they stand under."""


def _is_origin(value: str) -> str:
    if not re.fullmatch(r"https?://[^/?#@\s]+", value):
        raise ValueError(
            "must be scheme and host only, such as https://claude-code.example.com: no path, no final slash, no user, no query"
        )
    return value


def _is_address(value: str) -> str:
    if not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", value):
        raise ValueError("must be an address such as https://host or https://host/path, without user and query")
    return value.rstrip("/")


def _is_known_tool(value: str) -> str:
    if not value.casefold().startswith("claudecode"):
        raise ValueError("must begin with ClaudeCode")
    return value


Origin = Annotated[str, AfterValidator(_is_origin)]
Address = Annotated[str, AfterValidator(_is_address)]


class ProfilePart(BaseModel):
    """A table of the profile."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=(), hide_input_in_errors=True
    )


class Platform(ProfilePart):
    """Where the installation's own services are; needed by commands that talk to them, not for rendering."""

    management_url: Origin | None = None
    """Address of the Management API, such as https://management-api.example.com."""
    management_scope: str = "api://FoundationaLLM-Management/.default"
    """What a token for the Management API is asked for."""
    app_configuration_url: Origin | None = None
    """Address of the App Configuration store, such as https://NAME.azconfig.io."""
    key_vault_url: Address | None = None
    """Address of the key vault, such as https://NAME.vault.azure.net."""
    storage_url: Origin | None = None
    """Blob service of the main storage account, such as https://NAME.blob.core.windows.net."""
    storage_container: str = Field(default="resource-provider", pattern=r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$")
    """Container of the resources in that account."""


class Names(ProfilePart):
    """Names of the resources; agents, workflows and tools share one namespace."""

    agent: ResourceName = "claude-code"
    """Name of the agent."""
    display_name: str = Field(default="Claude Code", min_length=1, max_length=80)
    """Name users see in the agent list."""
    workflow: ResourceName = "ClaudeCodeAgentWorkflow"
    """Name of the workflow in the Management Portal's list."""
    tool: Annotated[ResourceName, AfterValidator(_is_known_tool)] = "ClaudeCodeSettings"
    """Name of the tool that carries settings; it must begin with ClaudeCode, by which the service knows it."""
    prompt: ResourceName = "claude-code-system"
    """Name of the system prompt."""
    model_suffix: str = Field(default="CompletionAIModel", pattern=r"^[A-Za-z0-9_-]*$")
    """What the models' names end in: ClaudeSonnet and this."""
    secret_prefix: str = Field(default="foundationallm-", pattern=r"^[a-z0-9-]{0,60}$")
    """What names of secrets in the key vault begin with."""

    @model_validator(mode="after")
    def _agent_namespace_has_no_twins(self) -> Self:
        names = [self.agent, self.workflow, self.tool]
        if len({name.casefold() for name in names}) != len(names):
            raise ValueError(
                f"agent, workflow and tool share one namespace and their files, so they need three names, not {', '.join(names)}"
            )
        return self


class Service(ProfilePart):
    """The orchestration service of this project."""

    url: Origin
    """Address at which the Orchestration API reaches the service: scheme and host only."""
    timeout_seconds: int = Field(default=1800, ge=60, le=2400)
    """How long one call of the platform may take; the platform gives up on a turn at 1800."""


class Models(ProfilePart):
    """Who serves Claude, and under which names."""

    provider: ModelProvider = "anthropic"
    """Who serves the models: anthropic, foundry (Microsoft), bedrock (Amazon), vertex (Google), or gateway for anything compatible."""
    url: Address | None = None
    """Address of the provider; only anthropic has one that is always the same."""
    authentication: Literal["key", "identity"] = "key"
    """`key`: a secret in the key vault. `identity`: the service's own identity, which all but anthropic can take."""
    header: str = Field(default="x-api-key", pattern=r"^[A-Za-z0-9-]+$")
    """Header a gateway wants its key in."""
    aws_role_arn: str | None = Field(default=None, pattern=r"^arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+$")
    """Role the service's Azure identity takes on, for bedrock with `identity`."""
    scope: str | None = Field(default=None, pattern=r"^(?:api|https)://\S+$")
    """What the identity's token is asked for, such as api://APPLICATION/.default; for gateways and bedrock with `identity`."""
    sonnet: str | None = Field(default=None, min_length=1)
    """Name of the Sonnet model at the provider (its model id or deployment name); left out, it is not installed."""
    opus: str | None = Field(default=None, min_length=1)
    """Name of the Opus model at the provider; left out, it is not installed."""
    haiku: str | None = Field(default=None, min_length=1)
    """Name of the Haiku model at the provider; left out, it is not installed."""
    main: ModelSize = "sonnet"
    """Which of them the agent works with."""
    small: ModelSize | None = None
    """Which of them does small tasks in the background; left out, haiku where it is installed, else the main one."""
    fallbacks: tuple[ModelSize, ...] = ()
    """Which of them take the main model's place when it cannot be reached, in this order."""

    @property
    def installed(self) -> Mapping[ModelSize, str]:
        """The models to install, by size, with their names at the provider."""
        named: dict[ModelSize, str | None] = {"sonnet": self.sonnet, "opus": self.opus, "haiku": self.haiku}
        return {size: name for size, name in named.items() if name}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.main not in self.installed:
            raise ValueError(f"the agent's model is {self.main!r}, but it has no name: set {self.main} = \"the provider's name of it\"")
        unknown = [size for size in (self.small, *self.fallbacks) if size is not None and (size not in self.installed or size == self.main)]
        if unknown or len(set(self.fallbacks)) != len(self.fallbacks):
            raise ValueError(
                f"small and fallbacks must be models with a name, others than main and each once: {', '.join(unknown) or 'twice'}"
            )
        if self.url is None and self.provider != "anthropic":
            raise ValueError(f"url is missing: {_ADDRESSES[self.provider]}")
        if self.authentication == "identity":
            needed = {"bedrock": ("aws_role_arn", "scope"), "gateway": ("scope",)}.get(self.provider, ())
            missing = [name for name in needed if getattr(self, name) is None]
            if self.provider == "anthropic" or missing:
                raise ValueError(f"authentication 'identity' is not for anthropic, and {self.provider} needs {', '.join(missing) or 'key'}")
            if self.provider == "vertex" and "/projects/" not in (self.url or ""):
                raise ValueError("an identity has no project: url must go on with /v1/projects/PROJECT/locations/REGION")
        return self


class Sandbox(ProfilePart):
    """The session pool turns run in, one of a language for the whole platform. Sizes are those of the command to make it."""

    pool_url: Address | None = None
    """Management endpoint of the pool with our image; left out, the platform's entry is not touched."""
    slot: Literal["Python", "CSharp"] = "Python"
    """`Python`: our image also serves the Code Interpreter tool. `CSharp`: the pool is ours alone."""
    cpu: float = Field(default=1.0, ge=0.5, le=16)
    """Processor cores of one session; the 0.25 the platform ships with do not carry a turn."""
    memory_gib: float = Field(default=2.0, ge=1, le=64)
    """Memory of one session in GiB; the 0.5 the platform ships with do not carry a turn."""
    max_sessions: int = Field(default=20, ge=1, le=600)
    """Most sessions at once; each stays until its cooldown is over."""
    ready_sessions: int = Field(default=5, ge=0, le=600)
    """Sessions kept ready."""
    cooldown_seconds: int = Field(default=300, ge=300, le=3600)
    """How long a session waits for the next call."""


class Roles(ProfilePart):
    """Who sees the agent. Without a group nobody but administrators does."""

    users: tuple[Guid, ...] = ()
    """Object ids of groups that may see and use the agent."""
    editors: tuple[Guid, ...] = ()
    """Object ids of groups that may change the agent."""
    virtual_security_group_id: Guid | None = None
    """Group of holders of the agent's access tokens; left out, it is made from instance and agent name, always the same."""


class Portal(ProfilePart):
    """How the User Portal shows the agent."""

    featured: bool = True
    """Whether it is among the featured agents."""
    pinned: bool = False
    """Whether users cannot switch it off."""
    welcome_message: str = Field(
        default="<p>Attach a repository as <strong>.zip</strong> or <strong>.tar</strong> and say what should be done.</p>", max_length=2000
    )
    """HTML shown when a conversation begins."""


class Uploads(ProfilePart):
    """What becomes of single text files users attach; the platform refuses them for agents without a knowledge tool."""

    mode: Literal["archives", "knowledge-tool", "plain-files"] = "archives"
    """`archives`: users attach .zip or .tar. `knowledge-tool`: a tool with the wanted roles. `plain-files`: no pipeline, for all agents."""
    data_pipeline: ResourceName | None = None
    """Data pipeline for uploaded files, for `knowledge-tool`."""
    knowledge_unit: ResourceName | None = None
    """Knowledge unit of conversations, for `knowledge-tool`."""
    private_store_knowledge_unit: ResourceName | None = None
    """Knowledge unit of the agent's private store, for `knowledge-tool`."""
    plain_extensions: tuple[Annotated[str, Field(pattern=r"^[a-z0-9]{1,10}$")], ...] = tuple(TEXT_EXTENSIONS)
    """What goes past the pipelines of the whole installation, for `plain-files`."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        parts = ("data_pipeline", "knowledge_unit", "private_store_knowledge_unit")
        missing = [name for name in parts if getattr(self, name) is None]
        if self.mode == "knowledge-tool" and missing:
            raise ValueError(f"mode 'knowledge-tool' needs the names of resources that exist: {', '.join(missing)}")
        return self


class Profile(ProfilePart):
    """One installation."""

    instance_id: Guid
    """Id of the platform's instance, a GUID."""
    workflow_type: WorkflowType = "generic-agent-workflow"
    """Kind of the workflow resource; the portal takes the first of a kind, so choose one no other workflow has where you can."""
    service: Service
    """The orchestration service."""
    models: Models
    """Who serves Claude."""
    names: Names = Field(default_factory=Names)
    """Names of the resources."""
    platform: Platform = Field(default_factory=Platform)
    """Where the installation's own services are."""
    sandbox: Sandbox = Field(default_factory=Sandbox)
    """The session pool."""
    roles: Roles = Field(default_factory=Roles)
    """Who sees the agent."""
    portal: Portal = Field(default_factory=Portal)
    """How the agent is shown."""
    uploads: Uploads = Field(default_factory=Uploads)
    """What becomes of attached text files."""
    workflow: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of the agent, as in docs/properties.md; they become properties of its settings tool."""

    @field_validator("workflow")
    @classmethod
    def _settings_are_understood(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse at once what a turn would only remark upon."""
        reading = read_properties(value)
        if complaints := (*reading.remarks, *reading.refusals):
            raise ValueError(" ".join(complaints))
        return value


def load_profile(path: Path) -> Profile:
    """Read a profile from a file.

    Args:
        path: A file ending in `.toml` or `.json`.

    Raises:
        ProfileError: It cannot be read, or a value is missing or wrong; the message names each key and how to set it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ProfileError(
            f"The profile {str(path)!r} cannot be read: {error}. Give a TOML file, or a JSON file ending in '.json'."
        ) from error
    return read_profile(values, source=str(path))


def read_profile(values: Any, *, source: str = "profile") -> Profile:
    """Read a profile from its values; `source` names it in messages.

    Raises:
        ProfileError: A value is missing or wrong, or is a secret; the message names each key and how to set it.
    """
    if secrets := tuple(_secrets(values)):
        raise ProfileError(
            f"The profile {source!r} holds what looks like a secret: {', '.join(secrets)}. A profile holds none, since it is kept and "
            "shown. Put the secret into the key vault and take the line out; see docs/templates.md for the names of the secrets.",
            secrets,
        )
    try:
        return Profile.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        lines = "\n".join(f"  {_sentence(fault)}" for fault in faults)
        keys = tuple(".".join(map(str, fault["loc"])) for fault in faults)
        raise ProfileError(f"The profile {source!r} cannot be used:\n{lines}", keys) from None  # hides values


def _secrets(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, Mapping):
        for key, value in values.items():
            inner = f"{path}.{key}" if path else str(key)
            if isinstance(value, str) and SECRET_WORDS.search(str(key)) and not _is_known(inner):
                yield inner
            else:
                yield from _secrets(value, inner)
    elif isinstance(values, Sequence) and not isinstance(values, str):
        for place, value in enumerate(values):
            yield from _secrets(value, f"{path}[{place}]")
    elif isinstance(values, str) and SECRET_TEXTS.search(values):
        yield path


def _is_known(path: str) -> bool:
    """Whether a key with a suspicious name is one of ours: `names.secret_prefix` is no secret."""
    return _field(tuple(path.split("."))) is not None


def _field(location: Sequence[str | int]) -> Any:
    """Return the field of the profile at a location, None where there is none."""
    model: Any = Profile
    field = None
    for part in location:
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return field if isinstance(part, int) else None
        field = fields[part]
        model = field.annotation
    return field


def _sentence(fault: ErrorDetails) -> str:
    location = fault["loc"]
    key = ".".join(map(str, location)) or "profile"
    what = {"missing": "is missing", "extra_forbidden": "is not known; check the spelling"}.get(
        fault["type"], fault["msg"].removeprefix("Value error, ")
    )
    field = _field(location)
    meaning = f" It is: {field.description}" if field is not None and field.description else ""
    *tables, name = [str(part) for part in location if isinstance(part, str)] or [key]
    place = f" below [{'.'.join(tables)}]" if tables else " at the top"
    is_table = field is not None and (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) or key == "workflow")
    how = f" Set it in the table [{key}]." if is_table else f" Set it as `{name} = …`{place}."
    end = "" if what.endswith(("?", ".")) else "."
    return f"{key}: {what}{end}{meaning}{'' if fault['type'] == 'extra_forbidden' else how}"


_ADDRESSES: Mapping[str, str] = {
    "foundry": "https://RESOURCE.services.ai.azure.com/anthropic",
    "bedrock": "https://bedrock-runtime.REGION.amazonaws.com",
    "vertex": "https://REGION-aiplatform.googleapis.com",
    "gateway": "the gateway's address before /v1/messages",
}
