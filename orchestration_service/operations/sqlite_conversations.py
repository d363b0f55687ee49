"""Conversations in the SQLite store, each saved as a whole by whoever read it last."""

from __future__ import annotations

import sqlite3

from orchestration_service.errors import ConversationChanged
from orchestration_service.operations.conversation import Conversation
from orchestration_service.operations.lease import Claim
from orchestration_service.operations.sqlite_file import SqliteFile
from orchestration_service.operations.sqlite_rows import admit


class SqliteConversations(SqliteFile):
    """The conversations' part of the store."""

    async def conversation(self, instance_id: str, upn: str, conversation_id: str) -> Conversation | None:
        """Return a conversation as it was last saved, or None when it never was."""
        rows = await self._rows(
            "SELECT body FROM conversations WHERE instance_id=? AND upn_key=? AND conversation_id=?",
            *(instance_id, upn.casefold(), conversation_id),
        )
        return Conversation.model_validate_json(rows[0]["body"]) if rows else None

    async def save_conversation(self, conversation: Conversation, claim: Claim | None = None) -> Conversation:
        """Save a conversation if nobody has since it was read, and return it with its new version."""
        saved = conversation.model_copy(update={"version": conversation.version + 1})

        def work(db: sqlite3.Connection) -> Conversation:
            if claim is not None:
                admit(db, claim.operation_id, claim)
            key = (saved.instance_id, saved.upn.casefold(), saved.conversation_id)
            last_turn = max((turn.turn_number for turn in saved.turns), default=0)
            body = saved.model_dump_json()
            if conversation.version == 0:
                query = "INSERT INTO conversations VALUES (?, ?, ?, 1, ?, ?) ON CONFLICT DO NOTHING"
                written = db.execute(query, (*key, last_turn, body)).rowcount
            else:
                written = db.execute(
                    "UPDATE conversations SET version=version+1, last_turn=MAX(last_turn, ?), body=?"
                    " WHERE instance_id=? AND upn_key=? AND conversation_id=? AND version=?",
                    (last_turn, body, *key, conversation.version),
                ).rowcount
            if not written:
                raise ConversationChanged(conversation.conversation_id, conversation.version)
            return saved

        return await self._write(work)
