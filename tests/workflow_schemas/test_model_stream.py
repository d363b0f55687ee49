"""The event stream of the Messages API: read however it is cut, written so that reading gives the same message."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_schemas.model_stream import (
    UNFINISHED_INPUT,
    DisorderedStream,
    IncompleteMessage,
    MalformedStream,
    MessageAssembler,
    SseParser,
    StreamedError,
    encode_event,
    message_to_sse,
)

START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 3},
    },
}
END: dict[str, Any] = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"output_tokens": 42, "input_tokens": None},
}
STOP: dict[str, Any] = {"type": "message_stop"}


def block_events(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """One content block as its start, deltas and stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def assemble(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Feed the events and give the message."""
    assembler = MessageAssembler()
    for event in events:
        assembler.feed(event)
    return assembler.message()


def only_block(block: dict[str, Any], *deltas: dict[str, Any]) -> dict[str, Any]:
    """The one content block of a message streamed with these deltas."""
    block_read: dict[str, Any] = assemble([START, *block_events(0, block, *deltas), END, STOP])["content"][0]
    return block_read


def replay(message: dict[str, Any], *, cut: int = 1 << 20, delta_chars: int = 7) -> dict[str, Any]:
    """Play a message, cut its bytes anywhere, parse and assemble them."""
    wire = b"".join(message_to_sse(message, delta_chars=delta_chars))
    parser = SseParser()
    return assemble([event for at in range(0, len(wire), cut) for event in parser.feed(wire[at : at + cut])])


def test_usage_is_the_start_overwritten_by_the_delta_and_null_says_nothing() -> None:
    message = assemble([START, END, STOP])
    assert message["usage"] == {"input_tokens": 10, "output_tokens": 42, "cache_read_input_tokens": 3}
    assert message["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("start", "deltas", "expected"),
    [
        pytest.param(
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": "Hä"}, {"type": "text_delta", "text": "llo"}],
            {"type": "text", "text": "Hällo"},
            id="text",
        ),
        pytest.param(
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}],
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            id="thinking",
        ),
        pytest.param(
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"file', '_path": "/a"}')],
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/a"}},
            id="tool_use",
        ),
        pytest.param(
            {"type": "tool_use", "id": "toolu_1", "name": "Now", "input": {}},
            [{"type": "input_json_delta", "partial_json": ""}],
            {"type": "tool_use", "id": "toolu_1", "name": "Now", "input": {}},
            id="tool_without_input",
        ),
        pytest.param(
            {"type": "text", "text": "", "citations": None},
            [{"type": "citations_delta", "citation": {"n": 1}}, {"type": "citations_delta", "citation": {"n": 2}}],
            {"type": "text", "text": "", "citations": [{"n": 1}, {"n": 2}]},
            id="citations",
        ),
        pytest.param(
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            [],
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            id="redacted_thinking",
        ),
        pytest.param(
            {"type": "hologram", "shape": "cube"},
            [{"type": "hologram_delta", "shape": "+ball", "layers": [1]}, {"type": "hologram_delta", "layers": [2]}],
            {"type": "hologram", "shape": "cube+ball", "layers": [1, 2]},
            id="unknown_kinds",
        ),
        pytest.param(
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": "a", "confidence": 0.5}],
            {"type": "text", "text": "a", "confidence": 0.5},
            id="unknown_field_of_known_delta",
        ),
    ],
)
def test_blocks(start: dict[str, Any], deltas: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert only_block(start, *deltas) == expected


def test_a_cut_tool_input_is_kept_and_reported_and_played_as_it_came() -> None:
    """A reply that hit its token limit inside a tool input reaches the CLI exactly as the model sent it."""
    tool = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}
    assembler = MessageAssembler()
    cut = {"type": "input_json_delta", "partial_json": '{"content": "half a fi'}
    for event in [START, *block_events(0, tool, cut), END, STOP]:
        assembler.feed(event)
    message = assembler.message()
    assert message["content"] == [{**tool, UNFINISHED_INPUT: '{"content": "half a fi'}]
    assert "not a JSON object" in assembler.problems[0]
    assert replay(message) == message
    played = b"".join(message_to_sse(message))
    assert b'"partial_json":"{\\"content\\": \\"half a fi"' in played
    assert UNFINISHED_INPUT.encode() not in played


@pytest.mark.parametrize(
    ("events", "error"),
    [
        pytest.param([END], DisorderedStream, id="delta_before_start"),
        pytest.param([START, START], DisorderedStream, id="two_starts"),
        pytest.param([START, block_events(0, {"type": "text"})[1]], DisorderedStream, id="stop_without_start"),
        pytest.param([START, *block_events(0, {}), *block_events(0, {})], DisorderedStream, id="index_twice"),
        pytest.param([START, block_events(0, {})[0], STOP], DisorderedStream, id="stop_with_open_block"),
        pytest.param([START, STOP, END], DisorderedStream, id="after_the_end"),
        pytest.param([{"type": "message_start"}], MalformedStream, id="start_without_message"),
        pytest.param([START, *block_events(-1, {})], MalformedStream, id="negative_index"),
        pytest.param(
            [START, *block_events(0, {"type": "text"}, {"type": "text_delta", "text": 7})],
            MalformedStream,
            id="text_is_a_number",
        ),
        pytest.param([START, {"type": "error", "error": {"type": "overloaded_error"}}], StreamedError, id="error"),
        pytest.param([{"type": "error", "error": "x"}], MalformedStream, id="error_of_no_shape"),
        pytest.param([], IncompleteMessage, id="nothing"),
        pytest.param([START, END], IncompleteMessage, id="no_stop"),
    ],
)
def test_impossible_streams_are_refused(events: list[dict[str, Any]], error: type[Exception]) -> None:
    with pytest.raises(error):
        assemble(events)


def test_unknown_events_and_pings_are_ignored() -> None:
    assert assemble([{"type": "ping"}, START, {"type": "weather", "sun": True}, END, STOP])["content"] == []


def test_the_streamed_error_carries_the_senders_words() -> None:
    with pytest.raises(StreamedError, match="busy") as caught:
        assemble([{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}])
    assert caught.value.error == {"type": "overloaded_error", "message": "busy"}


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_the_parser_reads_every_line_end_at_every_cut(newline: bytes, cut: int) -> None:
    wire = b'\xef\xbb\xbf: hi\n\nevent: a\nid: 7\ndata: {"type":\ndata: "b", "t":"\xc3\xa4"}\n\n:\n\nevent: c\ndata:{}\n\n'
    wire = wire.replace(b"\n", newline) + b"data: [DONE]" + newline * 2
    parser = SseParser()
    events = [event for at in range(0, len(wire), cut) for event in parser.feed(wire[at : at + cut])]
    assert events == [{"type": "b", "t": "ä"}, {"type": "c"}]


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"<html><body>Welcome</body></html>\n", id="html"),
        pytest.param(b'{"type":"message"}\n', id="plain_json"),
        pytest.param(b"data: {oops\n\n", id="broken_json"),
        pytest.param(b"data: [1]\n\n", id="no_object"),
        pytest.param(b'data: {"a":1}\n\n', id="no_type"),
        pytest.param(b'data: {"type":7}\n\n', id="type_is_a_number"),
        pytest.param(b'data: {"type":"a","x":NaN}\n\n', id="nan"),
        pytest.param(b'data: "\xff"\n\n', id="no_utf8"),
        pytest.param(b"data: " + b"[" * 200_000 + b"\n\n", id="too_deep"),
        pytest.param(b"data: " + b"a" * 2_000_000, id="endless_line"),
        pytest.param((b"data: " + b"a" * 999 + b"\n") * 2_000, id="endless_event"),
    ],
)
def test_what_is_no_event_stream_is_refused(wire: bytes) -> None:
    parser = SseParser(max_event_bytes=1_000_000)
    with pytest.raises(MalformedStream):
        parser.feed(wire)


def test_a_stream_cut_inside_an_event_gives_only_whole_events() -> None:
    wire = encode_event(START) + encode_event(END)[:-10]
    assert SseParser().feed(wire) == [START]


def test_played_events_come_in_the_order_the_cli_expects() -> None:
    message = {**START["message"], "content": [{"type": "text", "text": "abc"}], "stop_reason": "end_turn"}
    events = SseParser().feed(b"".join(message_to_sse(message, delta_chars=2)))
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["stop_reason"] is None
    assert events[0]["message"]["usage"]["output_tokens"] == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
blocks = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("text"), "text": st.text()},
        optional={"citations": st.none() | st.lists(objects, max_size=2), "extra": json_values},
    ),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": st.text(), "signature": st.text()}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": st.text()}),
    st.fixed_dictionaries({"type": st.sampled_from(["tool_use", "server_tool_use"]), "id": st.text(), "name": st.text(), "input": objects}),
    st.fixed_dictionaries({"type": st.just("web_search_tool_result"), "content": json_values}),
    st.fixed_dictionaries({"type": st.just("from_the_future")}, optional={"input": json_values, "text": json_values}),
)
messages = st.fixed_dictionaries(
    {
        "id": st.text(),
        "type": st.just("message"),
        "role": st.just("assistant"),
        "model": st.text(),
        "content": st.lists(blocks, max_size=5),
        "stop_reason": st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal", None]),
        "stop_sequence": st.none() | st.text(),
        "usage": st.fixed_dictionaries(
            {"input_tokens": st.integers(0), "output_tokens": st.integers(0)}, optional={"cache_creation": objects}
        ),
    },
    optional={"container": objects, "context_management": st.none() | objects, "stop_details": st.none() | objects},
)


@settings(database=None, deadline=None, max_examples=150)
@given(message=messages, cut=st.integers(1, 50), delta_chars=st.integers(1, 9))
def test_what_is_played_and_assembled_is_what_went_in(message: dict[str, Any], cut: int, delta_chars: int) -> None:
    assert replay(message, cut=cut, delta_chars=delta_chars) == json.loads(json.dumps(message))


def test_a_very_long_answer_takes_linear_time() -> None:
    """Two megabytes in four-character deltas; joining at each delta would take minutes."""
    text = "abcd" * 500_000
    message = {**START["message"], "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    assert replay(message, cut=65_536, delta_chars=40)["content"][0]["text"] == text
