"""Documents in one Cosmos DB container: reads, conditional writes, and batches inside one partition.

Here and nowhere else the client is called. A call that meets a throttled or unavailable account is repeated for as long as
the settings say (the client itself honours the pause a 429 asks for). A repeated write may meet its own earlier effect, so
writers put a token of their own into what they create, and compare it when they are told that it exists already.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import anyio
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.cosmos.aio import ContainerProxy

from orchestration_service.operations.cosmos_errors import is_transient, translate

Document = dict[str, Any]
T = TypeVar("T")

LONGEST_PAUSE_SECONDS = 2.0
KINDS: Mapping[int, Literal["absent", "exists", "changed"]] = {404: "absent", 409: "exists", 412: "changed"}


@dataclass(frozen=True, slots=True)
class Create:
    """Write a document that must not be there yet."""

    document: Document
    """The document."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Write a document over the version of it that was read."""

    document: Document
    """The new document, with the `_etag` of the one read."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Set fields of a document."""

    id: str
    """Its id."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """New values by field name; a name that ends in `/-` appends to that list."""
    where: str | None = None
    """What must hold of the document, `c`, for the change to happen."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document."""

    id: str
    """Its id."""


Step = Create | Replace | Patch | Delete


class Outcome(NamedTuple):
    """What came of a write: done as a whole, or nothing changed."""

    kind: Literal["done", "absent", "exists", "changed"]
    """`absent`: no such document; `exists`: there is one already; `changed`: a condition did not hold."""
    step: int = -1
    """Position of the step that failed."""

    @property
    def is_done(self) -> bool:
        """Whether the write happened."""
        return self.kind == "done"


class Documents:
    """The documents of one container.

    Args:
        container: The container.
        where: How messages call it.
        patience_seconds: How long to go on while it is throttled or unavailable.
    """

    def __init__(self, container: ContainerProxy, *, where: str, patience_seconds: float) -> None:
        self._container = container
        self._where = where
        self._patience_seconds = patience_seconds

    async def read(self, partition: str, document_id: str) -> Document | None:
        """Return a document, or None when there is none."""

        async def attempt() -> Document | None:
            try:
                return dict(await self._container.read_item(document_id, partition_key=partition))
            except HttpResponseError as error:
                if error.status_code == 404 and not _is_container_missing(error):
                    return None
                raise

        return await self._patiently(attempt)

    async def put(self, document: Document) -> None:
        """Write a document, whatever was there before."""

        async def attempt() -> None:
            await self._container.upsert_item(document)

        await self._patiently(attempt)

    async def write(self, partition: str, *steps: Step) -> Outcome:
        """Do all steps, or none: at most 100, together below 2 MB, in one partition."""

        async def attempt() -> Outcome:
            try:
                await self._container.execute_item_batch([_operation(step) for step in steps], partition_key=partition)
            except HttpResponseError as error:
                kind = KINDS.get(error.status_code or 0)
                if kind is None or _is_container_missing(error):
                    raise
                return Outcome(kind, getattr(error, "error_index", 0))
            return Outcome("done")

        return await self._patiently(attempt)

    async def replace(self, document: Document) -> Outcome:
        """Write a document over the version of it that was read."""

        async def attempt() -> Outcome:
            try:
                await self._container.replace_item(
                    document["id"], _plain(document), etag=document["_etag"], match_condition=MatchConditions.IfNotModified
                )
            except HttpResponseError as error:
                kind = KINDS.get(error.status_code or 0)
                if kind is None or _is_container_missing(error):
                    raise
                return Outcome(kind, 0)
            return Outcome("done")

        return await self._patiently(attempt)

    async def query(self, partition: str, text: str, **values: Any) -> list[Document]:
        """Return what a query finds in one partition. In it, `@pk` is the partition and `@name` each of ``values``."""
        parameters = [{"name": f"@{name}", "value": value} for name, value in {"pk": partition, **values}.items()]

        async def attempt() -> list[Document]:
            found = self._container.query_items(text, parameters=parameters, partition_key=partition)
            return [dict(document) async for document in found]

        return await self._patiently(attempt)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline, pause = anyio.current_time() + self._patience_seconds, 0.05
        while True:
            try:
                return await attempt()
            except AzureError as error:
                if not is_transient(error) or anyio.current_time() + pause > deadline:
                    raise translate(error, self._where) from error
            await anyio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _operation(step: Step) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The step as the client wants it; made anew for each attempt, since the client takes it apart."""
    match step:
        case Create(document):
            return ("create", (document,), {})
        case Replace(document):
            return ("replace", (document["id"], _plain(document)), {"if_match_etag": document["_etag"]})
        case Patch(document_id, changes, where):
            return ("patch", (document_id, _changes(changes)), {"filter_predicate": f"FROM c WHERE {where}"} if where else {})
        case Delete(document_id):
            return ("delete", (document_id,), {})


def _changes(changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"op": "add" if name.endswith("/-") else "set", "path": f"/{name}", "value": value} for name, value in changes.items()]


def _plain(document: Document) -> Document:
    return {name: value for name, value in document.items() if not name.startswith("_")}


def _is_container_missing(error: HttpResponseError) -> bool:
    """A 404 that means the container or database, not the document (sub-status 1003)."""
    return error.status_code == 404 and getattr(error, "sub_status", None) == 1003
