"""Model calls without the mailbox: which runs may make them here, and what is noted of each (docs/decisions/0022).

A run is known here for as long as this replica works on its turn. Its calls are answered by what answers those of the mailbox, so policy,
budget, fallbacks and the account are the same. What the mailbox stores of a call by itself is stored here as a step of the journal.
"""

import asyncio
import hmac
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from orchestration_service.answer_stream import AnswerStream
from orchestration_service.course import Course
from orchestration_service.errors import LeaseLost, RunElsewhere, StoreError, TokenRefused
from orchestration_service.following import STOP_AFTER_SECONDS, seconds_left
from orchestration_service.letters import ModelReply, ModelRequest
from orchestration_service.model_calls import ModelCalls
from orchestration_service.run_tokens import RunToken, RunTokens

GATEWAY_PATH = "/model-access"
"""Where the service answers such calls."""

NOT_ALLOWED = (
    "The workflow property 'model_access' is 'direct', and this installation does not offer that: model calls went through the mailbox."
)

_CALLS_AT_ONCE = 16
_END_SECONDS = 2.0
_RECENT = 4


@dataclass(frozen=True)
class Grant:
    """What a runner is told about the way to the models."""

    url: str = ""
    """Address of the gateway; empty for the mailbox alone."""
    token: str = field(default="", repr=False)
    """The run's token."""

    @property
    def body(self) -> dict[str, Any]:
        """The message for the runner."""
        return {"url": self.url, "token": self.token}


class RunAccess:
    """The calls that one run makes here.

    Args:
        token: The run's token.
        course: The turn.
        calls: Answers them.
    """

    def __init__(self, token: RunToken, course: Course, calls: ModelCalls) -> None:
        self.token = token
        self._course = course
        self._calls = calls
        self.at_once = asyncio.Semaphore(_CALLS_AT_ONCE)
        """Held by each call from before its body is read: what one run can have this process keep is bounded."""
        self._open: dict[asyncio.Task[ModelReply], AnswerStream] = {}
        self._is_over = False
        self.recent: deque[tuple[ModelRequest, dict[str, Any] | None]] = deque(maxlen=_RECENT)
        """The latest calls with their answers, for the transcript of a turn whose sandbox is lost."""

    def begin(self, request: ModelRequest, stream: AnswerStream) -> "asyncio.Task[ModelReply]":
        """Answer a call in the background; the stream's end comes with the answer. Who leaves says so to the stream.

        Raises:
            TokenRefused: The run has ended while the call arrived.
        """
        if self._is_over:
            raise TokenRefused("The token of this run does not hold any more.")
        task = asyncio.create_task(self._answer(request, stream), name=f"model call {request.call_id}")
        self._open[task] = stream
        task.add_done_callback(self._ended)
        return task

    async def end(self) -> None:
        """Give up the calls that are still open; what they are known to have used is counted."""
        self._is_over = True
        open_calls = dict(self._open)
        for stream in open_calls.values():
            stream.leave()
        if open_calls:
            await asyncio.wait(open_calls, timeout=_END_SECONDS)
        for task in open_calls:
            task.cancel()
        await asyncio.gather(*open_calls, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[ModelReply]") -> None:
        self._open.pop(task, None)
        if not task.cancelled():
            task.exception()  # whoever waits for it has it too; nobody may wait any more

    async def _answer(self, request: ModelRequest, stream: AnswerStream) -> ModelReply:
        """Answer a call and note it.

        Raises:
            RunElsewhere: It is not to be answered here any more.
        """
        try:
            reply = await self._calls.answer(request, stream)
            self.recent.append((request, reply.body if reply.status == 200 else None))
            failure = {} if reply.status == 200 else {"failure": self._calls.failure}
            await self._course.ledger.record_call({"call_id": request.call_id, **failure, **reply.beside})
        except (LeaseLost, StoreError) as error:  # the turn meets the same and deals with it
            raise RunElsewhere("The call could not be noted here. Use the mailbox.") from error
        finally:
            stream.end()
        if stream.is_left:
            raise RunElsewhere("The run has ended here, or goes on elsewhere. Use the mailbox.")
        return reply


class ModelAccess:
    """The runs that may call models through this replica.

    Args:
        instance_id: The platform instance.
        url: Address of this replica as sandboxes reach it; nothing where model calls go through the mailbox only.
        key: Signs tokens, the same for all replicas; without one each replica has its own.
    """

    def __init__(self, *, instance_id: str = "", url: str | None = None, key: bytes | None = None) -> None:
        self._url = f"{url}{GATEWAY_PATH}" if url else ""
        self._tokens = RunTokens(key or secrets.token_bytes(32), instance_id)
        self._runs: dict[str, RunAccess] = {}
        self._ended: dict[str, int] = {}

    @property
    def is_offered(self) -> bool:
        """Whether this replica has a gateway."""
        return bool(self._url)

    @asynccontextmanager
    async def granted(self, course: Course, calls: ModelCalls) -> AsyncIterator[Grant | None]:
        """Let the run of a turn make its calls here until the block ends, if its workflow wants it and this replica has a gateway.

        Yields:
            What to tell the runner; nothing when there is nothing to tell.
        """
        if course.planned.properties.model_access != "direct" or course.late:
            yield None
            return
        if not self.is_offered:
            course.remarks = tuple(dict.fromkeys((*course.remarks, NOT_ALLOWED)))
            yield Grant() if course.past.opened else None  # an earlier owner of the turn may have had one
            return
        token = self._tokens.issue(course.run_id, seconds_left(course, STOP_AFTER_SECONDS))
        self._runs[course.run_id] = run = RunAccess(token, course, calls)
        try:
            yield Grant(self._url, token.text)
        finally:
            del self._runs[course.run_id]
            self._forget_old()
            self._ended[course.run_id] = token.expires
            await run.end()
            course.called_directly = tuple(run.recent)

    def admit(self, authorization: Sequence[str]) -> RunAccess:
        """Return the run that a request speaks for.

        Args:
            authorization: The values of that header.

        Raises:
            TokenRefused: It carries no token that holds.
            RunElsewhere: It may hold at another replica.
        """
        scheme, _, text = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        if scheme.casefold() != "bearer":
            raise TokenRefused("Send the token of a run as 'Authorization: Bearer', and nothing else.")
        token = self._tokens.read(text.strip())
        run = self._runs.get(token.run_id)
        if run is not None and hmac.compare_digest(run.token.text, token.text):
            return run
        if run is not None or token.run_id in self._ended:
            raise TokenRefused("The token of this run does not hold any more.")
        raise RunElsewhere("This replica does not work on that run. Use the mailbox, or ask again.")

    def _forget_old(self) -> None:
        now = time.time()
        self._ended = {run_id: expires for run_id, expires in self._ended.items() if expires >= now}
