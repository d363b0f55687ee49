"""Installs the agent on the platform from a profile: says what there is to do, does it, checks it, and takes it away again.

Exit codes, for scripts: 0 when there is nothing (more) to do, 2 when there is, 1 when the command failed.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import anyio.to_thread

from deployment_templates.errors import TemplateError
from deployment_templates.profile import Profile, load_profile
from orchestration_service.deploying.deployment import Deployment
from orchestration_service.deploying.errors import ProfileRefused
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.installation import Choices, Places, make_deployment, open_places

Action = Literal["plan", "apply", "verify", "remove"]

TO_DO = 2
_WORDS: Mapping[str, str] = {
    "create": "create",
    "change": "change",
    "remove": "remove",
    "run": "to do",
    "blocked": "blocked",
    "nothing": "as it is",
}
_INDENT = " " * 10


async def deploy(
    action: Action,
    profile_path: Path,
    choices: Choices,
    *,
    removal: bool = False,
    as_json: bool = False,
    places: Callable[[Profile], AbstractAsyncContextManager[Places]] = open_places,
) -> int:
    """Run one of the commands and return the exit code.

    Args:
        action: Which one.
        profile_path: File with the profile.
        choices: The operator's.
        removal: Plan what `remove` would do.
        as_json: Print one JSON document at the end instead of lines.
        places: Opens what a profile names.

    Raises:
        DeploymentError: It failed; the message says what to do.
    """
    profile = await anyio.to_thread.run_sync(_profile, profile_path)
    told = _silent if as_json else _tell
    async with places(profile) as opened:
        deployment = await make_deployment(profile, opened, choices, os.environ)
        if action == "apply":
            found = await deployment.apply(told)
        elif action == "remove":
            found = await deployment.remove(told)
        else:
            found = await (deployment.plan_removal() if removal else deployment.plan())
        if as_json:
            print(_document(action, found, deployment))
        else:
            _conclude(action, found, deployment)
    return _code(action, found)


def _profile(path: Path) -> Profile:
    try:
        return load_profile(path)
    except TemplateError as error:
        raise ProfileRefused(str(error)) from error


def _code(action: Action, found: Sequence[Finding]) -> int:
    if action == "apply":
        return 0
    if action == "remove":
        return TO_DO if any(finding.stays for finding in found) else 0
    return TO_DO if any(finding.acts for finding in found) else 0


def _conclude(action: Action, found: Sequence[Finding], deployment: Deployment) -> None:
    for finding in found:
        is_told = finding.acts and action in ("apply", "remove")
        if not is_told and (finding.acts or finding.kept or finding.note):
            _tell(finding)
    count = sum(finding.acts for finding in found)
    verb = {"plan": "to do", "verify": "not as planned", "apply": "done", "remove": "removed"}[action]
    print(f"{count} {verb}." if count else f"Nothing {verb}." if action != "verify" else "Everything is as planned.")
    for name in deployment.leftovers() if action != "remove" else ():
        print(f"Installed earlier under another name and still there: {name}. Remove it with the profile it was installed from.")
    if action in ("apply", "remove") and count:
        print("\nThe platform reads some things only when it starts. Restart now:")
        for restart in deployment.restarts:
            print(f"  {restart}")


def _tell(finding: Finding) -> None:
    note = f"  ({finding.note})" if finding.note else ""
    print(f"{_WORDS[finding.act]:<9} {finding.what}{note}", flush=True)
    if finding.act == "change" or finding.kept:
        for leaf in finding.leaves:
            print(f"{_INDENT}{leaf}")
        for leaf in finding.kept:
            print(f"{_INDENT}kept: {leaf}")


def _silent(finding: Finding) -> None:
    """Say nothing: everything is in the document at the end."""


def _document(action: Action, found: Sequence[Finding], deployment: Deployment) -> str:
    steps: list[dict[str, Any]] = [dataclasses.asdict(finding) for finding in found]
    content = {"command": action, "steps": steps, "leftovers": deployment.leftovers(), "restarts": deployment.restarts}
    return json.dumps(content, indent=2, ensure_ascii=False)
