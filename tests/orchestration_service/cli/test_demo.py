"""The demo as its user runs it: a process of its own, with and without a model key."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from orchestration_service.cli.repository import pack
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import serve
from orchestration_service.scripted.script import Script
from tests.journeys.repositories import git
from tests.stage import calls, says

pytestmark = pytest.mark.anyio

KEY = "sk-ant-demo-3c1e9a77-of-the-user"
PROMPT = "Correct the greeting."
STEPS = (
    calls(("Read", {"file_path": "/workspace/app.py"})),
    calls(("Edit", {"file_path": "/workspace/app.py", "old_string": "helo", "new_string": "hello"}), text="A slip."),
    says("Corrected."),
)


async def run_demo(*words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    hidden = ("ANTHROPIC_", "CLAUDE_CODE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)} | dict(variables or {})
    command = [sys.executable, "-m", "orchestration_service.cli", "demo", *words]
    return await anyio.run_process(command, env=environment, check=False, stderr=subprocess.STDOUT)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of the user's, with a file that is not committed."""
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "app.py").write_text('print("helo")\n')
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Start")
    (folder / "notes.txt").write_text("not committed yet\n")
    return folder


async def test_a_key_and_a_repository_do_real_work(repository: Path, tmp_path: Path) -> None:
    """The model behind the address is asked with the key and the prompt; its work comes back as a patch; the repository stays as it was."""
    model = ScriptedModel(Script(name="user", steps=STEPS), expected_key=SecretStr(KEY))
    async with serve(model) as endpoint:
        variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": endpoint.base_url}
        kept = tmp_path / "kept"
        words = ("--repo", str(repository), "--prompt", PROMPT, "--keep", str(kept))
        done = await run_demo(*words, variables=variables)
    said = done.stdout.decode()
    assert done.returncode == 0, said
    assert "scripted" not in said
    assert "In a copy of what was sent, with what is not committed, the patch applies" in said
    assert KEY not in said
    assert PROMPT in str(model.received[0].body["messages"])
    assert '+print("hello")' in "".join(path.read_text() for path in kept.iterdir() if "patch" in path.name)
    assert (repository / "app.py").read_text() == 'print("helo")\n'
    assert git(repository, "status", "--porcelain").split() == ["??", "notes.txt"]


async def test_a_repository_needs_a_key(tmp_path: Path) -> None:
    done = await run_demo("--repo", str(tmp_path))
    assert (done.returncode, b"set ANTHROPIC_API_KEY" in done.stdout) == (1, True)


async def test_without_a_key_the_demo_says_that_its_model_is_scripted() -> None:
    done = await run_demo()
    said = done.stdout.decode()
    assert done.returncode == 0, said
    assert "a scripted model, because no model key is set" in said
    assert "In a fresh clone the patch applies" in said


def test_a_worktree_is_packed_with_the_history_it_shares(repository: Path, tmp_path: Path) -> None:
    """Its own `.git` is a file that leads elsewhere; what is packed stands alone, at the same commit, with what is not committed."""
    side = tmp_path / "side"
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(side))
    (side / "app.py").write_text('print("changed")\n')
    (side / "new.txt").write_text("new\n")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=pack(side), check=True)
    unpacked = tmp_path / "repository"
    assert git(unpacked, "rev-parse", "HEAD") == git(side, "rev-parse", "HEAD")
    assert git(unpacked, "status", "--porcelain").splitlines() == [" M app.py", "?? new.txt"]
