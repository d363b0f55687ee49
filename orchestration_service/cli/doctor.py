"""The command that examines a live installation and says how to put right what is wrong."""

import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import groupby
from pathlib import Path

import anyio.to_thread

from deployment_templates.errors import TemplateError
from deployment_templates.profile import Profile, load_profile
from orchestration_service.deploying.errors import DeploymentError, ProfileRefused
from orchestration_service.examining.catalogue import CHECKS
from orchestration_service.examining.examination import examine
from orchestration_service.examining.finding import GROUP_WORDS, Finding
from orchestration_service.examining.sources import Asked, Sources, open_sources

FAULTS = 1
NOT_SEEN = 2
_WIDTH = 110


async def doctor(
    profile_path: Path,
    asked: Callable[[], Asked],
    *,
    as_json: bool = False,
    sources: Callable[[Profile], AbstractAsyncContextManager[Sources]] = open_sources,
) -> int:
    """Examine an installation and return the exit code: 1 for faults, 2 where all or some could not be examined, 0 if all is well.

    Args:
        profile_path: File with the profile.
        asked: Gives what the operator says beside it; may refuse it.
        as_json: Print one JSON document instead of sentences.
        sources: Opens whom to ask.
    """
    try:
        said = asked()
        profile = await anyio.to_thread.run_sync(_profile, profile_path)
        async with sources(profile) as opened:
            found = await examine(opened, profile, said, profile_path=str(profile_path))
    except DeploymentError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return NOT_SEEN
    print(_document(found) if as_json else "\n".join(_told(found)))
    return FAULTS if any(finding.is_fault for finding in found) else NOT_SEEN if found else 0


def _profile(path: Path) -> Profile:
    try:
        return load_profile(path)
    except TemplateError as error:
        raise ProfileRefused(str(error)) from error


def _told(found: Sequence[Finding]) -> list[str]:
    lines: list[str] = []
    for group, findings in groupby(found, key=lambda finding: finding.kind.group):
        lines += [GROUP_WORDS[group], ""]
        for finding in findings:
            lines += [*_wrapped(f"{finding.kind.code}: {finding.found}", "  "), *_wrapped(f"Why: {finding.kind.why}", "    ")]
            lines += [*_wrapped(f"Fix: {finding.fix}", "    "), ""]
    return [*lines, _summary(found)]


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of a paragraph; commands and addresses are not broken up."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )


def _summary(found: Sequence[Finding]) -> str:
    faults = sum(finding.is_fault for finding in found)
    not_seen = len(found) - faults
    if not found:
        return f"Nothing is wrong: {len(CHECKS)} checks."
    told = [f"{faults} to put right"] if faults else ["Nothing wrong was found"]
    return ", ".join([*told, *([f"{not_seen} not examined"] if not_seen else [])]) + "."


def _document(found: Sequence[Finding]) -> str:
    findings = [{"code": one.kind.code, "group": one.kind.group, "found": one.found, "why": one.kind.why, "fix": one.fix} for one in found]
    content = {"checks": len(CHECKS), "faults": sum(one.is_fault for one in found), "findings": findings}
    return json.dumps(content, indent=2, ensure_ascii=False)
