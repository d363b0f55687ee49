"""Polls like many portals, from a process of its own so that it does not measure itself. Reads its task from standard input."""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit


async def _poll(task: dict[str, Any], number: int, latencies: list[float]) -> None:
    address = urlsplit(task["base_url"])
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [f"{name}: {value}" for name, value in {**task["headers"], "Host": address.netloc}.items()]
    pause = task["connections"] / task["per_second"]
    due = time.perf_counter() + pause * number / task["connections"]
    end = time.perf_counter() + task["seconds"]
    count = number
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        path = task["paths"][count % len(task["paths"])]
        since = time.perf_counter()
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(head.decode(errors="replace"))
        latencies.append((time.perf_counter() - since) * 1000)
        count += 1
        due += pause
    writer.close()


def _stand_aside() -> None:
    """Measure like a portal on another machine: what this process waits for the processor is none of the service's time."""
    with suppress(PermissionError):  # needs root; otherwise the figures hold some of our own waiting
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


async def _main() -> None:
    task = json.load(sys.stdin)
    _stand_aside()
    latencies: list[float] = []
    await asyncio.gather(*(_poll(task, number, latencies) for number in range(task["connections"])))
    json.dump(latencies, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main())
