"""Makes a small image that serves code, out of what is on this machine: no registry is asked for anything.

It holds this interpreter, the few packages the server imports, this checkout's server, and a handful of programs.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[3]
REPOSITORY = "claude-code-test-server"
PROGRAMS = ("sh", "sleep", "cat", "ls", "env")
PACKAGES = ("uvicorn", "h11", "click", "python_multipart", "typing_extensions")
SOURCES = ("runner_image", "workflow_schemas")
LEFT_OUT = re.compile(r"/(?:test|tests|idlelib|tkinter|ensurepip|lib2to3|site-packages|config-[^/]*)(?:/|$)")
ENVIRONMENT = "ENV PATH=/opt/python/bin:/usr/bin PYTHONPATH=/opt/site HOME=/home/agent PYTHONDONTWRITEBYTECODE=1"


@contextmanager
def small_image(api: Any) -> Iterator[str]:
    """Give the engine the image until the end of the block.

    Args:
        api: The engine's low-level client.
    """
    name = f"{REPOSITORY}:{uuid.uuid4().hex[:12]}"  # of this run alone: two may be at it at once
    with tempfile.TemporaryFile() as file:
        _pack(file)
        file.seek(0)
        repository, _, tag = name.partition(":")
        said = api.import_image_from_data(file, repository=repository, tag=tag, changes=[ENVIRONMENT])
    api.tag(json.loads(said.splitlines()[-1])["status"], repository, tag)  # Podman does not take the name before
    try:
        yield name
    finally:
        api.remove_image(name, force=True)


def _pack(file: IO[bytes]) -> None:
    interpreter = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    programs = [Path(found) for name in PROGRAMS if (found := shutil.which(name))]
    linked = [interpreter, *programs, *library.glob("lib-dynload/*.so")]
    with tarfile.open(fileobj=file, mode="w", dereference=True) as archive:
        archive.add(interpreter, "opt/python/bin/python3")
        archive.add(library, f"opt/python/lib/{library.name}", filter=_needed)
        for program in programs:
            archive.add(program.resolve(), f"usr/bin/{program.name}")
        for needed in sorted(_libraries(linked)):
            archive.add(Path(needed).resolve(), needed.lstrip("/"))
        for package in PACKAGES:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            origin = Path(str(spec.origin))
            archive.add(
                origin.parent if spec.submodule_search_locations else origin,
                f"opt/site/{package}{'' if spec.submodule_search_locations else '.py'}",
            )
        for source in SOURCES:
            archive.add(ROOT / source, f"opt/site/{source}")
        with tempfile.TemporaryDirectory() as empty:
            for place in ("bin", "tmp", "etc", "home/agent"):
                archive.add(empty, place)
        archive.add(shutil.which("sh") or "/bin/sh", "bin/sh")


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT.search(member.name) else member


def _libraries(programs: list[Path]) -> set[str]:
    """What programs are linked to, and the loader, each under the name it is looked for."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(", listed, re.MULTILINE))
