"""The plan of one turn: everything the runner needs to know, and nothing it must not know.

The plan crosses into a hostile sandbox. It holds no key, no token and no address.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from workflow_schemas.walls import WallLevel


class InputFile(BaseModel):
    """A file of the conversation that the session's file store holds when the turn starts."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="Name in the file store, as the user gave it; hostile.")
    kind: Literal["archive", "file"] = Field(description="`archive` is unpacked into the workspace, `file` is copied there.")


class Restore(BaseModel):
    """A sealed turn to go on from, in a sandbox that has nothing of it."""

    model_config = ConfigDict(frozen=True)

    turn_number: int = Field(ge=1, description="The turn whose seal is restored.")
    archives: tuple[str, ...] = Field(description="Names in the file store of all parts of its seal and of those it builds on.")
    index_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 that the seal's index must have; the service noted it.")
    inputs: dict[str, str] = Field(
        default_factory=dict,
        description="Files of the user that a seal of the difference builds on: name in the file store by the name the user gave.",
    )
    from_conversation: str = Field("", description="The other conversation whose files these are; empty for this one.")


class Limits(BaseModel):
    """What the runner enforces inside the sandbox; the service enforces the same from outside."""

    model_config = ConfigDict(frozen=True)

    soft_seconds: float = Field(gt=0, description="Time after which the agent is told to wrap up, in seconds from the start of the run.")
    hard_seconds: float = Field(gt=0, description="Time after which the agent is stopped and the turn sealed, in seconds.")
    max_turns: int = Field(ge=1, description="Model calls after which the agent is stopped.")
    command_timeout_seconds: int = Field(ge=1, description="Limit of one shell command in seconds.")
    max_output_bytes: int = Field(ge=1024, description="Largest single output file in bytes.")
    max_unpacked_bytes: int = Field(ge=1024, description="Largest workspace in bytes after unpacking the inputs.")
    max_files: int = Field(200_000, ge=1, description="Largest number of files the inputs may unpack to.")


class TurnPlan(BaseModel):
    """One turn as the runner sees it."""

    model_config = ConfigDict(frozen=True)

    run_id: str = Field(pattern=r"^[A-Za-z0-9-]{8,64}$", description="Identifier of this run of the turn; names its mailbox.")
    turn_number: int = Field(ge=1, description="Position of the turn in its conversation; part of the output names.")
    prompt: str = Field(description="What the user asked for.")
    system_prompt: str = Field(description="System prompt: the administrator's words, the environment, the policy.")
    model: str = Field(description="Model name the agent asks for; the service decides what it becomes.")
    small_model: str = Field("", description="Model name the agent asks for in small tasks of the background; empty for its own choice.")
    tools: tuple[str, ...] = Field(description="Tools the agent is given.")
    inputs: tuple[InputFile, ...] = Field((), description="Files to put into the workspace, in this order.")
    limits: Limits = Field(description="Limits in force.")
    output_stem: str = Field(pattern=r"^[A-Za-z0-9-]{1,64}$", description="Beginning of every output name, such as `turn-001`.")
    restore: Restore | None = Field(None, description="What to restore into the fresh workspace before the inputs are put there.")
    agent_session_id: str = Field("", pattern=r"^[0-9a-f-]{0,36}$", description="Session of the agent to go on with, if there is one.")
    history: str = Field("", description="The conversation as text, for an agent that cannot go on with its own session.")
    persistence: Literal["snapshot", "diff", "none"] = Field(
        "none", description="What is sealed for later turns: the workspace, the difference to its start only, or nothing."
    )
    minimum_wall: WallLevel | None = Field(
        None, description="The weakest wall the agent may run behind; where only a weaker one stands, the run is refused. Absent for any."
    )
    fresh_workspace: bool = Field(True, description="False when a live workspace of the conversation is to be continued.")
