"""Words in the chat that are meant for the service, not for the agent, and what the service does about them."""

import re
from dataclasses import dataclass

from context_client import ContextClient
from orchestration_service.conversations import rewound
from orchestration_service.operations import AcceptedTurn
from orchestration_service.operations.conversation import Conversation, Conversations
from orchestration_service.operations.lease import Claim
from workflow_schemas.platform import CompletionResponse, TextItem, result_id

_REWIND = re.compile(r"\s*/rewind(?:\s+(?P<turn>\d{1,6}))?\s*")


@dataclass(frozen=True)
class Rewind:
    """Go back to the end of an earlier turn."""

    turn_number: int
    """The turn, 0 when none was named."""


Command = Rewind
"""What can be said to the service."""


def read_command(prompt: str) -> Command | None:
    """Return the command a message is, None when it is meant for the agent."""
    if (found := _REWIND.fullmatch(prompt)) is not None:
        return Rewind(int(found["turn"] or 0))
    return None


class Commands:
    """Does what the user told the service to do."""

    def __init__(self, *, store: Conversations, context: ContextClient) -> None:
        self._store = store
        self._context = context

    async def obey(
        self, command: Command, turn: AcceptedTurn, conversation: Conversation | None, claim: Claim | None = None
    ) -> CompletionResponse:
        """Carry a command out and return the answer to it.

        Raises:
            PlanRefused: It cannot be done; nothing was changed.
            ConversationChanged: Somebody else has changed the conversation meanwhile.
        """
        return _answer(turn, await self._rewind(command, conversation, claim))

    async def _rewind(self, command: Rewind, conversation: Conversation | None, claim: Claim | None) -> str:
        target = command.turn_number
        await self._store.save_conversation(rewound(conversation, target), claim)
        return f"The conversation is back at the end of turn {target}. The next message goes on from there, with its files and its memory."


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
