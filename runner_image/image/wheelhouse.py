"""Fetches the wheels of a lock file for the Python of an image, so that the build of the image needs no network.

`python -m runner_image.image.wheelhouse --python 3.13 --to FOLDER LOCK...` leaves in the folder the wheels, and beside them each lock
with only the lines that hold for that Python: pip judges them by the interpreter it runs on, which is another one here.
"""

import argparse
import platform
import re
import subprocess
import sys
import tempfile
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
    asked.to.mkdir(parents=True, exist_ok=True)
    for lock in asked.locks:
        text = "".join(lines_for(lock.read_text(encoding="utf-8"), asked.python))
        done = asked.to / lock.name
        if done.exists() and done.read_text(encoding="utf-8") == text:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as wanted:
            wanted.write(text)
            wanted.flush()
            if status := subprocess.run(_download(Path(wanted.name), asked.python, asked.to), check=False).returncode:
                return status
        done.write_text(text, encoding="utf-8")  # written last: it says that its wheels are there
    return 0


def lines_for(lock: str, version: str) -> Iterator[str]:
    """Give the entries of a lock file that hold for a version of Python on Linux, without their conditions.

    Args:
        lock: Text of the lock file.
        version: Such as "3.13".
    """
    from pip._vendor.packaging.requirements import Requirement  # pip is what fetches, so it is there, and nothing else needs it

    environment = {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": "linux", "os_name": "posix"}
    environment |= {"platform_system": "Linux", "implementation_name": "cpython", "platform_python_implementation": "CPython"}
    for entry in re.findall(r"^[A-Za-z0-9].*\n(?:    .*\n)*", lock, re.MULTILINE):
        first, rest = entry.split("\n", 1)
        requirement = Requirement(first.rstrip("\\ "))
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield f"{requirement.name}{requirement.specifier} \\\n{rest}"


def _download(lock: Path, version: str, to: Path) -> list[str]:
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)]
    tags += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}", f"linux_{machine}"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    pip += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", str(lock), "--dest", str(to)]
    pip += ["--implementation", "cp", "--python-version", version]
    return [*pip, *(word for tag in tags for word in ("--platform", tag))]


if __name__ == "__main__":
    sys.exit(main())
