"""The Context API as its callers see it: code sessions and files, one async client over httpx.

Every call acts for one user, given first. Success gives a frozen model; failure raises from the tree in `errors.py`.
The transport is the only seam: a real server, an app in process and a test server differ in nothing else.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from context_client.errors import InvalidRequest, ProtocolError
from context_client.exchange import Call, send
from context_client.identity import UserIdentity
from context_client.models import (
    IDEMPOTENCY_KEY,
    CodeSession,
    EndpointOverride,
    ExecutionResult,
    FileContent,
    FileRecord,
    ServiceStatus,
    SessionDownload,
    SessionUpload,
)
from context_client.multipart import content_type_of, enclose, file_name_of
from context_client.size import SIZE_HEADER, SandboxSize

_Model = TypeVar("_Model", bound=BaseModel)

LONGEST_CONTEXT = 128
DEFAULT_TIMEOUT_SECONDS = 60.0
# The server itself gives a sandbox ten minutes; a client that gives up earlier loses an answer that is on its way.
EXECUTE_TIMEOUT_SECONDS = 630.0
_CONNECT_TIMEOUT_SECONDS = 10.0
_CONTEXT = re.compile(r"[A-Za-z0-9-]+")
# Long polls and quick calls run side by side by the hundred; none may wait for a connection of another.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0)


class ContextClient:
    """A client of one Context API server and one platform instance; use it with `async with`."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        instance_id: str,
        api_key_header: str = "X-API-KEY",
        api_key_prefix: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Prepare the client; nothing is sent.

        Args:
            base_url: Where the server is; may have a path, with or without a slash at the end.
            api_key: The server's key. Whoever holds it can act as any user.
            instance_id: The platform instance all calls are about.
            api_key_header: Header that carries the key.
            api_key_prefix: Put in front of the key exactly as given; add the blank yourself if there must be one.
            transport: How bytes get there; None means plain HTTP(S). Closed together with the client.
            timeout: Seconds of silence after which a call fails, except where a call has its own.
        """
        self._instance = f"instances/{_segment(instance_id, 'instance id')}"
        self._http = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + "/",
            headers={api_key_header: f"{api_key_prefix or ''}{api_key}", "Accept": "*/*"},
            transport=transport,
            timeout=httpx.Timeout(timeout, connect=_CONNECT_TIMEOUT_SECONDS),
            limits=_LIMITS,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def status(self) -> ServiceStatus:
        """Ask the server how it is; needs neither key nor user."""
        return _read(ServiceStatus, await send(self._http, self._call("GET", "status", None)))

    async def create_code_session(
        self,
        identity: UserIdentity,
        *,
        agent_name: str,
        conversation_id: str,
        context: str,
        endpoint_provider: str,
        language: str = "Python",
        override: EndpointOverride | None = None,
        size: SandboxSize | None = None,
    ) -> CodeSession:
        """Name a sandbox; it starts on first use. Same conversation and context give the same sandbox.

        Args:
            identity: The owner of the session.
            agent_name: Agent that asks.
            conversation_id: Conversation whose files the session can reach.
            context: What tells sandboxes of one conversation apart; letters, digits and dashes.
            endpoint_provider: Wire name of the provider, case-sensitive.
            language: `Python` or `CSharp`, exactly.
            override: A container of the user's own instead of the provider's.
            size: What the sandbox shall have when it is started. The platform ignores it; `SessionUpload.size` says what there is.

        Raises:
            InvalidRequest: The server's validator refuses, or the id would not survive: `context` has other
                characters, or the session id would be longer than 128 and lose its end.
        """
        if not _CONTEXT.fullmatch(context):
            raise InvalidRequest(
                "the code session was not created",
                detail=f"context {context!r} cannot be part of a sandbox id; use letters, digits and '-'",
            )
        length = len(f"code-{conversation_id}-{context}")
        if length > LONGEST_CONTEXT:
            raise InvalidRequest(
                "the code session was not created",
                detail=f"its id would have {length} characters and be cut at {LONGEST_CONTEXT}; shorten the context",
            )
        body = {
            "agent_name": agent_name,
            "conversation_id": conversation_id,
            "context": context,
            "endpoint_provider": endpoint_provider,
            "language": language,
            "endpoint_provider_override": None if override is None else override.model_dump(),
        }
        headers = {} if size is None else {SIZE_HEADER: size.to_header()}
        call = self._call("POST", "codeSessions", identity, headers=headers, json=body, purpose="create")
        return _read(CodeSession, await send(self._http, call))

    async def upload_to_session(self, identity: UserIdentity, session_id: str, file_names: Iterable[str]) -> SessionUpload:
        """Wipe the sandbox's file store, then put the conversation's newest files of these names in.

        An empty list only wipes. Check every flag: a name that is missing or refused does not fail the call.
        """
        path = f"codeSessions/{_segment(session_id, 'session id')}/uploadFiles"
        body = {"file_names": list(file_names)}
        call = self._call("POST", path, identity, json=body, timeout_seconds=EXECUTE_TIMEOUT_SECONDS)
        response = await send(self._http, call)
        return _read(SessionUpload, response).model_copy(update={"size": _size(response)})

    async def execute_code(
        self, identity: UserIdentity, session_id: str, code: str, *, timeout_seconds: float | None = None
    ) -> ExecutionResult:
        """Run code in the sandbox and wait for its end.

        `status` says only whether the sandbox answered; let the code print a mark of its own to know it worked.

        Args:
            identity: The owner of the session.
            session_id: As given by `create_code_session`.
            code: Python source.
            timeout_seconds: Longest silence to bear; the default outlasts the server's own ten minutes.
        """
        path = f"codeSessions/{_segment(session_id, 'session id')}/executeCode"
        wait = EXECUTE_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        call = self._call("POST", path, identity, json={"code_to_execute": code}, timeout_seconds=wait)
        return _read(ExecutionResult, await send(self._http, call))

    async def download_from_session(
        self, identity: UserIdentity, session_id: str, operation_id: str, *, key: str | None = None
    ) -> SessionDownload:
        """Make file records of everything new in the sandbox. Call it once: each call makes new records.

        Files refused by the server's gate are in `errors`, files changed in place are nowhere, and a sandbox that
        could not list its files looks like one without files: compare with what you expect.

        Args:
            identity: The owner of the session.
            session_id: As given by `create_code_session`.
            operation_id: As given by `upload_to_session`.
            key: Names the call. The embedded server gives the same records again for the same key; the platform ignores it. Which
                of the two it was, `SessionDownload.repeatable` says.
        """
        path = f"codeSessions/{_segment(session_id, 'session id')}/downloadFiles"
        body = {"operation_id": operation_id}
        headers = {} if key is None else {IDEMPOTENCY_KEY: key}
        call = self._call("POST", path, identity, headers=headers, json=body, timeout_seconds=EXECUTE_TIMEOUT_SECONDS)
        response = await send(self._http, call)
        return _read(SessionDownload, response).model_copy(update={"repeatable": _heeded(response, key)})

    async def upload_conversation_file(
        self,
        identity: UserIdentity,
        conversation_id: str,
        agent_name: str,
        file_name: str,
        content: bytes,
        content_type: str = "application/octet-stream",
        *,
        key: str | None = None,
    ) -> FileRecord:
        """Keep a file for a conversation.

        Args:
            identity: Its owner.
            conversation_id: The conversation.
            agent_name: The agent it is meant for.
            file_name: Its name.
            content: Its bytes.
            content_type: What it is said to be.
            key: Names the call; heeded as in `download_from_session`, and told by `FileRecord.repeatable`.

        Raises:
            ContentRefused: The gate or the safety check refuses it; zip and tar pass without a safety check.
            TooLarge: More than the server takes (512 MiB).
        """
        path = f"conversations/{_segment(conversation_id, 'conversation id')}/files"
        return await self._upload(identity, path, file_name, content, content_type, {"agentName": agent_name}, key)

    async def upload_agent_file(
        self,
        identity: UserIdentity,
        agent_name: str,
        file_name: str,
        content: bytes,
        content_type: str = "application/octet-stream",
    ) -> FileRecord:
        """Keep a file for an agent; same refusals as for conversations, but no safety check."""
        path = f"agents/{_segment(agent_name, 'agent name')}/files"
        return await self._upload(identity, path, file_name, content, content_type, None)

    async def file_content(self, identity: UserIdentity, file_id: str) -> FileContent:
        """Fetch a file's bytes, its name taken from `filename*`, else `filename`."""
        response = await send(self._http, self._call("GET", f"files/{_segment(file_id, 'file id')}", identity))
        return FileContent(
            file_name=file_name_of(response.headers.get("content-disposition", "")) or "",
            content_type=response.headers.get("content-type", "application/octet-stream"),
            content=response.content,
        )

    async def file_record(self, identity: UserIdentity, file_id: str) -> FileRecord:
        """Fetch a file's record."""
        call = self._call("GET", f"fileRecords/{_segment(file_id, 'file id')}", identity)
        return _read(FileRecord, await send(self._http, call))

    async def delete_file_record(self, identity: UserIdentity, file_id: str) -> None:
        """Delete a file: its bytes for good, its record softly.

        Raises:
            NotFoundOrNotOwned: Also where the server hides the failure under status 200.
        """
        await send(self._http, self._call("DELETE", f"fileRecords/{_segment(file_id, 'file id')}", identity))

    async def _upload(
        self,
        identity: UserIdentity,
        path: str,
        file_name: str,
        content: bytes,
        content_type: str,
        params: Mapping[str, str] | None,
        key: str | None = None,
    ) -> FileRecord:
        if not re.fullmatch(r"[\x20-\x7e]+", content_type):
            raise InvalidRequest("the file was not sent", detail=f"content type {content_type!r} is not a header value")
        boundary = secrets.token_hex(16)
        head, tail = enclose(boundary, file_name, content_type)
        call = self._call(
            "POST",
            path,
            identity,
            purpose="create",
            headers={"Content-Type": content_type_of(boundary)} | ({} if key is None else {IDEMPOTENCY_KEY: key}),
            content=b"".join((head, content, tail)),
            params=params,
        )
        response = await send(self._http, call)
        return _read(FileRecord, response).model_copy(update={"repeatable": _heeded(response, key)})

    def _call(
        self,
        method: str,
        path: str,
        identity: UserIdentity | None,
        *,
        headers: Mapping[str, str] | None = None,
        purpose: Any = "lookup",
        timeout_seconds: float | None = None,
        **body: Any,
    ) -> Call:
        merged = dict(headers or {})
        if identity is not None:
            merged["X-USER-IDENTITY"] = identity.to_header()
        return Call(
            method=method,
            path=f"{self._instance}/{path}",
            headers=merged,
            body=body,
            purpose=purpose,
            timeout_seconds=timeout_seconds,
        )


def _heeded(response: httpx.Response, key: str | None) -> bool:
    return key is not None and response.headers.get(IDEMPOTENCY_KEY) == key


def _size(response: httpx.Response) -> SandboxSize | None:
    header = response.headers.get(SIZE_HEADER)
    if header is None:
        return None
    try:
        return SandboxSize.from_header(header)
    except ValidationError:
        return None  # of a later version of the server: as good as one that says nothing


def _segment(value: str, what: str) -> str:
    # A dot segment would be resolved by URL rules, and an empty one would name another route.
    if value in {"", ".", ".."}:
        raise InvalidRequest("nothing was sent", detail=f"{what} {value!r} cannot be part of an address")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise InvalidRequest("nothing was sent", detail=f"{what} {value!r} is not valid text: {error}") from error


def _read(model: type[_Model], response: httpx.Response) -> _Model:
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ProtocolError(
            f"the answer is not a {model.__name__}",
            detail=f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}; is this URL the Context API?",
            status=response.status_code,
        ) from error
