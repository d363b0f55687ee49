"""Fetches the wheels of a lock file for the Python of an image, so that the build of the image needs no network.

`python -m runner_image.image.wheelhouse --python 3.13 --to FOLDER LOCK...` leaves the wheels of each lock in a folder of their own. Which
lines hold for that Python is decided here: pip judges them by the interpreter it runs on, which is another one.
"""

import argparse
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 36  # Debian 12 has 2.36; what runs there runs on Ubuntu 24.04 and Debian 13


def main() -> int:
    """Fetch the wheels; 0 if all are there."""
    parser = argparse.ArgumentParser(prog="python -m runner_image.image.wheelhouse", description=__doc__)
    parser.add_argument("--python", required=True, metavar="3.13", help="version of the image's interpreter")
    parser.add_argument("--to", type=Path, required=True, help="folder of the wheels")
    parser.add_argument("locks", type=Path, nargs="+", help="lock files with hashes")
    asked = parser.parse_args()
    statuses = [fetch(lock, asked.python, asked.to / lock.stem) for lock in asked.locks]
    return max(statuses)


def fetch(lock: Path, version: str, to: Path) -> int:
    """Fetch the wheels of one lock file, unless they are all there; gives pip's exit status.

    Args:
        lock: Lock file with hashes.
        version: Version of the image's interpreter, such as "3.13".
        to: Folder of the wheels; what it holds for another state of the lock is removed.
    """
    wanted = "".join(lines_for(lock.read_text(encoding="utf-8"), version))
    done = to / lock.name
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return 0
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)
    part = done.with_suffix(".part")
    part.write_text(wanted, encoding="utf-8")
    status = subprocess.run(_download(part, version, to), check=False).returncode
    if status == 0:
        part.rename(done)  # last: it says that the wheels are all there
    return status


def lines_for(lock: str, version: str) -> Iterator[str]:
    """Give the entries of a lock file that hold for a version of Python on Linux, without their conditions.

    Args:
        lock: Text of the lock file.
        version: Such as "3.13".
    """
    from packaging.requirements import Requirement  # not in the image, which imports this package

    environment = {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": "linux", "os_name": "posix"}
    environment |= {"platform_system": "Linux", "implementation_name": "cpython", "platform_python_implementation": "CPython"}
    for entry in re.findall(r"^[A-Za-z0-9].*\n(?:    .*\n)*", lock, re.MULTILINE):
        first, rest = entry.split("\n", 1)
        requirement = Requirement(first.rstrip("\\ "))
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield f"{requirement.name}{requirement.specifier} \\\n{rest}"


def _python_with_pip() -> str:
    """Give the interpreter to fetch with: Debian's environments have no pip of their own where only the host's is installed."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


def _download(lock: Path, version: str, to: Path) -> list[str]:
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)]
    tags += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}", f"linux_{machine}"]
    pip = [_python_with_pip(), "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-input"]
    pip += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", str(lock), "--dest", str(to)]
    pip += ["--implementation", "cp", "--python-version", version]
    return [*pip, *(word for tag in tags for word in ("--platform", tag))]


if __name__ == "__main__":
    sys.exit(main())
