"""Carries sealed archives from one conversation to another: a code session finds files of its own conversation only, and by name.

Each carrier has one archive in memory at a time, whatever number of users ask at once; an archive is below the platform's 128 MB.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from context_client import ContextApiError, ContextClient, NotFoundOrNotOwned, UserIdentity
from orchestration_service.errors import ForkRefused, SandboxUnavailable
from orchestration_service.operations import AcceptedTurn
from orchestration_service.operations.conversation import Conversation, TurnRecord
from orchestration_service.planning import Continuing
from orchestration_service.sessions import SessionSettings, reachable_conversation

_CONTENT_TYPE = "application/x-tar"


def wanted_files(conversation: Conversation, record: TurnRecord) -> dict[str, str]:
    """Return the file ids, by name, of all that restoring a turn needs.

    Raises:
        ForkRefused: The record of one of them is not known.
    """
    known = {name: file_id for turn in conversation.turns for name, file_id in turn.file_ids.items()} | record.file_ids
    wanted = (*record.archives, *record.inputs)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise ForkRefused(f"The files of turn {record.turn_number} cannot be carried over: the record of {missing[0]!r} is not known.")
    return {name: known[name] for name in wanted}


class Carrier:
    """Copies files of a user into another conversation of the same user.

    Args:
        context: The platform's file store.
        settings: How code sessions are asked for; they decide under which name a session finds a conversation's files.
    """

    def __init__(self, context: ContextClient, settings: SessionSettings) -> None:
        self._context = context
        self._settings = settings
        self._one_at_a_time = asyncio.Semaphore(1)

    async def carry(
        self, identity: UserIdentity, files: Mapping[str, str], *, to: str, agent_name: str, names: Sequence[str] = ()
    ) -> dict[str, str]:
        """Copy files, and return the new file ids by name. Repeating it makes newer copies of the same names, which does no harm.

        Args:
            identity: Whose they are.
            files: File ids by name.
            to: The conversation that gets them.
            agent_name: The agent of that conversation.
            names: The names they get, in the order of ``files``; by default their own.

        Raises:
            ForkRefused: A file is not there any more.
            SandboxUnavailable: The platform did not hand a file over, or did not take it.
        """
        conversation_id = reachable_conversation(to, self._settings.context)
        carried: dict[str, str] = {}
        for name, file_id in zip(names or files, files.values(), strict=True):
            async with self._one_at_a_time:
                carried[name] = await self._copy(identity, file_id, name, conversation_id, agent_name)
        return carried

    async def _copy(self, identity: UserIdentity, file_id: str, name: str, conversation_id: str, agent_name: str) -> str:
        try:
            content = (await self._context.file_content(identity, file_id)).content
            record = await self._context.upload_conversation_file(identity, conversation_id, agent_name, name, content, _CONTENT_TYPE)
        except NotFoundOrNotOwned as error:
            raise ForkRefused(f"The file that is needed as {name!r} is not there any more, so the files cannot be carried over.") from error
        except ContextApiError as error:
            raise SandboxUnavailable(f"The file {name!r} could not be copied into this conversation: {error}. Try again.") from error
        return record.id


async def with_older_inputs(
    carrier: Carrier, turn: AcceptedTurn, conversation: Conversation | None, continuing: Continuing | None
) -> Continuing | None:
    """Give the user's files that a seal of the difference builds on other names where newer files have theirs by now.

    The platform finds a conversation's files by name only, and gives the newest one.

    Raises:
        ForkRefused: An older file is not there any more.
        SandboxUnavailable: A file could not be copied.
    """
    restore = continuing.restore if continuing else None
    record = conversation.turn(restore.turn_number) if conversation and restore and not restore.from_conversation else None
    if continuing is None or restore is None or record is None:
        return continuing
    request, ours = turn.request, record.file_ids
    newest = {item.original_file_name: item.file_id for item in sorted(request.file_history, key=lambda item: item.order)}
    replaced = {name: ours[name] for name in restore.inputs if name in ours and newest.get(name, ours[name]) != ours[name]}
    if not replaced:
        return continuing
    aside = {name: f"before-{hashlib.sha256(file_id.encode()).hexdigest()[:12]}-{name}" for name, file_id in replaced.items()}
    names, to = tuple(aside.values()), turn.operation.conversation_id or ""
    await carrier.carry(turn.identity, replaced, to=to, agent_name=request.agent.name, names=names)
    return replace(continuing, restore=restore.model_copy(update={"inputs": restore.inputs | aside}))
