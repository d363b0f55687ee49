"""Installs the emulators once, below the checkout, from the lock file beside this module."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".emulators"
INSTALL_SECONDS = 500


class EmulatorsMissing(Exception):
    """The emulators cannot be had here; the message says why."""


def installed() -> Path:
    """Return the folder with the emulators' `node_modules`, made now if it is not there or not up to date.

    Raises:
        EmulatorsMissing: There is neither node nor npm, or npm can't install.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise EmulatorsMissing(f"{program} is not installed (Debian, Ubuntu: apt-get install nodejs npm)")
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once: the second waits, then finds it done
        stamp = CACHE / "stamp"
        wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            _install()
            stamp.write_text(wanted)
    return CACHE


def _install() -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(HERE / name, CACHE / name)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    environment = {**os.environ, "CI": "1"}
    try:
        done = subprocess.run(command, cwd=CACHE, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise EmulatorsMissing(f"npm could not install the emulators within {INSTALL_SECONDS} seconds") from error
    if done.returncode != 0:
        raise EmulatorsMissing(f"npm could not install the emulators: {done.stderr.strip()[-300:]}")
