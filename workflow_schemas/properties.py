"""What an administrator may set on a Claude Code workflow.

The names are those of the plan the project started from. They reach the service in `agent.workflow.properties`, either
flat or below `claude_code`, and often as strings, because the Management Portal edits them as text. Nothing unknown or
contradictory is dropped in silence: :func:`read_properties` returns what it understood and what it has to say about the rest.

A value that cannot be used never leaves the agent with more than was asked for: a number beyond its bounds becomes the nearest bound, an
unknown tool is left out, and where the default would grant more than any reading of the value, the turn is refused.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workflow_schemas.walls import WallLevel

SCHEMA_VERSION = "1"
"""Version of the property set; a later version adds names and never changes the meaning of one."""

TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob")
"""The tools of the agent that run inside the sandbox."""

PLATFORM_STOP_SECONDS = 1800
"""The platform declares a turn dead after 30 minutes (contract: orchestration §7); a turn must end well before."""


class EgressPolicy(BaseModel):
    """What a sandbox may reach. Off unless an administrator lists something."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["off", "allowlist"] = Field("off", description="`off`: no network at all. `allowlist`: only what is listed below.")
    domains: tuple[str, ...] = Field((), description="Host names that may be fetched through the service, such as `docs.python.org`.")
    cidrs: tuple[str, ...] = Field((), description="Address ranges that may be reached, in CIDR notation.")


class WorkflowProperties(BaseModel):
    """Settings of one Claude Code workflow, with the defaults that hold when nothing is set."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    schema_version: str = Field(SCHEMA_VERSION, description="Version of this property set.")
    sandbox_profile: Literal["restricted", "internet-enabled", "custom"] = Field(
        "restricted", description="Trust level of the sandbox. `restricted` has no network."
    )
    minimum_wall: WallLevel | None = Field(
        None,
        description="The weakest wall between agent and runner that a turn may run behind; in a sandbox with a weaker one it is refused. "
        "Not set: the strongest the sandbox allows. The installation may demand more.",
    )
    sandbox_timeout_seconds: int = Field(
        900, ge=30, le=1620, description="Wall-clock limit of one turn in seconds; the platform stops a turn at 1800."
    )
    sandbox_cpu: float | None = Field(None, gt=0, le=64, description="Processor cores to ask for, where the provider can size a sandbox.")
    sandbox_memory: str | None = Field(
        None,
        pattern=r"^\d+(\.\d+)?(Mi|Gi)$",
        description="Memory to ask for, such as `1Gi`, where the provider can size a sandbox.",
    )
    sandbox_processes: int | None = Field(
        None, ge=64, le=100_000, description="Processes and threads at the same time, where the provider can size a sandbox."
    )
    sandbox_disk: str | None = Field(
        None,
        pattern=r"^\d+(\.\d+)?(Mi|Gi)$",
        description="Space of all writable places together, such as `2Gi`, where the provider can size a sandbox.",
    )
    workspace_persistence_mode: Literal["snapshot", "diff", "none"] = Field(
        "snapshot",
        description="What is kept of the workspace between turns: all of it, only what differs from the attached files, or nothing.",
    )
    workspace_storage_scope: Literal["conversation", "user"] = Field(
        "conversation",
        description="Where the kept files go on: in their conversation, or also in each new one of the user with this agent.",
    )
    allowed_repo_patterns: tuple[str, ...] = Field((), description="Repositories that may be cloned, as shell patterns; empty: none.")
    egress_policy: EgressPolicy = Field(default_factory=EgressPolicy, description="What the sandbox may reach.")
    github_integration_mode: Literal["none", "github-app", "user-pat"] = Field(
        "none", description="How pull requests are authorised; `none` switches them off."
    )
    allowed_tools: tuple[str, ...] = Field(TOOLS, description="Tools the agent is given, out of Read, Write, Edit, Bash, Grep and Glob.")
    max_turns: int = Field(60, ge=1, le=500, description="Model calls after which the agent is stopped.")
    max_total_tokens: int | None = Field(None, ge=1000, description="Tokens, in and out, after which the turn is ended.")
    max_output_bytes: int = Field(
        100 * 1024 * 1024,
        ge=1024,
        le=120 * 1024 * 1024,
        description="Largest single output file in bytes; the platform takes 128 MB.",
    )
    command_timeout_seconds: int = Field(120, ge=1, le=1200, description="Limit of one shell command in seconds.")
    model: str | None = Field(None, description="Model name that replaces the deployment name of the main model.")

    @field_validator("sandbox_profile", mode="before")
    @classmethod
    def _default_profile(cls, value: object) -> object:
        return "restricted" if value in ("default", "", None) else value

    @field_validator("allowed_tools", "allowed_repo_patterns", mode="before")
    @classmethod
    def _comma_list(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("egress_policy", mode="before")
    @classmethod
    def _bare_mode(cls, value: object) -> object:
        return {"mode": value} if isinstance(value, str) else value

    @field_validator("allowed_tools")
    @classmethod
    def _known_tools(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in TOOLS]
        if unknown or not value:
            raise ValueError(f"unknown tools {unknown}; choose from {', '.join(TOOLS)}")
        return value


class PropertyReading(BaseModel):
    """What was understood of a workflow's properties, and what the user should be told about the rest."""

    model_config = ConfigDict(frozen=True)

    properties: WorkflowProperties = Field(description="The settings in force.")
    remarks: tuple[str, ...] = Field((), description="One sentence for each name that is unknown, or value that was changed or not used.")
    refusals: tuple[str, ...] = Field((), description="One sentence for each value that no turn may run without; empty when all is well.")


def read_properties(raw: Mapping[str, Any] | None) -> PropertyReading:
    """Read the properties of a workflow as they come over the wire.

    Args:
        raw: `agent.workflow.properties`; the settings may lie flat or below `claude_code` (the nested ones win), as JSON or as text.
            An empty text or a null means "not set".

    Returns:
        The settings in force, remarks on everything that was changed or not used, and refusals. Nothing is raised.
    """
    return _Reading(flatten(raw or {})).finish()


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties without the `claude_code` level, structures typed as text read, and what is not set left out."""
    merged = {name: _from_text(name, value) for name, value in raw.items()}
    nested = merged.pop("claude_code", None)
    if isinstance(nested, Mapping):
        merged |= {str(name): _from_text(str(name), value) for name, value in nested.items()}
    elif nested is not None:
        merged["claude_code"] = nested
    return {name: value for name, value in merged.items() if value is not None and not (isinstance(value, str) and not value.strip())}


def _from_text(name: str, value: Any) -> Any:
    """Read what a property of structure holds when it was typed as JSON into a field for text."""
    structured = name in ("claude_code", "egress_policy", "allowed_tools", "allowed_repo_patterns")
    if structured and isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


class _Reading:
    """Brings values one by one into a form that holds."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._known = {name: value for name, value in given.items() if name in WorkflowProperties.model_fields}
        self._remarks = [f"The workflow property {name!r} is not known and has no effect." for name in given if name not in self._known]
        self._refusals: list[str] = []

    def finish(self) -> PropertyReading:
        self._keep_known_tools()
        self._note_version()
        while True:
            try:
                properties = WorkflowProperties.model_validate(self._known)
            except ValidationError as error:
                for fault in error.errors(include_url=False):
                    self._settle(str(fault["loc"][0]), fault["type"], fault.get("ctx", {}), fault["msg"])
            else:
                return PropertyReading(properties=properties, remarks=tuple(self._remarks), refusals=tuple(self._refusals))

    def _settle(self, name: str, kind: str, context: Mapping[str, Any], complaint: str) -> None:
        """Bring a value into bounds, or take it out; each call removes one reason for complaint."""
        if name not in self._known:
            return
        bound = next((context[end] for end in ("ge", "le") if end in context), None)
        if bound is not None:
            given, self._known[name] = self._known[name], bound
            self._remarks.append(f"The workflow property {name!r} is out of its bounds; {bound} is in force instead of {given!r}.")
            return
        del self._known[name]
        complaint = complaint.removeprefix("Value error, ").rstrip(".")
        if name in _RESTRICTING:
            self._refusals.append(f"The workflow property {name!r} cannot be used: {complaint}. {_RESTRICTING[name]}")
        else:
            self._remarks.append(f"The workflow property {name!r} was not used: {complaint}. The default is in force.")

    def _keep_known_tools(self) -> None:
        raw = self._known.get("allowed_tools")
        wanted = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        if not isinstance(wanted, list | tuple):
            return
        spelled = {tool.casefold(): tool for tool in TOOLS}
        kept = dict.fromkeys(spelled[str(name).casefold()] for name in wanted if str(name).casefold() in spelled)
        left_out = [str(name) for name in wanted if str(name) and str(name).casefold() not in spelled]
        if left_out:
            self._remarks.append(f"The tools {', '.join(map(repr, left_out))} are not available; there are {', '.join(TOOLS)}.")
        if kept:
            self._known["allowed_tools"] = tuple(kept)
        else:
            del self._known["allowed_tools"]
            self._refusals.append(f"The workflow property 'allowed_tools' names no tool that exists. {_RESTRICTING['allowed_tools']}")

    def _note_version(self) -> None:
        version = str(self._known.get("schema_version", SCHEMA_VERSION)).strip()
        self._known["schema_version"] = version
        if version != SCHEMA_VERSION:
            self._remarks.append(f"The workflow's properties are of version {version!r}; this service reads version {SCHEMA_VERSION!r}.")


_RESTRICTING: Mapping[str, str] = {
    "allowed_tools": f"Choose from {', '.join(TOOLS)}, separated by commas.",
    "minimum_wall": "Choose 'landlock' or 'namespaces', or leave it out for the strongest wall a sandbox allows.",
    "max_total_tokens": "Set it to a whole number, or leave it out for no limit.",
}
"""Properties whose default grants more than any value an administrator may have meant, and what to write instead."""
