"""Measures seals against the plain tools on the same tree in the same run, and prints ratios: seconds alone say more about the machine.

`python -m runner_image.seals.measure [--folder PATH] [--rounds N] [--files N] [--bytes N]` prints one JSON object. Nothing is left behind.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from runner_image.seals.known import records_mapped_writes
from runner_image.seals.reader import read_seals
from runner_image.seals.restorer import restore
from runner_image.seals.walk import FOLDER_FLAGS, hash_tree
from runner_image.seals.witness import witnessing
from runner_image.seals.writer import WrittenSeal, write_seal

_T = TypeVar("_T")


@dataclass
class _Times:
    """Seconds by step, one value per round."""

    taken: dict[str, list[float]] = field(default_factory=dict)

    def time(self, step: str, action: Callable[[], _T]) -> _T:
        began = time.perf_counter()
        result = action()
        self.taken.setdefault(step, []).append(time.perf_counter() - began)
        return result

    def p95(self, step: str) -> float:
        """Return the 95th percentile; with few rounds that is the slowest."""
        values = sorted(self.taken[step])
        return values[min(len(values) - 1, int(len(values) * 0.95))]

    def median(self, step: str) -> float:
        values = sorted(self.taken[step])
        return values[len(values) // 2]


def make_tree(root: Path, *, files: int, size_bytes: int, seed: int = 1) -> None:
    """Fill a folder with what a repository has: sources, data, and one file in eight that does not compress.

    Args:
        root: An existing, empty folder.
        files: How many files.
        size_bytes: Size of them together; sizes are spread as in real repositories, many small and few large.
        seed: The same seed makes the same tree.
    """
    dice = random.Random(seed)
    weights = [dice.lognormvariate(0, 1.3) for _ in range(files)]
    scale = size_bytes / sum(weights)
    text, start = _text(), 0
    for number, weight in enumerate(weights):
        folder = root / f"package_{number % 40:02}" / f"module_{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        size = max(1, int(weight * scale))
        if number % 8 == 0:
            (folder / f"image_{number}.png").write_bytes(dice.randbytes(size))
        else:
            content = text[start : start + size]
            (folder / f"source_{number}.py").write_bytes(content + text[: size - len(content)])
            start = (start + size) % len(text)


def change_tree(root: Path, share: float, seed: int) -> int:
    """Edit a share of the files, as an agent would: a few lines more; return how many."""
    dice = random.Random(seed)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    chosen = dice.sample(paths, max(1, int(len(paths) * share)))
    for path in chosen:
        path.write_bytes(path.read_bytes() + b"# changed: %d\n" % dice.randrange(10**9))
    return len(chosen)


def measure(folder: Path, *, rounds: int, files: int, size_bytes: int) -> dict[str, object]:
    """Run everything in a folder and return the figures. Blocks, for a minute or so.

    Args:
        folder: An existing folder with room for five times the tree; what is written there is the caller's to take away.
        rounds: How often each step is run.
        files: Number of files in the tree.
        size_bytes: Size of the tree.
    """
    tree = folder / "tree"
    tree.mkdir()
    make_tree(tree, files=files, size_bytes=size_bytes)
    times, seals = _Times(), list[tuple[WrittenSeal, WrittenSeal]]()
    for number in range(rounds):
        time.sleep(0.1)  # stamps younger than a tick are not trusted, and no turn is that short
        seals.append(_round(times, folder, tree, number))
    return _report(times, seals, folder, tree)


def _round(times: _Times, folder: Path, tree: Path, number: int) -> tuple[WrittenSeal, WrittenSeal]:
    out, copy, back = folder / f"out-{number}", folder / "copy", folder / "back"
    for place in (out, back):
        place.mkdir()
    archive = folder / "plain.tar.gz"
    times.time("tar_gzip_6", lambda: subprocess.run(["sh", "-c", 'tar -c -C "$1" . | gzip -6 > "$2"', "sh", tree, archive], check=True))
    first = times.time("first", lambda: write_seal(tree, out, stem="turn-001-seal", turn_number=1))
    second = _second(times, tree, out, first, number)
    newest = second.known.index_sha256
    chain = times.time("read", lambda: read_seals([*first.parts, *second.parts], index_sha256=newest))
    times.time("cp_r", lambda: subprocess.run(["cp", "-r", tree, copy], check=True))
    restored = times.time("restore", lambda: restore(chain, back))
    if restored.tree_sha256 != hash_tree(back):
        raise AssertionError("the restored tree differs from the sealed one")
    for place in (out, copy, back):
        shutil.rmtree(place)
    return first, second


def _second(times: _Times, tree: Path, out: Path, first: WrittenSeal, seed: int) -> WrittenSeal:
    """Change the tree in sight of a witness, and seal it as a turn does, and with every file read again."""
    with ExitStack() as stack:
        witness = times.time("watch", lambda: stack.enter_context(witnessing(tree, first.known)))
        change_tree(tree, 0.01, seed=seed)

        def seal() -> WrittenSeal:
            return write_seal(tree, out, stem="turn-002-seal", turn_number=2, parent=first.known, testimony=witness.testify())

        second = times.time("second", seal)
    again = times.time("second_read_again", lambda: write_seal(tree, out, stem="again", turn_number=2, parent=first.known, trust="never"))
    if second.index.tree_sha256 != again.index.tree_sha256:
        raise AssertionError("the second seal missed a change")
    return second


def _report(times: _Times, seals: Sequence[tuple[WrittenSeal, WrittenSeal]], folder: Path, tree: Path) -> dict[str, object]:
    first, second = seals[-1]
    top = os.open(folder, FOLDER_FLAGS)
    try:
        recorded = records_mapped_writes(top)
    finally:
        os.close(top)
    median = times.median
    return {
        "files": sum(1 for path in tree.rglob("*") if path.is_file()),
        "tree_bytes": sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()),
        "file_system_records_mapped_writes": recorded,
        "first_seconds_p95": round(times.p95("first"), 3),
        "first_bytes": first.total_bytes,
        "tar_gzip_over_first": round(median("tar_gzip_6") / median("first"), 2),
        "second_over_first_bytes": round(second.total_bytes / first.total_bytes, 4),
        "second_over_first_seconds": round(median("second") / median("first"), 3),
        "second_read_again_over_first_seconds": round(median("second_read_again") / median("first"), 3),
        "restore_over_cp_r": round(median("restore") / median("cp_r"), 2),
        "restore_with_reading_over_cp_r": round((median("restore") + median("read")) / median("cp_r"), 2),
        "median_seconds": {step: round(median(step), 4) for step in times.taken},
    }


def _text() -> bytes:
    """Return real text: the sources of the standard library, which are wherever this runs."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = (path for path in sorted(folder.rglob("*.py")) if "site-packages" not in path.parts)
    return b"".join(path.read_bytes() for path in paths)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Measure seals against tar, gzip and cp; prints JSON.")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--bytes", type=int, default=100_000_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        figures = measure(Path(folder), rounds=chosen.rounds, files=chosen.files, size_bytes=chosen.bytes)
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
