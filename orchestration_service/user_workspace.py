"""The workspace a user has with an agent, whatever the conversation: what `workspace_storage_scope: user` stands for."""

from orchestration_service.carrying import Carrier
from orchestration_service.operations import AcceptedTurn
from orchestration_service.operations.conversation import Conversation, Conversations
from orchestration_service.planning import Continuing, Planned


class UserWorkspaces:
    """Gives a new conversation the newest workspace of its user with its agent, and keeps it when a turn has ended."""

    def __init__(self, store: Conversations, carrier: Carrier) -> None:
        self._store = store
        self._carrier = carrier

    async def begin(self, turn: AcceptedTurn, conversation: Conversation | None, planned: Planned) -> Continuing | None:
        """Return what the first turn of a conversation begins with; None where the workspace belongs to the conversation."""
        return None

    async def keep(self, turn: AcceptedTurn, conversation: Conversation, planned: Planned) -> tuple[str, ...]:
        """Note the workspace of the head turn as the newest of its user; return what the user should know."""
        return ()
