"""What a run left behind, with the hash of each part: the runner writes it, the service checks it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from workflow_schemas.platform_response import WireText
from workflow_schemas.usage import Usage
from workflow_schemas.walls import WallFacts

EndReason = Literal[
    "completed",  # the agent finished by itself
    "max_turns",  # the limit of model calls was reached
    "deadline",  # the time was up
    "interrupted",  # a person or the service stopped it
    "budget",  # the token budget was spent
    "model_error",  # the model could not be reached or refused
    "agent_error",  # the agent's process failed
    "input_error",  # the inputs could not be put into the workspace
    "refused",  # the sandbox has no wall, or a weaker one than was demanded; nothing was executed
    "runner_crashed",  # the runner was restarted in the middle of the run
    "sandbox_lost",  # the sandbox was gone or replaced
]
"""Why a run ended; told to the user in the receipt."""


class OutputFile(BaseModel):
    """One file the run wrote for the user."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="Name in the session's file store.")
    role: Literal["patch", "workspace", "seal", "events", "log", "manifest", "output"] = Field(description="What the file is.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the bytes as the runner wrote them.")
    size_bytes: int = Field(ge=0, description="Size in bytes.")
    byte_exact: bool = Field(description="True for archives, media and ASCII, which are stored as they are; other text may be re-encoded.")


class PatchFacts(BaseModel):
    """What is known about the change of the workspace."""

    model_config = ConfigDict(frozen=True)

    base_commit: str | None = Field(None, description="Commit at HEAD when the turn began, if the workspace is a git repository.")
    base_tree: str = Field(description="Git tree of the workspace when the turn began.")
    result_tree: str = Field(description="Git tree of the workspace when the turn ended.")
    base_is_commit: bool = Field(False, description="True when `base_tree` is the tree of `base_commit`: the patch applies to a clone.")
    proven: bool = Field(description="True when the patch, applied to the base tree, gave exactly the result tree.")
    reason: WireText = Field("", description="Why the patch is not proven.")
    files_changed: int = Field(0, ge=0, description="Number of files that differ.")
    insertions: int = Field(0, ge=0, description="Added lines, binary files not counted.")
    deletions: int = Field(0, ge=0, description="Removed lines, binary files not counted.")
    changed_paths: tuple[WireText, ...] = Field((), description="Changed paths, at most 200; undecodable bytes are escaped.")


class SealFacts(BaseModel):
    """The seal of a run: what a later turn needs to go on from here."""

    model_config = ConfigDict(frozen=True)

    index_sha256: str = Field(description="SHA-256 of the seal's index.")
    tree_sha256: str = Field(description="SHA-256 over the sealed tree; equal after a restore.")
    parts: tuple[str, ...] = Field(description="Names of its archives.")
    builds_on: tuple[int, ...] = Field((), description="Turns whose seals are needed as well, oldest first.")
    entries: int = Field(ge=0, description="Number of files, links and folders.")
    new_bytes: int = Field(ge=0, description="Bytes of content that the turns before did not have.")
    left_out: int = Field(0, ge=0, description="Number of entries that could not be sealed.")
    inputs: tuple[WireText, ...] = Field(
        (), description="Names of the user's files that restoring needs as well: only the difference is sealed."
    )
    has_transcript: bool = Field(False, description="Whether the agent's own session can be taken up again.")


class Beginning(BaseModel):
    """What a run began with."""

    model_config = ConfigDict(frozen=True)

    workspace: Literal["fresh", "continued", "restored"] = Field("fresh", description="An empty workspace, a live one, or a restored one.")
    from_turn: int = Field(0, ge=0, description="The turn it goes on from; 0 for none.")
    from_conversation: WireText = Field("", description="The other conversation whose turn that is; empty for the same one.")
    memory: Literal["none", "session", "history"] = Field(
        "none", description="What the agent remembers: nothing, its own session, or the text of the conversation."
    )


class RunManifest(BaseModel):
    """Everything a run left behind."""

    model_config = ConfigDict(frozen=True)

    schema_version: str = Field("1", description="Version of this manifest.")
    run_id: str = Field(description="Identifier of the run.")
    turn_number: int = Field(ge=1, description="Position of the turn in its conversation.")
    end_reason: EndReason = Field(description="Why the run ended.")
    detail: WireText = Field("", description="More about the end, for people.")
    answer: WireText = Field("", description="Last text of the agent.")
    session_id: WireText = Field("", description="Session of the agent SDK.")
    generation: str = Field("", description="Marker of the sandbox; another marker under the same id is another sandbox.")
    usage: Usage = Field(default_factory=Usage, description="What the agent reported as used.")
    patch: PatchFacts | None = Field(None, description="The change of the workspace; absent when it could not be determined.")
    seal: SealFacts | None = Field(None, description="The seal; absent when none was asked for or none could be written.")
    began: Beginning = Field(default_factory=Beginning, description="What the run began with.")
    outputs: tuple[OutputFile, ...] = Field((), description="Files for the user; the manifest's own file is not among them.")
    remarks: tuple[WireText, ...] = Field((), description="What was left out or shortened, and why.")
    wall: WallFacts | None = Field(
        None, description="What separated the agent from the runner, or would have if the turn had not been refused; absent without any."
    )
    processes_left: int = Field(0, ge=0, description="Processes of the agent that were alive after the end; 0 is the promise.")
