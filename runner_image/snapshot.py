"""Records the workspace as git trees, and turns two of them into a patch that is proven to apply.

Everything happens in a git directory of the runner's own (`scratch.git`), behind the wall and without network: the repository's index,
configuration, hooks, filters and external diff programs are never in force, and the user's index is not touched.
See docs/decisions/0005.
"""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner_image.errors import WorkspaceError
from runner_image.wall import WORKSPACE, Wall, base_environment
from workflow_schemas.manifest import PatchFacts

_SCRATCH = "/scratch"
_EXCLUDED = (
    ".claude/", "__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", "node_modules/", ".venv/", ".tox/",
)  # fmt: skip
"""What an agent leaves behind and nobody wants in a patch, unless the base already holds it."""

_SETTINGS = (
    "core.autocrlf=false", "core.safecrlf=false", "core.quotePath=true", "core.hooksPath=/dev/null", "core.fsmonitor=false",
    "core.symlinks=true", "core.fileMode=true", "gc.auto=0", "diff.renames=true", "diff.noprefix=false", "diff.mnemonicPrefix=false",
    "core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "advice.addEmbeddedRepo=false", "core.compression=1",
    "core.looseCompression=0", "core.fsync=none",
)  # fmt: skip

_BASE_SCRIPT = """
set -eu
git init -q --bare {scratch}
rm -f {scratch}/index {scratch}/objects/info/alternates
printf '%s\\n' {excluded} > {scratch}/info/exclude
head=$(git --git-dir={workspace}/.git rev-parse -q --verify 'HEAD^{{commit}}' 2>/dev/null || true)
tree=
if [ -n "$head" ]; then
  objects=$(git --git-dir={workspace}/.git rev-parse --git-path objects 2>/dev/null || true)
  if [ -n "$objects" ]; then (cd {workspace} && cd "$objects" && pwd -P) > {scratch}/objects/info/alternates || true; fi
  tree=$(git --git-dir={scratch} rev-parse -q --verify "$head^{{tree}}" 2>/dev/null || true)
  if [ -n "$tree" ]; then git --git-dir={scratch} read-tree "$tree"; fi
fi
echo "head $head"
echo "headtree $tree"
"""

_TREE_SCRIPT = """
set -eu
git --git-dir={scratch} --work-tree={workspace} add -A --ignore-errors . || echo "remark some files could not be read"
echo "tree $(git --git-dir={scratch} write-tree)"
"""

_PATCH_SCRIPT = """
export GIT_DIR={scratch}
result=$(git write-tree)
git diff --binary --full-index --no-color --no-ext-diff --no-textconv -M {base} "$result" > {scratch}/changes.patch
git diff --no-color --no-ext-diff --no-textconv --no-renames --numstat {base} "$result" > {scratch}/changes.numstat
if [ -s {scratch}/changes.patch ]; then
  rm -f {scratch}/proof.index
  export GIT_INDEX_FILE={scratch}/proof.index
  git read-tree {base}
  if git apply --cached --whitespace=nowarn {scratch}/changes.patch 2> {scratch}/proof.error; then
    echo "proof $(git write-tree)"
  else
    echo "failed $(head -c 300 {scratch}/proof.error | tr '\\n' ' ')"
  fi
else
  echo "proof {base}"
fi
"""


@dataclass(frozen=True)
class Base:
    """The workspace as it was when the turn began."""

    tree: str
    commit: str | None
    is_commit: bool
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """What the turn changed."""

    facts: PatchFacts
    patch: bytes
    remarks: tuple[str, ...]


class Snapshots:
    """Takes snapshots of one workspace."""

    def __init__(self, wall: Wall) -> None:
        self._wall = wall
        self._scratch = wall.places.scratch

    async def base(self) -> Base:
        """Record the workspace before the agent touches it.

        Raises:
            WorkspaceError: git fails; the message holds its words.
        """
        facts = await self._run(_BASE_SCRIPT + _TREE_SCRIPT.removeprefix("\nset -eu"), excluded=" ".join(f"'{x}'" for x in _EXCLUDED))
        tree, head, head_tree = _one(facts, "tree"), _one(facts, "head"), _one(facts, "headtree")
        if not tree:
            raise WorkspaceError("git did not record the workspace")
        remarks = list(facts.get("remark", ()))
        if head_tree and head_tree != tree:
            remarks.append("The workspace had changes that were not committed; the patch applies to the files as you sent them.")
        return Base(tree=tree, commit=head or None, is_commit=bool(head_tree) and head_tree == tree, remarks=tuple(remarks))

    async def change(self, base: Base) -> Change:
        """Record the workspace again and return the difference, proven by applying it to the base.

        Raises:
            WorkspaceError: git fails; the message holds its words.
        """
        facts = await self._run(_TREE_SCRIPT + _PATCH_SCRIPT, base=base.tree)
        result = _one(facts, "tree")
        remarks = tuple(facts.get("remark", ()))
        if not result:
            raise WorkspaceError("git did not record the workspace")
        proven = _one(facts, "proof") == result
        reason = "" if proven else _one(facts, "failed") or "the patch applies but gives another tree"
        patch = await asyncio.to_thread((self._scratch / "changes.patch").read_bytes)
        numbers = await asyncio.to_thread((self._scratch / "changes.numstat").read_text, "utf-8", "replace")
        added, removed = _count(numbers)
        paths = [line.split("\t", 2)[2] for line in numbers.splitlines() if line.count("\t") >= 2]
        facts_of_patch = PatchFacts(
            base_commit=base.commit,
            base_tree=base.tree,
            result_tree=result,
            base_is_commit=base.is_commit,
            proven=proven,
            reason=reason,
            files_changed=len(paths),
            insertions=added,
            deletions=removed,
            changed_paths=tuple(paths[:200]),
        )
        return Change(facts=facts_of_patch, patch=patch, remarks=remarks)

    async def _run(self, script: str, **values: str) -> dict[str, list[str]]:
        text = script.format(scratch=_SCRATCH, workspace=WORKSPACE, **values)
        await asyncio.to_thread(self._scratch.mkdir, parents=True, exist_ok=True)
        line = self._wall.command(["/bin/sh", "-c", text], environment=_environment(), writable=False)
        at = line.index("--chdir")
        line[at:at] = ["--bind", str(self._scratch), _SCRATCH]
        process = await asyncio.create_subprocess_exec(
            *line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, complained = await process.communicate()
        if process.returncode != 0:
            raise WorkspaceError(f"git failed with {process.returncode}: {complained.decode(errors='replace').strip()[-500:]}")
        return _facts(said.decode(errors="replace").splitlines())


def _environment() -> dict[str, str]:
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS) + 1), "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    for number, setting in enumerate(_SETTINGS, start=1):
        name, _, value = setting.partition("=")
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        **base_environment(),
        **settings,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _facts(lines: Sequence[str]) -> dict[str, list[str]]:
    facts: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        facts.setdefault(name, []).append(value.strip())
    return facts


def _one(facts: dict[str, list[str]], name: str) -> str:
    return facts.get(name, [""])[-1]


def _count(numstat: str) -> tuple[int, int]:
    rows = [re.match(r"(\d+)\t(\d+)\t", line) for line in numstat.splitlines()]
    numbers = [(int(row[1]), int(row[2])) for row in rows if row]
    return sum(one for one, _ in numbers), sum(two for _, two in numbers)


def directory_size(folder: Path) -> int:
    """Return the size of all files below a folder in bytes, links not followed."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(here) / name).lstat().st_size
            except FileNotFoundError:
                continue
    return total
