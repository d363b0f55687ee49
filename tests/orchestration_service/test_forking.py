"""Commands in the chat, codes of forks, and the workspace that outlives a conversation."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from context_client import ContextClient, EmbeddedContext, UserIdentity, connect
from context_client.embedded.settings import EmbeddedSettings
from orchestration_service.carrying import Carrier
from orchestration_service.commands import Command, Fork, Join, Rewind, Unclear, read_command
from orchestration_service.conversations import go_on_from
from orchestration_service.errors import ForkRefused, TurnUnknown
from orchestration_service.forking import Forks, Target
from orchestration_service.operations import AcceptedTurn, NewOperation, SqliteOperations
from orchestration_service.operations.conversation import Conversation, SandboxMark, TurnRecord
from orchestration_service.planning import Planned
from orchestration_service.sessions import SessionSettings
from orchestration_service.user_workspace import Brought, UserWorkspaces
from tests.orchestration_service.turns import asked, plan
from tests.stage import packed

pytestmark = pytest.mark.anyio

INSTANCE, ANN = "7c1b6f0e-4a52-4d0b-9a86-2f6e5d3b9c10", "ann@contoso.com"
_IDENTITY = UserIdentity(name="Ann", user_name=ANN, upn=ANN, user_id=None, group_ids=())


@dataclass
class Place:
    """A store of operations, and a store of files."""

    store: SqliteOperations
    context: ContextClient

    @property
    def carrier(self) -> Carrier:
        return Carrier(self.context, SessionSettings())

    @property
    def forks(self) -> Forks:
        return Forks(self.store, self.carrier)

    async def sealed(self, conversation_id: str, number: int = 1) -> Conversation:
        """A conversation with one sealed turn whose archive is there."""
        name = f"turn-{number:03d}-seal.tar"
        record = await self.context.upload_conversation_file(_IDENTITY, conversation_id, "coder", name, packed({"n": conversation_id}))
        turn = _turn(number, seal="0" * 64, archives=(name,), file_ids={name: record.id})
        known = {"instance_id": INSTANCE, "upn": ANN, "conversation_id": conversation_id, "profile": "restricted"}
        return await self.store.save_conversation(Conversation.model_validate({**known, "head_turn": number, "turns": (turn,)}))

    async def join(self, code: str, conversation_id: str, *, upn: str = ANN, profile: str = "restricted") -> Conversation:
        target = Target(conversation_id, "coder", profile)
        return await self.forks.join(code, _IDENTITY, target, instance_id=INSTANCE, upn=upn)

    async def accepted(self, conversation_id: str) -> AcceptedTurn:
        known = {"instance_id": INSTANCE, "upn": ANN, "conversation_id": conversation_id, "agent_name": "Coder", "fingerprint": "f"}
        created = await self.store.create(NewOperation.model_validate({**known, "operation_id": f"op-{conversation_id}"}))
        return AcceptedTurn(operation=created.operation, request=asked(), identity=_IDENTITY, identity_header="")


@pytest.fixture
async def place(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Place]:
    files = EmbeddedSettings(folder=tmp_path / "context", instance_id=INSTANCE, api_key=SecretStr("a key for the test"))
    async with SqliteOperations(tmp_path / "operations.db") as store, connect(EmbeddedContext(server=files)) as context:
        yield Place(store, context)


def _turn(number: int, *, parent: int = 0, seal: str | None = None, **more: object) -> TurnRecord:
    known = {"turn_number": number, "parent_turn": parent, "operation_id": f"op-{number}", "end_reason": "completed"}
    return TurnRecord.model_validate({**known, "seal_sha256": seal, "created_at": datetime.now(UTC), **more})


def _shared() -> Planned:
    return plan(asked({"workspace_storage_scope": "user"}))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("/rewind 2", Rewind(2)),
        ("  /rewind\n", Rewind(0)),
        ("/fork", Fork(None)),
        ("/fork 3", Fork(3)),
        ("/fork from abc-_9", Join("abc-_9")),
        ("/fork  from `abc`", Join("abc")),
        ("/fork form abc", Unclear()),
        ("/rewind two", Unclear()),
        ("/forklift", None),
        ("Explain what /fork does.", None),
        ("/fork this repository\nand fix it", None),
    ],
)
def test_what_is_a_command(said: str, meant: Command | None) -> None:
    assert read_command(said) == meant


@pytest.mark.parametrize("conversation_id", ["5ba9b9d1-7c53-4d43-9f53-0a3f0f6f7c11", "5BA9B9D1-7C53-4D43-9F53-0A3F0F6F7C11", "a b-ü"])
async def test_a_code_opens_its_conversation_once(place: Place, conversation_id: str) -> None:
    """Whatever ids look like; the same conversation may repeat it, another one may not."""
    source = await place.sealed(conversation_id)
    offered = await place.forks.offer(source, None)
    assert len(offered.code) < 80
    joined = await place.join(offered.code, "new")
    assert (joined.head_turn, joined.profile, joined.origin and joined.origin.conversation_id) == (1, "restricted", conversation_id)
    assert await place.join(offered.code, "new") == joined
    with pytest.raises(ForkRefused, match="has been used"):
        await place.join(offered.code, "newer")


async def test_a_useless_code_says_nothing_about_why(place: Place) -> None:
    """Wrong, cut off, somebody else's, expired: one and the same answer."""
    source = await place.sealed("source")
    code = (await place.forks.offer(source, 1)).code
    other = ("B" if code[0] == "A" else "A") + code[1:]
    answers = []
    for wrong, upn in ((code[:-1], ANN), (other, ANN), ("", ANN), ("====", ANN), (code, "bob@contoso.com")):
        with pytest.raises(ForkRefused) as refused:
            await place.join(wrong, "new", upn=upn)
        answers.append(str(refused.value))
    kept = await place.store.conversation(INSTANCE, ANN, "source")
    assert kept
    assert code not in kept.model_dump_json()
    late = kept.forks[0].model_copy(update={"expires_at": datetime.now(UTC) - timedelta(seconds=1)})
    await place.store.save_conversation(kept.model_copy(update={"forks": (late,)}))
    with pytest.raises(ForkRefused) as refused:
        await place.join(code, "new")
    assert {*answers, str(refused.value)} == {answers[0]}


async def test_two_conversations_that_take_a_code_at_once(place: Place) -> None:
    """One of them gets it."""
    offered = await place.forks.offer(await place.sealed("source"), 1)
    ended = await asyncio.gather(place.join(offered.code, "one"), place.join(offered.code, "two"), return_exceptions=True)
    assert [isinstance(end, Conversation) for end in ended].count(True) == 1


async def test_codes_are_bounded_in_number(place: Place) -> None:
    source: Conversation | None = await place.sealed("source")
    codes = []
    for _ in range(25):
        codes.append((await place.forks.offer(source, 1)).code)
        source = await place.store.conversation(INSTANCE, ANN, "source")
    assert source
    assert len(source.forks) == 20
    assert (await place.join(codes[-1], "new")).head_turn == 1


async def test_another_profile_cannot_take_a_fork(place: Place) -> None:
    offered = await place.forks.offer(await place.sealed("source"), 1)
    with pytest.raises(ForkRefused, match="profile"):
        await place.join(offered.code, "new", profile="internet-enabled")
    assert (await place.join(offered.code, "new")).head_turn == 1, "the code was not used up"


async def test_a_turn_that_was_not_sealed_cannot_be_forked(place: Place) -> None:
    with pytest.raises(TurnUnknown, match="No turn"):
        await place.forks.offer(None, None)
    with pytest.raises(TurnUnknown, match="one of: 1"):
        await place.forks.offer(await place.sealed("source"), 2)


async def test_the_last_sealed_workspace_of_a_user_wins(place: Place) -> None:
    """Two conversations keep theirs at once, and an older one that comes late: new conversations begin with the newest."""
    workspaces = UserWorkspaces(place.store, place.carrier)
    conversations = [await place.sealed(name) for name in ("one", "two", "three")]
    turns = [await place.accepted(conversation.conversation_id) for conversation in conversations]
    said = await asyncio.gather(
        *(workspaces.keep(turn, conversation, _shared()) for turn, conversation in zip(turns, conversations, strict=True))
    )
    assert said[2] == ()
    late = await workspaces.keep(turns[0], conversations[0], _shared())
    assert "newer workspace" in late[0]
    brought = (await workspaces.begin(await place.accepted("new"), None, _shared())).continuing
    assert brought
    assert brought.restore
    assert brought.restore.from_conversation == "three"
    assert brought.restore.archives == ("shared-0000000000000000-turn-001-seal.tar",)
    assert not brought.agent_session_id


async def test_a_workspace_is_shared_only_where_it_is_asked_for(place: Place) -> None:
    workspaces = UserWorkspaces(place.store, place.carrier)
    conversation = await place.sealed("one")
    turn = await place.accepted("one")
    for settings in ({}, {"workspace_storage_scope": "user", "workspace_persistence_mode": "none"}):
        assert await workspaces.keep(turn, conversation, plan(asked(settings))) == ()
    assert await workspaces.begin(await place.accepted("new"), None, _shared()) == Brought()
    await workspaces.keep(turn, conversation, _shared())
    assert await workspaces.begin(turn, conversation, _shared()) == Brought(), "the conversation has its own"
    assert await workspaces.begin(await place.accepted("new"), None, plan(asked())) == Brought()


async def test_a_shared_workspace_that_was_deleted_stops_no_conversation(place: Place) -> None:
    """It begins without, and says so; a conversation whose own turns were never sealed is still given the shared one."""
    workspaces = UserWorkspaces(place.store, place.carrier)
    conversation = await place.sealed("one")
    await workspaces.keep(await place.accepted("one"), conversation, _shared())
    lost = conversation.model_copy(update={"turns": (_turn(1),), "head_turn": 1})
    assert (await workspaces.begin(await place.accepted("lost"), lost, _shared())).continuing
    await place.context.delete_file_record(_IDENTITY, *conversation.turns[0].file_ids.values())
    begun = await workspaces.begin(await place.accepted("new"), None, _shared())
    assert begun.continuing is None
    assert "not there any more" in begun.remarks[0]


def test_a_lost_turn_takes_no_earlier_one_with_it() -> None:
    """The head was not sealed and its sandbox is gone: the turn before it is restored."""
    turns = (_turn(1, seal="1" * 64, agent_session_id="s-1"), _turn(2, parent=1, agent_session_id="s-2"), _turn(3, parent=2))
    known = {"instance_id": INSTANCE, "upn": ANN, "conversation_id": "c", "profile": "restricted", "head_turn": 3, "turns": turns}
    conversation = Conversation.model_validate({**known, "sandbox": SandboxMark(session_id="s", generation="g")})
    restored = go_on_from(conversation, live=False)
    assert restored
    assert restored.restore
    assert (restored.restore.turn_number, restored.agent_session_id) == (1, "s-1")
    alive = go_on_from(conversation.model_copy(update={"head_turn": 2}), live=True)
    assert alive
    assert (alive.restore, alive.agent_session_id) == (None, "s-2")
