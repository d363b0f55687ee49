"""What an administrator may set on a Claude Code workflow.

The names are those of the plan the project started from. They reach the service in `agent.workflow.properties`, either
flat or below `claude_code`, and often as strings, because the Management Portal edits them as text. How they are read, and what is said
about values that cannot be used, is in :mod:`workflow_schemas.property_reading`.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from workflow_schemas.walls import WallLevel

SCHEMA_VERSION = "1"
"""Version of the property set; a later version adds names and never changes the meaning of one."""

TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob")
"""The tools of the agent that run inside the sandbox."""

ModelWay = Literal["mailbox", "direct"]
"""How the agent's model calls leave the sandbox."""

PLATFORM_STOP_SECONDS = 1800
"""The platform declares a turn dead after 30 minutes (contract: orchestration §7); a turn must end well before."""


class EgressPolicy(BaseModel):
    """What a sandbox may reach. Off unless an administrator lists something."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["off", "allowlist"] = Field(
        "off",
        title="Outgoing network",
        description="`off`: no network at all. `allowlist`: only what is listed below; not available yet, the answer says so.",
        examples=["off"],
        json_schema_extra={"x-group": "Network"},
    )
    domains: tuple[str, ...] = Field(
        (),
        title="Host names",
        description="Host names that may be fetched through the service, such as `docs.python.org`.",
        examples=[["docs.python.org", "*.example.com"]],
        json_schema_extra={"x-group": "Network"},
    )
    cidrs: tuple[str, ...] = Field(
        (),
        title="Address ranges",
        description="Address ranges that may be reached, in CIDR notation.",
        examples=[["10.20.0.0/16"]],
        json_schema_extra={"x-group": "Network"},
    )


class WorkflowProperties(BaseModel):
    """Settings of one Claude Code workflow, with the defaults that hold when nothing is set.

    Every property has a title, a description, a group, a default and an example: administrators see them in the exported schema.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    schema_version: str = Field(
        SCHEMA_VERSION,
        title="Version of the settings",
        description="Version of this property set.",
        examples=["1"],
        json_schema_extra={"x-group": "Agent"},
    )
    sandbox_profile: Literal["restricted", "internet-enabled", "custom"] = Field(
        "restricted",
        title="Sandbox profile",
        description="Trust level of the sandbox; pinned at a conversation's first turn. `restricted` has no network. The others "
        "are not available yet: their turns run without network too, and the answer says so.",
        examples=["restricted"],
        json_schema_extra={"x-group": "Sandbox"},
    )
    minimum_wall: WallLevel | None = Field(
        None,
        title="Weakest wall",
        description="The weakest wall between agent and runner that a turn may run behind; in a sandbox with a weaker one it is refused. "
        "Not set: the strongest the sandbox allows. The installation may demand more.",
        examples=["namespaces", "landlock"],
        json_schema_extra={"x-group": "Sandbox"},
    )
    sandbox_timeout_seconds: int = Field(
        900,
        ge=30,
        le=1620,
        title="Time of a turn",
        description="Wall-clock limit of one turn in seconds; the platform stops a turn at 1800.",
        examples=[900, 1500],
        json_schema_extra={"x-group": "Limits"},
    )
    sandbox_cpu: float | None = Field(
        None,
        gt=0,
        le=64,
        title="Processor cores",
        description="Processor cores to ask for, where the provider can size a sandbox.",
        examples=[0.5, 2],
        json_schema_extra={"x-group": "Sandbox"},
    )
    sandbox_memory: str | None = Field(
        None,
        pattern=r"^\d+(\.\d+)?(Mi|Gi)$",
        title="Memory",
        description="Memory to ask for, such as `1Gi`, where the provider can size a sandbox.",
        examples=["1Gi", "1536Mi"],
        json_schema_extra={"x-group": "Sandbox"},
    )
    sandbox_processes: int | None = Field(
        None,
        ge=64,
        le=100_000,
        title="Processes",
        description="Processes and threads at the same time, where the provider can size a sandbox.",
        examples=[256],
        json_schema_extra={"x-group": "Sandbox"},
    )
    sandbox_disk: str | None = Field(
        None,
        pattern=r"^\d+(\.\d+)?(Mi|Gi)$",
        title="Space for files",
        description="Space of all writable places together, such as `2Gi`, where the provider can size a sandbox.",
        examples=["2Gi"],
        json_schema_extra={"x-group": "Sandbox"},
    )
    workspace_persistence_mode: Literal["snapshot", "diff", "none"] = Field(
        "snapshot",
        title="What is kept",
        description="What is kept of the workspace between turns: all of it, only what differs from the attached files, or nothing.",
        examples=["snapshot", "diff"],
        json_schema_extra={"x-group": "Workspace"},
    )
    workspace_storage_scope: Literal["conversation", "user"] = Field(
        "conversation",
        title="Where it goes on",
        description="Where the kept files go on: in their conversation, or also in each new one of the user with this agent.",
        examples=["conversation", "user"],
        json_schema_extra={"x-group": "Workspace"},
    )
    allowed_repo_patterns: tuple[str, ...] = Field(
        (),
        title="Repositories",
        description="Repositories that may be cloned, as shell patterns; empty: none. Cloning is not available yet, the answer says so.",
        examples=[["contoso/*", "fabrikam/website"]],
        json_schema_extra={"x-group": "Repositories"},
    )
    egress_policy: EgressPolicy = Field(
        EgressPolicy(),
        title="Outgoing network",
        description="What the sandbox may reach.",
        examples=[{"mode": "allowlist", "domains": ["docs.python.org"]}],
        json_schema_extra={"x-group": "Network"},
    )
    model_access: ModelWay = Field(
        "mailbox",
        title="Way to the model",
        description="How model calls leave the sandbox. `mailbox`: the service fetches them, the sandbox needs no network. `direct`: the "
        "sandbox calls the service's gateway with a token of its run; where that is not offered or not reached, the mailbox is used.",
        examples=["mailbox", "direct"],
        json_schema_extra={"x-group": "Network"},
    )
    github_integration_mode: Literal["none", "github-app", "user-pat"] = Field(
        "none",
        title="Pull requests",
        description="How pull requests are authorised; `none` switches them off. They are not available yet, the answer says so.",
        examples=["none"],
        json_schema_extra={"x-group": "Repositories"},
    )
    allowed_tools: tuple[str, ...] = Field(
        TOOLS,
        title="Tools of the agent",
        description="Tools the agent is given, out of Read, Write, Edit, Bash, Grep and Glob.",
        examples=[["Read", "Grep", "Glob"]],
        json_schema_extra={"x-group": "Agent"},
    )
    max_turns: int = Field(
        60,
        ge=1,
        le=500,
        title="Model calls of a turn",
        description="Model calls after which the agent is stopped.",
        examples=[40],
        json_schema_extra={"x-group": "Limits"},
    )
    max_total_tokens: int | None = Field(
        None,
        ge=1000,
        title="Tokens of a turn",
        description="Tokens, in and out, after which the turn is ended.",
        examples=[2_000_000],
        json_schema_extra={"x-group": "Limits"},
    )
    max_output_bytes: int = Field(
        100 * 1024 * 1024,
        ge=1024,
        le=120 * 1024 * 1024,
        title="Largest output file",
        description="Largest single output file in bytes; the platform takes 128 MB.",
        examples=[10_485_760],
        json_schema_extra={"x-group": "Limits"},
    )
    command_timeout_seconds: int = Field(
        120,
        ge=1,
        le=1200,
        title="Time of a shell command",
        description="Limit of one shell command in seconds.",
        examples=[300],
        json_schema_extra={"x-group": "Limits"},
    )
    model: str | None = Field(
        None,
        title="Model of the agent",
        description="Model name that replaces the deployment name of the main model.",
        examples=["claude-sonnet-4-5"],
        json_schema_extra={"x-group": "Agent"},
    )
    small_model: str | None = Field(
        None,
        title="Small model",
        description="Model name for the agent's small tasks, at the same endpoint; not set: the main model does them.",
        examples=["claude-haiku-4-5"],
        json_schema_extra={"x-group": "Agent"},
    )
    fallback_models: tuple[str, ...] = Field(
        (),
        title="Models to fall back on",
        description="Models to ask, in this order and at the same endpoint, when the main model is overloaded or not there.",
        examples=[["claude-sonnet-4-5", "claude-haiku-4-5"]],
        json_schema_extra={"x-group": "Agent"},
    )

    @field_validator("sandbox_profile", mode="before")
    @classmethod
    def _default_profile(cls, value: object) -> object:
        return "restricted" if value in ("default", "", None) else value

    @field_validator("allowed_tools", "allowed_repo_patterns", "fallback_models", mode="before")
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
