"""The desk of the direct path: what short executions ask about detached calls, one order in, one answer out.

A caller sends `from runner_image.direct.desk import main` and `main('…')` with an order as base64url of JSON. The answer is one line, the
mark and a JSON object, followed by as many events as it says, as they were written. It is executed several times a second, so it imports
little.
"""

import base64
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

from runner_image.direct.detached import DetachedCalls
from runner_image.direct.errors import AnotherAtWork, BadOrder
from runner_image.direct.memory import export_memory, import_memory
from runner_image.direct.session_store import SessionStore, direct_places
from runner_image.places import Places

MARK = "FLLMD1 "
"""What the line with the answer begins with; the number changes when the words do."""

_MOST_BYTES = 4 * 1024 * 1024
_MOST_WAIT_SECONDS = 600.0


def main(line: str) -> None:
    """Answer one order on standard output.

    Raises:
        BadOrder: The order makes no sense; the execution then ends with this error.
    """
    try:
        order = json.loads(base64.urlsafe_b64decode(line))
    except ValueError as error:
        raise BadOrder(f"The order is not base64url of JSON: {error}") from error
    if not isinstance(order, dict):
        raise BadOrder("The order is no JSON object.")
    answer, events = Desk(direct_places()).answer(order)
    sys.stdout.write(f"{MARK}{json.dumps(answer | {'lines': len(events)})}\n")
    for event in events:
        sys.stdout.write(event.decode("ascii", "replace") + "\n")
    sys.stdout.flush()


class Desk:
    """Answers orders about the calls of one sandbox."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._calls = DetachedCalls(places)
        self._ways: Mapping[str, Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[bytes, ...]]]] = {
            "start": self._start,
            "poll": self._poll,
            "stop": self._stop,
            "status": self._status,
            "clear": self._clear,
            "memory": self._memory,
        }

    def answer(self, order: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Do what an order says; give the answer and the events that go with it.

        Raises:
            BadOrder: There is no such order, or a part of it is missing or odd.
        """
        way = self._ways.get(str(order.get("op")))
        if way is None:
            raise BadOrder(f"There is no order {order.get('op')!r}; caller and image are of different versions.")
        with self._calls.door():
            generation = self._calls.generation()
        expected = order.get("generation")
        if expected and expected != generation:
            return {"generation": generation, "replaced": True}, ()
        try:
            answer, events = way(order)
        except AnotherAtWork as error:
            return {"generation": generation, "busy": error.call}, ()
        except (KeyError, TypeError, ValueError) as error:
            raise BadOrder(f"The order {order['op']!r} lacks a part, or has an odd one: {type(error).__name__}: {error}") from error
        return {"generation": generation, **answer}, events

    def _start(self, order: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        if order["kind"] not in ("init", "chat"):
            raise ValueError(f"there are no calls of the kind {order['kind']!r}")
        parts = {name: order[name] for name in ("kind", "team", "message", "seconds", "environment")}
        remembered = False
        with self._calls.door():
            if order.get("memory") and not self._calls.knows(order["call"]):
                self._calls.await_end()
                remembered = import_memory(self._places, order["memory"])
            self._calls.start(order["call"], parts)
        answer, events = self._poll({**order, "after": 0})
        return {**answer, "remembered": remembered}, events

    def _memory(self, _: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        packed = export_memory(self._places)
        return {"session": self._session()}, () if packed is None else (packed,)

    def _poll(self, order: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        call = order["call"]
        if not self._calls.knows(call):
            return {"unknown": True}, ()
        most, wait = min(int(order["most_bytes"]), _MOST_BYTES), min(float(order["wait_seconds"]), _MOST_WAIT_SECONDS)
        piece = self._calls.read(call, int(order["after"]), most, wait)
        words = self._calls.last_words(call) if piece.ended else ""
        return {"next": piece.next, "ended": piece.ended, "left_out": piece.left_out, "words": words}, piece.lines

    def _stop(self, order: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        return {"stopped": self._calls.stop(order["call"]) if self._calls.knows(order["call"]) else True}, ()

    def _status(self, _: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        return {"running": self._calls.at_work(), "last": self._calls.last(), "session": self._session()}, ()

    def _session(self) -> dict[str, Any] | None:
        state = SessionStore(self._places.state / "session.json").load()
        if state is None:
            return None
        return {
            "session_id": state.session_id,
            "team": state.team,
            "initialized": state.initialized,
            "turns": state.conversation_turns,
        }

    def _clear(self, _: dict[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        with self._calls.door():
            self._calls.await_end()
            self._calls.forget()
            shutil.rmtree(self._places.agent_config / "projects", ignore_errors=True)  # the agent's transcripts
            return {"cleared": SessionStore(self._places.state / "session.json").clear()}, ()
