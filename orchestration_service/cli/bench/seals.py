"""Seals against tar, gzip and cp, on both kinds of file system that a workspace may have.

The measurement is the runner's own and runs as a process: what is in the sandbox's image is not imported by the service.
"""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from orchestration_service.cli.bench.figure import Figure
from orchestration_service.errors import ServiceError

_SHARED_MEMORY = Path("/dev/shm")
_ROUNDS = 9


async def seals_and_restores() -> list[Figure]:
    """Measure on a tmpfs, which a sandbox's workspace is, and on disk: 100 MB in 5,000 files, of which one in a hundred changes."""
    places = {"disk": Path(gettempdir())}
    if await asyncio.to_thread(_SHARED_MEMORY.is_dir):
        places = {"tmpfs": _SHARED_MEMORY, **places}
    return [figure for name, folder in places.items() for figure in _figures(name, await _measured(folder))]


async def _measured(folder: Path) -> dict[str, Any]:
    line = [sys.executable, "-m", "runner_image.seals.measure", "--folder", str(folder), "--rounds", str(_ROUNDS)]
    process = await asyncio.create_subprocess_exec(*line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise ServiceError(f"the seals could not be measured in {str(folder)!r}: the process ended with {process.returncode}")
    figures: dict[str, Any] = json.loads(said)
    return figures


def _figures(place: str, said: dict[str, Any]) -> list[Figure]:
    seconds = {step: f"{value:.3f} s" for step, value in said["median_seconds"].items()}
    size = f"{said['tree_bytes'] / 1e6:.0f} MB in {said['files']} files become {said['first_bytes'] / 1e6:.0f} MB"
    against_gzip = f"{said['tar_gzip_over_first']} times as fast, {seconds['first']} against {seconds['tar_gzip_6']}"
    again = f"{seconds['second']} against {seconds['first']}; {seconds['second_read_again']} with every file read again"
    watch = f"{again}; a witness begins in {seconds['watch']}" if not said["file_system_records_mapped_writes"] else again
    back = f"{seconds['read']} to read the index and {seconds['restore']} to restore, against {seconds['cp_r']}"
    return [
        Figure(f"first seal on {place}, p95", said["first_seconds_p95"], "s", 3, size),
        Figure(f"first seal on {place} ÷ tar | gzip -6", 1 / said["tar_gzip_over_first"], "", round(1 / 3, 3), against_gzip),
        Figure(f"second seal on {place} ÷ first, bytes, 1 % changed", said["second_over_first_bytes"], "", 0.1),
        Figure(f"second seal on {place} ÷ first, seconds, 1 % changed", said["second_over_first_seconds"], "", 0.1, watch),
        Figure(f"restore on {place} ÷ cp -r", said["restore_with_reading_over_cp_r"], "", 1.5, back),
    ]
