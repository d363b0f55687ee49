"""Shows a profile to begin with, and renders the templates of the platform's three generations."""

import asyncio
import sys
from pathlib import Path

from deployment_templates.errors import TemplateError
from deployment_templates.example import example
from deployment_templates.render import render_to


async def templates(action: str, *, generation: str, out: Path | None, profile: Path | None, check: bool) -> int:
    """Run an action and return the exit code.

    Args:
        action: `profile` prints a profile to begin with; `render` writes templates.
        generation: One of the generations, or `all`.
        out: Folder to write to.
        profile: Profile whose choices hold.
        check: Write nothing, and fail where the folder holds something else.
    """
    if action == "profile":
        print(example(), end="")
        return 0
    if out is None:
        print("TemplateError: nowhere to write to. Name a folder with --out.", file=sys.stderr)
        return 1
    try:
        lines = await asyncio.to_thread(render_to, out, generation, profile=profile, check=check)
    except TemplateError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0
