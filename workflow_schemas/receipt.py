"""The honest receipt of a turn: what ran, what ended it, what survived."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from workflow_schemas.manifest import Beginning, EndReason, SealFacts
from workflow_schemas.usage import ModelUsage, Usage
from workflow_schemas.walls import WallFacts, WallLevel

Integrity = Literal["exact", "re-encoded", "mismatch", "unlisted", "unread"]
"""What the check of a stored file against the manifest gave."""


class StoredFile(BaseModel):
    """A file record of the user that the turn made."""

    model_config = ConfigDict(frozen=True)

    file_id: str = Field(description="Identifier of the file record.")
    file_object_id: str = Field("", description="Object id of the record on the platform.")
    file_path: str = Field("", description="Path of the blob on the platform.")
    content_type: str = Field("", description="Content type the platform detected.")
    name: str = Field(description="File name.")
    role: str = Field(description="What the file is: patch, workspace, events, log, manifest or output.")
    size_bytes: int = Field(ge=0, description="Size of what is stored, in bytes.")
    sha256: str = Field(description="SHA-256 of what is stored.")
    integrity: Integrity = Field(
        description="`exact`: the manifest's hash. `re-encoded`: same text, other bytes. `mismatch`: not what the runner wrote. "
        "`unlisted`: not in the manifest. `unread`: stored, but it could not be read back for the check."
    )


class StepTime(BaseModel):
    """How long a step of the turn took."""

    model_config = ConfigDict(frozen=True)

    step: str = Field(description="Name of the step.")
    seconds: float = Field(ge=0, description="Duration in seconds.")


class Receipt(BaseModel):
    """What the user is told about the turn besides the answer."""

    model_config = ConfigDict(frozen=True)

    operation_id: str = Field(description="Identifier of the operation.")
    turn_number: int = Field(ge=1, description="Position of the turn in its conversation.")
    end_reason: EndReason = Field(description="Why the turn ended.")
    detail: str = Field("", description="More about the end, for people.")
    began: Beginning = Field(default_factory=Beginning, description="What the turn began with, and what the agent remembered.")
    seal: SealFacts | None = Field(None, description="What a later turn can go on from, wherever it runs.")
    sandbox: str = Field("", description="Provider of the sandbox.")
    wall: WallFacts | None = Field(
        None, description="What separated the agent from the runner, or would have if the turn had not been refused; absent without any."
    )
    minimum_wall: WallLevel | None = Field(None, description="The weakest wall the turn was allowed to run behind; absent for any.")
    usage: Usage = Field(default_factory=Usage, description="What the turn used, counted at the service.")
    models: tuple[ModelUsage, ...] = Field((), description="What each model used and cost.")
    cost: str | None = Field(
        None, pattern=r"^\d+(\.\d+)?$", description="Price of all models as a decimal number; absent when that of one is not known."
    )
    currency: str = Field("", description="Currency of all prices.")
    prices: str = Field("", description="Where the prices come from, and of which day they are.")
    seconds: float = Field(ge=0, description="Duration of the whole turn.")
    steps: tuple[StepTime, ...] = Field((), description="Duration of each step.")
    model_access: Literal["mailbox", "direct", "mixed"] = Field(
        "mailbox",
        description="How model calls came to the service: through the mailbox, through its gateway, or some each way.",
    )
    exchanges: int = Field(0, ge=0, description="Exchanges with the sandbox.")
    mailbox_bytes_in: int = Field(0, ge=0, description="Bytes sent into the sandbox through the mailbox.")
    mailbox_bytes_out: int = Field(0, ge=0, description="Bytes received from the sandbox through the mailbox.")
    patch_proven: bool | None = Field(None, description="Whether the patch is proven to apply; absent without a patch.")
    processes_left: int = Field(0, ge=0, description="Processes of the agent alive after the end.")
    files: tuple[StoredFile, ...] = Field((), description="File records of the turn.")
    lost: tuple[str, ...] = Field((), description="What did not survive, and why.")
    remarks: tuple[str, ...] = Field((), description="What else the user should know.")
