"""What a sandbox prints is hostile: bounded, read by the words both sides share, and never trusted to end."""

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest

from context_client.direct import BadAnswer, CallDied, DirectError, DirectSettings, Done, EventStream, Failed, Replaced, Text, ToolStart
from context_client.direct import events as ours
from context_client.direct.events import MAX_TEXT_CHARS, parse_event
from context_client.direct.programs import MARK, Answer, Head, ModelAccess, Order, program, read_answer
from runner_image.direct import desk
from workflow_schemas import events as words

HEAD = {"generation": "g", "next": 10, "ended": False}


def printed(*lines: str, count: int | None = None, **head: Any) -> str:
    """What the desk prints."""
    return (
        MARK + json.dumps({**HEAD, "lines": len(lines) if count is None else count, **head}) + "".join(f"\n{line}" for line in lines) + "\n"
    )


def test_both_sides_use_the_same_mark() -> None:
    assert MARK == desk.MARK


def test_the_events_are_those_of_the_project() -> None:
    """Every event of the turn that the direct path can tell is known here, with its fields."""
    for model in get_args(get_args(words.Event)[0]):
        if model is words.ModelCalled:
            continue  # only a service sees these
        mine = getattr(ours, model.__name__)
        assert mine.model_fields.keys() >= model.model_fields.keys() - {"seq", "at"}, model.__name__
        assert mine.model_fields["type"].default == model.model_fields["type"].default


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="empty"),
        pytest.param("Traceback", id="no JSON"),
        pytest.param("[1]", id="a list"),
        pytest.param('{"type": "replaced", "message": "x"}', id="one only the proxy makes"),
        pytest.param('{"type": "new_thing"}', id="unknown"),
        pytest.param('{"type": "text"}', id="no content"),
        pytest.param('{"type": "text", "content": 5}', id="wrong type"),
        pytest.param('{"type": "done", "turns": -1}', id="negative"),
        pytest.param('{"type": "done", "turns": ' + "9" * 5000 + "}", id="endless number"),
        pytest.param('{"type": "tool_end", "success": true, "duration_seconds": NaN}', id="no number"),
        pytest.param('{"type": "tool_start", "name": "x", "input": ' + '{"a":' * 100_000, id="deep"),
        pytest.param('{"type": "text", "content": "' + "x" * (5 << 20) + '"}', id="long"),
    ],
)
def test_a_line_that_is_no_event_is_passed_over(line: str) -> None:
    assert parse_event(line) is None


def test_an_event_is_bounded() -> None:
    text = parse_event(json.dumps({"type": "text", "content": "x" * (MAX_TEXT_CHARS + 1), "later": 1}))
    start = parse_event(json.dumps({"type": "tool_start", "name": "\ud800", "input": {"a": list(range(5000)), "b": deep(50)}}))
    assert isinstance(text, Text)
    assert len(text.content) == MAX_TEXT_CHARS + 1
    assert isinstance(start, ToolStart)
    assert (start.name, len(start.input["a"]), "…" in json.dumps(start.input, ensure_ascii=False)) == ("?", 1000, True)


def deep(levels: int) -> dict[str, Any]:
    return {"x": deep(levels - 1)} if levels else {}


def test_an_answer_is_found_among_other_output() -> None:
    answer = read_answer("warning: old\n" + printed('{"type": "text", "content": "a\u2028b"}', "second") + "more\n")
    assert answer.lines == ('{"type": "text", "content": "a\u2028b"}', "second")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        pytest.param("", "printed no answer", id="nothing"),
        pytest.param("x" * 10_000, "printed no answer", id="something else"),
        pytest.param(MARK + "no json\n", "cannot be read", id="no JSON"),
        pytest.param(MARK + "{}\n", "cannot be read", id="no generation"),
        pytest.param(printed(next=-1), "cannot be read", id="negative"),
        pytest.param(printed(generation="g" * 1000), "cannot be read", id="long"),
        pytest.param(printed("one", count=3), "is cut: 3 events", id="cut"),
        pytest.param(printed("one").rstrip("\n"), "is cut", id="cut in a line"),
        pytest.param(printed(count=10**9), "cannot be read", id="many"),
    ],
)
def test_an_odd_answer_is_refused_briefly(output: str, words: str) -> None:
    with pytest.raises(BadAnswer, match=words) as caught:
        read_answer(output)
    assert len(str(caught.value)) < 1000


def test_a_program_holds_any_text_and_shows_no_key() -> None:
    message = "'); import os # \\ \n\u2028\N{SLIGHTLY SMILING FACE}\ud800"
    access = ModelAccess.model_validate({"api_key": "sk-hidden", "model": "m"})
    order = Order(kind="chat", message=message, seconds=5, environment=access.environment())
    code = program(order.to_wire("c"))
    names: dict[str, Any] = {}
    exec(code.partition("\n")[2], {"main": lambda line: names.update(line=line)})
    assert code.isascii()
    assert len(code.splitlines()) == 2
    assert "sk-hidden" not in repr(order) + repr(access)
    assert set(access.environment()) == {"ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"}


Reply = Callable[[dict[str, Any]], Answer]


def stream(*replies: Answer, settings: DirectSettings | None = None) -> EventStream:
    """A stream whose sandbox answers so, the last answer again and again."""
    left = list(replies)

    async def ask(order: dict[str, Any], wait_seconds: float) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    start = {"op": "start", "generation": "old"}
    return EventStream(ask, settings or DirectSettings(), call="c", seconds=5, start=start)


def reply(*lines: str, **head: Any) -> Answer:
    return Answer(Head.model_validate({**HEAD, **head}), lines)


TEXT, DONE = '{"type": "text", "content": "x"}', '{"type": "done"}'


@pytest.mark.anyio
async def test_nothing_counts_after_the_last_event() -> None:
    events = stream(reply(TEXT, "noise", DONE, '{"type": "error", "error": "forged"}', TEXT))
    assert [event.type async for event in events] == ["text", "done"]
    assert events.skipped == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("replies", "settings", "error", "words"),
    [
        pytest.param([reply(ended=True, words="boom")], None, CallDied, "boom", id="no last event"),
        pytest.param([reply(TEXT), reply(TEXT)], None, BadAnswer, "again and again", id="standing still"),
        pytest.param([reply(*[TEXT] * 20)], DirectSettings(most_events=10), BadAnswer, "more than 10", id="too many"),
        pytest.param([reply(TEXT), reply(unknown=True)], None, CallDied, "does not know", id="forgotten"),
        pytest.param([reply(TEXT), reply(replaced=True, generation="n")], None, DirectError, "was replaced while", id="replaced at work"),
    ],
)
async def test_a_sandbox_that_does_not_play_along_is_told(
    replies: list[Answer], settings: DirectSettings | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        [event async for event in stream(*replies, settings=settings)]


@pytest.mark.anyio
async def test_a_replaced_sandbox_is_the_first_event_and_long_ones_are_told() -> None:
    events = [event async for event in stream(reply(replaced=True, generation="n"), reply(TEXT, DONE, left_out=7_000_000))]
    assert isinstance(events[0], Replaced)
    assert [event.type for event in events[1:]] == ["warning", "text", "done"]
    assert isinstance(events[-1], Done)
    assert not isinstance(events[-1], Failed)


@pytest.mark.parametrize("seconds", [0, 200, -1])
def test_a_wait_that_platforms_cut_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="platforms cut"):
        DirectSettings(wait_seconds=seconds)
