"""Serves a scripted model from a process of its own: `python -m orchestration_service.scripted SCRIPT.json` prints its address."""

import argparse
import asyncio
import sys
from pathlib import Path

from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import scripted_endpoint
from orchestration_service.scripted.script import Script, load_script


async def _serve(script: Script, port: int) -> None:
    async with scripted_endpoint(ScriptedModel(script), port=port) as endpoint:
        sys.stdout.write(f"{endpoint.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(prog="python -m orchestration_service.scripted", description="A model that plays a script.")
    parser.add_argument("script", type=Path, help="the script, as JSON")
    parser.add_argument("--port", type=int, default=0, help="port of this machine to listen on; 0 takes a free one")
    asked = parser.parse_args()
    try:
        asyncio.run(_serve(load_script(asked.script), asked.port))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
