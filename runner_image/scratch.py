"""The runner's own git directory, and the scripts that run in it behind the wall.

The workspace's repository is hostile. Its configuration is never read: HEAD, refs and objects are looked at through a git directory of ours
that borrows them, so no filter, hook, monitor, include, alias or promised remote of it is ever in force (docs/decisions/0005).
"""

import asyncio
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runner_image.errors import WorkspaceError
from runner_image.walls import Wall, base_environment

_EXCLUDED = (
    ".claude/", "__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", "node_modules/", ".venv/", ".tox/",
)  # fmt: skip
"""What an agent leaves behind and nobody wants in a patch, unless the base already holds it."""

_SETTINGS = (
    "safe.directory=*", "core.autocrlf=false", "core.safecrlf=false", "core.quotePath=true", "core.hooksPath=/dev/null",
    "core.fsmonitor=false", "core.symlinks=true", "core.fileMode=true", "core.attributesFile=/dev/null", "core.excludesFile=/dev/null",
    "core.compression=1", "core.looseCompression=0", "core.fsync=none", "gc.auto=0", "diff.renames=true", "diff.noprefix=false",
    "diff.mnemonicPrefix=false", "advice.addEmbeddedRepo=false", "submodule.recurse=false", "pack.writeReverseIndex=false",
)  # fmt: skip

_FROM_WINDOWS = "-c core.autocrlf=input -c core.fileMode=false"
"""How git reads a working tree that was checked out on Windows and packed there."""

_FUNCTIONS = """
set -eu
export GIT_DIR={scratch} GIT_WORK_TREE={workspace}
record() {{  # record the workspace in the index; arguments are options for git
  code=0
  git "$@" add -A --ignore-errors --pathspec-from-file={scratch}/specs --pathspec-file-nul 2> {scratch}/complaints || code=$?
  [ $code -le 1 ] || {{ cat {scratch}/complaints >&2; exit $code; }}
}}
tell() {{  # say what was recorded, and what could not be
  [ $code = 0 ] || echo "unread $(head -c 400 {scratch}/complaints | tr '\\n' ' ')"
  git ls-files -s -z | grep -z '^160000 ' | cmp -s - {scratch}/gitlinks || echo "embedded yes"
  recorded=$(git write-tree)
  echo "tree $recorded"
}}
"""

BASE_SCRIPT = (
    _FUNCTIONS
    + """
(unset GIT_DIR GIT_WORK_TREE; git init -q --bare --template= {scratch})
rm -rf {scratch}/index {scratch}/index.plain {scratch}/view
mkdir -p {scratch}/info {scratch}/objects/info {scratch}/view
printf '%s\\n' {excluded} > {scratch}/info/exclude

beside() {{ case "$2" in /*) printf %s "$2" ;; *) printf %s "$1/$2" ;; esac; }}
directory={workspace}/.git
if [ -f $directory ]; then directory=$(beside {workspace} "$(head -c 4000 $directory | sed -n 's/^gitdir: //p' | head -n 1)"); fi
common=$directory
if [ -f "$directory/commondir" ]; then common=$(beside "$directory" "$(head -c 4000 "$directory/commondir" | head -n 1)"); fi

head= tree=
if [ -f "$directory/HEAD" ] && [ -d "$common/objects" ]; then
  head -c 4000 "$directory/HEAD" > {scratch}/view/HEAD
  cp {scratch}/config {scratch}/view/config
  ln -s {scratch}/objects {scratch}/view/objects
  ln -s "$common/refs" {scratch}/view/refs
  if [ -f "$common/packed-refs" ]; then ln -s "$common/packed-refs" {scratch}/view/packed-refs; fi
  if [ -f "$common/info/exclude" ]; then head -c 65536 "$common/info/exclude" >> {scratch}/info/exclude; fi
  (cd "$common/objects" && pwd -P) > {scratch}/objects/info/alternates
  head=$(GIT_DIR={scratch}/view git rev-parse -q --verify 'HEAD^{{commit}}' 2> /dev/null || true)
  if [ -n "$head" ]; then tree=$(git rev-parse -q --verify "$head^{{tree}}" 2> /dev/null || true); fi
fi
# The agent may throw its repository away: what the base needs is copied, and nothing is borrowed any more.
if [ -n "$tree" ]; then
  if git rev-list --objects --no-object-names "$tree" > {scratch}/needed 2> /dev/null \\
    && git pack-objects -q --window=0 {scratch}/objects/pack/base < {scratch}/needed > /dev/null 2>&1
  then rm -f {scratch}/objects/info/alternates && git read-tree "$tree"
  else tree=; fi
fi
rm -rf {scratch}/objects/info/alternates {scratch}/view

git ls-files -s -z | grep -z '^160000 ' > {scratch}/gitlinks || true
{{ printf '.\\0'; sed -z 's/^[^\\t]*\\t/:(exclude,literal)/' {scratch}/gitlinks; }} > {scratch}/specs
record
if [ -n "$tree" ]; then
  changed=$(git diff-index --cached --name-only --diff-filter=M "$tree" | wc -l)
  if [ "$changed" -gt 0 ]; then
    mv {scratch}/index {scratch}/index.plain
    git read-tree "$tree"
    record {windows}
    if [ $(($(git diff-index --cached --name-only --diff-filter=M "$tree" | wc -l) * 2)) -lt "$changed" ]
    then echo "windows yes"
    else mv {scratch}/index.plain {scratch}/index; fi
  fi
fi
tell
echo "head $head"
echo "headtree $tree"
"""
)

CHANGE_SCRIPT = (
    _FUNCTIONS
    + """
if [ -f {scratch}/index.before ]; then cp {scratch}/index.before {scratch}/index; else cp {scratch}/index {scratch}/index.before; fi
record {options}
tell
difference() {{ git diff --no-color --no-ext-diff --no-textconv -M "$@" {base} $recorded; }}
rm -f {scratch}/proof.index
difference --numstat > {scratch}/changes.numstat & numstat=$!
difference --name-only -z > {scratch}/changes.names & names=$!
GIT_INDEX_FILE={scratch}/proof.index git read-tree {base} & proof=$!
difference --binary --full-index > {scratch}/changes.patch
wait $numstat; wait $names; wait $proof
if [ -s {scratch}/changes.patch ]; then
  export GIT_INDEX_FILE={scratch}/proof.index
  if git apply --cached --whitespace=nowarn {scratch}/changes.patch 2> {scratch}/proof.error; then
    echo "proof $(git write-tree)"
  else
    echo "failed $(head -c 300 {scratch}/proof.error | tr '\\n' ' ')"
  fi
else
  echo "proof {base}"
fi
"""
)


@dataclass(frozen=True)
class Facts:
    """What a script said: lines of a name and a value."""

    lines: Sequence[str]

    def all(self, name: str) -> list[str]:
        """Return every value of a name, in order."""
        return [line[len(name) + 1 :].strip() for line in self.lines if line.startswith(f"{name} ")]

    def one(self, name: str) -> str:
        """Return the last value of a name, or nothing."""
        return (self.all(name) or [""])[-1]


class Scratch:
    """Runs scripts in the git directory.

    Args:
        wall: What the scripts run behind.
    """

    def __init__(self, wall: Wall) -> None:
        self._wall = wall
        self.folder = wall.places.scratch

    async def clear(self) -> None:
        """Start with an empty folder: nothing of an earlier turn decides anything in this one."""
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def run(self, script: str, *, seconds: float, hidden: Sequence[Path] = (), options: str = "", base: str = "") -> Facts:
        """Run a script.

        Args:
            script: Text with `{placeholders}`.
            seconds: How long it may take.
            hidden: Git directories of nested repositories, as paths in the workspace; they are covered up.
            options: Options for git when it records.
            base: Hash of the tree to compare with.

        Raises:
            WorkspaceError: The script failed or took too long; the message holds its words.
        """
        text = script.format(
            scratch=self._wall.view.scratch,
            workspace=self._wall.view.workspace,
            excluded=" ".join(f"'{pattern}'" for pattern in _EXCLUDED),
            windows=_FROM_WINDOWS,
            options=options,
            base=base,
        )
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        program = ["/bin/sh", "-c", text]
        environment = {**base_environment(self._wall.view), **_environment()}
        line = await asyncio.to_thread(
            self._wall.command, program, environment=environment, writable=False, scratch=self.folder, hidden=hidden
        )
        return Facts((await _said(line, seconds)).decode(errors="replace").splitlines())

    async def nested(self) -> list[Path]:
        """Return the git directories in the workspace that are neither its own nor those of its submodules."""
        return await asyncio.to_thread(self._nested)

    async def submodules(self) -> list[str]:
        """Return the submodules of the base that hold files; their content is not part of the tree."""
        return await asyncio.to_thread(lambda: sorted(self._shown(path) for path in self._gitlinks() if _holds_something(path)))

    @staticmethod
    def options(*, from_windows: bool) -> str:
        """Return the options to record with, once it is known where the files come from."""
        return _FROM_WINDOWS if from_windows else ""

    def _gitlinks(self) -> list[Path]:
        """Return the paths of the base's submodules."""
        entries = (self.folder / "gitlinks").read_bytes().split(b"\0")
        return [self._wall.places.workspace / os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry]

    def _nested(self) -> list[Path]:
        workspace = self._wall.places.workspace
        ours = {workspace, *self._gitlinks()}
        return [path for path in _git_directories(workspace) if path.parent not in ours]

    def _shown(self, path: Path) -> str:
        return shown(os.fsencode(path.relative_to(self._wall.places.workspace)))


def shown(name: bytes) -> str:
    """Return a path for people: undecodable bytes and control characters escaped."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)


async def _said(line: Sequence[str], seconds: float) -> bytes:
    """Run a command and return its standard output; it never outlives the call."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*line, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(seconds):
            said, complained = await process.communicate()
    except TimeoutError as error:
        raise WorkspaceError(f"recording the workspace took longer than {seconds:.0f} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise WorkspaceError(f"git failed with {process.returncode}: {complained.decode(errors='replace').strip()[-500:]}")
    return said


def _environment() -> Mapping[str, str]:
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for number, setting in enumerate(_SETTINGS):
        name, _, value = setting.partition("=")
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        **settings,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def _git_directories(folder: Path) -> Iterator[Path]:
    """Yield everything called `.git` below a folder, links not followed and nothing inside one searched."""
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name == ".git" and not entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))


def _holds_something(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False
