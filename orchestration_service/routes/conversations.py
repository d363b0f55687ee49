"""Conversations: which turns there are to go on from, going back to one, and beginning another conversation with one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from orchestration_service.conversations import rewound
from orchestration_service.errors import ConversationBusy, ConversationUnknown, RequestInvalid
from orchestration_service.forking import Forks, Target
from orchestration_service.operations import OperationStore
from orchestration_service.operations.conversation import Conversation
from orchestration_service.routes.bodies import CONVERSATION_LIMIT, read_body
from orchestration_service.routes.openapi import IDENTITY_PARAMETER
from orchestration_service.routes.problems import describe_invalid, documented
from orchestration_service.security import Caller, Doorkeeper
from orchestration_service.user_workspace import RESERVED

_BODY_BYTES = 64 * 1024
_Body = TypeVar("_Body", bound=BaseModel)
_REFUSALS = (400, 401, 403, 404, 409, 413, 503, 507)
InstanceId = Annotated[str, Path(description="Id of the platform instance.")]
ConversationId = Annotated[str, Path(description="Id of the conversation.")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class TurnShown(_Model):
    """A turn of a conversation."""

    turn_number: int
    """Its number."""
    parent_turn: int
    """The turn it continued; 0 when it started from nothing."""
    operation_id: str
    """The operation it fulfilled."""
    end_reason: str
    """What ended it."""
    created_at: datetime
    """When it ended, UTC."""
    is_sealed: bool
    """Whether it can be gone back to, and forked."""
    is_head: bool
    """Whether the next turn goes on from it."""
    files: dict[str, str]
    """Ids of the user's file records by file name."""


class ConversationShown(_Model):
    """A conversation as it stands."""

    conversation_id: str
    """Its id."""
    sandbox_profile: str
    """The sandbox profile pinned at its first turn."""
    head_turn: int
    """The turn the next one goes on from; 0 for none."""
    forked_from: str | None
    """The conversation its first turns were taken over from."""
    turns: tuple[TurnShown, ...]
    """Its turns, in the order in which they were saved."""


class RewindAsked(_Model):
    """Where to go back to."""

    turn_number: int = Field(ge=1, le=999_999)
    """The turn the next one shall go on from."""


class ForkAsked(_Model):
    """What shall begin with what."""

    target_conversation_id: str = Field(min_length=1, max_length=CONVERSATION_LIMIT, pattern=r"^[^\x00-\x1f\x7f]+$")
    """A conversation that has no turn yet."""
    turn_number: int | None = Field(None, ge=1, le=999_999)
    """The turn it begins with; without one the last."""


class _Desk:
    """Finds a user's conversations and keeps away from those in which a turn is running."""

    def __init__(self, operations: OperationStore, doorkeeper: Doorkeeper) -> None:
        self.operations = operations
        self._doorkeeper = doorkeeper

    def admit(self, instance_id: str, request: Request) -> Caller:
        return self._doorkeeper.admit(instance_id, request.headers)

    async def find(self, caller: Caller, conversation_id: str) -> Conversation:
        """Return a conversation of the caller.

        Raises:
            ConversationUnknown: There is none; whether somebody else has one of this id is not said.
        """
        found = None
        if not conversation_id.startswith(RESERVED):
            found = await self.operations.conversation(self._doorkeeper.instance_id, caller.upn, conversation_id)
        if found is None:
            raise ConversationUnknown(conversation_id)
        return found

    async def check_idle(self, caller: Caller, *conversation_ids: str) -> None:
        """Raise `ConversationBusy` while a turn runs or waits in one of these: it would be surprised at its end."""
        for operation in await self.operations.unfinished(self._doorkeeper.instance_id):
            if operation.conversation_id in conversation_ids and operation.belongs_to(caller.upn):
                raise ConversationBusy(operation.conversation_id or "")


def router(operations: OperationStore, *, doorkeeper: Doorkeeper, forks: Forks) -> APIRouter:
    """Return the routes about conversations."""
    routes = APIRouter(tags=["conversations"])
    desk = _Desk(operations, doorkeeper)
    path = "/instances/{instance_id}/conversations/{conversation_id}"

    @routes.get(path, **_described("The conversation."), summary="Look at a conversation")
    async def show_conversation(instance_id: InstanceId, conversation_id: ConversationId, request: Request) -> Response:
        """Say which turns there are and which one the next goes on from."""
        return _shown(await desk.find(desk.admit(instance_id, request), conversation_id))

    @routes.post(f"{path}/rewind", **_described("The conversation, gone back.", RewindAsked), summary="Go back to a turn")
    async def rewind_conversation(instance_id: InstanceId, conversation_id: ConversationId, request: Request) -> Response:
        """Make an earlier turn the one the next goes on from: files and memory together. No turn is lost by it."""
        caller = desk.admit(instance_id, request)
        asked = await _read(request, RewindAsked)
        conversation = await desk.find(caller, conversation_id)
        await desk.check_idle(caller, conversation_id)
        return _shown(await operations.save_conversation(rewound(conversation, asked.turn_number)))

    @routes.post(f"{path}/fork", **_described("The conversation that was begun.", ForkAsked), summary="Begin another conversation")
    async def fork_conversation(instance_id: InstanceId, conversation_id: ConversationId, request: Request) -> Response:
        """Let a new conversation begin with the turns of this one. Repeating it changes nothing more."""
        caller = desk.admit(instance_id, request)
        asked = await _read(request, ForkAsked)
        conversation = await desk.find(caller, conversation_id)
        await desk.check_idle(caller, conversation_id, asked.target_conversation_id)
        target = Target(asked.target_conversation_id, await _agent_of(operations, conversation), None)
        return _shown(await forks.fork(conversation, asked.turn_number, caller.identity, target))

    return routes


def _described(what: str, body: type[BaseModel] | None = None) -> dict[str, Any]:
    extra: dict[str, Any] = {"parameters": [IDENTITY_PARAMETER], "security": [{"ApiKey": []}]}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}
    return {
        "responses": {200: {"model": ConversationShown, "description": what}, **documented(*_REFUSALS)},
        "response_class": Response,
        "openapi_extra": extra,
    }


async def _read(request: Request, model: type[_Body]) -> _Body:
    body = await read_body(request, _BODY_BYTES)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RequestInvalid(describe_invalid(error, "The body")) from error


async def _agent_of(operations: OperationStore, conversation: Conversation) -> str:
    """Return the agent that was spoken to last; the platform wants to know whose files the copies are."""
    for turn in reversed(conversation.turns):
        operation = await operations.get(conversation.instance_id, turn.operation_id)
        if operation is not None:
            return operation.agent_name
    return "claude-code"


def _shown(conversation: Conversation) -> Response:
    shown = ConversationShown(
        conversation_id=conversation.conversation_id,
        sandbox_profile=conversation.profile,
        head_turn=conversation.head_turn,
        forked_from=conversation.origin.conversation_id if conversation.origin else None,
        turns=tuple(
            TurnShown(
                turn_number=turn.turn_number,
                parent_turn=turn.parent_turn,
                operation_id=turn.operation_id,
                end_reason=turn.end_reason,
                created_at=turn.created_at,
                is_sealed=turn.seal_sha256 is not None,
                is_head=turn.turn_number == conversation.head_turn,
                files=turn.file_ids,
            )
            for turn in conversation.turns
        ),
    )
    return Response(shown.model_dump_json(), media_type="application/json", headers={"Cache-Control": "no-store"})
