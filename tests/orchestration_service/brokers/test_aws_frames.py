"""Bedrock's binary frames, cut and broken in every way, and the exceptions that come inside them."""

import json

import pytest

from orchestration_service.brokers.aws_frames import AwsFrames
from tests.orchestration_service.brokers.standins.bedrock import Bedrock, framed
from tests.orchestration_service.brokers.standins.provider import events
from workflow_schemas.model_stream import MalformedStream

EVENTS = list(events())
FRAMES = [Bedrock().frame(event) for event in EVENTS]


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    stream, reader = b"".join(FRAMES), AwsFrames()
    read = [event for start in range(0, len(stream), size) for event in reader.feed(stream[start : start + size])]
    assert read == EVENTS


@pytest.mark.parametrize("position", [0, 5, 9, 20, 60, -20, -1], ids=str)
def test_a_bit_that_is_another_ends_the_stream_after_what_was_whole(position: int) -> None:
    broken = bytearray(FRAMES[1])
    broken[position] ^= 0x10
    reader = AwsFrames()
    try:
        assert reader.feed(FRAMES[0] + bytes(broken)) == EVENTS[:1]
        assert reader.feed(b"".join(FRAMES[2:]) * 40) == []  # a length that grew may wait for more
    except MalformedStream:
        return
    pytest.fail("a broken frame was passed over")


@pytest.mark.parametrize(
    ("payload", "headers"),
    [
        (b"no json", {":event-type": "chunk", ":message-type": "event"}),
        (b'{"bytes": "%%%"}', {":event-type": "chunk", ":message-type": "event"}),
        (b'{"bytes": "W10="}', {":event-type": "chunk", ":message-type": "event"}),
        (b"{}", {":event-type": "chunk", ":message-type": "event"}),
    ],
    ids=["no_json", "no_base64", "no_object", "no_bytes"],
)
def test_a_chunk_without_an_event_is_malformed(payload: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(MalformedStream):
        AwsFrames().feed(framed(headers, payload))


def test_frames_of_other_kinds_are_passed_over() -> None:
    other = framed({":event-type": "initial-response", ":message-type": "event"}, b"{}")
    assert AwsFrames().feed(other + FRAMES[0]) == EVENTS[:1]


@pytest.mark.parametrize(
    ("name", "told", "kind"),
    [
        ("throttlingException", {"message": "m"}, "rate_limit_error"),
        ("serviceUnavailableException", {"message": "m"}, "overloaded_error"),
        ("modelTimeoutException", {"message": "m"}, "timeout_error"),
        ("validationException", {"message": "m"}, "invalid_request_error"),
        ("internalServerException", {"message": "m"}, "api_error"),
        ("modelStreamErrorException", {"message": "x", "originalStatusCode": 429, "originalMessage": "m"}, "rate_limit_error"),
        ("modelStreamErrorException", {"message": "m", "originalStatusCode": 500}, "api_error"),
        ("somethingNewException", {"message": "m"}, "api_error"),
    ],
)
def test_an_exception_inside_is_an_error_of_its_kind(name: str, told: dict[str, object], kind: str) -> None:
    frame = framed({":message-type": "exception", ":exception-type": name}, json.dumps(told).encode())
    assert AwsFrames().feed(frame) == [{"type": "error", "error": {"type": kind, "message": f"{name}: m"}}]
