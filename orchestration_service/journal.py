"""The journal of a turn, read: where whoever takes the turn over goes on. Pure."""

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestration_service.errors import TurnUnreadable
from orchestration_service.operations import RecordedStep
from orchestration_service.planning import Continuing
from orchestration_service.spending import Charge
from workflow_schemas.plan import Restore
from workflow_schemas.receipt import Receipt

_FRUITLESS = 5


class Opened(BaseModel):
    """An open code session whose file store is filled: what the step `run` records."""

    model_config = ConfigDict(frozen=True)

    session_id: str = Field(description="The code session.")
    upload_id: str = Field(description="The upload that filled it; `downloadFiles` wants it.")
    goes_on: bool = Field(False, description="Whether the turn goes on from an earlier one.")
    agent_session_id: str = Field("", description="Session of the agent at the end of that turn.")
    restore: Restore | None = Field(None, description="What of that turn is restored; absent when its sandbox still lives.")
    remarks: tuple[str, ...] = Field((), description="What the user should know of the sandbox.")

    @classmethod
    def after(cls, session_id: str, upload_id: str, continuing: Continuing | None, remarks: tuple[str, ...] = ()) -> "Opened":
        """Return what is to be recorded."""
        known = dataclasses.asdict(continuing) if continuing else {}
        return cls(session_id=session_id, upload_id=upload_id, goes_on=continuing is not None, remarks=remarks, **known)

    @property
    def continuing(self) -> Continuing | None:
        """The earlier turn that the turn goes on from."""
        return Continuing(agent_session_id=self.agent_session_id, restore=self.restore) if self.goes_on else None


class CallNote(BaseModel):
    """A model call that did not come through the mailbox: what the step `model_call` records."""

    model_config = ConfigDict(frozen=True)

    call_id: str = Field(description="Identifier of the call.")
    charges: tuple[Charge, ...] = Field((), description="What it used.")
    remarks: tuple[str, ...] = Field((), description="What the user should know about the models.")
    failure: str = Field("", description="What was wrong with it, in words for the user.")


@dataclass(frozen=True)
class Past:
    """What earlier owners of a turn have recorded."""

    run_id: str
    """The run; a new one when there was none."""
    opened: Opened | None = None
    """Its sandbox, when it was ready."""
    started_at: datetime | None = None
    """When the turn was begun, UTC."""
    receipt: Receipt | None = None
    """The receipt, when the turn was answered and only its end was missing."""
    reached: frozenset[str] = frozenset()
    """The steps reached."""
    calls: tuple[CallNote, ...] = ()
    """The model calls that were noted in the journal."""
    places: tuple[str, ...] = ()
    """Where each take-over found the turn."""

    def remarks(self, asked_again: int) -> tuple[str, ...]:
        """Return what the user should know about the take-over: how many calls of the model had no stored answer."""
        if self.started_at is None:
            return ()
        text = "The service was interrupted while it worked on this message and has gone on where it was."
        if asked_again:
            calls = "A call of the model that was" if asked_again == 1 else f"{asked_again} calls of the model that were"
            text += f" {calls} under way at that moment had to be made again."
        return (text,)

    def is_stuck(self, place: str) -> bool:
        """Whether the last take-overs all found the turn where it is found now."""
        return self.places[-_FRUITLESS:] == (place,) * _FRUITLESS


def fresh() -> Past:
    """Return the past of a turn that has none."""
    return Past(uuid.uuid4().hex)


def read_past(steps: Sequence[RecordedStep]) -> Past:
    """Return what a journal says.

    Raises:
        TurnUnreadable: It makes no sense.
    """
    known: dict[str, Any] = {"run_id": uuid.uuid4().hex}
    places: list[str] = []
    calls: dict[str, CallNote] = {}
    try:
        for step in steps:
            known.setdefault("started_at", step.recorded_at)
            known["reached"] = known.get("reached", frozenset()) | {step.step}
            if step.step == "open":  # a run that never started is opened anew, under another name
                known |= {"run_id": str(step.data["run_id"]), "opened": None}
            elif step.step == "run":
                known["opened"] = Opened.model_validate(step.data)
            elif step.step == "model_call":
                note = CallNote.model_validate(step.data)
                calls.setdefault(note.call_id, note)
            elif step.step == "answer":
                known["receipt"] = Receipt.model_validate(step.data["receipt"])
            elif step.step == "resume":
                places.append(str(step.data["place"]))
    except (KeyError, ValidationError) as error:
        raise TurnUnreadable(
            "The service was interrupted, and what it had noted about this message cannot be read. Please send the message again."
        ) from error
    return Past(**known, places=tuple(places), calls=tuple(calls.values()))
