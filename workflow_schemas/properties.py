"""What an administrator may set on a Claude Code workflow.

The names are those of the plan the project started from. They reach the service in `agent.workflow.properties`, either
flat or below `claude_code`, and often as strings, because the Management Portal edits them as text. Nothing unknown or
contradictory is dropped in silence: :func:`read_properties` returns what it understood and what it has to say about the rest.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

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
    domains: tuple[str, ...] = Field((), description="Host names that may be fetched through the service, such as `pypi.org`.")
    cidrs: tuple[str, ...] = Field((), description="Address ranges that may be reached, in CIDR notation.")


class WorkflowProperties(BaseModel):
    """Settings of one Claude Code workflow, with the defaults that hold when nothing is set."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    schema_version: str = Field(SCHEMA_VERSION, description="Version of this property set.")
    sandbox_profile: Literal["restricted", "internet-enabled", "custom"] = Field(
        "restricted", description="Trust level of the sandbox. `restricted` has no network."
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
    workspace_persistence_mode: Literal["snapshot", "diff", "none"] = Field(
        "snapshot", description="What is kept of the workspace between turns: all of it, only the change, or nothing."
    )
    workspace_storage_scope: Literal["conversation", "user"] = Field(
        "conversation", description="Who shares the kept workspace: one conversation, or all conversations of the user."
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

    @field_validator("allowed_tools")
    @classmethod
    def _known_tools(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in TOOLS]
        if unknown:
            raise ValueError(f"unknown tools {unknown}; choose from {', '.join(TOOLS)}")
        return value


class PropertyReading(BaseModel):
    """What was understood of a workflow's properties, and what the user should be told about the rest."""

    model_config = ConfigDict(frozen=True)

    properties: WorkflowProperties = Field(description="The settings in force.")
    remarks: tuple[str, ...] = Field((), description="One sentence for each name that is unknown, or value that was not used.")


def read_properties(raw: Mapping[str, Any] | None) -> PropertyReading:
    """Read the properties of a workflow as they come over the wire.

    Args:
        raw: `agent.workflow.properties`; the settings may lie flat or below `claude_code` (the nested ones win).

    Returns:
        The settings in force, and remarks on everything that was not used. A value that is out of its range falls back
        to the default, never to something weaker, and is named. Nothing is raised.
    """
    merged = dict(raw or {})
    nested = merged.pop("claude_code", None)
    if isinstance(nested, Mapping):
        merged.update(nested)
    known = {name: value for name, value in merged.items() if name in WorkflowProperties.model_fields}
    remarks = [f"The workflow property {name!r} is not known and has no effect." for name in merged if name not in known]
    while True:
        try:
            return PropertyReading(properties=WorkflowProperties.model_validate(known), remarks=tuple(remarks))
        except ValidationError as error:
            for fault in error.errors():
                name = str(fault["loc"][0])
                if name in known:
                    remarks.append(f"The workflow property {name!r} was not used: {fault['msg']}. The default is in force.")
                    del known[name]
