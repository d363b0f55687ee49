"""One runner per sandbox, however many ask for it while it starts."""

import pytest

from tests.sandboxes.conftest import Run
from workflow_schemas.mailbox import Exchange, encode

pytestmark = pytest.mark.anyio

ASKED = f"from runner_image.exchange import main; main({encode(Exchange(run_id='asked'))!r})"
WATCHED = f"""
import os, subprocess, sys, time
from pathlib import Path

def runners():
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"runner_image.runner" in process.read_bytes().split(b"\\0"):
                yield os.getsid(int(process.parent.name))  # what a runner starts looks like it for a moment
        except OSError:
            continue

asked = [subprocess.Popen([sys.executable, "-c", {ASKED!r}], stdout=subprocess.PIPE) for _ in range(5)]
seen = set()
while any(one.poll() is None for one in asked):
    seen.update(runners())
    time.sleep(0.005)
print(len(seen), len({{one.stdout.read() for one in asked}}), [one.returncode for one in asked])
"""


async def test_many_that_ask_at_once_start_one_runner(run: Run) -> None:
    """Each would need seconds of a small container's processor, and memory, only to find that it is not needed."""
    assert (await run(WATCHED))["output"] == "1 1 [0, 0, 0, 0, 0]\n"
