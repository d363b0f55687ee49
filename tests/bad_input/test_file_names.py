"""Names of attachments as people, other systems and attackers choose them."""

import os
from collections.abc import AsyncIterator

import pytest

from tests.stage import Stage, Turn, bash, open_stage, packed, says, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]  # the first test waits for all turns


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("platform")) as opened:
        yield opened


NAMES = {
    "spaces and accents": "my café plan.txt.tar",
    "emoji": "🚀 start 🚀.tar",
    "a quote and a line end": 'it\'s "new"\nname.tar',
    "a percent sign": "100%20.tar",
    "a dot in front": ".hidden.tar",
    "a dash in front": "--help.tar",
    "shell words": "$(id);`id`&&.tar",
    "right to left": "\u202egpj.tar",
    "a path above": "../../etc/cron.tar",
    "a Windows path": "..\\..\\evil.tar",
    "a NUL": "a\0b.tar",
    "300 characters": f"{'n' * 296}.tar",
    "255 bytes of emoji": f"{'🚀' * 62}abc.tar",
}


@pytest.fixture(scope="module")
async def turns(stage: Stage) -> dict[str, Turn]:
    return await together(NAMES, lambda name: attached(stage, NAMES[name]))


@pytest.mark.parametrize("name", NAMES)
async def test_a_strange_name_is_used_or_refused_in_words(stage: Stage, turns: dict[str, Turn], name: str) -> None:
    """Nothing in between: the archive is in the workspace, or the user is told why not; no fault of the service."""
    turn = turns[name]
    assert "Something went wrong inside the service" not in turn.answer
    if turn.status == "Completed":
        assert b"./inner.txt" in await stage.content(turn.files["turn-001-listing.txt"])
    else:
        assert len(turn.answer) > 30


async def attached(stage: Stage, name: str) -> Turn:
    conversation = f"named-{os.urandom(6).hex()}"
    record = await stage.caller.upload(conversation, name, packed({"top/inner.txt": "inner\n"}))
    model = stage.model(bash("find . -type f > /outputs/listing.txt"), says("Listed."))
    return await model.turn("List.", [record], conversation=conversation)
