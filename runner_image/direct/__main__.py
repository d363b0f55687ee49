"""The direct path by hand: `python -m runner_image.direct init`, then `… chat "message"`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runner_image.direct.chat import DEFAULT_SECONDS, chat
from runner_image.direct.initialize import initialize
from runner_image.direct.session_store import direct_places
from runner_image.places import Places


def main(words: Sequence[str] | None = None) -> int:
    """Run one call; 0 when its last event is `done`, 1 when it is `error`."""
    given = _parser().parse_args(words)
    places = Places(state=given.state, workspace=given.workspace, outputs=given.outputs)
    try:
        if given.command == "init":
            ended_well = asyncio.run(initialize(given.team, places))
        else:
            ended_well = asyncio.run(chat(given.message, given.team, places, given.seconds))
    except BrokenPipeError:
        # the reader left; without this the interpreter would complain once more while it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if ended_well else 1


def _parser() -> argparse.ArgumentParser:
    usual = direct_places()
    parser = argparse.ArgumentParser(prog="python -m runner_image.direct", description="An agent without a service; prints JSON events.")
    folders = argparse.ArgumentParser(add_help=False)
    folders.add_argument("--team", help="whose conversation it is")
    folders.add_argument("--state", type=Path, default=usual.state, help="folder for the agent's own files (default: %(default)s)")
    folders.add_argument("--workspace", type=Path, default=usual.workspace, help="folder the agent works in (default: %(default)s)")
    folders.add_argument("--outputs", type=Path, default=usual.outputs, help="folder for files meant for the user (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("init", parents=[folders], help="check that everything is there")
    talk = commands.add_parser("chat", parents=[folders], help="give the agent a message; the conversation goes on")
    talk.add_argument("message")
    talk.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="time limit (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
