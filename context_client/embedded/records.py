"""Records as documents, in SQLite.

A document is the JSON the real server keeps in Cosmos DB, nulls omitted, so that either can read what the other wrote.
As there, `upn` is the partition: the same session id may exist once per user.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import anyio

from context_client.embedded.problems import STORE, thrown

Document = dict[str, Any]

FILE_RECORD = "file-record"
SESSION_RECORD = "code-session-record"
UPLOAD_RECORD = "code-session-file-upload-record"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    sequence INTEGER PRIMARY KEY,
    upn TEXT NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    conversation_id TEXT,
    file_name TEXT,
    created_at TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (upn, id)
);
CREATE INDEX IF NOT EXISTS documents_by_name
    ON documents (instance_id, type, upn, conversation_id, file_name, created_at);
"""
_UPSERT = """
INSERT INTO documents (upn, id, type, instance_id, conversation_id, file_name, created_at, deleted, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (upn, id) DO UPDATE SET
    type = excluded.type, instance_id = excluded.instance_id, conversation_id = excluded.conversation_id,
    file_name = excluded.file_name, created_at = excluded.created_at, deleted = excluded.deleted, body = excluded.body
"""
_FIND = "SELECT body FROM documents WHERE upn = ? AND id = ? AND instance_id = ? AND type = ? AND deleted = 0"
_NEWEST = """
SELECT body FROM documents
WHERE instance_id = ? AND type = ? AND upn = ? AND conversation_id = ? AND file_name = ? AND deleted = 0
ORDER BY created_at DESC, sequence DESC LIMIT 1
"""
# Sessions are looked up on every execution, hundreds of times a turn; this process is their only writer.
_REMEMBERED_SESSIONS = 4096


class RecordStore:
    """Documents of one instance; get one from `open_records`."""

    def __init__(self, database: aiosqlite.Connection, instance_id: str) -> None:
        self._database = database
        self._instance_id = instance_id
        self._sessions: dict[tuple[str, str], Document] = {}

    async def put(self, document: Document) -> None:
        """Write a document, replacing the owner's one of the same id.

        Raises:
            Problem: 500 where the database takes no more.
        """
        row = (
            document["upn"],
            document["id"],
            document["type"],
            document["instance_id"],
            document.get("conversation_id"),
            document.get("file_name"),
            document["created_at"],
            int(bool(document.get("deleted"))),
            json.dumps(document, ensure_ascii=True),
        )
        # A caller that leaves must not leave half a write for the next one to commit.
        with anyio.CancelScope(shield=True):
            try:
                await self._database.execute(_UPSERT, row)
                await self._database.commit()
            except aiosqlite.Error as error:
                await self._database.rollback()
                raise thrown(STORE, f"the record {document['id']!r} could not be stored: {error}") from error
        if document["type"] == SESSION_RECORD:
            self._remember(document)

    async def find(self, kind: str, upn: str, record_id: str) -> Document | None:
        """Find a user's own document; the UPN's case counts, and deleted ones do not exist."""
        return await self._one(_FIND, (upn, record_id, self._instance_id, kind))

    async def find_session(self, upn: str, session_id: str) -> Document | None:
        """Find a user's own session, from memory if it was used lately."""
        known = self._sessions.get((upn, session_id))
        if known is None:
            known = await self.find(SESSION_RECORD, upn, session_id)
            if known is not None:
                self._remember(known)
        return known

    async def newest_file(self, upn: str, conversation_id: str, file_name: str) -> Document | None:
        """Find a user's newest file of exactly this name in a conversation."""
        return await self._one(_NEWEST, (self._instance_id, FILE_RECORD, upn, conversation_id, file_name))

    def _remember(self, session: Document) -> None:
        while len(self._sessions) >= _REMEMBERED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session["upn"], session["id"]] = session

    async def _one(self, query: str, values: tuple[str, ...]) -> Document | None:
        async with self._database.execute(query, values) as cursor:
            row = await cursor.fetchone()
        if row is None:
            return None
        document: Document = json.loads(row[0])
        return document


@asynccontextmanager
async def open_records(path: Path, instance_id: str) -> AsyncIterator[RecordStore]:
    """Open the database, making it if absent, and close it at the end."""
    async with aiosqlite.connect(path) as database:
        await database.execute("PRAGMA journal_mode = WAL")
        await database.execute("PRAGMA synchronous = NORMAL")
        await database.execute("PRAGMA busy_timeout = 5000")
        await database.executescript(_SCHEMA)
        yield RecordStore(database, instance_id)
