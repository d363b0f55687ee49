"""Seals of the difference: what the user's files make by themselves comes back from them, and only from the very same ones."""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from runner_image.continuing import continue_turn, remember
from runner_image.difference import DIFFERENCE, find_difference, note_basis
from runner_image.errors import InputError, SealError
from runner_image.inputs import unpack_inputs
from runner_image.places import Places
from runner_image.seals import WrittenSeal, hash_tree, write_seal
from tests.runner_image.seals import trees
from workflow_schemas.plan import InputFile, Limits, Restore, TurnPlan

LIMITS = Limits(soft_seconds=1, hard_seconds=2, max_turns=1, command_timeout_seconds=1, max_output_bytes=1024, max_unpacked_bytes=10**8)


def _places(folder: Path) -> Places:
    found = Places(data=folder / "data", workspace=folder / "workspace", outputs=folder / "outputs", state=folder / "state")
    for place in (found.data, found.workspace, found.outputs, found.state):
        place.mkdir(parents=True)
    return found


def _plan(number: int, *names: str, **more: object) -> TurnPlan:
    inputs = [InputFile(name=name, kind="archive" if name.endswith(".tar") else "file") for name in names]
    known = {"run_id": "0123456789", "turn_number": number, "prompt": "", "system_prompt": "", "model": "m", "tools": (), "inputs": inputs}
    return TurnPlan.model_validate({**known, "limits": LIMITS, "output_stem": f"turn-{number:03d}", "persistence": "diff", **more})


class Conversation:
    """Turns in one sandbox after another, and the files the platform keeps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = folder / "files"
        self.files.mkdir()
        self.restore: Restore | None = None
        self.number = 0
        self.places = _places(folder / "sandbox-0")

    def begin(self, *names: str, anew: bool = True, **more: object) -> None:
        """Begin a turn, in a fresh sandbox or in the one of the last turn."""
        self.number += 1
        if anew:
            self.places = _places(self._folder / f"sandbox-{self.number}")
        restore = self.restore if anew else None
        plan = self._plan = _plan(self.number, *names, restore=restore, fresh_workspace=anew, **more)
        for name in {*names, *(restore.archives if restore else ()), *(restore.inputs.values() if restore else ())}:
            shutil.copy(self.files / name, self.places.data / name)
        self._continuation = continue_turn(plan, self.places)
        unpack_inputs(plan.inputs, self.places.data, self.places.workspace, LIMITS)
        note_basis(plan, self.places, self._continuation.basis)

    def end(self) -> WrittenSeal:
        """Seal the turn and hand its archives to the platform."""
        found = find_difference(self._plan, self.places)
        written = write_seal(
            self.places.workspace,
            self.places.data,
            stem=f"turn-{self.number:03d}-seal",
            turn_number=self.number,
            parent=self._continuation.parent,
            extras={DIFFERENCE: found.document} if found else {},
            exclude=found.excluded if found else None,
        )
        remember(written.known, self.places)
        for part in written.parts:
            part.rename(self.files / part.name)
        self.restore = Restore(
            turn_number=self.number,
            archives=tuple(path.name for path in self.files.glob("turn-*")),
            index_sha256=written.known.index_sha256,
            inputs={name: name for name in (found.inputs if found else ())},
        )
        return written


def _tar(target: Path, *edits: trees.Edit) -> None:
    with tempfile.TemporaryDirectory(prefix="cc-") as folder, tarfile.open(target, "w") as archive:
        for edit in edits:
            trees.apply(os.fsencode(folder), edit)
        archive.add(folder, "top")


def _file(name: str, content: str = "content\n", *folders: str) -> trees.Edit:
    return trees.Edit(tuple(map(str.encode, folders)), name.encode(), "file", content.encode(), 0o644)


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    found = Conversation(tmp_path)
    _tar(found.files / "repo.tar", _file("a"), _file("b"), _file("c", "content\n", "d", "e"), _file("large", "0123456789" * 9000))
    return found


@pytest.mark.timeout(400)
@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(turns=trees.turns)
def test_random_changes_of_random_files_come_back(turns: list[list[trees.Edit]]) -> None:
    """Each turn in a sandbox of its own; the first list is what the user attached."""
    with tempfile.TemporaryDirectory(prefix="cc-") as name:
        conversation = Conversation(Path(name))
        attached, *changes = turns
        _tar(conversation.files / "repo.tar", *attached)
        try:
            conversation.begin("repo.tar")
        except InputError:
            assume(False)
        for edits in (*changes, []):
            for edit in edits:
                trees.apply(os.fsencode(conversation.places.workspace), edit)
            before = hash_tree(conversation.places.workspace)
            assert not conversation.end().left_out
            conversation.begin()
            assert hash_tree(conversation.places.workspace) == before
            assert list(conversation.places.data.iterdir()) == []


def test_only_the_change_is_sealed_in_every_turn(conversation: Conversation) -> None:
    """In a fresh sandbox as well as in one that went on."""
    conversation.begin("repo.tar")
    (conversation.places.workspace / "new").write_text("1")
    (conversation.places.workspace / "a").unlink()
    assert conversation.end().new_bytes == 1
    conversation.begin()
    (conversation.places.workspace / "new").write_text("22")
    assert conversation.end().new_bytes == 2
    conversation.begin(anew=False)
    (conversation.places.workspace / "b").write_text("333")
    assert conversation.end().new_bytes == 3
    conversation.begin()
    assert sorted(path.name for path in conversation.places.workspace.iterdir()) == ["b", "d", "large", "new"]


def test_the_difference_says_what_the_whole_tree_is(conversation: Conversation) -> None:
    conversation.begin("repo.tar")
    (conversation.places.workspace / "a").write_text("other")
    found = find_difference(_plan(1, "repo.tar"), conversation.places)
    assert found
    assert found.whole_tree(conversation.end().index.entries) == hash_tree(conversation.places.workspace)


@pytest.mark.parametrize("anew", [True, False], ids=["restored", "alive"])
def test_a_file_that_takes_the_place_of_the_basis_ends_the_difference(conversation: Conversation, anew: bool) -> None:
    """The platform would give the newer file from now on, so the whole is sealed and needs no file of the user."""
    conversation.begin("repo.tar")
    conversation.end()
    _tar(conversation.files / "before.tar")
    shutil.move(conversation.files / "repo.tar", conversation.files / "before.tar")
    _tar(conversation.files / "repo.tar", _file("newer"))
    assert conversation.restore
    conversation.restore = conversation.restore.model_copy(update={"inputs": {"repo.tar": "before.tar"}})
    conversation.begin("repo.tar", anew=anew)
    before = hash_tree(conversation.places.workspace)
    assert conversation.end().new_bytes >= 90_000
    assert conversation.restore.inputs == {}
    conversation.begin()
    assert hash_tree(conversation.places.workspace) == before


def _other(path: Path) -> None:
    _tar(path, _file("a", "other\n"))


def _more(path: Path) -> None:
    with tarfile.open(path, "a") as archive:
        archive.add(__file__, "top/more")


def _nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("change", [_other, _more, _nothing])
def test_other_files_of_the_user_are_refused(conversation: Conversation, change: Callable[[Path], None]) -> None:
    """Whatever they are now, nothing of them is left for an agent to work on."""
    conversation.begin("repo.tar")
    (conversation.places.workspace / "new").write_text("1")
    conversation.end()
    change(conversation.files / "repo.tar")
    with pytest.raises(SealError):
        conversation.begin()
    assert list(conversation.places.workspace.iterdir()) == []


def test_a_link_in_place_of_a_folder_leads_nothing_outside(conversation: Conversation, tmp_path: Path) -> None:
    """The agent replaces a folder of the basis by a link: what was in it is gone, and comes back nowhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    conversation.begin("repo.tar")
    shutil.rmtree(conversation.places.workspace / "d")
    (conversation.places.workspace / "d").symlink_to(outside)
    conversation.end()
    conversation.begin()
    assert (conversation.places.workspace / "d").is_symlink()
    assert list(outside.iterdir()) == []


def test_a_turn_without_files_has_no_basis(conversation: Conversation) -> None:
    conversation.begin()
    (conversation.places.workspace / "new").write_text("1")
    assert find_difference(_plan(1), conversation.places) is None
    assert conversation.end().index.extras == ()
