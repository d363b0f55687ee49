"""Words in the chat that are meant for the service, not for the agent, and what the service does about them."""

import re
from dataclasses import dataclass

from orchestration_service.carrying import Carrier
from orchestration_service.conversations import rewound
from orchestration_service.errors import ConversationChanged, ForkRefused, PlanRefused
from orchestration_service.forking import Forks, Target
from orchestration_service.operations import AcceptedTurn
from orchestration_service.operations.conversation import Conversation, Conversations
from orchestration_service.operations.lease import Claim
from orchestration_service.planning import profile_of
from workflow_schemas.platform import CompletionResponse, TextItem, result_id

_REWIND = re.compile(r"/rewind(?:\s+(?P<turn>\d{1,6}))?")
_FORK = re.compile(r"/fork(?:\s+(?P<turn>\d{1,6}))?")
_JOIN = re.compile(r"/fork\s+from\s+`?(?P<code>[A-Za-z0-9_-]{1,600})`?")
_UNCLEAR = re.compile(r"/(?:rewind|fork)(?:[^\S\n][^\n]{0,80})?")


@dataclass(frozen=True)
class Rewind:
    """Go back to the end of an earlier turn."""

    turn_number: int
    """The turn, 0 when none was named."""


@dataclass(frozen=True)
class Fork:
    """Offer a fork of this conversation."""

    turn_number: int | None
    """The turn it begins with; None for the last one."""


@dataclass(frozen=True)
class Join:
    """Let this conversation begin with the turns of another one."""

    code: str
    """What the other conversation has offered."""


@dataclass(frozen=True)
class Unclear:
    """It begins like a command and is none."""


Command = Rewind | Fork | Join | Unclear
"""What can be said to the service."""


def read_command(prompt: str) -> Command | None:
    """Return the command a message is, None when it is meant for the agent."""
    said = prompt.strip()
    if (found := _REWIND.fullmatch(said)) is not None:
        return Rewind(int(found["turn"] or 0))
    if (found := _FORK.fullmatch(said)) is not None:
        return Fork(int(found["turn"]) if found["turn"] else None)
    if (found := _JOIN.fullmatch(said)) is not None:
        return Join(found["code"])
    return Unclear() if _UNCLEAR.fullmatch(said) else None


class Commands:
    """Does what the user told the service to do."""

    def __init__(self, store: Conversations, carrier: Carrier) -> None:
        self._store = store
        self._forks = Forks(store, carrier)

    async def obey(
        self, command: Command, turn: AcceptedTurn, conversation: Conversation | None, claim: Claim | None = None
    ) -> CompletionResponse:
        """Carry a command out and return the answer to it.

        Raises:
            PlanRefused: It cannot be done; the text says why.
            SandboxUnavailable: Files could not be copied.
        """
        try:
            match command:
                case Rewind():
                    text = await self._rewind(command, conversation, claim)
                case Fork():
                    text = await self._offer(command, conversation, claim)
                case Join():
                    text = await self._join(command, turn, claim)
                case Unclear():
                    raise PlanRefused("Say `/rewind N`, `/fork`, `/fork N` or `/fork from CODE`; N is the number of a turn.")
        except ConversationChanged as error:
            raise PlanRefused("The conversation was changed from elsewhere at the same moment. Say it again.") from error
        return _answer(turn, text)

    async def _rewind(self, command: Rewind, conversation: Conversation | None, claim: Claim | None) -> str:
        target = command.turn_number
        await self._store.save_conversation(rewound(conversation, target), claim)
        return f"The conversation is back at the end of turn {target}. The next message goes on from there, with its files and its memory."

    async def _offer(self, command: Fork, conversation: Conversation | None, claim: Claim | None) -> str:
        offered = await self._forks.offer(conversation, command.turn_number, claim)
        return (
            f"A fork of turn {offered.turn_number} is ready. Open a new conversation with this agent and say there:\n\n"
            f"`/fork from {offered.code}`\n\n"
            f"It begins with the files and the memory this conversation had at the end of turn {offered.turn_number}; this one stays as it "
            f"is. The code works for you only, in one conversation, until {offered.expires_at:%Y-%m-%d %H:%M} UTC."
        )

    async def _join(self, command: Join, turn: AcceptedTurn, claim: Claim | None) -> str:
        operation, request = turn.operation, turn.request
        if not operation.conversation_id:
            raise ForkRefused("This message belongs to no conversation. Say it in a new conversation.")
        if request.attached_files:
            raise ForkRefused("Files that come with this message would be lost. Say it without files, and attach them to the next message.")
        target = Target(operation.conversation_id, request.agent.name, profile_of(request))
        forked = await self._forks.join(
            command.code, turn.identity, target, instance_id=operation.instance_id, upn=operation.upn, claim=claim
        )
        number = forked.origin.turn_number if forked.origin else forked.head_turn
        return (
            f"This conversation goes on from turn {number} of the other one, with its files and its memory. "
            "Turns are counted on from there; what happens here does not change the other one."
        )


def _answer(turn: AcceptedTurn, text: str) -> CompletionResponse:
    return CompletionResponse(
        id=result_id(turn.operation.operation_id),
        operation_id=turn.operation.operation_id,
        user_prompt=turn.request.user_prompt,
        completion=text,
        content=[TextItem(value=text)],
        content_artifacts=[],
        agent_name=turn.request.agent.name,
    )
