"""What the stored messages of a run say: the state in which its mailbox is taken up again. Pure.

Every message was stored before it was acted upon, so the messages are all there is to know: what was heard and said, which model calls
were answered (and paid for) and which were not, what the run reported, and how it ended.
"""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from orchestration_service.brokers.call import usage_of
from orchestration_service.letters import ModelRequest, Nonsense, checked_event, read_manifest, read_request, restored
from orchestration_service.operations.model import StoredMessage
from orchestration_service.spending import Charge
from workflow_schemas.delta import Bodies, expand
from workflow_schemas.errors import DeltaError, FrameError
from workflow_schemas.mailbox import Message, Reader
from workflow_schemas.manifest import RunManifest
from workflow_schemas.usage import Usage

_MESSAGES_PATH = "/v1/messages"
_RECENT = 4


@dataclass
class Replayed:
    """Where a run's mailbox stands, on the service's side."""

    seen: int = 0
    """Number of the last message of the runner that is stored."""
    sent: list[Message] = field(default_factory=list)
    """All messages for the runner; which of them it has, its next reply says."""
    is_cut: bool = False
    """Whether the last message for the runner is a part whose whole never came."""
    bodies: Bodies = field(default_factory=Bodies)
    """The bases of later requests."""
    reader: Reader = field(default_factory=Reader)
    """Parts whose whole is still to come."""
    called: set[str] = field(default_factory=set)
    """Calls of the model that arrived."""
    waiting: list[ModelRequest] = field(default_factory=list)
    """Those without a stored answer."""
    to_resend: list[str] = field(default_factory=list)
    """Those that could not be read and were not asked for again yet."""
    charges: list[Charge] = field(default_factory=list)
    """What the stored answers used."""
    remarks: list[str] = field(default_factory=list)
    """What was told of the models."""
    failure: str = ""
    """What was wrong with the last call that failed."""
    recent: deque[tuple[ModelRequest, dict[str, Any] | None]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """The latest calls with their answers."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """The runner's events, each one checked."""
    stopped: bool = False
    """Whether the run was told to stop."""
    manifest: RunManifest | None = None
    """How it ended, if it has."""

    @property
    def usage(self) -> Usage:
        """The sum of the charges."""
        return reduce(Usage.plus, (charge.counted for charge in self.charges), Usage())


def replay(run_id: str, heard: Sequence[StoredMessage], said: Sequence[StoredMessage]) -> Replayed:
    """Return where a run stands. Takes as long as its requests are large: call it in a thread.

    Args:
        run_id: The run.
        heard: The stored messages of the runner, in order.
        said: The stored messages for the runner, in order.

    Raises:
        Nonsense: What is stored makes no sense.
    """
    state = Replayed(sent=[restored(one) for one in said])
    try:
        answers, asked_again = _read_said(state)
        unreadable: list[str] = []
        for message in map(restored, heard):
            if message.seq != state.seen + 1:
                break  # what lies behind a gap was never acted upon, and comes again
            state.seen = message.seq
            whole = state.reader.feed(message)
            if whole is not None:
                _take(state, whole, run_id, answers, unreadable)
    except FrameError as error:
        raise Nonsense(f"the stored messages cannot be put together ({error})") from error
    state.to_resend = [call_id for call_id in unreadable if call_id not in state.called and call_id not in asked_again]
    return state


def _read_said(state: Replayed) -> tuple[dict[str, Message], set[str]]:
    """Return the answers given, and the calls that were asked for again."""
    reader, answers, asked_again = Reader(), dict[str, Message](), set[str]()
    for message in state.sent:
        whole = reader.feed(message)
        state.is_cut = whole is None
        if whole is None:
            continue
        state.stopped = state.stopped or whole.kind == "stop"
        if whole.kind == "model_answer":
            answers.setdefault(str(whole.body.get("call_id")), whole)
        elif whole.kind == "resend":
            asked_again.add(str(whole.body.get("call_id")))
    return answers, asked_again


def _take(state: Replayed, message: Message, run_id: str, answers: dict[str, Message], unreadable: list[str]) -> None:
    if message.kind == "event":
        state.events.append(checked_event(message.body))
    elif message.kind == "final":
        state.manifest = read_manifest(message.body, run_id)
    elif message.kind == "model_request":
        request = read_request(message, state.bodies)
        if isinstance(request, str):
            unreadable.append(request)
        elif request.call_id not in state.called:
            state.called.add(request.call_id)
            _count(state, request, answers.get(request.call_id))


def _count(state: Replayed, request: ModelRequest, answered: Message | None) -> None:
    if answered is None:
        state.waiting.append(request)
        state.recent.append((request, None))
        return
    try:
        answer = json.loads(expand(answered.data, request.body))
    except (DeltaError, ValueError) as error:
        raise Nonsense(f"the stored answer to the call {request.call_id!r} cannot be read") from error
    answer = answer if isinstance(answer, dict) else {}
    noted = [Charge.model_validate(charge) for charge in answered.body.get("charges", ())]
    state.charges += noted
    state.remarks += answered.body.get("remarks", ())
    if request.path != _MESSAGES_PATH:
        return
    state.recent.append((request, answer))
    if answered.body.get("status") == 200 and not noted:  # by an earlier version
        state.charges.append(Charge(usage=usage_of(answer.get("usage"))))
    elif answered.body.get("status") != 200:
        fault = answer.get("error")
        state.failure = str(fault.get("message", ""))[:400] if isinstance(fault, dict) else ""
