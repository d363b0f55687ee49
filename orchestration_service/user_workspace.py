"""The workspace a user has with an agent, whatever the conversation: what `workspace_storage_scope: user` stands for.

Its record is a conversation of its own under a reserved id, one for each agent and sandbox profile, so files never come from a sandbox of
another trust level. It has one turn: the one that was sealed last, in whichever conversation that was. A new conversation gets copies of
its archives under names of their own, because the names of the two conversations' turns are the same.
"""

from dataclasses import dataclass

from orchestration_service.carrying import Carrier, wanted_files
from orchestration_service.errors import ConversationChanged, ForkRefused
from orchestration_service.operations import AcceptedTurn
from orchestration_service.operations.conversation import Conversation, Conversations, Origin, TurnRecord
from orchestration_service.operations.lease import Claim
from orchestration_service.planning import Continuing, Planned
from workflow_schemas.plan import Restore

RESERVED = "user-workspace:"
"""Beginning of the ids under which these records are kept; a conversation of the platform may not begin like this."""

_ATTEMPTS = 4


@dataclass(frozen=True)
class Brought:
    """What a conversation begins with."""

    continuing: Continuing | None = None
    """The workspace, if there is one."""

    remarks: tuple[str, ...] = ()
    """What the user should know about it."""


class UserWorkspaces:
    """Gives a new conversation the newest workspace of its user with its agent, and keeps it when a turn has ended."""

    def __init__(self, store: Conversations, carrier: Carrier) -> None:
        self._store = store
        self._carrier = carrier

    async def begin(self, turn: AcceptedTurn, conversation: Conversation | None, planned: Planned) -> Brought:
        """Return what a conversation without a sealed turn begins with: nothing where there is none, or it belongs to the conversation.

        Raises:
            SandboxUnavailable: There is a workspace, and its files could not be copied now.
        """
        operation = turn.operation
        own = conversation is not None and any(turn.seal_sha256 for turn in conversation.turns)
        if own or not _is_shared(planned) or not operation.conversation_id:
            return Brought()
        kept = await self._store.conversation(operation.instance_id, operation.upn, _reserved(planned, operation.agent_name))
        try:
            return Brought(await self._copied(turn, kept) if kept else None)
        except ForkRefused as error:  # nobody can put that right, and new conversations must begin all the same
            return Brought(remarks=(f"This conversation begins without the files of the earlier ones: {error}",))

    async def _copied(self, turn: AcceptedTurn, kept: Conversation) -> Continuing | None:
        operation, record = turn.operation, kept.head
        if kept.origin is None or record is None or record.seal_sha256 is None or not operation.conversation_id:
            return None
        files = wanted_files(kept, record)
        own = {name: f"shared-{record.seal_sha256[:16]}-{name}" for name in files}
        await self._carrier.carry(
            turn.identity,
            files,
            to=operation.conversation_id,
            agent_name=operation.agent_name,
            names=tuple(own.values()),
        )
        restore = Restore(
            turn_number=record.turn_number,
            archives=tuple(own[name] for name in record.archives),
            index_sha256=record.seal_sha256,
            inputs={name: own[name] for name in record.inputs},
            from_conversation=kept.origin.conversation_id,
        )
        return Continuing(restore=restore)

    async def keep(self, turn: AcceptedTurn, conversation: Conversation, planned: Planned, claim: Claim | None = None) -> tuple[str, ...]:
        """Note the workspace of the head turn as the newest of its user; return what the user should know.

        The last turn that was sealed wins. Whoever loses against others again and again says so and leaves the record to them.
        """
        record = conversation.head
        if not _is_shared(planned) or record is None or record.seal_sha256 is None:
            return ()
        try:
            kept = _kept(conversation, record, _reserved(planned, turn.operation.agent_name))
        except ForkRefused as error:
            return (f"New conversations do not begin with this workspace: {error}",)
        for _ in range(_ATTEMPTS):
            there = await self._store.conversation(kept.instance_id, kept.upn, kept.conversation_id)
            if there is not None and there.head is not None and there.head.created_at > record.created_at:
                return ("Another conversation has kept a newer workspace meanwhile: new conversations begin with that one.",)
            try:
                await self._store.save_conversation(kept.model_copy(update={"version": there.version if there else 0}), claim)
            except ConversationChanged:
                continue
            return ()
        return ("Several conversations kept their workspace at the same moment: new conversations begin with one of the others.",)


def _is_shared(planned: Planned) -> bool:
    properties = planned.properties
    return properties.workspace_storage_scope == "user" and properties.workspace_persistence_mode != "none"


def _reserved(planned: Planned, agent_name: str) -> str:
    return f"{RESERVED}{planned.properties.sandbox_profile}:{agent_name.casefold()}"


def _kept(conversation: Conversation, record: TurnRecord, reserved: str) -> Conversation:
    alone = record.model_copy(update={"parent_turn": 0, "file_ids": wanted_files(conversation, record)})
    return Conversation(
        instance_id=conversation.instance_id,
        upn=conversation.upn,
        conversation_id=reserved,
        profile=conversation.profile,
        head_turn=record.turn_number,
        turns=(alone,),
        origin=Origin(conversation_id=conversation.conversation_id, turn_number=record.turn_number),
    )
