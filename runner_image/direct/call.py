"""The process of one detached call: `python -m runner_image.direct.call FD`, with the order as JSON on standard input."""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from runner_image.direct.chat import DEFAULT_SECONDS, chat
from runner_image.direct.events import emit_error
from runner_image.direct.initialize import initialize
from runner_image.direct.session_store import direct_places


def main() -> int:
    """Carry out the order; 0 when its last event is `done`, 1 when it is `error`."""
    os.set_inheritable(int(sys.argv[1]), False)  # held to the end of this process, and of no other
    order = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the order may hold a key, and programs inherit standard input
    os.environ.update(order["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the server may have ignored it
    try:
        return 0 if asyncio.run(_carry_out(order)) else 1
    except KeyboardInterrupt:
        emit_error("The call was stopped. Send another message to go on.", end_reason="stopped")
        return 130


async def _carry_out(order: dict[str, Any]) -> bool:
    if order["kind"] == "init":
        return await initialize(order["team"], direct_places())
    return await chat(order["message"], order["team"], direct_places(), float(order.get("seconds") or DEFAULT_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
