"""Plays the agent's CLI behind a wall: looks around itself, has a shell command look around, and prints what both have found."""

import json
import subprocess
import sys
from pathlib import Path

PROBE = str(Path(__file__).with_name("probe.py"))


def look(*start: str) -> object:
    """Run the probe in a process of its own and return its findings."""
    done = subprocess.run(start, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


shell, question = sys.argv[1:]
print(json.dumps({"cli": look("python3", PROBE, question), "command": look(shell, f"exec python3 {PROBE} '{question}'")}))
