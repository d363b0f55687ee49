"""Reads the command line and hands over to the command."""

import argparse
import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import anyio.to_thread

from context_client.sandboxes.errors import SandboxError
from orchestration_service.errors import ServiceError, SettingsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0 for success, 1 for a failure that was explained, 130 for Ctrl+C."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        return asyncio.run(_run(given))
    except (ServiceError, SandboxError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def _run(given: argparse.Namespace) -> int:
    if given.command == "demo":
        from orchestration_service.cli.demo import demo

        return await demo(repository=given.repo, prompt=given.prompt, model=given.model, color=_color(), keep=given.keep)
    if given.command == "bench":
        from orchestration_service.cli.bench.run import bench

        return await bench(only=given.only, json_path=given.json)
    if given.command == "config":
        from orchestration_service.cli.config import show_config

        return await show_config(as_json=given.json)
    if given.command == "templates":
        from orchestration_service.cli.templates import templates

        return await templates(given.action, generation=given.generation, out=given.out, profile=given.profile, check=given.check)
    if given.command == "deploy":
        return await _deploy(given)
    if given.command == "doctor":
        return await _doctor(given)
    from orchestration_service.cli.serve import serve

    return await serve(host=given.host, port=given.port, replica=given.replica)


async def _deploy(given: argparse.Namespace) -> int:
    logging.getLogger("azure").setLevel(logging.ERROR)  # it tells at length what our errors tell in a line
    deploying = await anyio.to_thread.run_sync(_with_azure, "orchestration_service.cli.deploy")
    choices = deploying.Choices(overwrite=given.overwrite, force=given.force, skip_service=given.skip_service)
    return int(await deploying.deploy(given.action, given.profile, choices, removal=given.removal, as_json=given.json))


async def _doctor(given: argparse.Namespace) -> int:
    logging.getLogger("azure").setLevel(logging.ERROR)  # as for deploy
    examining = await anyio.to_thread.run_sync(_with_azure, "orchestration_service.cli.doctor")
    asked = partial(examining.Asked, service_url=given.service_url, pool_id=given.pool_id)
    return int(await examining.doctor(given.profile, asked, as_json=given.json))


def _with_azure(command: str) -> ModuleType:
    try:
        return importlib.import_module(command)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"The packages for Azure are not installed ({error.name!r} is missing). Install the extra 'azure': "
            "pip install 'foundationallm-claude-code[azure]', in a checkout ./dev setup.",
            (),
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="claude-code-agent", description="The Claude Code agent for FoundationaLLM.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="one turn, from a completion over HTTP to a patch that applies")
    demo.add_argument("--repo", type=Path, help="a git repository of yours (needs a model key); without it a small one is made")
    demo.add_argument("--prompt", help="what to do in the repository")
    demo.add_argument("--model", default=os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5"), help="model to use with a key")
    demo.add_argument("--keep", type=Path, help="folder to put the files of the turn into")
    serve = commands.add_parser("serve", help="the embedded platform, until Ctrl+C")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=int, help="port to listen on")
    serve.add_argument("--replica", action="store_true", help="one of several: nothing is made up, sandboxes are elsewhere")
    config = commands.add_parser("config", help="the settings in force")
    config.add_argument("action", choices=("show",), help="show: every setting with its value and where that comes from")
    config.add_argument("--json", action="store_true", help="print JSON")
    templates = commands.add_parser("templates", help="what is installed on the platform, as files")
    templates.add_argument("action", choices=("profile", "render"), help="profile: print one to begin with; render: write templates")
    templates.add_argument("--generation", choices=("standard", "quick-start", "internal", "all"), default="all", help="kind of templates")
    templates.add_argument("--out", type=Path, help="folder to write to")
    templates.add_argument("--profile", type=Path, help="TOML or JSON file whose names, provider and settings are to hold")
    templates.add_argument("--check", action="store_true", help="write nothing; fail where the folder holds something else")
    _add_deploy(commands)
    _add_doctor(commands)
    bench = commands.add_parser("bench", help="speed, as ratios measured in one run")
    bench.add_argument("only", nargs="*", help="names of single measurements")
    bench.add_argument("--json", type=Path, help="file to write the figures to")
    return parser


def _add_deploy(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    deploy = commands.add_parser("deploy", help="put the agent on the platform, check it, take it away")
    deploy.add_argument(
        "action", choices=("plan", "apply", "verify", "remove"), help="plan and verify only look; exit code 2: something to do"
    )
    deploy.add_argument("--profile", type=Path, required=True, help="TOML or JSON file that says what to install, and where")
    deploy.add_argument("--overwrite", action="store_true", help="replace also what others chose (plan shows it as kept)")
    deploy.add_argument("--force", action="store_true", help="remove also what others have changed")
    deploy.add_argument("--skip-service", action="store_true", help="do not look at the service: it cannot be reached from here")
    deploy.add_argument("--removal", action="store_true", help="with plan: what remove would take away")
    deploy.add_argument("--json", action="store_true", help="print JSON")


def _add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    doctor = commands.add_parser("doctor", help="examine an installation: what is wrong, and how to put it right; changes nothing")
    doctor.add_argument("--profile", type=Path, required=True, help="TOML or JSON file it was installed from")
    doctor.add_argument("--service-url", help="where the service is reached from here, if not at the profile's address")
    doctor.add_argument("--pool-id", help="Azure resource id of the session pool, for its size, its network and its callers")
    doctor.add_argument("--json", action="store_true", help="print JSON")


def _color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
