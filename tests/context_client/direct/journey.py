"""The whole direct path before any place: signing in, two messages of two callers, status, and forgetting."""

import json

from context_client.direct import DeviceCode, DirectEvent, Done, EventStream, SessionProxy, Text
from tests.context_client.direct.conftest import MODEL, QUICK, UPN, Places

_SAYS = "To sign in, use a web browser to open the page https://microsoft.com/devicelogin and enter the code ABCD1234 to authenticate."
_SIGN_IN = {
    "CLAUDE_CODE_SIGN_IN": f"sh -c 'echo \"{_SAYS}\" >&2; until [ -e /tmp/confirmed ]; do sleep 0.1; done; touch /tmp/signed-in'",
    "CLAUDE_CODE_SIGN_IN_CHECK": "test -e /tmp/signed-in",
}


async def from_init_to_clear(places: Places, name: str) -> None:
    """The code of the sign-in arrives while its program waits, and a second caller's message finds the first one's conversation.

    Args:
        places: Where the sandbox is.
        name: Identifier of its session.
    """
    command = {"tool_use": [{"name": "Bash", "input": {"command": "echo hi > note.txt"}}]}
    await places.play(name, {"text": "I look.", **command}, {"text": "A ä\u2028🙂."}, {"text": "B."})
    async with SessionProxy(places.sandboxes, model=MODEL, variables=_SIGN_IN, upn=UPN, settings=QUICK) as proxy:
        init = await _signing_in(proxy, places, name)
        first = await _all_of(proxy.chat(name, "The word is heron."))
    async with SessionProxy(places.sandboxes, model=MODEL, upn=UPN, settings=QUICK) as proxy:
        second = await _all_of(proxy.chat(name, "Which word?"))
        status = await proxy.status(name)
        assert await proxy.clear(name)
        assert (await proxy.status(name)).session is None
    assert [event.type for event in init] == ["progress", "device_code", *["progress"] * 5, "done"]
    assert [event.type for event in first] == ["progress", "progress", "text", "tool_start", "tool_end", "text", "done"]
    assert [event.content for event in first if isinstance(event, Text)] == ["I look.", "A ä\u2028🙂."]
    assert isinstance(second[-1], Done)
    assert (second[-1].turns, second[-1].team) == (2, "birds")
    assert status.session is not None
    assert (status.session.session_id, status.session.turns) == (second[-1].session_id, 2)
    assert "heron" in json.dumps((await places.received(name))[-1]["messages"])
    assert await places.execute(name, "print(open('/workspace/note.txt').read(), end='')") == "hi\n"


async def _signing_in(proxy: SessionProxy, places: Places, name: str) -> list[DirectEvent]:
    """Be the person who confirms the code on another device."""
    events = []
    async with proxy.init(name, "birds") as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, DeviceCode):
                assert (event.code, event.url) == ("ABCD1234", "https://microsoft.com/devicelogin")
                await places.execute(name, "open('/tmp/confirmed', 'w').close()")
    return events


async def _all_of(stream: EventStream) -> list[DirectEvent]:
    async with stream:
        return [event async for event in stream]
