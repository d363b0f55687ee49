"""What comes in: bodies, keys and identities, each read once and refused in the real server's words."""

import hmac
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from context_client.embedded.problems import NULL_REFERENCE, Problem, framework, invalid, plain, refused, thrown, to_json
from context_client.embedded.settings import EmbeddedSettings
from context_client.errors import IdentityError
from context_client.identity import UserIdentity
from context_client.models import EndpointOverride
from context_client.size import SIZE_HEADER, SandboxSize

_Body = TypeVar("_Body", bound=BaseModel)


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class CreateRequest(_Request):
    """Body of `POST codeSessions`; rules beyond the types are the service's."""

    agent_name: str = Field(description="Agent that asks.")
    conversation_id: str = Field(description="Conversation whose files the session can reach.")
    context: str = Field(description="What tells sandboxes of one conversation apart.")
    endpoint_provider: str = Field(description="Wire name of the provider.")
    language: str = Field(description="`Python` or `CSharp`.")
    endpoint_provider_override: EndpointOverride | None = Field(default=None, description="A container of one's own.")


class UploadRequest(_Request):
    """Body of `uploadFiles`."""

    file_names: list[str] = Field(description="Names of conversation files; may be empty.")


class ExecuteRequest(_Request):
    """Body of `executeCode`."""

    code_to_execute: str = Field(description="Source text.")


class DownloadRequest(_Request):
    """Body of `downloadFiles`."""

    operation_id: str = Field(description="As given by `uploadFiles`.")


def check_instance(request: Request, settings: EmbeddedSettings) -> None:
    """Refuse other instances, before anything else is looked at."""
    if request.path_params["instance_id"] != settings.instance_id:
        raise plain(403, "This server serves another instance.")


def check_key(request: Request, settings: EmbeddedSettings) -> None:
    """Refuse a missing or wrong key, in constant time."""
    given = request.headers.get(settings.api_key_header, "").encode("latin-1", "replace")
    if not hmac.compare_digest(given, settings.api_key.get_secret_value().encode("utf-8")):
        sentence = f"The API key in header {settings.api_key_header} is missing or wrong."
        if "json" in request.headers.get("accept", ""):
            raise Problem(401, "application/json; charset=utf-8", to_json(sentence))
        raise plain(401, sentence)


def read_upn(request: Request) -> str:
    """Read whom the call is for.

    Raises:
        Problem: 500, as in the real server: without an identity it stumbles over null, with a broken one over JSON.
    """
    header = request.headers.get("x-user-identity")
    if header is None:
        raise thrown(NULL_REFERENCE, "the X-USER-IDENTITY header is missing; send the user as JSON")
    try:
        # Python clients send the header in raw UTF-8; servers see Latin-1.
        upn = UserIdentity.from_header(header.encode("latin-1").decode("utf-8", "replace")).upn
        upn.encode("utf-8")
    except (IdentityError, UnicodeEncodeError) as error:
        raise framework(500, "The X-USER-IDENTITY header cannot be read.") from error
    if not upn:
        raise thrown(NULL_REFERENCE, "the X-USER-IDENTITY header names no 'upn'; its case counts")
    return upn


def read_size(request: Request) -> SandboxSize | None:
    """Read how large the sandbox shall be; the real server does not look.

    Raises:
        Problem: 400 for what cannot be read: whoever asks for a size must not get another one in silence.
    """
    header = request.headers.get(SIZE_HEADER)
    if header is None:
        return None
    try:
        return SandboxSize.from_header(header)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise refused(400, f"the header {SIZE_HEADER} cannot be read ({where}: {first['msg']}); leave it out for the usual size") from error


async def read_json(request: Request, model: type[_Body], limit_bytes: int) -> _Body:
    """Read a JSON body into its model.

    Raises:
        Problem: 415 for other media types, 413 over the limit, 400 for what does not fit.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in {"application/json", "text/json"} and not media_type.endswith("+json"):
        raise framework(415, "Unsupported Media Type")
    body = await read_body(request, limit_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        errors: dict[str, list[str]] = {}
        for problem in error.errors(include_input=False, include_url=False):
            path = ".".join(["$", *map(str, problem["loc"])])
            errors.setdefault(path, []).append(problem["msg"])
        raise invalid(errors | {"request": ["The request field is required."]}) from error


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Read a body that must not be longer than the limit."""
    check_length(request, limit_bytes)
    pieces: list[bytes] = []
    left = limit_bytes
    async for chunk in request.stream():
        left -= len(chunk)
        if left < 0:
            raise too_large(limit_bytes)
        pieces.append(chunk)
    return b"".join(pieces)


def check_length(request: Request, limit_bytes: int) -> None:
    """Refuse a body by its announced length, before reading it."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit_bytes:
        raise too_large(limit_bytes)


def too_large(limit_bytes: int) -> Problem:
    """Say that a body is too long."""
    return framework(413, f"Payload Too Large: the limit is {limit_bytes} bytes")
