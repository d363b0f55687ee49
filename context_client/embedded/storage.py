"""Where the embedded Context API keeps things: two ports, each with two implementations.

SQLite and a folder (`records.py`, `blobs.py`) for one machine; Cosmos DB and Blob storage (`azure_records.py`, `azure_blobs.py`),
in the platform's own containers and layout, for several replicas or beside a real Context API. Errors of the storage are raised
as a `Problem`: a 500, as the real server's.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from context_client.embedded.blobs import Spool
from context_client.embedded.records import Document


class Records(Protocol):
    """Documents of one instance. A user's documents are theirs alone, and the case of the UPN counts."""

    async def put(self, document: Document) -> None:
        """Write a document, replacing the owner's one of the same id."""
        ...

    async def find(self, kind: str, upn: str, record_id: str) -> Document | None:
        """Find a user's own document; deleted ones do not exist."""
        ...

    async def find_session(self, upn: str, session_id: str) -> Document | None:
        """Find a user's own session; called on every execution, so it may answer from memory."""
        ...

    async def newest_file(self, upn: str, conversation_id: str, file_name: str) -> Document | None:
        """Find a user's newest file of exactly this name in a conversation."""
        ...


class Blobs(Protocol):
    """Files' bytes of one instance, by the `file_path` of their records."""

    def spool(self) -> AbstractAsyncContextManager[Spool]:
        """Take bytes in; what was not stored by the end is gone."""
        ...

    async def store(self, spool: Spool, file_path: str, *, as_text: bool) -> None:
        """Keep a spool's bytes under a record's path; text becomes UTF-8.

        Raises:
            OSError: The local disk takes no more.
        """
        ...

    async def size(self, file_path: str) -> int | None:
        """Read a blob's length; None if there is none."""
        ...

    def chunks(self, file_path: str) -> AsyncIterator[bytes]:
        """Read a blob piece by piece."""
        ...

    async def remove(self, file_path: str) -> None:
        """Delete a blob for good; an absent one is fine."""
        ...
