"""The embedded Context API's web part: routes, and nothing they decide.

Handlers answer with finished bytes: executeCode is called hundreds of times a turn, and reading back what we wrote
ourselves would be most of its time.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from context_client.embedded.files import NewFile
from context_client.embedded.incoming import incoming_file
from context_client.embedded.openapi import describe
from context_client.embedded.paths import CaseInsensitivePaths
from context_client.embedded.problems import JSON, Problem, framework, refused, to_json
from context_client.embedded.provider import SandboxProvider
from context_client.embedded.records import Document
from context_client.embedded.requests import (
    CreateRequest,
    DownloadRequest,
    ExecuteRequest,
    UploadRequest,
    check_instance,
    check_key,
    read_json,
    read_size,
    read_upn,
)
from context_client.embedded.service import ContextService, open_service
from context_client.embedded.settings import EmbeddedSettings
from context_client.models import IDEMPOTENCY_KEY, FileRecord
from context_client.multipart import attachment_of
from context_client.size import SIZE_HEADER

_LONGEST_KEY = 255
_VERSION: Mapping[str, str] = {"api-supported-versions": "2025-03-20"}


@asynccontextmanager
async def open_app(settings: EmbeddedSettings, *, providers: Mapping[str, SandboxProvider]) -> AsyncIterator[FastAPI]:
    """Open the service and the app on it; both end with the block."""
    async with open_service(settings, providers=providers) as service:
        yield create_app(service, settings)


def create_app(service: ContextService, settings: EmbeddedSettings) -> FastAPI:
    """Make the app on an opened service.

    Args:
        service: What the routes call; its owner closes it.
        settings: The same settings the service was opened with.
    """
    app = FastAPI(title="Context API (embedded)", version=settings.version, docs_url=None, redoc_url=None)
    routes = _Routes(service, settings)
    for method, path, endpoint, body in routes.table():
        app.add_api_route(
            path,
            endpoint,
            methods=[method],
            response_model=None,
            openapi_extra=describe(path, body, settings.api_key_header),
        )
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(HTTPException, _answer_framework)
    app.add_exception_handler(Exception, _answer_unexpected)
    app.add_middleware(CaseInsensitivePaths)
    return app


class _Routes:
    """The handlers, all of one form: check, read, call, write."""

    def __init__(self, service: ContextService, settings: EmbeddedSettings) -> None:
        self._service = service
        self._settings = settings
        self._limit = settings.body_limit_bytes

    def table(self) -> list[tuple[str, str, Any, type[Any] | None]]:
        i = "/instances/{instance_id}"
        session = f"{i}/codeSessions/{{session_id}}"
        return [
            ("GET", f"{i}/status", self.status, None),
            ("OPTIONS", f"{i}/status", self.options, None),
            ("POST", f"{i}/codeSessions", self.create, CreateRequest),
            ("POST", f"{session}/uploadFiles", self.upload, UploadRequest),
            ("POST", f"{session}/executeCode", self.execute, ExecuteRequest),
            ("POST", f"{session}/downloadFiles", self.download, DownloadRequest),
            ("POST", f"{i}/conversations/{{conversation_id}}/files", self.add_conversation_file, None),
            ("POST", f"{i}/agents/{{agent_name}}/files", self.add_agent_file, None),
            ("GET", f"{i}/files/{{file_id}}", self.content, None),
            ("GET", f"{i}/fileRecords/{{file_id}}", self.record, None),
            ("DELETE", f"{i}/fileRecords/{{file_id}}", self.delete, None),
        ]

    async def status(self, request: Request) -> Response:
        """Say how the server is; anyone may ask."""
        check_instance(request, self._settings)
        answer = {
            "name": "ContextAPI",
            "instance_id": self._settings.instance_id,
            "instance_name": self._settings.instance_name,
            "version": self._settings.version,
            "status": "Ready",
            "message": None,
        }
        return _json(answer)

    async def options(self, request: Request) -> Response:
        """Say what may be asked of the status route."""
        check_instance(request, self._settings)
        return Response(headers=dict(_VERSION) | {"Allow": "GET,POST,OPTIONS"})

    async def create(self, request: Request) -> Response:
        """Name a sandbox."""
        upn = self._caller(request)
        asked = await read_json(request, CreateRequest, self._limit)
        return _json(await self._service.sessions.create(upn, asked, read_size(request)))

    async def upload(self, request: Request) -> Response:
        """Wipe a sandbox's store and fill it."""
        upn = self._caller(request)
        asked = await read_json(request, UploadRequest, self._limit)
        said, size = await self._service.sessions.upload(upn, request.path_params["session_id"], asked.file_names)
        answer = _json(said)
        if size is not None:
            answer.headers[SIZE_HEADER] = size.to_header()
        return answer

    async def execute(self, request: Request) -> Response:
        """Run code in a sandbox."""
        upn = self._caller(request)
        asked = await read_json(request, ExecuteRequest, self._limit)
        session_id = request.path_params["session_id"]
        return _json(await self._service.sessions.execute(upn, session_id, asked.code_to_execute))

    async def download(self, request: Request) -> Response:
        """Make records of a sandbox's outputs."""
        upn = self._caller(request)
        asked = await read_json(request, DownloadRequest, self._limit)
        session_id = request.path_params["session_id"]
        key = _key(request)
        made, lost = await self._service.sessions.download(upn, session_id, asked.operation_id, key)
        return _heeding(_json({"file_records": {document["id"]: _on_wire(document) for document in made}, "errors": lost}), key)

    async def add_conversation_file(self, request: Request) -> Response:
        """Keep a user's file for a conversation."""
        upn = self._caller(request)
        async with incoming_file(request, self._service.blobs, self._limit) as file:
            agent_name = _query(request, "agentname")
            if not agent_name:
                raise refused(400, "agentName is missing; add it to the query")
            new = NewFile(
                upn=upn,
                file_name=file.file_name,
                spool=file.spool,
                conversation_id=request.path_params["conversation_id"],
                agent_name=agent_name,
            )
            key = _key(request)
            return _heeding(_json(_on_wire(await self._service.files.create_once(new, key))), key)

    async def add_agent_file(self, request: Request) -> Response:
        """Keep a user's file for an agent."""
        upn = self._caller(request)
        async with incoming_file(request, self._service.blobs, self._limit) as file:
            new = NewFile(
                upn=upn,
                file_name=file.file_name,
                spool=file.spool,
                agent_name=request.path_params["agent_name"],
            )
            return _json(_on_wire(await self._service.files.create(new)))

    async def content(self, request: Request) -> Response:
        """Give a file's bytes."""
        upn = self._caller(request)
        document = await self._service.files.record(upn, request.path_params["file_id"])
        size = await self._service.files.content_size(document)
        headers = dict(_VERSION) | {
            "Content-Type": document["content_type"],
            "Content-Length": str(size),
            "Content-Disposition": attachment_of(document["file_name"]),
            # What users and sandboxes wrote must never run as a page of this server.
            "X-Content-Type-Options": "nosniff",
        }
        return StreamingResponse(self._service.blobs.chunks(document["file_path"]), headers=headers)

    async def record(self, request: Request) -> Response:
        """Give a file's record."""
        upn = self._caller(request)
        return _json(_on_wire(await self._service.files.record(upn, request.path_params["file_id"])))

    async def delete(self, request: Request) -> Response:
        """Delete a file; failure is told under status 200 unless the settings say otherwise."""
        upn = self._caller(request)
        try:
            await self._service.files.delete(upn, request.path_params["file_id"])
        except Problem as problem:
            if not self._settings.failed_delete_is_200:
                raise
            return Response(problem.body, 200, _VERSION, problem.media_type)
        return Response(headers=_VERSION)

    def _caller(self, request: Request) -> str:
        check_instance(request, self._settings)
        check_key(request, self._settings)
        return read_upn(request)


def _key(request: Request) -> str:
    return request.headers.get(IDEMPOTENCY_KEY, "")[:_LONGEST_KEY]


def _heeding(answer: Response, key: str) -> Response:
    """Say that the name of the call was heeded, if it had one."""
    if key:
        answer.headers[IDEMPOTENCY_KEY] = key
    return answer


def _json(value: Any) -> Response:
    return Response(to_json(value), 200, _VERSION, JSON)


def _on_wire(document: Document) -> dict[str, Any]:
    return FileRecord.model_validate(document).model_dump()


def _query(request: Request, name: str) -> str:
    return next((value for key, value in request.query_params.multi_items() if key.lower() == name), "")


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return Response(error.body, error.status, _VERSION, error.media_type)


async def _answer_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = framework(error.status_code, str(error.detail))
    return Response(problem.body, problem.status, dict(_VERSION) | dict(error.headers or {}), problem.media_type)


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    problem = framework(500, "An error occurred while processing the request.")
    return Response(problem.body, problem.status, _VERSION, problem.media_type)
