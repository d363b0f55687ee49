"""The direct path by hand, from outside: `python -m context_client.direct --url URL --session NAME chat "message"`.

The pool's token is read from `CLAUDE_CODE_POOL_TOKEN`, the model's access from the variables that the image knows (`ANTHROPIC_…`).
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from pydantic import BaseModel, SecretStr

from context_client.direct import DirectError, Done, EventStream, FixedToken, ModelAccess, SessionProxy
from context_client.embedded.provider import SandboxEndpoint


def main(words: Sequence[str] | None = None) -> int:
    """Make one call and print what comes of it, a JSON object per line; 0 when it went well."""
    given = _parser().parse_args(words)
    try:
        return asyncio.run(_call(given))
    except DirectError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


async def _call(given: argparse.Namespace) -> int:
    params = {"api-version": given.api_version} if given.api_version else {}
    token = os.environ.get("CLAUDE_CODE_POOL_TOKEN", "")
    source = FixedToken(SecretStr(token)) if token else None
    async with SessionProxy(SandboxEndpoint(base_url=given.url, params=params), token=source, model=_model()) as proxy:
        if given.command == "init":
            return await _show(proxy.init(given.session, given.team))
        if given.command == "chat":
            return await _show(proxy.chat(given.session, given.message, given.team, seconds=given.seconds))
        if given.command == "follow":
            followed = await proxy.follow(given.session)
            return 1 if followed is None else await _show(followed)
        if given.command == "status":
            _print(await proxy.status(given.session))
            return 0
        return 0 if await (proxy.stop if given.command == "stop" else proxy.clear)(given.session) else 1


async def _show(events: EventStream) -> int:
    async with events:
        async for event in events:
            _print(event)
    return 0 if isinstance(event, Done) else 1


def _print(value: BaseModel) -> None:
    sys.stdout.write(value.model_dump_json() + "\n")
    sys.stdout.flush()


def _model() -> ModelAccess:
    names = {"base_url": "BASE_URL", "api_key": "API_KEY", "auth_token": "AUTH_TOKEN", "custom_headers": "CUSTOM_HEADERS", "model": "MODEL"}
    return ModelAccess.model_validate({field: os.environ.get(f"ANTHROPIC_{name}", "") for field, name in names.items()})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m context_client.direct", description="An agent in a sandbox, driven from outside.")
    parser.add_argument("--url", required=True, help="address in front of /code/execute")
    parser.add_argument("--session", required=True, help="identifier of the sandbox")
    parser.add_argument("--api-version", default="", help="parameter that pools want")
    team = argparse.ArgumentParser(add_help=False)
    team.add_argument("--team", help="whose conversation it is")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("init", parents=[team], help="check that everything is there")
    talk = commands.add_parser("chat", parents=[team], help="give the agent a message; the conversation goes on")
    talk.add_argument("message")
    talk.add_argument("--seconds", type=float, default=900.0, help="time limit (default: %(default)s)")
    for name, what in {
        "follow": "show the call at work, or the last one, from its beginning",
        "status": "show what the sandbox remembers",
        "stop": "stop the call at work",
        "clear": "forget the conversation",
    }.items():
        commands.add_parser(name, help=what)
    return parser


if __name__ == "__main__":
    sys.exit(main())
