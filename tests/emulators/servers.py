"""The emulators as child processes, on ports of their own, and as containers where an engine runs."""

import base64
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.emulators.installation import HERE, EmulatorsMissing, installed

COSMOS_KEY = base64.b64encode(b"any valid base64 will do for it.").decode()
"""A key for the document server, which accepts every one."""
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account every Azurite comes with; published, and no secret."""
START_SECONDS = 60


@dataclass(frozen=True)
class Emulator:
    """A running emulator."""

    url: str
    """Where it listens."""
    process: "subprocess.Popen[str] | None" = None
    """Its process, when it is a child of ours."""

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        """Stop it in its tracks: connections are taken and not answered, until the block ends."""
        assert self.process is not None, "only a child process can be stopped"
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def cosmos_process() -> Iterator[Emulator]:
    """Run the document server; everything in it is gone at the end.

    Raises:
        EmulatorsMissing: It cannot be had here.
    """
    with _running(["node", str(HERE / "cosmosdb_server.js"), str(installed()), "0"]) as emulator:
        yield emulator


@contextmanager
def azurite_process() -> Iterator[Emulator]:
    """Run Azurite's blob service in a folder of its own."""
    program = installed() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with (
        tempfile.TemporaryDirectory(prefix="azurite-") as folder,
        _running(["node", str(program), "--location", folder, *options]) as server,
    ):
        yield Emulator(f"{server.url}/{AZURITE_ACCOUNT}", server.process)


@contextmanager
def _running(command: list[str]) -> Iterator[Emulator]:
    with tempfile.TemporaryFile("w+") as output:  # a pipe that nobody reads would stop it one day
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=Path("/"))
        try:
            yield Emulator(_address(process, output), process)
        finally:
            process.kill()
            process.wait()


def _address(process: "subprocess.Popen[str]", output: IO[str]) -> str:
    deadline, said = time.monotonic() + START_SECONDS, ""
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        said = os.pread(output.fileno(), 10_000, 0).decode(errors="replace")
        found = re.search(r"(?:listening at|listens on) (http://\S+:[1-9]\d*)\n", said)
        if found:
            return found[1]
        if ended:
            break
        time.sleep(0.05)
    raise EmulatorsMissing(f"the emulator did not start: {said.strip()[-300:]}")
