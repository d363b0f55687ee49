"""Writes the templates of a generation into a folder: `python -m deployment_templates.render --generation standard --out FOLDER`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deployment_templates.errors import RenderError, TemplateError
from deployment_templates.profile import load_profile
from deployment_templates.rendering.tokens import GENERATIONS, Generation
from deployment_templates.rendering.tree import FOLDERS, render


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 1 after an error that was explained."""
    given = parser().parse_args(arguments)
    try:
        lines = render_to(given.out, given.generation, profile=given.profile, check=given.check)
    except TemplateError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def parser(made: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """Return the reader of the command line; `made` is one to put the options into."""
    made = made or argparse.ArgumentParser(prog="python -m deployment_templates.render", description="Render templates for the platform.")
    made.add_argument("--generation", choices=(*GENERATIONS, "all"), default="all", help="which of the platform's template generations")
    made.add_argument("--out", type=Path, required=True, help="folder to write to; each generation gets a folder below it")
    made.add_argument("--profile", type=Path, help="TOML or JSON file whose names, provider and settings are to hold")
    made.add_argument("--check", action="store_true", help="write nothing; fail where the folder holds something else")
    return made


def render_to(out: Path, generation: Generation | str, *, profile: Path | None = None, check: bool = False) -> list[str]:
    """Write the templates, and return one line for each folder.

    Args:
        out: Folder to write to. In a generation's folder only files it renders are touched.
        generation: A generation, or `all`.
        profile: Profile whose choices hold.
        check: Only compare.

    Raises:
        TemplateError: The profile cannot be used, a file cannot be written, or with `check` a file differs.
    """
    choices = load_profile(profile) if profile else None
    wanted = [name for name in GENERATIONS if generation in (name, "all")]
    lines = []
    for name in wanted:
        folder = out / FOLDERS[name]
        files = render(name, choices)
        if check:
            _compare(folder, files)
        else:
            _write(folder, files)
        lines.append(f"{folder}: {len(files)} files{' as they should be' if check else ''}")
    return lines


def differing(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Return the paths that are missing in a folder, differ, or do not belong there."""
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} if folder.is_dir() else set()
    wrong = [path for path, text in files.items() if path not in there or (folder / path).read_text(encoding="utf-8") != text]
    return sorted({*wrong, *(there - files.keys())})


def _compare(folder: Path, files: Mapping[str, str]) -> None:
    if wrong := differing(folder, files):
        raise RenderError(
            f"{len(wrong)} files in {str(folder)!r} are not what would be rendered: {', '.join(wrong[:10])}. Render them anew."
        )


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise RenderError(f"The folder {str(folder)!r} cannot be written to: {error}. Choose another one with --out.") from error


if __name__ == "__main__":
    sys.exit(main())
