"""Forks: a conversation that begins with the turns of another one, its files and the agent's memory together.

The platform makes conversations, not this service. So a fork is offered by a code, and taken by saying the code in a new conversation. The
code names its conversation and carries a secret; only the hash of the code is kept, in the record of the conversation that it opens. That
record is looked up by the user who asks: nobody else can use the code.
"""

import base64
import hashlib
import hmac
import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from context_client import UserIdentity
from orchestration_service.carrying import Carrier, wanted_files
from orchestration_service.conversations import sealed_turn
from orchestration_service.errors import ForkRefused
from orchestration_service.operations.conversation import Conversation, Conversations, ForkOffer, Origin, TurnRecord
from orchestration_service.operations.lease import Claim
from orchestration_service.user_workspace import RESERVED

_SECRET_BYTES = 16
_LIFETIME_HOURS = 24
_MOST_OFFERS = 20
_USELESS = (
    "This code opens no conversation of yours: it has expired, has been used, or is not complete. "
    "Say `/fork` in the conversation that is to go on elsewhere, and use the new code."
)


class Offered(NamedTuple):
    """A fork that waits to be taken."""

    code: str
    """What to say in the new conversation."""

    turn_number: int
    """The turn it begins with."""

    expires_at: datetime
    """From when on it is useless, UTC."""


class Target(NamedTuple):
    """The conversation that begins with turns of another one."""

    conversation_id: str
    """Its id."""

    agent_name: str
    """The agent that is spoken to there."""

    profile: str | None
    """The sandbox profile that agent asks for; None when it is not known before the next turn."""


class Forks:
    """Offers forks, and lets conversations take them."""

    def __init__(self, store: Conversations, carrier: Carrier) -> None:
        self._store = store
        self._carrier = carrier

    async def offer(self, conversation: Conversation | None, turn_number: int | None, claim: Claim | None = None) -> Offered:
        """Make a code for a turn of a conversation, its head by default.

        Raises:
            TurnUnknown: The turn was not sealed.
            ConversationChanged: Somebody else has changed the conversation meanwhile.
        """
        record = sealed_turn(conversation, _head_of(conversation) if turn_number is None else turn_number)
        assert conversation is not None
        wanted_files(conversation, record)
        now = datetime.now(UTC)
        code = _new_code(conversation.conversation_id)
        made = ForkOffer(code_sha256=_sha256(code), turn_number=record.turn_number, expires_at=now + timedelta(hours=_LIFETIME_HOURS))
        standing = [offer for offer in conversation.forks if offer.expires_at > now]
        offers = (*standing[-(_MOST_OFFERS - 1) :], made)
        await self._store.save_conversation(conversation.model_copy(update={"forks": offers}), claim)
        return Offered(code, record.turn_number, made.expires_at)

    async def join(
        self, code: str, identity: UserIdentity, target: Target, *, instance_id: str, upn: str, claim: Claim | None = None
    ) -> Conversation:
        """Let a conversation begin with the turns a code stands for. Repeating it in the same conversation changes nothing more.

        Raises:
            ForkRefused: The code is useless, or the conversation has begun already, or runs under another profile.
            SandboxUnavailable: The files could not be copied; the code can be used again here.
            ConversationChanged: Somebody else has changed one of the two conversations meanwhile.
        """
        source_id, sha256, now = _conversation_of(code), _sha256(code), datetime.now(UTC)
        source = await self._store.conversation(instance_id, upn, source_id) if source_id else None
        offers = source.forks if source else ()
        offer = next((offer for offer in offers if hmac.compare_digest(offer.code_sha256, sha256) and offer.expires_at > now), None)
        if source is None or offer is None or offer.taken_by not in ("", target.conversation_id):
            raise ForkRefused(_USELESS)
        existing = await self._check(source, offer.turn_number, target)
        if not offer.taken_by:
            taken = offer.model_copy(update={"taken_by": target.conversation_id})
            forks = tuple(taken if one is offer else one for one in source.forks)
            source = await self._store.save_conversation(source.model_copy(update={"forks": forks}), claim)
        return existing or await self._fork(source, offer.turn_number, identity, target, claim)

    async def fork(
        self, source: Conversation, turn_number: int | None, identity: UserIdentity, target: Target, claim: Claim | None = None
    ) -> Conversation:
        """Let a conversation begin with the turns of another one, without a code.

        Raises:
            TurnUnknown: The turn was not sealed.
            ForkRefused: The conversation has begun already, or runs under another profile.
            SandboxUnavailable: The files could not be copied.
            ConversationChanged: The conversation has begun meanwhile.
        """
        number = sealed_turn(source, source.head_turn if turn_number is None else turn_number).turn_number
        existing = await self._check(source, number, target)
        return existing or await self._fork(source, number, identity, target, claim)

    async def _check(self, source: Conversation, turn_number: int, target: Target) -> Conversation | None:
        """Return the target when it has taken over this very turn before."""
        if target.conversation_id == source.conversation_id:
            raise ForkRefused("A conversation cannot begin with itself. Say this in a new conversation.")
        if target.conversation_id.startswith(RESERVED):
            raise ForkRefused(f"Ids that begin with {RESERVED!r} are reserved. Name a conversation of the platform.")
        if target.profile not in (None, source.profile):
            raise ForkRefused(
                f"The other conversation runs under the sandbox profile {source.profile!r}, and this agent asks for {target.profile!r}. "
                "The profile never changes, so only an agent with the same one can go on from there."
            )
        existing = await self._store.conversation(source.instance_id, source.upn, target.conversation_id)
        if existing is None:
            return None
        if existing.origin != Origin(conversation_id=source.conversation_id, turn_number=turn_number):
            raise ForkRefused("This conversation has turns of its own already. A fork begins in a new conversation.")
        return existing

    async def _fork(
        self, source: Conversation, turn_number: int, identity: UserIdentity, target: Target, claim: Claim | None
    ) -> Conversation:
        record = sealed_turn(source, turn_number)
        files = wanted_files(source, record)
        carried = await self._carrier.carry(identity, files, to=target.conversation_id, agent_name=target.agent_name)
        return await self._store.save_conversation(_forked(source, record, target.conversation_id, carried), claim)


def _forked(source: Conversation, record: TurnRecord, conversation_id: str, carried: dict[str, str]) -> Conversation:
    """Return the new conversation: the turn and those before it, of which those can be gone back to whose archives were carried over."""
    return Conversation(
        instance_id=source.instance_id,
        upn=source.upn,
        conversation_id=conversation_id,
        profile=source.profile,
        head_turn=record.turn_number,
        turns=tuple(_taken_over(turn, carried) for turn in _line(source, record)),
        origin=Origin(conversation_id=source.conversation_id, turn_number=record.turn_number),
    )


def _line(source: Conversation, record: TurnRecord) -> list[TurnRecord]:
    line: list[TurnRecord] = []
    turn: TurnRecord | None = record
    while turn is not None and turn not in line:
        line.insert(0, turn)
        turn = source.turn(turn.parent_turn)
    return line


def _taken_over(turn: TurnRecord, carried: dict[str, str]) -> TurnRecord:
    file_ids = {name: carried.get(name, file_id) for name, file_id in turn.file_ids.items()}
    if carried.keys() >= {*turn.archives, *turn.inputs}:
        return turn.model_copy(update={"file_ids": file_ids})
    return turn.model_copy(update={"file_ids": file_ids, "seal_sha256": None, "archives": (), "inputs": ()})


def _head_of(conversation: Conversation | None) -> int:
    return conversation.head_turn if conversation else 0


def _new_code(conversation_id: str) -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES) + _packed(conversation_id)).decode().rstrip("=")


def _conversation_of(code: str) -> str:
    """Return the conversation a code names, empty when it is no code."""
    try:
        raw = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)[_SECRET_BYTES:]
        return str(uuid.UUID(bytes=raw[1:])) if raw[:1] == b"u" else raw[1:].decode()
    except ValueError:
        return ""


def _packed(conversation_id: str) -> bytes:
    """Write a conversation id short: the platform's are GUIDs, which need 16 bytes."""
    try:
        short = uuid.UUID(conversation_id)
    except ValueError:
        short = None
    return b"u" + short.bytes if short is not None and str(short) == conversation_id else b"t" + conversation_id.encode()


def _sha256(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
