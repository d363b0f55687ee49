"""The runner's end of the mailbox: durable, numbered, safe to repeat.

A message of the service is written down before the run sees it; a message of the runner is written down before it leaves, with all that
were posted meanwhile. The file is SQLite, so a runner that was killed finds every message again. Where nothing can be written down any
more (the disk is full), messages still pass: a run that ends and says so is worth more than one that could be recovered and hangs.
"""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from workflow_schemas.mailbox import MAX_PART_BYTES, URGENT, Exchange, Message, Reader, Reply, fit, split

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

EVENT_DELAY_SECONDS = 0.2
"""How long an event may wait for company before it ends a waiting exchange."""

_TABLES = """
CREATE TABLE IF NOT EXISTS message (
    run TEXT NOT NULL, direction TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (run, direction, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS released (run TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class Mailbox:
    """Both directions of one run."""

    def __init__(self, store: "_Store", run_id: str, generation: str) -> None:
        self.run_id = run_id
        self._store = store
        self._generation = generation
        self._outgoing: list[Message] = []
        self._unwritten: list[Message] = []
        self._writer: asyncio.Task[None] | None = None
        self._posted_at: dict[int, float] = {}
        self._last_out = 0
        self._last_in = 0
        self._exchange_number = 0
        self._changed = asyncio.Condition()
        self._arrived: asyncio.Queue[Message] = asyncio.Queue()
        self._reader = Reader()
        self._finished = False
        self._start: Mapping[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether a `final` has been posted."""
        return self._finished

    @property
    def start(self) -> Mapping[str, Any]:
        """Body of the `start` message; empty before it arrived."""
        return self._start

    async def load(self) -> None:
        """Read what an earlier process of this runner has written down."""
        for direction, message in await self._store.read(self.run_id):
            if direction == "out":
                self._outgoing.append(message)
                self._last_out = message.seq
                self._finished = self._finished or message.kind == "final"
            else:
                self._last_in = message.seq
                self._deliver(message)

    async def post(self, kind: str, body: Mapping[str, object], data: bytes = b"") -> None:
        """Take a message for the service and wake a waiting exchange; the last one, `final`, is written down at once.

        Args:
            kind: One of the runner's kinds in :data:`workflow_schemas.mailbox.Kind`.
            body: Content as JSON. An event of a megabyte and more is replaced by a warning of its size.
            data: Attachment; a large one is cut into `part` messages.
        """
        *parts, last = split(data)
        async with self._changed:
            first = self._last_out + 1
            messages = [Message(seq=first + index, kind="part", data=part) for index, part in enumerate(parts)]
            whole = {"seq": first + len(parts), "kind": kind, "body": _bounded(kind, body), "data": last}
            messages.append(Message.model_validate(whole))
            self._unwritten.extend(messages)
            now = time.monotonic()
            self._posted_at |= {message.seq: now for message in messages}
            self._outgoing.extend(messages)
            self._last_out = messages[-1].seq
            self._changed.notify_all()
            if kind == "final":
                self._finished = True
                await self._write_down()
        if self._unwritten and (self._writer is None or self._writer.done()):
            self._writer = asyncio.create_task(self._write_soon())

    async def receive(self) -> Message:
        """Return the service's next message, parts put together."""
        return await self._arrived.get()

    async def exchange(self, exchange: Exchange) -> Reply:
        """Take the service's messages and give it the runner's, waiting for some if there are none.

        Raises:
            FrameError: The parts of one message are larger than any message may be.
        """
        self._exchange_number += 1
        number = self._exchange_number
        deadline = time.monotonic() + exchange.wait_seconds
        async with self._changed:
            self._changed.notify_all()
            await self._accept(exchange)
            while (wait := self._wait(exchange.ack, deadline)) > 0:
                if number != self._exchange_number:
                    return Reply(generation=self._generation, status="superseded", ack=self._last_in)
                try:
                    await asyncio.wait_for(self._changed.wait(), wait)
                except TimeoutError:
                    continue
            await self._write_down()
            return self._reply(exchange.ack)

    async def close(self) -> None:
        """End the exchanges that wait: nothing more will come. What was posted is written down."""
        async with self._changed:
            self._exchange_number += 1
            self._changed.notify_all()
            await self._write_down()
        if self._writer is not None:
            await self._writer

    def _reply(self, ack: int) -> Reply:
        messages, more = fit(self._after(ack))
        return Reply(generation=self._generation, ack=self._last_in, messages=tuple(messages), more=more)

    def _after(self, ack: int) -> list[Message]:
        """Return the messages the service does not have; numbers in the list have no gaps."""
        start = max(0, ack + 1 - self._outgoing[0].seq) if self._outgoing else 0
        return self._outgoing[start:]

    def _wait(self, ack: int, deadline: float) -> float:
        """Seconds an exchange may still wait: none when something urgent, or an event of some age, is there."""
        now = time.monotonic()
        fresh = self._after(ack)
        if not fresh:
            return deadline - now
        if any(message.kind in URGENT for message in fresh):
            return 0.0
        return min(deadline, self._posted_at.get(fresh[0].seq, 0.0) + EVENT_DELAY_SECONDS) - now

    async def _accept(self, exchange: Exchange) -> None:
        fresh: list[Message] = []
        for message in sorted(exchange.messages, key=lambda message: message.seq):
            if message.seq == self._last_in + len(fresh) + 1:
                fresh.append(message)
        if fresh:
            await self._store.write(self.run_id, "in", fresh)
            self._last_in = fresh[-1].seq
            for message in fresh:
                self._deliver(message)
        while self._outgoing and self._outgoing[0].seq <= exchange.ack:
            self._posted_at.pop(self._outgoing.pop(0).seq, None)

    async def _write_soon(self) -> None:
        """Write down what no exchange has fetched yet; whoever posted does not wait for it."""
        async with self._changed:
            await self._write_down()

    async def _write_down(self) -> None:
        """Write down what has been posted since the last time."""
        if self._unwritten:
            await self._store.write(self.run_id, "out", self._unwritten)
            self._unwritten = []

    def _deliver(self, message: Message) -> None:
        whole = self._reader.feed(message)
        if whole is not None:
            if whole.kind == "start" and not self._start:
                self._start = whole.body
            self._arrived.put_nowait(whole)


class _Store:
    """The file of all mailboxes; each call is one visit to a thread, one at a time."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._working = asyncio.Lock()

    async def read(self, run_id: str) -> list[tuple[str, Message]]:
        """Return a run's messages in order, each with its direction."""
        query = "SELECT direction, seq, kind, body, data FROM message WHERE run = ? ORDER BY seq"
        rows = await self._do(lambda database: database.execute(query, (run_id,)).fetchall())
        return [(direction, Message(seq=seq, kind=kind, body=json.loads(body), data=data)) for direction, seq, kind, body, data in rows]

    async def write(self, run_id: str, direction: str, messages: Sequence[Message]) -> None:
        """Write messages down; what an abandoned call has left under the same or later numbers never went anywhere and is replaced."""

        def work(database: sqlite3.Connection) -> None:
            rows = [(run_id, direction, m.seq, m.kind, json.dumps(m.body, separators=(",", ":")), m.data) for m in messages]
            with database:
                database.execute("DELETE FROM message WHERE run = ? AND direction = ? AND seq >= ?", (run_id, direction, messages[0].seq))
                database.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)

        try:
            await self._do(work)
        except sqlite3.OperationalError as error:
            logger.warning("A message of run %r could not be written down: %s", run_id, error)

    async def runs(self) -> list[str]:
        """Return the runs that have messages."""
        return [row[0] for row in await self._do(lambda database: database.execute("SELECT DISTINCT run FROM message").fetchall())]

    async def release(self, run_id: str) -> None:
        """Delete a run's messages and remember that it is over."""

        def work(database: sqlite3.Connection) -> None:
            with database:
                database.execute("INSERT OR IGNORE INTO released VALUES (?)", (run_id,))
                database.execute("DELETE FROM message WHERE run = ?", (run_id,))

        await self._do(work)

    async def is_released(self, run_id: str) -> bool:
        """Whether a run is over for good."""
        query = "SELECT 1 FROM released WHERE run = ?"
        return await self._do(lambda database: database.execute(query, (run_id,)).fetchone()) is not None

    async def _do(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Work with the file in a thread; a caller that is cancelled leaves only when the work is done."""
        async with self._working:
            doing = asyncio.ensure_future(asyncio.to_thread(work, self._database))
            try:
                return await asyncio.shield(doing)
            except asyncio.CancelledError:
                await asyncio.wait([doing])
                raise


class Mailboxes:
    """The mailboxes of all runs of this sandbox, in one file."""

    def __init__(self, store: _Store, generation: str) -> None:
        self._store = store
        self._generation = generation
        self._opened: dict[str, Mailbox] = {}

    async def open(self, run_id: str) -> Mailbox:
        """Return the mailbox of a run, with everything an earlier process wrote down."""
        mailbox = self._opened[run_id] = Mailbox(self._store, run_id, self._generation)
        await mailbox.load()
        return mailbox

    async def close(self) -> None:
        """Close every mailbox."""
        for mailbox in self._opened.values():
            await mailbox.close()

    async def runs(self) -> list[str]:
        """Return the runs that are written down."""
        return await self._store.runs()

    async def forget(self, run_id: str) -> None:
        """Delete a run's messages. The run stays known as released: a late copy of its first exchange must not start it again."""
        if (mailbox := self._opened.pop(run_id, None)) is not None:
            await mailbox.close()
        await self._store.release(run_id)

    async def is_forgotten(self, run_id: str) -> bool:
        """Whether a run was released here."""
        return await self._store.is_released(run_id)


@asynccontextmanager
async def open_mailboxes(path: Path, generation: str) -> AsyncIterator[Mailboxes]:
    """Open the file of all mailboxes, making it if it is not there."""

    def open_file() -> sqlite3.Connection:
        database = sqlite3.connect(path, check_same_thread=False)
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _TABLES)
        return database

    database = await asyncio.to_thread(open_file)
    mailboxes = Mailboxes(_Store(database), generation)
    try:
        yield mailboxes
    finally:
        await mailboxes.close()
        await asyncio.to_thread(database.close)


def _bounded(kind: str, body: Mapping[str, object]) -> dict[str, object]:
    if kind == "event":
        size = len(json.dumps(body))
        if size > MAX_PART_BYTES:
            about = {"seq": body.get("seq", 0), "at": body.get("at", 0.0)}
            return about | {"type": "warning", "message": f"An activity event of {size} bytes was left out."}
    return dict(body)
