"""A store whose every write is noted, and where things go wrong at a chosen one. It wraps the port; the store inside is the real one."""

import inspect
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from orchestration_service.errors import StoreBusy, StoreUnusable
from tests.faults.choosing import Fault
from tests.faults.processes import fill
from tests.faults.weather import Weather

READS = frozenset({"get", "request", "unfinished", "steps", "events", "messages", "claimable", "effects", "conversation"})

TIMED = frozenset({"renew", "save_progress"})
"""Writes that come by the clock; they are not counted, so that a seed means the same write each time."""


class Journal:
    """The notes of all replicas of a run: one line for each write begun and done, in a file that only grows."""

    def __init__(self, path: Path, who: str) -> None:
        self._path = path
        self._who = who

    def note(self, state: str, number: int, does: str) -> None:
        line = json.dumps({"t": time.monotonic(), "who": self._who, "state": state, "n": number, "does": does})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class Trigger:
    """Does the damage of a fault when its write comes."""

    def __init__(self, fault: Fault, at: int, weather: Weather, folder: Path) -> None:
        self._fault = fault
        self._at = at
        self._weather = weather
        self._folder = folder

    def pull(self, number: int, moment: str) -> None:
        fault = self._fault
        if not number or number != self._at or moment != fault.moment:
            return
        if fault.kind in ("service_killed", "both_killed", "platform_killed", "sandbox_and_service"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "store_outage":
            self._weather.break_store(fault.seconds, answers_lost=fault.seed % 3 == 0)
        elif fault.kind == "clock_jump":
            self._weather.shift_clock(fault.seconds)
        elif fault.kind == "disk_full" and self._folder.is_mount():  # the machine's own disk is not ours to fill
            fill(self._folder)
            (self._folder.parent / "full").touch()


class WatchedStore:
    """An operation store behind notes and a trigger."""

    def __init__(self, inner: Any, journal: Journal, trigger: Trigger, weather: Weather) -> None:
        self._inner = inner
        self._journal = journal
        self._trigger = trigger
        self._weather = weather
        self._writes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return partial(self._read, found) if name in READS else partial(self._write, name, found)

    async def _read(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **more: Any) -> Any:
        self._fail_in_bad_weather()
        return await method(*arguments, **more)

    async def _write(self, name: str, method: Callable[..., Awaitable[Any]], *arguments: Any, **more: Any) -> Any:
        self._writes += name not in TIMED
        number, does = 0 if name in TIMED else self._writes, _described(name, arguments)
        self._journal.note("begun", number, does)
        self._trigger.pull(number, "before")
        if not self._weather.answers_are_lost:
            self._fail_in_bad_weather()
        try:
            result = await method(*arguments, **more)
        except Exception as error:
            self._journal.note("failed", number, f"{does}: {type(error).__name__}: {error}"[:200])
            raise
        self._journal.note("done", number, does)
        self._trigger.pull(number, "after")
        if self._weather.answers_are_lost:
            raise StoreUnusable("The store did not answer (a fault made by the tests).")
        return result

    def _fail_in_bad_weather(self) -> None:
        if self._weather.store_is_broken:
            raise StoreBusy("The store does not answer (a fault made by the tests).")


def _described(name: str, arguments: tuple[Any, ...]) -> str:
    """Say what is written, in one line: the step, the effect, the kinds of messages."""
    words = [name]
    for argument in arguments[1:3]:
        if isinstance(argument, str):
            words.append(argument[:40])
        elif isinstance(argument, list | tuple):
            words.append(",".join(str(item[1]) if isinstance(item, tuple) and len(item) > 1 else _kind(item) for item in argument))
    if name == "record_messages" and len(arguments) > 2:
        words = [name, str(arguments[1]), ",".join(f"{item[0]}:{item[1]}" for item in arguments[2])]
    return " ".join(words)


def _kind(item: Any) -> str:
    return str(item.get("type")) if isinstance(item, dict) else type(item).__name__
