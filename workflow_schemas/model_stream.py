"""The Messages API's event stream, read and written without any I/O.

Both ends of the mailbox need the same knowledge of this stream: the service assembles what the model streams into one
message, and the relay in the sandbox plays that message to the CLI as a stream again. Kept here once, the two can be
proved to be inverse: a message that was played and assembled is the message that went in.

    ModelStreamError
    ├── MalformedStream      the bytes or an event cannot be read
    ├── DisorderedStream     events came in an order no message can have
    ├── IncompleteMessage    the message was asked for before its end arrived
    └── StreamedError        the sender reported an error inside the stream
"""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NoReturn

UNFINISHED_INPUT = "unfinished_input_json"
"""Key under which a tool block keeps the text of an input that is no JSON object (a reply cut by its token limit)."""

_LINE_END = re.compile(rb"[\r\n]")
_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_LATE_DELTA_FIELDS = ("stop_reason", "stop_sequence", "stop_details", "container")
_LATE_EVENT_FIELDS = ("context_management",)
_READ_APART = ("type", "delta", "usage")
_PARTIAL_JSON = "partial_json"
_TEXT_OF_DELTA: Mapping[str, str] = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": _PARTIAL_JSON}

JsonObject = dict[str, Any]


class ModelStreamError(Exception):
    """Root of everything that can be wrong with a model's event stream."""


class MalformedStream(ModelStreamError):
    """The bytes are no event stream, or an event has not the shape its type promises."""


class DisorderedStream(ModelStreamError):
    """An event came where no message can have it, such as a delta for a block that was never started."""


class IncompleteMessage(ModelStreamError):
    """The message was asked for before ``message_stop`` arrived."""


class StreamedError(ModelStreamError):
    """The sender gave up inside the stream with an ``error`` event.

    Attributes:
        error: the inner error object, with ``type`` and ``message``.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.error: JsonObject = dict(error)
        super().__init__(f"the stream reported {self.error.get('type')!r}: {self.error.get('message')}")


def error_body(kind: str, message: str) -> JsonObject:
    """Give an error in the shape the Messages API uses for every refusal, which the CLI understands."""
    return {"type": "error", "error": {"type": kind, "message": message}}


class SseParser:
    """Turns the bytes of a server-sent event stream into the JSON objects they carry, however they are cut.

    Accepts LF, CRLF and CR, several ``data`` lines per event, comments, a byte order mark and the ``[DONE]`` mark some
    gateways append. An event whose object lacks ``type`` takes the name of its ``event`` line.
    """

    def __init__(self, *, max_event_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._skip_line_feed = False
        self._first_line = True
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[JsonObject]:
        """Take the next bytes and give the events they complete, in order.

        Raises:
            MalformedStream: a line is no field, the text is no UTF-8, or the data is no JSON object with a type.
        """
        self._buffer += chunk
        events: list[JsonObject] = []
        for line in self._lines():
            if line:
                self._read_field(line)
            elif (event := self._close_event()) is not None:
                events.append(event)
        if len(self._buffer) + self._data_bytes > self._max_event_bytes:
            raise MalformedStream(f"one event is larger than {self._max_event_bytes} bytes; the sender is not a model")
        return events

    def _lines(self) -> Iterator[str]:
        start = 0
        try:
            while True:
                if self._skip_line_feed and start < len(self._buffer):
                    start += self._buffer[start] == 0x0A
                    self._skip_line_feed = False
                end = _LINE_END.search(self._buffer, max(start, self._scanned))
                if end is None:
                    break
                self._skip_line_feed = end.group() == b"\r"
                line = self._decode(bytes(self._buffer[start : end.start()]))
                start = end.end()
                yield line
        finally:
            del self._buffer[:start]
            self._scanned = len(self._buffer)

    def _decode(self, line: bytes) -> str:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedStream(f"a line is not UTF-8: {line[:80]!r}") from error

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_bytes += len(value)
        elif name == "event":
            self._name = value
        elif name and not _FIELD_NAME.match(name):
            raise MalformedStream(f"a line is no field of an event stream: {line[:80]!r}")

    def _close_event(self) -> JsonObject | None:
        name, text = self._name, "\n".join(self._data)
        self._name, self._data, self._data_bytes = "", [], 0
        if not text or text == "[DONE]":
            return None
        try:
            event = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise MalformedStream(f"the data of event {name!r} is not JSON: {text[:80]!r}") from error
        if not isinstance(event, dict):
            raise MalformedStream(f"the data of event {name!r} is no JSON object: {text[:80]!r}")
        if name:
            event.setdefault("type", name)
        if not isinstance(event.get("type"), str):
            raise MalformedStream(f"an event names no type: {text[:80]!r}")
        return event


@dataclass
class _OpenBlock:
    """A content block while its deltas arrive."""

    block: JsonObject
    """The block so far, without the texts that still grow."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """The pieces of each growing text; joined once at the end, since a long answer comes in very many."""
    closed: bool = False
    """Whether its end was seen."""

    def grow(self, name: str, piece: object) -> None:
        """Add a piece to one of the texts."""
        if not isinstance(piece, str):
            raise TypeError(f"expected text, got {type(piece).__name__}")
        self.texts.setdefault(name, []).append(piece)

    def close(self) -> str:
        """Put the texts into the block and give the text of the tool input, empty if there was none."""
        self.closed = True
        tool_input = "".join(self.texts.pop(_PARTIAL_JSON, ()))
        for name, pieces in self.texts.items():
            self.block[name] = (self.block.get(name) or "") + "".join(pieces)
        return tool_input


class MessageAssembler:
    """Builds the final Messages API message from the events of its stream.

    Unknown event types are ignored, as the API asks of its clients; unknown block types, delta types and fields are
    kept. Usage is what ``message_start`` said, overwritten by what ``message_delta`` says.
    """

    def __init__(self) -> None:
        self._message: JsonObject | None = None
        self._blocks: dict[int, _OpenBlock] = {}
        self._complete = False
        self._problems: list[str] = []

    @property
    def usage(self) -> JsonObject | None:
        """Usage as far as it was reported; a stream that breaks has cost something too."""
        return None if self._message is None else deepcopy(self._message.get("usage"))

    @property
    def complete(self) -> bool:
        """Whether ``message_stop`` was seen."""
        return self._complete

    @property
    def problems(self) -> tuple[str, ...]:
        """What was kept although it is not as it should be, one sentence each."""
        return tuple(self._problems)

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take the next event.

        Raises:
            MalformedStream: the event has not the shape of its type.
            DisorderedStream: the event cannot come here.
            StreamedError: the event is an ``error``.
        """
        kind = event.get("type")
        try:
            self._take(kind, event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedStream(f"event {kind!r} has not the shape of its type ({error!r})") from error

    def message(self) -> JsonObject:
        """Give the assembled message, once.

        Raises:
            IncompleteMessage: the stream has not ended properly.
        """
        if self._message is None or not self._complete:
            raise IncompleteMessage("the stream ended before message_stop; ask the model again")
        return {**self._message, "content": [self._blocks[index].block for index in sorted(self._blocks)]}

    def _take(self, kind: object, event: Mapping[str, Any]) -> None:
        if kind == "error":
            raise StreamedError(event["error"])
        if kind == "message_start":
            self._start(event["message"])
        elif kind == "content_block_start":
            self._start_block(_index(event), event["content_block"])
        elif kind == "content_block_delta":
            self._extend(self._open_block(_index(event)), event["delta"])
        elif kind == "content_block_stop":
            self._stop_block(_index(event))
        elif kind == "message_delta":
            self._finish(event)
        elif kind == "message_stop":
            self._stop()

    def _start(self, message: Mapping[str, Any]) -> None:
        if self._message is not None:
            raise DisorderedStream("a second message_start came in one stream")
        self._message = deepcopy(dict(message))

    def _started_message(self) -> JsonObject:
        if self._message is None or self._complete:
            raise DisorderedStream("an event came before message_start or after message_stop")
        return self._message

    def _start_block(self, index: int, block: Mapping[str, Any]) -> None:
        self._started_message()
        if index in self._blocks:
            raise DisorderedStream(f"content block {index} was started twice")
        self._blocks[index] = _OpenBlock(deepcopy(dict(block)))

    def _open_block(self, index: int) -> _OpenBlock:
        self._started_message()
        open_block = self._blocks.get(index)
        if open_block is None or open_block.closed:
            raise DisorderedStream(f"content block {index} is not open")
        return open_block

    def _extend(self, open_block: _OpenBlock, delta: Mapping[str, Any]) -> None:
        block, rest = open_block.block, {key: value for key, value in delta.items() if key != "type"}
        kind = delta["type"]
        if kind in _TEXT_OF_DELTA:
            open_block.grow(_TEXT_OF_DELTA[kind], rest.pop(_TEXT_OF_DELTA[kind]))
        elif kind == "signature_delta":
            block["signature"] = rest.pop("signature")  # comes whole; a later one replaces it
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), rest.pop("citation")]
        for name, value in rest.items():
            block[name] = _grown(block.get(name), value)

    def _stop_block(self, index: int) -> None:
        open_block = self._open_block(index)
        text = open_block.close()
        if not text:
            return
        try:
            tool_input = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            tool_input = None
        if isinstance(tool_input, dict):
            open_block.block["input"] = tool_input
            return
        open_block.block["input"] = {}
        open_block.block[UNFINISHED_INPUT] = text
        self._problems.append(f"the input of content block {index} is not a JSON object; its text was kept")

    def _finish(self, event: Mapping[str, Any]) -> None:
        message = self._started_message()
        message.update(deepcopy(dict(event["delta"])))
        message.update({name: deepcopy(value) for name, value in event.items() if name not in _READ_APART})
        usage = message.setdefault("usage", {})
        for name, value in (event.get("usage") or {}).items():
            # null means "nothing new to say" in this event, not "unknown after all"
            if value is not None or name not in usage:
                usage[name] = deepcopy(value)

    def _stop(self) -> None:
        self._started_message()
        unclosed = [index for index, open_block in self._blocks.items() if not open_block.closed]
        if unclosed:
            raise DisorderedStream(f"message_stop came while content blocks {unclosed} were open")
        self._complete = True


def message_to_sse(message: Mapping[str, Any], *, delta_chars: int = 16_384) -> Iterator[bytes]:
    """Play a finished message as the event stream the CLI expects, one event per item.

    Args:
        message: a message of the Messages API, with id, role, model, content, stop_reason, stop_sequence and usage.
        delta_chars: the longest text of one delta; the SDK reads lines of limited length, so deltas stay short.
    """
    usage = message.get("usage") or {"input_tokens": 0, "output_tokens": 0}
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opening["usage"] = {**usage, "output_tokens": min(1, int(usage.get("output_tokens") or 0))}
    yield encode_event({"type": "message_start", "message": opening})
    yield encode_event({"type": "ping"})
    for index, block in enumerate(message.get("content") or ()):
        start, deltas = _split_block(block, delta_chars)
        yield encode_event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield encode_event({"type": "content_block_delta", "index": index, "delta": delta})
        yield encode_event({"type": "content_block_stop", "index": index})
    late = {name: message[name] for name in _LATE_DELTA_FIELDS if name in message}
    delta = {"stop_reason": None, "stop_sequence": None, **late}
    extra = {name: message[name] for name in _LATE_EVENT_FIELDS if name in message}
    yield encode_event({"type": "message_delta", "delta": delta, "usage": usage, **extra})
    yield encode_event({"type": "message_stop"})


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Write one event as it goes over the wire; ASCII only, so that no text can break a line or the encoding."""
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode("ascii")


def _split_block(block: Mapping[str, Any], delta_chars: int) -> tuple[JsonObject, list[JsonObject]]:
    """Separate a block into what its start carries and the deltas that follow; unknown kinds travel whole."""
    kind, start = block.get("type"), dict(block)
    deltas: list[JsonObject] = []
    if kind == "text" and isinstance(block.get("text"), str):
        start["text"] = ""
        deltas += [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], delta_chars)]
        if isinstance(block.get("citations"), list):
            start["citations"] = []
            deltas += [{"type": "citations_delta", "citation": citation} for citation in block["citations"]]
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        start["thinking"] = ""
        deltas += [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"], delta_chars)]
        if isinstance(block.get("signature"), str):
            start["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif isinstance(block.get("input"), dict):
        start["input"] = {}
        text = start.pop(UNFINISHED_INPUT, None) or json.dumps(block["input"], ensure_ascii=False)
        deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(text, delta_chars)]
    return start, deltas


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _grown(known: Any, value: Any) -> Any:
    """Join a field this module does not know to what came before: texts and lists grow, the rest is replaced."""
    if isinstance(known, str) and isinstance(value, str):
        return known + value
    if isinstance(known, list) and isinstance(value, list):
        return [*known, *deepcopy(value)]
    return deepcopy(value)


def _index(event: Mapping[str, Any]) -> int:
    index = event["index"]
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"index {index!r} is no block number")
    return index


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
