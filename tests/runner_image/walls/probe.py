"""What hostile code finds behind a wall, as JSON. Standard library only.

The needles come backwards, so that the question itself is no find.
"""

import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ASKED: dict[str, Any] = json.loads(sys.argv[1])
NEEDLES = [text[::-1].encode() for text in ASKED["needles"]]
LARGEST = 64 * 1024 * 1024


def read_files() -> Any:
    return [name for name in ASKED["secret_files"] if _works(Path(name).read_bytes)]


def listed_folders() -> Any:
    return [name for name in ASKED["secret_folders"] if _works(lambda path: list(path.iterdir()), Path(name))]


def written_places() -> Any:
    return [name for name in ASKED["places"] if _works(_touch, name)]


def changed_files() -> Any:
    """Cutting, removing, renaming and linking go other ways than writing does."""
    done = []
    for path in map(Path, ASKED["secret_files"]):
        ways: list[tuple[str, Callable[..., object], Any]] = [
            ("cut", os.truncate, 1),
            ("linked", os.link, f"{ASKED['workspace']}/linked"),
            ("renamed", os.replace, f"{path}.probe"),
        ]
        done += [f"{way} {path}" for way, action, argument in ways if _works(action, path, argument)]
        done += [f"removed {path}"] if _works(path.unlink) else []
    return done


def found_needles() -> Any:
    """In the environments and the memory of all processes but this one."""
    found = set()
    for pid in _others():
        for content in (_bytes(f"/proc/{pid}/environ"), *_memory(pid)):
            found |= {number for number, needle in enumerate(NEEDLES) if needle in content}
    return sorted(found)


def opened_descriptors() -> Any:
    """Pipes of other processes that could be written into, so that what the CLI says could be forged."""
    return [_told(pid) for pid in _others() if any(_is_open_pipe(path) for path in _children(f"/proc/{pid}/fd"))]


def signalled() -> Any:
    return [_told(pid) for pid in _others() if _works(os.kill, pid, 0)]


def answering_sockets() -> Any:
    """Sockets that say a word to this process, whoever may connect."""
    return [name for name, said in ASKED["sockets"] if _works(_ask, name, bytes.fromhex(said))]


def reached_addresses() -> Any:
    kinds = ((socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, 262), (socket.SOCK_DGRAM, 0))
    return [kind for kind in kinds if _works(_send, kind, ASKED["address"])]


def own_namespaces() -> Any:
    return subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode == 0


def variables() -> Any:
    return sorted(os.environ)


def _others() -> list[int]:
    if ASKED["processes"]:
        return list(ASKED["processes"])
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid()]


def _told(pid: int) -> str:
    return _bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")[:200]


def _memory(pid: int) -> Iterator[bytes]:
    maps = _bytes(f"/proc/{pid}/maps").decode(errors="replace")
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) r", maps, re.M):
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(int(start, 16))
                yield memory.read(min(int(end, 16) - int(start, 16), LARGEST))


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _children(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []


def _is_open_pipe(path: Path) -> bool:
    try:
        if not stat.S_ISFIFO(path.stat().st_mode):
            return False
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _touch(folder: str) -> None:
    path = Path(folder, f"probe-{time.time_ns()}")
    path.touch()
    path.unlink()


def _ask(name: str, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(3)
        client.connect(name.replace("@", "\0"))
        client.sendall(said)
        if not client.recv(1):
            raise OSError("no answer")


def _send(kind: tuple[int, int], address: list[Any]) -> None:
    with socket.socket(socket.AF_INET, *kind) as client:
        client.settimeout(1)
        if kind[0] == socket.SOCK_DGRAM:
            client.sendto(b"x", tuple(address))
            if not client.recv(1):
                raise OSError("no answer")
        else:
            client.connect(tuple(address))


def _works(action: Callable[..., object], *arguments: object) -> bool:
    try:
        action(*arguments)
    except OSError:
        return False
    return True


QUESTIONS: list[Callable[[], Any]] = [
    read_files, listed_folders, written_places, found_needles, opened_descriptors, signalled, answering_sockets, reached_addresses,
    own_namespaces, variables, changed_files,
]  # fmt: skip

print(json.dumps({question.__name__: question() for question in QUESTIONS}))
