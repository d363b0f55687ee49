"""Frames of the mailbox: what goes in comes out, and what is not a frame is a FrameError and nothing else."""

import base64
import json
import random
import string
from typing import Any

import pytest

from workflow_schemas.delta import MAX_BODY_BYTES, compress
from workflow_schemas.errors import FrameError
from workflow_schemas.mailbox import (
    _PRIMER,
    MAX_FRAME_BYTES,
    MAX_LINE_CHARACTERS,
    MAX_PART_BYTES,
    Exchange,
    Message,
    Reader,
    Reply,
    decode_exchange,
    decode_reply,
    encode,
    fit,
    split,
)

REPLY = Reply(
    generation="a" * 32,
    ack=3,
    more=True,
    messages=(
        Message(seq=1, kind="event", body={"type": "text", "content": "héllo \ud800 🙂 \" ' \\ \n"}),
        Message(seq=2, kind="model_request", body={"call_id": "1"}, data=bytes(range(256))),
        Message(seq=3, kind="event"),
    ),
)
EXCHANGE = Exchange(
    run_id="run-1", generation="g", ack=7, wait_seconds=20, messages=(Message(seq=1, kind="start", body={"plan": {}}, data=b"x"),)
)


def forged(header: Any, attachments: bytes = b"", length: int | None = None) -> str:
    """A frame whose inside is not what the outside promises."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    packed = compress((len(text) if length is None else length).to_bytes(4, "big") + text + attachments, _PRIMER)
    return f"FLLM1A:{base64.b85encode(packed).decode()}"


def test_both_frames_come_back_as_they_were() -> None:
    assert decode_reply(encode(REPLY)) == REPLY
    assert decode_exchange(encode(EXCHANGE)) == EXCHANGE


def test_a_frame_is_one_line_that_can_stand_in_a_program() -> None:
    line = encode(REPLY)
    assert line.isascii()
    assert not set(line) & set("'\"\\\n\r")
    assert repr(line) == f"'{line}'"


@pytest.mark.parametrize(("size", "letter"), [(10_000, "A"), (200_000, "B")], ids=["base85", "base64"])
def test_the_armour_follows_the_size(size: int, letter: str) -> None:
    reply = Reply(generation="g", messages=(Message(seq=1, kind="part", data=random.Random(1).randbytes(size)),))
    line = encode(reply)
    assert line.startswith(f"FLLM1{letter}:")
    assert decode_reply(line) == reply


def test_a_reply_is_found_among_other_output() -> None:
    """Somebody's print before the frame does not hurt, and the last frame counts."""
    noise = f"warning: something\n{encode(Reply(generation='old'))}\nmore noise\n{encode(REPLY)}\n\n"
    assert decode_reply(noise) == REPLY


@pytest.mark.parametrize("text", ["", "hello", "FLLM", "FLLM1", "FLLM1A", "FLLM1A:", "FLLM1B:", "FLLM1C:aa", "FLLM2A:aa", "FLLM1A:é", "\0"])
def test_foreign_text_is_a_frame_error(text: str) -> None:
    with pytest.raises(FrameError):
        decode_reply(text)
    with pytest.raises(FrameError):
        decode_exchange(text)


@pytest.mark.parametrize(
    "line",
    [
        forged(5),
        forged([]),
        forged("text"),
        forged(None),
        forged({}),
        forged({"m": 5}),
        forged({"m": [[1]]}),
        forged({"m": [[1, "event", {}, -1]]}),
        forged({"m": [[1, "event", {}, True]]}),
        forged({"m": [[1, "event", {}, 1.5]]}),
        forged({"m": [[1, "event", {}, 10]]}, b"short"),
        forged({"m": []}, b"surplus"),
        forged({"m": [[0, "event", {}, 0]]}),
        forged({"m": [[1, "unheard of", {}, 0]]}),
        forged({"m": [[1, "event", [], 0]]}),
        forged({"m": [], "messages": [], "generation": "g"}),
        forged({"m": [], "ack": -1, "generation": "g"}),
        forged({"m": [], "status": "fine", "generation": "g"}),
        forged({"m": [], "generation": "g"}, length=10_000_000),
        forged(b"\xff\xfe"),
        forged(b"[" * 100_000),
        forged(b""),
        f"FLLM1B:{base64.b64encode(compress(bytes(8), _PRIMER)).decode()}!",
        f"FLLM1A:{base64.b85encode(b'not zstd').decode()}",
        f"FLLM1A:{base64.b85encode(compress(b'', _PRIMER)).decode()}",
    ],
)
def test_a_frame_that_lies_is_a_frame_error(line: str) -> None:
    with pytest.raises(FrameError):
        decode_reply(line)
    with pytest.raises(FrameError):
        decode_exchange(line)


def test_no_damage_and_no_noise_raises_anything_else() -> None:
    """Cut, flipped and random lines: a frame error each time, or a frame."""
    chance, line = random.Random(11), encode(REPLY)
    alphabet = string.printable + "é\0🙂\u2028"
    for _ in range(2000):
        kind = chance.randrange(4)
        if kind == 0:
            attempt = line[: chance.randrange(len(line))]
        elif kind == 1:
            at = chance.randrange(len(line))
            attempt = line[:at] + chance.choice(alphabet) + line[at + 1 :]
        elif kind == 2:
            attempt = f"FLLM1{chance.choice('AB')}:" + "".join(chance.choices(alphabet, k=chance.randrange(80)))
        else:
            attempt = forged(chance.randbytes(chance.randrange(60)), chance.randbytes(chance.randrange(20)), chance.randrange(80))
        for decode in (decode_reply, decode_exchange):
            try:
                decode(attempt)
            except FrameError:
                pass


def test_a_line_without_end_is_refused_unread() -> None:
    with pytest.raises(FrameError, match="limit"):
        decode_exchange("FLLM1A:" + "0" * MAX_LINE_CHARACTERS)


@pytest.mark.parametrize("size", [0, 1, MAX_PART_BYTES, MAX_PART_BYTES + 1, 3 * MAX_PART_BYTES])
def test_an_attachment_is_cut_and_put_together(size: int) -> None:
    body = random.Random(size).randbytes(size)
    *parts, last = split(body)
    reader = Reader()
    assert all(len(part) <= MAX_PART_BYTES for part in (*parts, last))
    assert [reader.feed(Message(seq=1, kind="part", data=part)) for part in parts] == [None] * len(parts)
    for data, whole in ((last, body), (b"next", b"next")):
        message = reader.feed(Message(seq=9, kind="model_answer", body={"call_id": "1"}, data=data))
        assert message is not None
        assert (message.data, message.body) == (whole, {"call_id": "1"})


def test_parts_without_end_are_refused() -> None:
    reader, part = Reader(), Message(seq=1, kind="part", data=bytes(MAX_PART_BYTES))
    for _ in range(MAX_BODY_BYTES // MAX_PART_BYTES):
        reader.feed(part)
    with pytest.raises(FrameError, match="parts"):
        reader.feed(part)


@pytest.mark.parametrize(
    ("messages", "taken"),
    [
        ([], 0),
        ([Message(seq=1, kind="part", data=bytes(2 * MAX_FRAME_BYTES))], 1),
        ([Message(seq=1, kind="part", data=bytes(MAX_PART_BYTES))] * 9, 3),
        ([Message(seq=1, kind="event", body={"content": "x" * MAX_PART_BYTES})] * 9, 3),
        ([Message(seq=1, kind="event")] * 5000, 5000),
    ],
    ids=["none", "one that is too large", "attachments", "bodies", "many small"],
)
def test_what_goes_into_one_frame_is_bounded(messages: list[Message], taken: int) -> None:
    fitting, more = fit(messages)
    assert len(fitting) == taken
    assert more == (taken < len(messages))
