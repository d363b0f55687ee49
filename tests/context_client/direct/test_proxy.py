"""`SessionProxy` with real local sandboxes and the real CLI: events as they come, and what is left when something goes away."""

import json
from typing import Any

import pytest

from context_client.direct import (
    CallDied,
    DeviceCode,
    DirectEvent,
    DirectSettings,
    Done,
    EventStream,
    Failed,
    ModelAccess,
    Replaced,
    SandboxReplaced,
    SessionBusy,
    SessionProxy,
    Text,
    ToolEnd,
)
from tests.context_client.direct.conftest import MODEL, QUICK, UPN, Places
from tests.runner_image.direct.conftest import KEY

pytestmark = pytest.mark.anyio


def bash(command: str) -> dict[str, Any]:
    """A step in which the model runs a command."""
    return {"tool_use": [{"name": "Bash", "input": {"command": command}}]}


async def all_of(stream: EventStream) -> list[DirectEvent]:
    async with stream:
        return [event async for event in stream]


async def test_a_conversation_from_init_to_clear(places: Places, proxy: SessionProxy) -> None:
    """Two messages whose second remembers the first; then status, clear, and a third that remembers nothing."""
    await places.play("talk-1", {"text": "I look.", **bash("echo hi > note.txt")}, {"text": "A ä\u2028🙂."}, {"text": "B."}, {"text": "C."})
    init = await all_of(proxy.init("talk-1", "birds"))
    first = await all_of(proxy.chat("talk-1", "The word is heron."))
    second = await all_of(proxy.chat("talk-1", "Which word?"))
    status = await proxy.status("talk-1")
    assert [event.type for event in init] == ["progress"] * 4 + ["done"]
    assert [event.type for event in first] == ["progress", "progress", "text", "tool_start", "tool_end", "text", "done"]
    assert [event.content for event in first if isinstance(event, Text)] == ["I look.", "A ä\u2028🙂."]
    assert isinstance(first[-1], Done)
    assert isinstance(second[-1], Done)
    assert (first[-1].turns, first[-1].model_calls, first[-1].team, second[-1].turns) == (1, 2, "birds", 2)
    assert status.session is not None
    assert (status.session.team, status.session.turns, status.session.initialized, status.running) == ("birds", 2, True, None)
    assert await proxy.clear("talk-1")
    assert (await proxy.status("talk-1")).session is None
    await all_of(proxy.chat("talk-1", "And now?"))
    requests = [json.dumps(request["messages"]) for request in await places.received("talk-1")]
    assert ["heron" in request for request in requests[:4]] == [True, True, True, False]


async def test_events_arrive_while_the_agent_works(places: Places, proxy: SessionProxy) -> None:
    """The first words are here before the command that follows them is over."""
    await places.play("live-1", {"text": "I wait.", **bash("until [ -e go ]; do sleep 0.05; done; echo gone")}, {"text": "Done."})
    async with proxy.chat("live-1", "Wait.") as events:
        async for event in events:
            if event.type == "tool_start":
                await places.execute("live-1", "open('/workspace/go', 'w').close()")
    assert isinstance(event, Done)


async def test_a_message_may_take_longer_than_an_execution(places: Places) -> None:
    """Each execution waits half a second; the work takes several."""
    await places.play("long-1", bash("sleep 3"), {"text": "Done."})
    async with SessionProxy(places.sandboxes, model=MODEL, upn=UPN, settings=DirectSettings(wait_seconds=0.5)) as proxy:
        events = await all_of(proxy.chat("long-1", "Sleep."))
    assert [event.type for event in events[-2:]] == ["text", "done"]


async def test_one_call_at_a_time(places: Places, proxy: SessionProxy) -> None:
    """A second message is refused while the first is at work, which another proxy can follow from its first event on, and stop."""
    await places.play("busy-1", {"text": "One.", **bash("sleep 60")}, {"text": "Two."})
    async with proxy.chat("busy-1", "Go.") as first:
        while (await anext(first)).type != "tool_start":
            pass
        async with SessionProxy(places.sandboxes, upn=UPN) as other:
            with pytest.raises(SessionBusy) as caught:
                await all_of(other.chat("busy-1", "Me too."))
            with pytest.raises(SessionBusy):
                await other.clear("busy-1")
            assert caught.value.call == (await other.status("busy-1")).running == first.call
            followed = await other.follow("busy-1")
            assert followed is not None
            assert [(await anext(followed)).type for _ in range(4)] == ["progress", "progress", "text", "tool_start"]
            assert await other.stop("busy-1")
            rest = [event async for event in followed]
        last = [event async for event in first][-1]
    assert isinstance(last, Failed)
    assert (last.end_reason, rest[-1]) == ("stopped", last)
    assert (await proxy.status("busy-1")).running is None


async def test_leaving_stops_the_call_and_the_next_message_goes_on(places: Places, proxy: SessionProxy) -> None:
    await places.play("left-1", {"text": "One.", **bash("sleep 60")}, {"text": "Two."})
    async with proxy.chat("left-1", "Remember the heron.") as events:
        async for event in events:
            if event.type == "tool_start":
                break
    assert (await proxy.status("left-1")).running is None
    after = await all_of(proxy.chat("left-1", "What was it?"))
    assert isinstance(after[-1], Done)
    assert "heron" in json.dumps((await places.received("left-1"))[-1]["messages"])


async def test_a_detached_call_ends_by_itself(places: Places, proxy: SessionProxy) -> None:
    await places.play("free-1", {"text": "One.", **bash("sleep 1")}, {"text": "Two."})
    async with proxy.chat("free-1", "Go.") as events:
        await anext(events)
        events.detach()
    followed = await proxy.follow("free-1")
    assert followed is not None
    assert [event.content for event in await all_of(followed) if isinstance(event, Text)] == ["One.", "Two."]


@pytest.mark.parametrize("most_remembered", [pytest.param(64, id="kept"), pytest.param(0, id="not kept")])
async def test_another_sandbox_is_told_and_the_agent_remembers_what_was_kept(places: Places, most_remembered: int) -> None:
    """The first event says what is gone; the conversation goes on from what the proxy has kept."""
    name = f"new-{most_remembered}-x"
    await places.play(name)
    settings = DirectSettings(wait_seconds=5, most_remembered=most_remembered)
    async with SessionProxy(places.sandboxes, model=MODEL, upn=UPN, settings=settings) as proxy:
        await all_of(proxy.chat(name, "The word is heron.", "birds"))
        await places.replace(name)
        await places.play(name)
        assert (await proxy.status(name)).replaced
        events = await all_of(proxy.chat(name, "Which word?"))
        again = await all_of(proxy.chat(name, "And now?"))
    assert isinstance(events[0], Replaced)
    assert isinstance(events[-1], Done)
    assert events[0].remembered == (most_remembered > 0) == ("heron" in json.dumps((await places.received(name))[0]["messages"]))
    assert (events[-1].turns, events[-1].team) == ((2, "birds") if most_remembered else (1, "default"))
    assert again[0].type == "progress"


async def test_a_replaced_sandbox_can_be_refused(places: Places) -> None:
    """Nothing is begun; the same message sent again means the empty sandbox."""
    await places.play("refuse-1")
    async with SessionProxy(places.sandboxes, model=MODEL, upn=UPN, settings=DirectSettings(when_replaced="refuse")) as proxy:
        await all_of(proxy.chat("refuse-1", "The word is heron."))
        await places.replace("refuse-1")
        await places.play("refuse-1")
        with pytest.raises(SandboxReplaced, match="Nothing was begun"):
            await all_of(proxy.chat("refuse-1", "Which word?"))
        assert await places.received("refuse-1") == []
        events = await all_of(proxy.chat("refuse-1", "Which word?"))
    assert isinstance(events[0], Replaced)
    assert events[0].remembered
    assert isinstance(events[-1], Done)


async def test_a_key_is_in_no_place_where_the_agent_or_a_listing_sees_it(places: Places, proxy: SessionProxy) -> None:
    """Not in the call's command line or first environment, not in a file, not in the file store; nor anything else of the runner."""
    everywhere = "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; grep -rs sk-direct-[s]ecret /agent /run /tmp /home /opt/agent; true"
    await places.play("key-1", bash(everywhere), {"text": "Nothing."})
    events = await all_of(proxy.chat("key-1", "Look."))
    assert [event.success for event in events if isinstance(event, ToolEnd)] == [True]
    search = "['grep', '-rls', 'sk-direct-[s]ecret', '/run', '/workspace', '/mnt/data']"
    assert await places.execute("key-1", f"import subprocess\nsubprocess.run({search})") == ""
    assert KEY not in repr(events)
    assert KEY not in repr(MODEL)


async def test_a_call_whose_process_is_killed_is_told(places: Places, proxy: SessionProxy) -> None:
    await places.play("dead-1", bash("sleep 60"))
    kill = "import glob, os\n[os.kill(int(open(p).read()), 9) for p in glob.glob('/run/claude-code/direct/calls/*/pid')]"
    events = proxy.chat("dead-1", "Go.")
    while (await anext(events)).type != "tool_start":
        pass
    await places.execute("dead-1", kill)
    with pytest.raises(CallDied, match="without its last event"):
        await all_of(events)


async def test_what_goes_wrong_inside_is_an_event(places: Places) -> None:
    access = ModelAccess.model_validate({"base_url": "http://127.0.0.1:9", "api_key": "k"})
    async with SessionProxy(places.sandboxes, model=access, upn=UPN) as proxy:
        events = await all_of(proxy.init("wrong-1"))
    assert isinstance(events[-1], Failed)
    assert "cannot be reached" in events[-1].error


_AZURE = "To sign in, use a web browser to open the page https://microsoft.com/devicelogin and enter the code ABCD1234 to authenticate."
_GITHUB = "! First copy your one-time code: ABCD-1234\\nOpen this URL to continue: https://github.com/login/device."


@pytest.mark.parametrize(
    ("says", "code", "url"),
    [
        pytest.param(_AZURE, "ABCD1234", "https://microsoft.com/devicelogin", id="azure"),
        pytest.param(_GITHUB, "ABCD-1234", "https://github.com/login/device", id="github"),
    ],
)
async def test_a_sign_in_on_another_device(places: Places, says: str, code: str, url: str) -> None:
    """The code arrives while the program waits; it is asked for once."""
    name = f"sign-in-{len(says)}"
    variables = {
        "CLAUDE_CODE_SIGN_IN": f"sh -c 'printf \"{says}\\n\" >&2; until [ -e /tmp/confirmed ]; do sleep 0.1; done; touch /tmp/signed-in'",
        "CLAUDE_CODE_SIGN_IN_CHECK": "test -e /tmp/signed-in",
    }
    await places.play(name)
    async with SessionProxy(places.sandboxes, model=MODEL, variables=variables, upn=UPN, settings=QUICK) as proxy:
        async with proxy.init(name) as events:
            async for event in events:
                if isinstance(event, DeviceCode):
                    assert (event.code, event.url) == (code, url)
                    await places.execute(name, "open('/tmp/confirmed', 'w').close()")
        assert isinstance(event, Done)
        assert "device_code" not in [event.type for event in await all_of(proxy.init(name))]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param("sh -c 'echo refused; exit 3'", "exit status 3): refused", id="refused"),
        pytest.param("no-such-program", "cannot be run", id="missing"),
        pytest.param("sh -c 'echo", "is no command line", id="odd"),
    ],
)
async def test_a_sign_in_that_fails_is_told(places: Places, program: str, words: str) -> None:
    async with SessionProxy(places.sandboxes, variables={"CLAUDE_CODE_SIGN_IN": program}, upn=UPN, settings=QUICK) as proxy:
        last = (await all_of(proxy.init("sign-in-fails")))[-1]
    assert isinstance(last, Failed)
    assert words in last.error
