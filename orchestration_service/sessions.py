"""One turn's hold on a code session: opening it, filling its file store, exchanging frames with the runner, fetching the outputs.

Everything goes through the Context API's four code-session calls, so the sandbox may live anywhere the platform can put one.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from context_client import (
    ContextApiError,
    ContextClient,
    FileRecord,
    SandboxSize,
    ServerFault,
    SessionUpload,
    Unavailable,
    UserIdentity,
    WorldFault,
)
from orchestration_service.errors import SandboxUnavailable, TurnUnreadable
from workflow_schemas.errors import FrameError
from workflow_schemas.mailbox import Exchange, Reply, decode_reply, encode

T = TypeVar("T")

_ID_CHARACTERS = 128
_PAUSES: Sequence[float] = (0.25, 1.0, 2.5)
"""Before a call is made again that may be repeated and met a fault of the world: a lost answer, a server that fails."""

_PATIENT_SECONDS = 60.0
"""A server that fails after so long has been patient itself, with a pool that is full, say; asking again would begin that anew."""


def bootstrap(frame: str) -> str:
    """Return the program that carries a frame to the runner; always the same but for the frame."""
    return f"from runner_image.exchange import main\nmain({frame!r})\n"


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How code sessions are asked for."""

    endpoint_provider: str = "AzureContainerAppsCustomContainer"
    """Provider name of the platform."""

    language: str = "Python"
    """Which of the platform's pools holds our image: `Python` or `CSharp`."""

    context: str = "claude-code"
    """Keeps our sandbox apart from those of other tools of the conversation."""


@dataclass(frozen=True)
class Fetched:
    """What came out of the session's file store."""

    records: tuple[FileRecord, ...]
    refused: tuple[str, ...]
    repeatable: bool = False
    maybe_twice: bool = False
    """The call was repeated, and the first time may have made records too."""

    def to_outcome(self) -> dict[str, Any]:
        """Return it as the outcome of an effect."""
        records = [record.model_dump(mode="json") for record in self.records]
        return {"records": records, "refused": list(self.refused), "repeatable": self.repeatable, "maybe_twice": self.maybe_twice}

    @classmethod
    def from_outcome(cls, outcome: dict[str, Any]) -> "Fetched":
        """Read the outcome of an effect.

        Raises:
            TurnUnreadable: It is no such outcome.
        """
        try:
            records = tuple(FileRecord.model_validate(record) for record in outcome["records"])
            twice = bool(outcome.get("maybe_twice"))
            return cls(records, tuple(map(str, outcome["refused"])), bool(outcome["repeatable"]), twice)
        except (KeyError, TypeError, ValidationError) as error:
            raise TurnUnreadable("The files of this turn were stored, and the service's note of them cannot be read.") from error


class Session:
    """An open code session."""

    def __init__(self, client: ContextClient, identity: UserIdentity, session_id: str, upload_id: str = "") -> None:
        self._client = client
        self._identity = identity
        self.session_id = session_id
        self.exchanges = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.upload_id = upload_id
        self.size: SandboxSize | None = None
        """What the sandbox may use, once the file store was filled; None where its place does not say."""

    async def fill(self, names: Sequence[str]) -> None:
        """Empty the file store and put the conversation's files of these names into it.

        Raises:
            SandboxUnavailable: A file did not get there, or the sandbox does not answer.
        """

        async def send() -> SessionUpload:
            return await self._client.upload_to_session(self._identity, self.session_id, list(names))

        try:
            upload = await _patiently(send)
            if _missing(names, upload):  # the file store was wiped before, so the repetition leaves nothing of the first time
                upload = await _patiently(send)
        except ContextApiError as error:
            raise SandboxUnavailable(f"The sandbox could not be prepared: {error}") from error
        if missing := _missing(names, upload):
            raise SandboxUnavailable(
                f"These files did not reach the sandbox: {', '.join(map(repr, missing[:10]))}{' and others' if len(missing) > 10 else ''}. "
                "Attach them again and repeat the request."
            )
        self.upload_id, self.size = upload.operation_id, upload.size

    async def exchange(self, exchange: Exchange) -> Reply:
        """Carry one frame to the runner and one back.

        Raises:
            SandboxUnavailable: The sandbox did not run the bootstrap, or its answer makes no sense. The exchange may be repeated.
        """
        frame = encode(exchange)
        self.exchanges += 1
        self.bytes_in += len(frame)
        try:
            result = await self._client.execute_code(
                self._identity, self.session_id, bootstrap(frame), timeout_seconds=exchange.wait_seconds + 60
            )
        except ContextApiError as error:
            raise SandboxUnavailable(f"The sandbox does not answer: {error}") from error
        if result.status != "Succeeded":
            said = (result.error_output or result.execution_result).strip()[-500:]
            raise SandboxUnavailable(f"The sandbox does not answer: {said}")
        self.bytes_out += len(result.standard_output)
        try:
            return decode_reply(result.standard_output)
        except FrameError as error:
            said = result.error_output.strip()[-500:] or str(error)
            raise SandboxUnavailable(f"The sandbox does not run this project's runner: {said}") from error

    async def fetch(self, key: str | None = None) -> Fetched:
        """Turn the outputs in the file store into the user's file records. Each call makes new records, unless the server heeds the key.

        A call whose answer was lost is made again all the same: records that are there twice are a smaller loss than none.

        Raises:
            SandboxUnavailable: The Context API did not do it.
        """
        faults: list[WorldFault] = []
        try:
            download = await _patiently(
                lambda: self._client.download_from_session(self._identity, self.session_id, self.upload_id, key=key), faults
            )
        except ContextApiError as error:
            raise SandboxUnavailable(f"The outputs could not be fetched: {error}") from error
        arrived = any(not isinstance(fault, Unavailable) or fault.may_have_arrived for fault in faults)
        twice = arrived and not download.repeatable
        return Fetched(tuple(download.file_records.values()), tuple(download.errors), download.repeatable, twice)

    async def content(self, file_id: str) -> bytes:
        """Return the stored bytes of a file record.

        Raises:
            SandboxUnavailable: The record cannot be read.
        """
        try:
            return (await _patiently(lambda: self._client.file_content(self._identity, file_id))).content
        except ContextApiError as error:
            raise SandboxUnavailable(f"The stored file {file_id!r} cannot be read back: {error}") from error


async def open_session(
    client: ContextClient,
    identity: UserIdentity,
    *,
    agent_name: str,
    conversation_id: str,
    settings: SessionSettings,
    size: SandboxSize | None = None,
) -> Session:
    """Open the conversation's code session; the sandbox behind it starts with the first use, of that size where its place heeds it.

    Raises:
        SandboxUnavailable: The Context API refuses or does not answer.
    """
    try:
        opened = await _patiently(
            lambda: client.create_code_session(
                identity,
                agent_name=agent_name,
                conversation_id=reachable_conversation(conversation_id, settings.context),
                context=settings.context,
                endpoint_provider=settings.endpoint_provider,
                language=settings.language,
                size=size,
            )
        )
    except Unavailable as error:
        raise SandboxUnavailable(f"The Context API does not answer: {error}") from error
    except ContextApiError as error:
        raise SandboxUnavailable(f"No sandbox could be opened: {error}") from error
    return Session(client, identity, opened.session_id)


def reachable_conversation(conversation_id: str, context: str) -> str:
    """Keep `code-{conversation}-{context}` within the platform's 128 characters without two conversations meeting.

    Conversations whose name is cut keep a hash of the whole one; the platform itself would cut off the context.
    """
    room = _ID_CHARACTERS - len("code--") - len(context)
    if len(conversation_id) <= room:
        return conversation_id
    return f"{conversation_id[: room - 17]}-{hashlib.sha256(conversation_id.encode()).hexdigest()[:16]}"


async def _patiently(call: Callable[[], Awaitable[T]], faults: list[WorldFault] | None = None) -> T:
    """Make a call again while the world is at fault, a few times.

    Args:
        call: What may be repeated.
        faults: Takes what went wrong before it went well.
    """
    for pause in _PAUSES:
        since = time.monotonic()
        try:
            return await call()
        except WorldFault as error:
            if isinstance(error, ServerFault) and time.monotonic() - since > _PATIENT_SECONDS:
                raise
            if faults is not None:
                faults.append(error)
        await asyncio.sleep(pause)
    return await call()


def _missing(names: Sequence[str], upload: SessionUpload) -> list[str]:
    return [name for name in names if not upload.file_upload_success.get(name)]
