"""The runner's end of the mailbox: durable, numbered, safe to repeat.

A message of the service is written down before the run sees it; a message of the runner is written down before it can leave.
The file is SQLite, so a runner that was killed finds every message again.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiosqlite

from workflow_schemas.mailbox import URGENT, Exchange, Message, Reader, Reply, fit, split

EVENT_DELAY_SECONDS = 0.2
"""How long an event may wait for company before it ends a waiting exchange."""

_TABLES = """
CREATE TABLE IF NOT EXISTS message (
    run TEXT NOT NULL, direction TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (run, direction, seq)
) WITHOUT ROWID;
"""


class Mailbox:
    """Both directions of one run."""

    def __init__(self, database: aiosqlite.Connection, run_id: str, generation: str) -> None:
        self.run_id = run_id
        self._database = database
        self._generation = generation
        self._outgoing: list[Message] = []
        self._last_out = 0
        self._last_in = 0
        self._oldest_event = 0.0
        self._exchange_number = 0
        self._changed = asyncio.Condition()
        self._arrived: asyncio.Queue[Message] = asyncio.Queue()
        self._reader = Reader()
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether a `final` has been posted."""
        return self._finished

    async def load(self) -> None:
        """Read what an earlier process of this runner has written down."""
        async with self._database.execute(
            "SELECT direction, seq, kind, body, data FROM message WHERE run = ? ORDER BY seq", (self.run_id,)
        ) as rows:
            async for direction, seq, kind, body, data in rows:
                message = Message(seq=seq, kind=kind, body=json.loads(body), data=data)
                if direction == "out":
                    self._outgoing.append(message)
                    self._last_out = seq
                    self._finished = self._finished or kind == "final"
                else:
                    self._last_in = seq
                    self._deliver(message)

    async def post(self, kind: str, body: Mapping[str, object], data: bytes = b"") -> None:
        """Write a message for the service down and wake a waiting exchange.

        Args:
            kind: One of the runner's kinds in :data:`workflow_schemas.mailbox.Kind`.
            body: Content as JSON.
            data: Attachment; a large one is cut into `part` messages.
        """
        *parts, last = split(data)
        async with self._changed:
            messages = [Message(seq=self._last_out + 1 + index, kind="part", data=part) for index, part in enumerate(parts)]
            messages.append(
                Message.model_validate({"seq": self._last_out + 1 + len(parts), "kind": kind, "body": dict(body), "data": last})
            )
            await self._write("out", messages)
            if kind not in URGENT and not self._oldest_event:
                self._oldest_event = time.monotonic()
            self._outgoing.extend(messages)
            self._last_out = messages[-1].seq
            self._finished = self._finished or kind == "final"
            self._changed.notify_all()

    async def receive(self) -> Message:
        """Return the service's next message, parts put together."""
        return await self._arrived.get()

    async def exchange(self, exchange: Exchange) -> Reply:
        """Take the service's messages and give it the runner's, waiting for some if there are none."""
        self._exchange_number += 1
        number = self._exchange_number
        async with self._changed:
            self._changed.notify_all()
            await self._accept(exchange)
        deadline = time.monotonic() + exchange.wait_seconds
        while True:
            superseded = number != self._exchange_number
            wait = 0.0 if superseded else self._wait(exchange.ack, deadline)
            if wait <= 0:
                break
            async with self._changed:
                if self._wait(exchange.ack, deadline) > 0 and number == self._exchange_number:
                    try:
                        await asyncio.wait_for(self._changed.wait(), wait)
                    except TimeoutError:
                        pass
        if superseded:
            return Reply(generation=self._generation, status="superseded", ack=self._last_in)
        return self._reply(exchange.ack)

    def _reply(self, ack: int) -> Reply:
        messages, more = fit([message for message in self._outgoing if message.seq > ack])
        self._oldest_event = 0.0
        return Reply(generation=self._generation, ack=self._last_in, messages=tuple(messages), more=more)

    def _wait(self, ack: int, deadline: float) -> float:
        """Seconds this exchange may still wait: none when something urgent, or an event of some age, is there."""
        now = time.monotonic()
        fresh = [message.kind for message in self._outgoing if message.seq > ack]
        if any(kind in URGENT for kind in fresh):
            return 0.0
        if fresh:
            since = self._oldest_event or now
            return min(deadline, since + EVENT_DELAY_SECONDS) - now
        return deadline - now

    async def _accept(self, exchange: Exchange) -> None:
        fresh: list[Message] = []
        for message in sorted(exchange.messages, key=lambda message: message.seq):
            if message.seq == self._last_in + len(fresh) + 1:
                fresh.append(message)
        if fresh:
            await self._write("in", fresh)
            self._last_in = fresh[-1].seq
            for message in fresh:
                self._deliver(message)
        self._outgoing = [message for message in self._outgoing if message.seq > exchange.ack]

    def _deliver(self, message: Message) -> None:
        whole = self._reader.feed(message)
        if whole is not None:
            self._arrived.put_nowait(whole)

    async def _write(self, direction: str, messages: list[Message]) -> None:
        rows = [(self.run_id, direction, m.seq, m.kind, json.dumps(m.body, separators=(",", ":")), m.data) for m in messages]
        await self._database.executemany("INSERT OR IGNORE INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
        await self._database.commit()


class Mailboxes:
    """The mailboxes of all runs of this sandbox, in one file."""

    def __init__(self, database: aiosqlite.Connection, generation: str) -> None:
        self._database = database
        self._generation = generation

    async def open(self, run_id: str) -> Mailbox:
        """Return the mailbox of a run, with everything an earlier process wrote down."""
        mailbox = Mailbox(self._database, run_id, self._generation)
        await mailbox.load()
        return mailbox

    async def runs(self) -> list[str]:
        """Return the runs that are written down."""
        async with self._database.execute("SELECT DISTINCT run FROM message") as rows:
            return [row[0] async for row in rows]

    async def forget(self, run_id: str) -> None:
        """Delete a run's messages."""
        await self._database.execute("DELETE FROM message WHERE run = ?", (run_id,))
        await self._database.commit()


@asynccontextmanager
async def open_mailboxes(path: Path, generation: str) -> AsyncIterator[Mailboxes]:
    """Open the file of all mailboxes, making it if it is not there."""
    async with aiosqlite.connect(path) as database:
        await database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _TABLES)
        yield Mailboxes(database, generation)
