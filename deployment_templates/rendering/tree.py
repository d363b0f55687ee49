"""All files of a generation: the usual set, what differs for other model providers, and what needs a patched platform."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from deployment_templates.errors import RenderError
from deployment_templates.profile import ModelProvider, Profile
from deployment_templates.rendering import blobs, internal
from deployment_templates.rendering.source import Source, source_of
from deployment_templates.rendering.tokens import Generation
from deployment_templates.resources.providers import PROVIDERS
from deployment_templates.values import WorkflowType

FOLDERS: Mapping[Generation, str] = {"standard": "standard", "quick-start": "quick_start", "internal": "internal"}
"""Folder of each generation, in this package and below the place that is rendered to."""

PATCHED: WorkflowType = "claude-code-agent-workflow"
_PATCHED_FOLDER = "requires-dotnet-patch"
_PROVIDERS_FOLDER = "model-providers"


def render(generation: Generation, choices: Profile | None = None) -> dict[str, str]:
    """Return the files of a generation by their path below its folder.

    Args:
        generation: The generation.
        choices: A profile whose names, provider and settings hold; its addresses and identifiers become placeholders. Without one every
            provider has its own folder, with the files that differ for it.

    Raises:
        RenderError: A text of the profile would be changed by the platform's own renderer.
    """
    found = _files(source_of(generation, choices))
    needs_patch = choices is not None and choices.workflow_type == PATCHED
    if not needs_patch:
        found |= _differing(source_of(generation, choices, workflow_type=PATCHED), found, _PATCHED_FOLDER)
    if choices is None:
        for provider in PROVIDERS:
            if provider != "anthropic":
                found |= _differing(source_of(generation, provider=provider), found, f"{_PROVIDERS_FOLDER}/{provider}")
    return dict(sorted(found.items()))


def _files(source: Source) -> dict[str, str]:
    found = internal.files(source) if source.generation == "internal" else blobs.files(source)
    for path, text in found.items():
        _check(source.generation, path, text)
    return found


def _differing(source: Source, usual: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the files that the usual set has not, or has otherwise."""
    return {f"{folder}/{path}": text for path, text in _files(source).items() if usual.get(path) != text}


def _check(generation: Generation, path: str, text: str) -> None:
    """Refuse a text that the platform's renderer would take for a part of a program or of a regular expression."""
    if PurePosixPath(path).suffixes[-2:] == [".ps1", ".txt"]:
        return
    if not text.isascii():
        raise RenderError(
            f"{path!r} has characters that are not ASCII, which old PowerShell misreads: write them as HTML or leave them out."
        )
    rest = re.sub(r"\$\{env:[A-Z0-9_]+\}", "", text) if generation == "quick-start" else text
    found = re.search(r"[$`]" if generation == "quick-start" else r"\$", rest)
    if found:
        raise RenderError(
            f"{path!r} has a {found[0]!r}, which the platform's own renderer would change. Take it out of the profile, or install with the "
            "deploy command, which changes nothing."
        )


def provider_folder(provider: ModelProvider) -> str:
    """Return the folder of what differs for a provider of models."""
    return f"{_PROVIDERS_FOLDER}/{provider}"
