"""Changes made to real git repositories, recorded behind the real wall: each patch is proven, and applies in a fresh clone."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner_image.errors import WorkspaceError
from runner_image.places import Places
from runner_image.scratch import Scratch
from runner_image.snapshot import Base, Change, Snapshots
from runner_image.walls import Wall

pytestmark = pytest.mark.anyio
Do = Callable[[Path], object]
LINES = "".join(f"line {number}\n" for number in range(30))


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"], "HOME": str(folder)}
    author = {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "safe.directory=*", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=folder, env=quiet | author, input=stdin, capture_output=True, check=True).stdout.decode().strip()


def put(folder: Path, name: str | bytes, content: str | bytes = LINES, mode: int = 0o644) -> Path:
    path = folder / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def commit(folder: Path) -> object:
    git(folder, "add", "-A", "-f")
    return git(folder, "commit", "-q", "-m", "state")


@dataclass
class Recorded:
    """What came of one change."""

    base: Base
    change: Change
    same_in_clone: bool | None
    """Whether the patch gave the same tree in a fresh clone; None where the base is not a commit."""


class Repository:
    """A workspace under test."""

    def __init__(self, places: Places, wall: Wall) -> None:
        self.folder, self.places, self._snapshots = places.workspace, places, Snapshots(wall)
        self.clone = places.workspace.parent / "clone"

    def start(self, *prepare: Do) -> "Repository":
        """Make a repository with a commit; each preparation but the last is committed as well."""
        git(self.folder, "init", "-q", "-b", "main")
        put(self.folder, "a.txt")
        put(self.folder, "src/b.py", "print(1)\n" * 40)
        put(self.folder, "run.sh", "#!/bin/sh\n", 0o755)
        for step in prepare:
            step(self.folder)
        commit(self.folder)
        return self

    async def record(self, change: Do) -> Recorded:
        if (self.folder / ".git/HEAD").is_file() and not self.clone.exists():
            shutil.copytree(self.folder / ".git", self.clone, symlinks=True)
        before = self._own()
        base = await self._snapshots.base()
        assert self._own() == before, "the user's repository is as it was"
        change(self.folder)
        before = self._own()
        found = await self._snapshots.change(base)
        assert self._own() == before
        assert not list(self.places.outputs.iterdir()), "nothing of the repository was run"
        return Recorded(base, found, self._applies(found) if base.is_commit else None)

    def _applies(self, change: Change) -> bool:
        """Apply the patch where a user would: in a fresh clone of the base."""
        bare, fresh = self.clone, self.clone.with_name("fresh")
        (bare / "config").write_text("[core]\n\tbare = true\n\trepositoryformatversion = 0\n")
        git(bare.parent, "clone", "-q", "--no-local", str(bare), str(fresh))
        git(fresh, "checkout", "-q", change.facts.base_commit or "")
        if change.patch:
            git(fresh, "apply", "--whitespace=nowarn", "-", stdin=change.patch)
        git(fresh, "add", "-A", "-f", "--ignore-removal", ".")
        git(fresh, "add", "-u")
        return git(fresh, "write-tree") == change.facts.result_tree

    def _own(self) -> dict[str, str]:
        """Every byte of the user's git directory, and every file's state."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = hashlib.sha256(content).hexdigest() + str(path.lstat().st_mode) + str(path.lstat().st_mtime_ns)
        return found


@pytest.fixture
def repository(places: Places, wall: Wall) -> Repository:
    return Repository(places, wall)


def nothing(folder: Path) -> None:
    pass


def remove(folder: Path, *names: str) -> object:
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink()
    return names


def piped(folder: Path) -> object:
    os.mkfifo(folder / "pipe")
    return put(folder, "new")


def lfs(folder: Path) -> None:
    put(folder, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    put(folder, "model.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n")


def renames(folder: Path) -> object:
    (folder / "a.txt").rename(folder / "moved to.txt")
    return put(folder, "moved to.txt", LINES + "more\n")


def to_folder(folder: Path) -> None:
    (folder / "a.txt").unlink()
    put(folder, "a.txt/inside")


def to_link(folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to("src/b.py")


def crlf_attributes(folder: Path) -> None:
    put(folder, ".gitattributes", "*.txt text eol=crlf\n*.md text=auto\n")
    put(folder, "w.txt", LINES.replace("\n", "\r\n"))


CHANGES: list[tuple[str, Do, Do]] = [
    ("nothing", nothing, nothing),
    ("edit", nothing, lambda at: put(at, "a.txt", LINES.replace("line 7\n", "line seven\n"))),
    ("new", nothing, lambda at: put(at, "new/file.txt")),
    ("empty", nothing, lambda at: put(at, "empty", "")),
    ("emptied", nothing, lambda at: put(at, "a.txt", "")),
    ("rename", nothing, renames),
    ("delete", nothing, lambda at: remove(at, "a.txt")),
    ("delete all", nothing, lambda at: remove(at, "src", "a.txt", "run.sh")),
    ("mode", nothing, lambda at: [put(at, "a.txt", LINES, 0o755), put(at, "run.sh", "#!/bin/sh\n", 0o644)]),
    ("mode and edit", nothing, lambda at: put(at, "a.txt", "x\n", 0o755)),
    ("link", nothing, lambda at: (at / "l").symlink_to("a.txt")),
    ("link out", nothing, lambda at: (at / "l").symlink_to("../../../etc/passwd")),
    ("absolute link", nothing, lambda at: (at / "l").symlink_to("/etc/passwd")),
    ("dangling link", nothing, lambda at: (at / "l").symlink_to("nowhere")),
    ("link to folder", nothing, lambda at: (at / "l").symlink_to("/")),
    ("file becomes link", nothing, to_link),
    ("file becomes folder", nothing, to_folder),
    ("binary", lambda at: put(at, "b.bin", bytes(range(256)) * 20), lambda at: put(at, "b.bin", bytes(range(256)) * 21)),
    ("new binary", nothing, lambda at: put(at, "b.bin", os.urandom(100_000))),
    ("no final newline", lambda at: put(at, "n", "a\nb"), lambda at: put(at, "n", "a\nc")),
    ("final newline added", lambda at: put(at, "n", "a\nb"), lambda at: put(at, "n", "a\nb\n")),
    ("crlf", lambda at: put(at, "w", LINES.replace("\n", "\r\n")), lambda at: put(at, "w", LINES.replace("\n", "\r\n") + "x\r\n")),
    ("crlf to lf", lambda at: put(at, "w", LINES.replace("\n", "\r\n")), lambda at: put(at, "w", LINES)),
    ("mixed ends", lambda at: put(at, "w", "a\r\nb\nc\r"), lambda at: put(at, "w", "a\r\nB\nc\r")),
    ("trailing blanks", lambda at: put(at, "w", "a  \n\t \n"), lambda at: put(at, "w", "a  \n\t\t \n \n")),
    ("latin-1", lambda at: put(at, "w", b"caf\xe9\n" * 20), lambda at: put(at, "w", b"caf\xe9\n" * 20 + b"th\xe9\n")),
    ("utf-16", lambda at: put(at, "w", "text".encode("utf-16")), lambda at: put(at, "w", "other".encode("utf-16"))),
    ("names", nothing, lambda at: [put(at, name) for name in ("a b", "ü😀", '"q"', "t\tn\nl", "-rf", "$(x)", "'", "a\\b", ":x", "#", "*")]),
    ("name not utf-8", lambda at: put(at, b"\xff\xfe", "1\n"), lambda at: [put(at, b"\xff\xfe", "2\n"), put(at, b"new\xff")]),
    ("deep", nothing, lambda at: put(at, "/".join("d" * 60) + "/f")),
    ("large", nothing, lambda at: put(at, "large.txt", "some line of text\n" * 300_000)),
    ("tracked but ignored", lambda at: [put(at, "x.log"), put(at, ".gitignore", "*.log\n")], lambda at: put(at, "x.log", "changed\n")),
    ("gitignore changes", nothing, lambda at: put(at, ".gitignore", "src/\n")),
    ("lfs pointer", lfs, lambda at: put(at, "model.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "1" * 64 + "\n")),
    ("attributes", lambda at: put(at, ".gitattributes", "* -diff\n*.py diff=x filter=y ident merge=z\n"), renames),
    ("binary attribute", lambda at: put(at, ".gitattributes", "*.txt binary\n"), lambda at: put(at, "a.txt", "short\n")),
    ("ident", lambda at: [put(at, ".gitattributes", "*.c ident\n"), put(at, "i.c", "$Id$\n")], lambda at: put(at, "i.c", "$Id$\nmore\n")),
    ("own commit", nothing, lambda at: [put(at, "a.txt", "x\n"), commit(at), put(at, "src/b.py", "y\n")]),
    ("own branch", nothing, lambda at: [git(at, "checkout", "-q", "-b", "o"), put(at, "a.txt", "x\n"), commit(at), git(at, "gc", "-q")]),
    ("repository thrown away", nothing, lambda at: [remove(at, ".git"), put(at, "a.txt", "x\n")]),
    ("repository made anew", nothing, lambda at: [remove(at, ".git"), git(at, "init", "-q"), put(at, "a.txt", "x\n"), commit(at)]),
    ("same size and time", lambda at: os.utime(put(at, "s", "1\n"), (1, 1)), lambda at: os.utime(put(at, "s", "2\n"), (1, 1))),
    ("pipe and socket", nothing, piped),
]  # fmt: skip


@pytest.mark.parametrize(("prepare", "change"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
async def test_a_change_is_proven_and_applies_in_a_fresh_clone(repository: Repository, prepare: Do, change: Do) -> None:
    recorded = await repository.start(prepare).record(change)
    facts = recorded.change.facts
    assert (facts.proven, facts.reason) == (True, "")
    assert (recorded.base.is_commit, recorded.same_in_clone) == (True, True), recorded.base.remarks
    assert facts.base_commit == git(repository.clone, "rev-parse", "main")
    assert bool(recorded.change.patch) == (facts.base_tree != facts.result_tree) == bool(facts.changed_paths)
    assert (recorded.base.remarks, recorded.change.remarks) == ((), ())


@pytest.mark.parametrize("change", [row[2] for row in CHANGES if row[1] is nothing][:8])
async def test_files_without_a_repository_are_recorded_as_well(repository: Repository, change: Do) -> None:
    repository.start()
    shutil.rmtree(repository.folder / ".git")
    recorded = await repository.record(change)
    assert recorded.change.facts.proven
    assert (recorded.base.commit, recorded.base.is_commit) == (None, False)


async def test_figures_and_paths_of_a_change(repository: Repository) -> None:
    def change(folder: Path) -> None:
        put(folder, "a.txt", LINES.replace("line 7\n", "one\ntwo\n"))
        put(folder, "x\x1b[31m\n", b"\0\1")
        put(folder, b"\xff", "")

    facts = (await repository.start().record(change)).change.facts
    assert (facts.files_changed, facts.insertions, facts.deletions) == (3, 2, 1)
    assert facts.changed_paths == ("a.txt", "x\\x1b[31m\\n", "\\xff")


async def test_a_workspace_with_uncommitted_changes_is_recorded_as_it_was_sent(repository: Repository) -> None:
    repository.start()
    put(repository.folder, "a.txt", "dirty\n")
    put(repository.folder, "untracked", "1\n")
    (repository.folder / "run.sh").unlink()
    git(repository.folder, "add", "untracked")
    recorded = await repository.record(lambda at: put(at, "a.txt", "cleaner\n"))
    assert recorded.change.facts.proven
    assert not recorded.base.is_commit
    assert "not committed" in recorded.base.remarks[0]
    assert recorded.change.facts.changed_paths == ("a.txt",)


async def test_a_repository_without_commits(repository: Repository) -> None:
    git(repository.folder, "init", "-q")
    put(repository.folder, "a", "1\n")
    recorded = await repository.record(lambda at: put(at, "a", "2\n"))
    assert recorded.change.facts.proven
    assert recorded.base.commit is None


async def test_an_empty_workspace(repository: Repository) -> None:
    recorded = await repository.record(lambda at: put(at, "hello.py"))
    assert recorded.change.facts.proven
    assert recorded.change.facts.changed_paths == ("hello.py",)


@pytest.mark.parametrize("how", ["detached", "packed refs", "packed", "linked head", "worktree", "shallow"])
async def test_every_way_to_keep_a_head_is_understood(repository: Repository, how: str) -> None:
    folder = repository.start().folder
    put(folder, "a.txt", "second\n")
    commit(folder)
    match how:
        case "detached":
            git(folder, "checkout", "-q", "HEAD~1")
        case "packed refs":
            git(folder, "pack-refs", "--all")
        case "packed":
            git(folder, "gc", "-q", "--aggressive", "--prune=now")
        case "linked head":
            (folder / ".git/HEAD").unlink()
            (folder / ".git/HEAD").symlink_to("refs/heads/main")
        case "worktree":
            git(folder, "worktree", "add", "-q", "inner")
            shutil.move(folder / ".git", folder / "inner" / "real")
            for entry in list(folder.iterdir()):
                if entry.name != "inner":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            (folder / "inner" / ".git").write_text("gitdir: real/worktrees/inner\n")
            for entry in list((folder / "inner").iterdir()):
                entry.rename(folder / entry.name)
            (folder / "inner").rmdir()
        case "shallow":
            (folder / ".git/shallow").write_text(git(folder, "rev-parse", "HEAD") + "\n")
            git(folder, "reflog", "expire", "--all", "--expire=now")
            git(folder, "gc", "-q", "--prune=now")
    base = await repository._snapshots.base()
    assert base.commit
    assert base.is_commit or how == "worktree", "the moved repository itself is an untracked folder there"


def moved(folder: Path) -> None:
    (folder / ".git").rename(folder / "elsewhere")


def configured(**settings: str) -> Do:
    """A step that sets `section.name` written as `section__name`."""
    return lambda at: [git(at, "config", name.replace("__", "."), value) for name, value in settings.items()]


def attributed(driver: str, **settings: str) -> Do:
    """A step that puts every file under a driver, by attributes that are not part of the tree."""
    return lambda at: [put(at, ".git/info/attributes", f"* {driver}=evil\n"), configured(**settings)(at)]


def hooked(folder: Path) -> None:
    for name in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"):
        put(folder, f".git/hooks/{name}", RUN, 0o755)


def replaced(folder: Path) -> None:
    git(folder, "replace", git(folder, "rev-parse", "HEAD:a.txt"), git(folder, "rev-parse", "HEAD:run.sh"))


def promised(folder: Path) -> None:
    configured(remote__o__url="ext::sh -c touch% /outputs/ran", remote__o__promisor="true", extensions__partialClone="o")(folder)
    configured(core__repositoryFormatVersion="1", protocol__ext__allow="always")(folder)


RUN = "#!/bin/sh\ntouch /outputs/ran\n"
HOSTILE: dict[str, Do] = {
    "fsmonitor": configured(core__fsmonitor="touch /outputs/ran"),
    "hooks": hooked,
    "hooks path": configured(core__hooksPath="/workspace/.git/hooks"),
    "filter": attributed("filter", filter__evil__clean="touch /outputs/ran; rev"),
    "process filter": attributed("filter", filter__evil__process="touch /outputs/ran", filter__evil__required="true"),
    "external diff": configured(diff__external="touch /outputs/ran"),
    "diff command": attributed("diff", diff__evil__command="touch /outputs/ran"),
    "textconv": attributed("diff", diff__evil__textconv="touch /outputs/ran; rev"),
    "alias": configured(**{f"alias__{name}": "!touch /outputs/ran" for name in ("add", "diff", "apply", "rev-parse")}),
    "worktree": configured(core__worktree="/etc"),
    "bare": configured(core__bare="true"),
    "include": configured(include__path="/workspace/a.txt"),
    "autocrlf": configured(core__autocrlf="true"),
    "excludes file": configured(core__excludesFile="/workspace/a.txt"),
    "attributes file": configured(core__attributesFile="/workspace/a.txt"),
    "sparse": configured(core__sparseCheckout="true"),
    "no prefix": configured(diff__noprefix="true"),
    "promised remote": promised,
    "unknown extension": configured(core__repositoryFormatVersion="1", extensions__nonsense="1"),
    "broken config": lambda at: put(at, ".git/config", b"[core\nnonsense = \0"),
    "no config": lambda at: (at / ".git/config").unlink(),
    "index": lambda at: put(at, ".git/index", "garbage"),
    "replaced objects": replaced,
    "alternates": lambda at: put(at, ".git/objects/info/alternates", "/etc\n\n../../../nowhere\n"),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
async def test_nothing_in_the_repository_runs_or_changes_the_result(repository: Repository, hostile: Do) -> None:
    repository.start()
    shutil.copytree(repository.folder / ".git", repository.clone)
    hostile(repository.folder)
    recorded = await repository.record(lambda at: [renames(at), put(at, "src/b.py", "x  \n"), put(at, "new", b"\0")])
    assert recorded.change.facts.proven
    assert (recorded.base.is_commit, recorded.same_in_clone) == (True, True)


@pytest.mark.parametrize("kind", ["file", "absolute file", "link", "link out", "nonsense", "loop", "pipe", "unreadable head"])
async def test_a_git_directory_of_another_kind(repository: Repository, kind: str) -> None:
    """`.git` may be a file or a link; where it leads nowhere, the files are recorded without a commit."""
    folder, found = repository.start().folder, True
    if kind in ("file", "absolute file", "link", "link out"):
        (folder / ".git").rename(folder / "real")
        put(folder, "real/info/exclude", "/real/\n")
    match kind:
        case "file":
            (folder / ".git").write_text("gitdir: real\n")
        case "absolute file":
            (folder / ".git").write_text("gitdir: /workspace/real")
        case "link":
            (folder / ".git").symlink_to("real")
        case "link out":
            (folder / ".git").symlink_to(repository.places.state)
            found = False
        case "nonsense":
            shutil.rmtree(folder / ".git")
            (folder / ".git").write_bytes(b"\0" * 100_000)
            found = False
        case "loop":
            shutil.rmtree(folder / ".git")
            (folder / ".git").symlink_to(".git")
            found = False
        case "pipe":
            shutil.rmtree(folder / ".git")
            os.mkfifo(folder / ".git")
            found = False
        case "unreadable head":
            (folder / ".git/HEAD").write_text("ref: ../../../etc/passwd\n")
            found = False
    base = await repository._snapshots.base()
    put(folder, "a.txt", "x\n")
    change = await repository._snapshots.change(base)
    assert (bool(base.commit), base.is_commit, change.facts.proven) == (found, found, True)
    assert change.facts.changed_paths == ("a.txt",)


async def test_missing_objects_mean_that_the_base_is_no_commit(repository: Repository) -> None:
    folder = repository.start().folder
    blob = git(folder, "rev-parse", "HEAD:a.txt")
    (folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    base = await repository._snapshots.base()
    put(folder, "a.txt", "x\n")
    assert (await repository._snapshots.change(base)).facts.proven
    assert not base.is_commit


@pytest.mark.parametrize("kind", ["crlf", "modes", "both"])
async def test_a_working_tree_of_windows_is_compared_as_git_compares_it_there(repository: Repository, kind: str) -> None:
    """Zipped on Windows, a checkout has CRLF in every text and no file is executable; the commit has neither."""
    folder = repository.start(*(lambda at, name=name: put(at, f"f{name}.sh", LINES, 0o755) for name in range(5))).folder
    for path in [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]:
        if kind != "modes":
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        if kind != "crlf":
            path.chmod(0o644)
    recorded = await repository.record(lambda at: put(at, "f1.sh", (LINES + "more\n").replace("\n", "\r\n" if kind != "modes" else "\n")))
    assert (recorded.base.is_commit, recorded.same_in_clone) == (True, True)
    assert "Windows" in recorded.base.remarks[0]
    facts = recorded.change.facts
    assert (facts.files_changed, facts.insertions, facts.deletions) == (1, 1, 0)


async def test_line_endings_by_attributes(repository: Repository) -> None:
    repository.start(crlf_attributes)
    recorded = await repository.record(lambda at: put(at, "w.txt", (LINES + "x\n").replace("\n", "\r\n")))
    assert (recorded.base.is_commit, recorded.same_in_clone) == (True, True)
    assert recorded.change.facts.insertions == 1


async def test_submodules_stay_what_they_are(repository: Repository) -> None:
    """Their content is not part of the repository's trees; that is said, and nothing of theirs is run."""
    other = repository.places.data / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    put(other, "inner")
    commit(other)
    folder = repository.start(lambda at: git(at, "submodule", "add", "-q", str(other), "libs/sub mod"),
                              lambda at: git(at, "submodule", "add", "-q", str(other), "empty")).folder  # fmt: skip
    git(folder, "submodule", "deinit", "-q", "-f", "empty")
    for config in folder.glob(".git/modules/**/config"):
        config.write_text(config.read_text() + "[core]\n\tfsmonitor = touch /outputs/ran\n")
    recorded = await repository.record(lambda at: [put(at, "libs/sub mod/inner", "changed\n"), put(at, "a.txt", "x\n")])
    assert recorded.change.facts.proven
    assert recorded.base.is_commit
    assert recorded.change.facts.changed_paths == ("a.txt",)
    assert recorded.base.remarks == ("Changes inside submodules are in the archive, not in the patch: libs/sub mod.",)


async def test_a_submodule_that_came_as_plain_files_stays_a_submodule(repository: Repository) -> None:
    folder = repository.start().folder
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(folder, "commit", "-q", "-m", "sub")
    put(folder, "sub/file")
    recorded = await repository.record(lambda at: put(at, "sub/file", "x\n"))
    assert (recorded.base.is_commit, recorded.change.facts.proven, recorded.change.patch) == (True, True, b"")
    assert "sub." in recorded.base.remarks[0]


@pytest.mark.parametrize("commits", [True, False], ids=["with commits", "without"])
@pytest.mark.parametrize("when", ["before", "during"])
async def test_repositories_inside_are_recorded_by_their_files(repository: Repository, when: str, commits: bool) -> None:
    def nest(folder: Path) -> object:
        inner = folder / "vendor/in ner"
        inner.mkdir(parents=True)
        git(inner, "init", "-q")
        git(inner, "config", "core.fsmonitor", "touch /outputs/ran")
        put(inner, "f", "1\n")
        if commits:
            git(inner, "-c", "core.fsmonitor=false", "add", "f")
            git(inner, "-c", "core.fsmonitor=false", "commit", "-q", "-m", "inner")
        return inner

    repository.start()
    if when == "before":
        nest(repository.folder)
    recorded = await repository.record(lambda at: [nest(at) if when == "during" else put(at, "vendor/in ner/f", "2\n"), put(at, "new")])
    assert recorded.change.facts.proven
    assert recorded.change.facts.changed_paths == ("new", "vendor/in ner/f")
    assert recorded.change.remarks == ()
    assert recorded.same_in_clone in (True, None)


async def test_a_repository_made_around_tracked_files_hides_nothing(repository: Repository) -> None:
    def change(folder: Path) -> None:
        git(folder / "src", "init", "-q")
        commit(folder / "src")
        put(folder, "src/b.py", "x\n")
        put(folder, "src/c.py", "y\n")

    recorded = await repository.start().record(change)
    assert recorded.change.facts.changed_paths == ("src/b.py", "src/c.py")
    assert (recorded.change.facts.proven, recorded.same_in_clone) == (True, True)


async def test_what_an_agent_leaves_behind_is_not_in_the_patch(repository: Repository) -> None:
    def change(folder: Path) -> None:
        for name in ("__pycache__/a.pyc", "node_modules/x/y.js", ".claude/settings.json", "ignored/z", "by-exclude/z"):
            put(folder, name)

    repository.start(lambda at: put(at, ".gitignore", "ignored/\n"))
    put(repository.folder, ".git/info/exclude", "by-exclude/\n")
    recorded = await repository.record(change)
    assert recorded.change.patch == b""


async def test_files_that_cannot_be_read_are_named(repository: Repository) -> None:
    """Also for root, by a name that git does not take."""

    def change(folder: Path) -> None:
        put(folder, "sub/.GIT/config", "x\n")
        put(folder, "fine")

    recorded = await repository.start().record(change)
    assert recorded.change.facts.proven
    assert "fine" in recorded.change.facts.changed_paths


async def test_a_snapshot_that_takes_too_long_is_given_up(repository: Repository, wall: Wall) -> None:
    with pytest.raises(WorkspaceError, match="took longer"):
        await Scratch(wall).run("sleep 60", seconds=0.2)


async def test_a_failing_git_says_why(wall: Wall) -> None:
    with pytest.raises(WorkspaceError, match="not a git repository"):
        await Scratch(wall).run("git status", seconds=10)


async def test_an_earlier_turn_decides_nothing(repository: Repository, wall: Wall) -> None:
    """The second turn in a workspace begins from what lies there, with a git directory of its own."""
    repository.start()
    first = await repository.record(lambda at: put(at, "a.txt", "first\n"))
    second = await repository.record(lambda at: put(at, "a.txt", "second\n"))
    assert second.base.tree == first.change.facts.result_tree
    assert second.change.facts.proven
    assert not second.base.is_commit
