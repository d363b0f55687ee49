"""An agent that leaves its workspace in a state meant to break whoever seals it: the turn ends, the rest is kept, the next turn works."""

import pytest

from tests.stage import Stage, Turn, bash, packed, says, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the first one to ask for a container builds its image

DEEP = """python3 -c '
import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").close()'
"""

TRICKS: dict[str, str] = {
    "unreadable": """
        mkdir -p hidden/x /outputs/hidden/x
        for file in hidden/a /outputs/hidden/a b; do echo 1 > $file; done
        chmod 000 b hidden /outputs/hidden""",
    "a deep tree": DEEP,
    "a deep tree of outputs": f"cd /outputs; {DEEP}",
    "no plain files": """
        mkfifo pipe /outputs/pipe.txt
        python3 -c 'import socket; socket.socket(1).bind("/outputs/s.txt")'
        ln -s loop loop""",
    "links out of the outputs": """
        ln -s /etc/passwd /outputs/p.txt; ln -s /run/claude-code /outputs/state
        ln -s / /outputs/root; ln -s /mnt/data x""",
    "strange names": r"""python3 -c '
for name in (b"new\nline", b"\xff\xfe.txt", b"-rf", b"q\x22uote", b"n" * 255):
    open(name, "w").close()'
""",
    "a repository that points away": "rm -rf .git; printf 'gitdir: /run/claude-code/scratch.git' > .git",
    "a broken repository": """
        rm -rf .git; git init -q; git add -A
        echo x > .git/index; echo x > .git/HEAD; mkdir .git/objects/info/alternates""",
    "a repository elsewhere": "rm -rf .git; ln -s /etc .git",
    "a bare repository in disguise": """
        rm -rf .git; mkdir -p objects refs; echo 'ref: refs/heads/x' > HEAD
        printf '[core]\\nfsmonitor=id>/workspace/owned' > config""",
    "a nested repository": "git init -q inner; (cd inner; echo y > y; git add y; git commit -q -m y); git init -q hollow",
    "no workspace": "rm -rf /workspace/* /workspace/.git; chmod 555 /workspace",
    "many files": "python3 -c 'for n in range(5000): open(str(n), \"w\").close()'",
}


@pytest.fixture(scope="module", params=["local", pytest.param("container", marks=pytest.mark.faults)])
def place(request: pytest.FixtureRequest) -> str:
    """A sandbox for each trick: in containers that is a minute, which not every run has."""
    return str(request.param)


@pytest.fixture(scope="module")
async def turns(stage: Stage) -> dict[str, tuple[Turn, Turn]]:
    """For each trick the turn that plays it, and the next one of the conversation."""

    async def play(trick: str) -> tuple[Turn, Turn]:
        record = await stage.caller.upload(trick, "repo.tar", packed({"r/a.txt": "one\n"}))
        begin = "git init -q; git add -A; git commit -q -m x; echo two >> a.txt"
        model = stage.model(bash(f"{begin}\n{TRICKS[trick]}"), says("Tricked."), stepping="by_turn")
        first = await model.turn("Trick.", [record], conversation=trick)
        after = stage.model(bash("echo fine > /tmp/fine"), says("Fine."), stepping="by_turn")
        return first, await after.turn("Again.", conversation=trick)

    return await together(TRICKS, play)


@pytest.mark.parametrize("trick", list(TRICKS))
async def test_the_turn_ends_and_the_next_one_works(stage: Stage, turns: dict[str, tuple[Turn, Turn]], trick: str) -> None:
    turn, second = turns[trick]
    assert turn.answer == "Tricked.", turn.answer
    assert {"events", "log", "workspace", "manifest"} <= set(turn.files), turn.receipt
    assert turn.receipt.processes_left == 0
    assert "workspace/owned" not in await stage.archive(turn)
    assert second.answer == "Fine.", second.answer
    assert {"events", "log", "manifest"} <= set(second.files)


@pytest.mark.parametrize(("folder", "size"), [("/workspace", "800M"), ("/outputs", "300M")])
async def test_a_full_disk_leaves_the_answer_and_what_can_be_sealed(stage: Stage, folder: str, size: str) -> None:
    fill = f"echo work > work.txt; head -c {size} /dev/zero > {folder}/full || echo it is full"
    model = stage.model(bash(fill), says("The disk is full."))
    turn = await model.turn("Fill it.")
    assert (turn.status, turn.answer) == ("Completed", "The disk is full.")
    assert {"events", "log", "manifest"} <= set(turn.files)
    assert "workspace" in turn.files or any("left out" in remark or "could not" in remark for remark in turn.receipt.remarks)
