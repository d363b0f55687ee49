"""Makes the image the emulators run from, out of what is on this machine: no registry is asked for anything.

It holds the machine's node with the libraries it is linked to, the packages `installation.py` has installed, and nothing else:
no shell, no distribution.
"""

import re
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.emulators.installation import HERE, EmulatorsMissing, installed

REPOSITORY = "claude-code-emulators"
SERVER = "cosmosdb_server.js"
NOT_NEEDED = re.compile(r"\.(?:map|ts|md)$|/build/(?:esm|esnext)/")
"""Three files of four, and nothing node loads."""
DISTRIBUTION_MODULES = ("acorn", "acorn-walk", "cjs-module-lexer", "minimatch", "undici")
"""Parts of node that Debian keeps beside the binary, in `/usr/share/nodejs`."""


@contextmanager
def image(engine: Any) -> Iterator[str]:
    """Give the engine the image until the end of the block.

    Args:
        engine: The engine's low-level client.

    Raises:
        EmulatorsMissing: The image cannot be made here.
    """
    from docker.errors import DockerException  # type: ignore[import-untyped]  # comes with testcontainers

    tag = uuid.uuid4().hex[:12]  # of this run alone: two may be at it at once
    with tempfile.TemporaryFile() as file:
        _pack(file)
        file.seek(0)
        try:
            engine.import_image_from_data(file, repository=REPOSITORY, tag=tag, changes=["WORKDIR /srv"])
        except DockerException as error:
            raise EmulatorsMissing(f"the container engine does not take an image made here ({error})") from error
    name = f"{REPOSITORY}:{tag}"
    try:
        yield name
    finally:
        engine.remove_image(name, force=True)


def _pack(file: IO[bytes]) -> None:
    cache, node = installed(), Path(shutil.which("node") or "").resolve()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(node, "usr/bin/node")
        for library in _libraries(node):
            archive.add(library.resolve(), str(library).lstrip("/"))
        for module in DISTRIBUTION_MODULES:
            folder = Path("/usr/share/nodejs", module)
            if folder.exists():
                archive.add(folder.resolve(), str(folder).lstrip("/"))
        archive.add(HERE / SERVER, f"srv/{SERVER}")
        archive.add(cache / "package.json", "srv/package.json")
        archive.add(cache / "node_modules", "srv/node_modules", filter=_needed)
        archive.add(tempfile.gettempdir(), "tmp", recursive=False)


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.isfile() and NOT_NEEDED.search(member.name) else member


def _libraries(program: Path) -> list[Path]:
    """What a program is linked to, and the loader, each under the name it is looked for."""
    try:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmulatorsMissing(f"node at {program} is no dynamic Linux program, so no image can be made of it ({error})") from error
    return [Path(name) for name in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(", listed, re.MULTILINE)]
