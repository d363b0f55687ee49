"""Code sessions: names for sandboxes, and the three things done with them.

uploadFiles and downloadFiles of one session wait for each other, since one wipes what the other reads; the real server
lets them race. executeCode waits for nobody: a long poll and a quick call run side by side on purpose.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio

from context_client.embedded.container import SandboxLine, StoredItem, unreachable_execution
from context_client.embedded.files import FileService, NewFile
from context_client.embedded.identifiers import (
    new_operation_id,
    now_nanoseconds,
    override_session_id,
    pool_session_id,
    timestamp,
)
from context_client.embedded.lines import SandboxLines
from context_client.embedded.overrides import OverrideProvider, override_host_problem
from context_client.embedded.problems import CONTEXT_SERVICE, Problem, SandboxUnreachable, refused, thrown
from context_client.embedded.provider import SandboxProvider
from context_client.embedded.records import SESSION_RECORD, UPLOAD_RECORD, Document
from context_client.embedded.repeats import Repeats
from context_client.embedded.requests import CreateRequest
from context_client.embedded.settings import EmbeddedSettings
from context_client.embedded.storage import Blobs, Records
from context_client.size import SandboxSize

_log = logging.getLogger(__name__)
_LANGUAGES = ("Python", "CSharp")
_FETCHED_AT_ONCE = 4
_SIZE = "sandbox_size"


class SessionService:
    """Creates code sessions and forwards to their sandboxes."""

    def __init__(
        self,
        *,
        records: Records,
        blobs: Blobs,
        files: FileService,
        lines: SandboxLines,
        providers: Mapping[str, SandboxProvider],
        settings: EmbeddedSettings,
    ) -> None:
        self._records = records
        self._blobs = blobs
        self._files = files
        self._lines = lines
        self._providers = providers
        self._settings = settings
        self._turns = _Turns()
        self._repeats = Repeats(records, settings.instance_id)

    async def create(self, upn: str, asked: CreateRequest, size: SandboxSize | None = None) -> dict[str, Any]:
        """Name a sandbox and remember it; nothing is started.

        Args:
            upn: The owner.
            asked: What the platform's wire says.
            size: What the sandbox shall have when it is started.

        Raises:
            Problem: 500 with one line per broken rule, or for an unknown provider, as the real server answers;
                400 for a size that is more than there may be.
        """
        problems = create_problems(upn, asked, self._settings.override_hosts)
        if problems:
            raise thrown(CONTEXT_SERVICE, "\n".join(problems))
        self._check_size(size)
        override = asked.endpoint_provider_override
        if override is None:
            self._provider_named(asked.endpoint_provider)
        session_id = pool_session_id(asked.conversation_id, asked.context) if override is None else override_session_id()
        endpoint = self._settings.session_endpoint if override is None else override.endpoint
        document: Document = {
            "id": session_id,
            "type": SESSION_RECORD,
            "instance_id": self._settings.instance_id,
            "upn": upn,
            "origin": "",
            "conversation_id": asked.conversation_id,
            "endpoint_provider": asked.endpoint_provider,
            "endpoint": endpoint,
            "language": asked.language,
            "created_at": timestamp(now_nanoseconds()),
            "created_by": upn,
            "deleted": False,
            "metadata": {} if size is None else {_SIZE: size.to_header()},
        }
        if override is not None:
            document["endpoint_provider_override"] = override.model_dump()
        await self._records.put(document)
        return {"session_id": session_id, "endpoint": endpoint}

    async def execute(self, upn: str, session_id: str, code: str) -> dict[str, str]:
        """Forward code; an unreachable sandbox is part of the answer, not an error.

        Raises:
            Problem: 500 where the user has no such session.
        """
        session = await self._session(upn, session_id)
        try:
            async with self._line(session) as line:
                return await line.execute(code)
        except SandboxUnreachable as error:
            return unreachable_execution(str(error))

    async def upload(self, upn: str, session_id: str, file_names: Sequence[str]) -> tuple[dict[str, Any], SandboxSize | None]:
        """Wipe the sandbox's store, then send the conversation's newest files of these names.

        Returns:
            The answer, and what the sandbox may use where its provider says so.

        Raises:
            Problem: 500 where the user has no such session, or the sandbox does not answer; nothing is recorded then.
        """
        session = await self._session(upn, session_id)
        sent = dict.fromkeys(file_names, False)
        async with self._turns.of(session_id), self._reached(session) as line:
            size = line.size
            if not await line.delete_all():
                _log.warning("The sandbox of session %r did not empty its file store", session_id)
            for name in sent:
                sent[name] = await self._send(line, upn, session["conversation_id"], name)
        document: Document = {
            "id": new_operation_id(),
            "type": UPLOAD_RECORD,
            "instance_id": self._settings.instance_id,
            "upn": upn,
            "origin": "",
            "code_session_id": session_id,
            "file_upload_success": sent,
            "created_at": timestamp(now_nanoseconds()),
            "created_by": upn,
            "deleted": False,
            "metadata": {},
        }
        await self._records.put(document)
        answer = {
            "operation_id": document["id"],
            "file_upload_success": sent,
            "all_files_uploaded": all(sent.values()),
        }
        return answer, size

    async def download(self, upn: str, session_id: str, operation_id: str, key: str = "") -> tuple[list[Document], list[str]]:
        """Make new records of what is in the sandbox and was not sent there; each call makes new ones.

        Args:
            upn: The owner.
            session_id: The session.
            operation_id: The upload before it.
            key: Name of the call; a repetition under the same name gives the same records again, also while the first still runs.

        Returns:
            The records' documents, and what was lost as `{folder}/{name}`.

        Raises:
            Problem: 500 where the user has no such upload or session, or the sandbox does not answer.
        """
        upload = await self._records.find(UPLOAD_RECORD, upn, operation_id)
        if upload is None or upload["code_session_id"] != session_id:
            raise thrown(CONTEXT_SERVICE, f"no upload {operation_id!r} in session {session_id!r} for this user")
        session = await self._session(upn, session_id)
        async with self._turns.of(session_id):
            if key and (known := await self._repeats.find(upn, session_id, key)) is not None:
                return known
            async with self._reached(session) as line:
                items = wanted_items(await line.list_files(), upload["file_upload_success"])
                documents, failure = await _each(items, lambda item: self._fetch(line, session, operation_id, item))
                if failure is not None:
                    if key:  # the caller will ask again, and would get these twice
                        await self._discard(upn, documents)
                    raise failure
            made = [document for document in documents if document is not None]
            lost = [f"{item.parent}/{item.name}" for item, document in zip(items, documents, strict=True) if document is None]
            if key:
                await self._repeats.keep(upn, session_id, key, made, lost)
        return made, lost

    async def _send(self, line: SandboxLine, upn: str, conversation_id: str, name: str) -> bool:
        record = await self._records.newest_file(upn, conversation_id, name)
        size = None if record is None else await self._blobs.size(record["file_path"])
        if record is None or size is None:
            return False
        return await line.upload(name, self._blobs, record["file_path"], size)

    async def _fetch(self, line: SandboxLine, session: Document, operation_id: str, item: StoredItem) -> Document | None:
        async with self._blobs.spool() as spool:
            if not await line.download(item.name, spool, self._settings.body_limit_bytes):
                return None
            new = NewFile(
                upn=session["upn"],
                file_name=item.name.encode("utf-8", "replace").decode("utf-8"),  # JSON may hold half a character
                spool=spool,
                origin="code-session",
                conversation_id=session["conversation_id"],
                metadata={
                    "code_session_file_upload_record_id": operation_id,
                    "code_session_file_path": item.parent,
                },
            )
            try:
                return await self._files.create(new)
            except Problem as problem:
                if problem.status == 500:
                    raise
                return None  # the gate's refusals are not errors of the call

    async def _discard(self, upn: str, documents: Sequence[Document | None]) -> None:
        for document in documents:
            if document is not None:
                with suppress(Problem):  # what cannot be taken back stays, as it does at the real server
                    await self._files.delete(upn, document["id"])

    async def _session(self, upn: str, session_id: str) -> Document:
        session = await self._records.find_session(upn, session_id)
        if session is None:
            raise thrown(CONTEXT_SERVICE, f"no code session {session_id!r} for this user; create it first")
        return session

    @asynccontextmanager
    async def _reached(self, session: Document) -> AsyncIterator[SandboxLine]:
        try:
            async with self._line(session) as line:
                yield line
        except SandboxUnreachable as error:
            raise thrown(error.title, str(error)) from error

    def _line(self, session: Document) -> AbstractAsyncContextManager[SandboxLine]:
        override = session.get("endpoint_provider_override")
        if override is None:
            name = session["endpoint_provider"]
            provider = self._provider_named(name)
            versioned = name in self._settings.azure_query_providers
        else:
            # Checked again: the record may be older than the present setting.
            problem = override_host_problem(override["endpoint"], self._settings.override_hosts)
            if problem is not None:
                raise thrown(CONTEXT_SERVICE, problem)
            provider, versioned = OverrideProvider(override["endpoint"]), False
        size = _asked_size(session)
        self._check_size(size)  # again: the record may be older than the present setting
        return self._lines.lend(provider, session_id=session["id"], upn=session["upn"], versioned=versioned, size=size)

    def _check_size(self, size: SandboxSize | None) -> None:
        if size is not None and (excess := size.beyond(self._settings.largest_sandbox)):
            raise refused(
                400,
                f"the sandbox that is asked for is larger than this installation allows: {'; '.join(excess)}. Ask for less (the workflow's "
                "sandbox properties), or let the operator allow more.",
            )

    def _provider_named(self, name: str) -> SandboxProvider:
        provider = self._providers.get(name)
        if provider is None:
            known = ", ".join(sorted(self._providers)) or "none"
            raise thrown(CONTEXT_SERVICE, f"endpoint provider {name!r} is not registered; there are: {known}")
        return provider


def _asked_size(session: Document) -> SandboxSize | None:
    text = session.get("metadata", {}).get(_SIZE)
    return None if text is None else SandboxSize.from_header(text)


def create_problems(upn: str, asked: CreateRequest, override_hosts: str) -> list[str]:
    """List the rules that a request to create a session breaks."""
    required = ("agent_name", "conversation_id", "context", "endpoint_provider", "language")
    problems = [f"{name} must not be empty" for name in required if not getattr(asked, name).strip()]
    if asked.language not in _LANGUAGES:
        problems.append(f"language {asked.language!r} is not one of {'/'.join(_LANGUAGES)}; its case counts")
    override = asked.endpoint_provider_override
    if override is not None:
        if not override.enabled:
            problems.append("endpoint_provider_override.enabled must be true; leave the override out instead")
        if override.upn.lower() != upn.lower():
            problems.append(f"endpoint_provider_override.upn {override.upn!r} is not the caller's")
        host_problem = override_host_problem(override.endpoint, override_hosts)
        if host_problem is not None:
            problems.append(host_problem)
    return problems


def wanted_items(items: Sequence[StoredItem], uploaded: Mapping[str, bool]) -> list[StoredItem]:
    """Leave out what was sent into the root, changed or not; the name alone decides."""
    return [item for item in items if item.parent != "/" or not uploaded.get(item.name, False)]


async def _each(
    items: Sequence[StoredItem], fetch: Callable[[StoredItem], Awaitable[Document | None]]
) -> tuple[list[Document | None], Exception | None]:
    """Fetch a few items at a time; return what came of each, in their order, and the first failure, which ends it as it would alone."""
    documents: list[Document | None] = [None] * len(items)
    waiting = iter(enumerate(items))
    failures: list[Exception] = []

    async def work() -> None:
        for number, item in waiting:
            if failures:
                return
            try:
                documents[number] = await fetch(item)
            except (Problem, SandboxUnreachable) as error:
                failures.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_FETCHED_AT_ONCE, len(items))):
            tasks.start_soon(work)
    return documents, failures[0] if failures else None


class _Turns:
    """One at a time per session id, whoever the user is: the sandbox may be shared."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, session_id: str) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(session_id) or (anyio.Lock(), 0)
        self._locks[session_id] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            _, waiting = self._locks[session_id]
            if waiting == 1:
                del self._locks[session_id]
            else:
                self._locks[session_id] = (lock, waiting - 1)
