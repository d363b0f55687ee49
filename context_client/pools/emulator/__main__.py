"""A session pool on this machine: `python -m context_client.pools.emulator --port … --max-sessions … --cooldown …`.

Prints its address and a token. Served by uvicorn's own program, in place of this process.
"""

import argparse
import asyncio
import os
import secrets
import socket
import sys
from pathlib import Path

from pydantic import SecretStr

from context_client.pools.emulator.serving import KEY, SETTINGS
from context_client.pools.emulator.settings import EmulatorSettings
from context_client.pools.local_tokens import LocalTokens


def main() -> int:
    """Serve as the command line says, until it is told to stop."""
    parser = argparse.ArgumentParser(prog="context_client.pools.emulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8765, help="port to listen on (default: %(default)s); 0 takes a free one")
    parser.add_argument("--max-sessions", type=int, default=10, help="slots of the pool (default: %(default)s)")
    parser.add_argument("--cooldown", type=float, default=300.0, help="seconds a slot is held after the last call (default: %(default)s)")
    parser.add_argument("--full-status", type=int, default=429, choices=(404, 429, 500), help="how it refuses when full")
    parser.add_argument("--timing-headers", action="store_true", help="send the timing headers, which custom containers do not have")
    given = parser.parse_args()
    key = os.environ.get(KEY) or secrets.token_urlsafe(32)
    settings = EmulatorSettings(
        token_key=SecretStr(key),
        max_sessions=given.max_sessions,
        cooldown_seconds=given.cooldown,
        full_status=given.full_status,
        timing_headers=given.timing_headers,
    )
    port = given.port or _free_port(given.host)
    token = asyncio.run(LocalTokens(key.encode(), lifetime_seconds=24 * 3600).fetch())
    sys.stdout.write(f"http://{given.host}:{port}\n{token.value}\n")
    sys.stdout.flush()
    os.environ[KEY] = key
    os.environ[SETTINGS] = settings.model_dump_json(exclude={"token_key"})
    options = ["--host", given.host, "--port", str(port), "--lifespan", "on", "--log-level", "error", "--timeout-keep-alive", "120"]
    options += ["--no-access-log", "--no-date-header", "--app-dir", str(Path(__file__).parents[3])]
    application = ["--factory", "context_client.pools.emulator.serving:from_environment"]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "uvicorn", *options, *application])


def _free_port(host: str) -> int:
    with socket.socket() as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
