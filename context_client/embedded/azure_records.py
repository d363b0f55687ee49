"""Records as the platform keeps them: documents in its Cosmos DB container, partitioned by UPN.

Own documents are read by id and partition; only the newest file of a name needs a query, and that stays in one partition.
"""

import time
from typing import Any

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.cosmos.aio import ContainerProxy

from context_client.embedded.problems import STORE, Problem, thrown
from context_client.embedded.records import FILE_RECORD, SESSION_RECORD, Document

_NEWEST = (
    "SELECT TOP 1 * FROM c WHERE c.upn = @upn AND c.instance_id = @instance AND c.type = @type"
    " AND c.conversation_id = @conversation AND c.file_name = @name AND c.deleted = false ORDER BY c.created_at DESC"
)
_REMEMBERED_SESSIONS = 4096
_REMEMBERED_SECONDS = 30.0
"""Sessions are looked up hundreds of times a turn; another replica may write them, so memory does not last."""


class CosmosRecords:
    """Documents of one instance.

    Args:
        container: The platform's container.
        instance_id: The instance.
    """

    def __init__(self, container: ContainerProxy, instance_id: str) -> None:
        self._container = container
        self._instance_id = instance_id
        self._sessions: dict[tuple[str, str], tuple[float, Document]] = {}

    async def put(self, document: Document) -> None:
        """Write a document, replacing the owner's one of the same id.

        Raises:
            Problem: 500 where the account refuses it or does not answer.
        """
        plain = {name: value for name, value in document.items() if value is not None}  # as the platform's serializer does
        try:
            await self._container.upsert_item(plain)
        except (AzureError, ValueError) as error:  # an id with a slash is refused before it is sent
            raise _problem(f"the record {document['id']!r} could not be stored", error) from error
        if document["type"] == SESSION_RECORD:
            self._remember(plain)

    async def find(self, kind: str, upn: str, record_id: str) -> Document | None:
        """Find a user's own document; the UPN's case counts, and deleted ones do not exist."""
        try:
            found: Document = _without_system_fields(await self._container.read_item(record_id, partition_key=upn))
        except ResourceNotFoundError:
            return None
        except (AzureError, ValueError) as error:
            raise _problem(f"the record {record_id!r} could not be read", error) from error
        is_it = found["type"] == kind and found["instance_id"] == self._instance_id and not found.get("deleted")
        return found if is_it else None

    async def find_session(self, upn: str, session_id: str) -> Document | None:
        """Find a user's own session, from memory if it was used lately."""
        read_at, known = self._sessions.get((upn, session_id), (0.0, None))
        if known is None or time.monotonic() - read_at > _REMEMBERED_SECONDS:
            known = await self.find(SESSION_RECORD, upn, session_id)
            if known is not None:
                self._remember(known)
        return known

    async def newest_file(self, upn: str, conversation_id: str, file_name: str) -> Document | None:
        """Find a user's newest file of exactly this name in a conversation."""
        values = {"upn": upn, "instance": self._instance_id, "type": FILE_RECORD, "conversation": conversation_id, "name": file_name}
        parameters: list[dict[str, Any]] = [{"name": f"@{name}", "value": value} for name, value in values.items()]
        try:
            found = [one async for one in self._container.query_items(_NEWEST, parameters=parameters, partition_key=upn)]
        except (AzureError, ValueError) as error:
            raise _problem(f"the file {file_name!r} could not be looked up", error) from error
        return _without_system_fields(found[0]) if found else None

    def _remember(self, session: Document) -> None:
        while len(self._sessions) >= _REMEMBERED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session["upn"], session["id"]] = (time.monotonic(), session)


def _without_system_fields(found: dict[str, Any]) -> Document:
    return {name: value for name, value in found.items() if not name.startswith("_")}


def _problem(what: str, error: Exception) -> Problem:
    return thrown(STORE, f"{what}: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}")
