"""Events can always be written, whatever the agent's CLI has cut in half."""

from typing import Any

import pytest
from pydantic import ValidationError

from workflow_schemas.events import Text, ToolEnd, ToolStart, event_adapter
from workflow_schemas.manifest import RunManifest
from workflow_schemas.usage import Usage


def test_half_a_character_becomes_a_mark() -> None:
    """JavaScript cuts texts between the two halves of an emoji; UTF-8 cannot hold one half."""
    assert Text(content="cut \ud83d").content == "cut \ufffd"
    assert ToolEnd(success=True, output="\udc00").output == "\ufffd"
    assert Text(content="whole 🙂").content == "whole 🙂"


def test_arguments_can_be_written_at_any_depth() -> None:
    deep: Any = "\ud83d"
    for _ in range(5000):
        deep = [deep]
    event = ToolStart(name="x", input={"a\ud83d": [{"b": "\ud83d"}], "deep": deep})
    assert event_adapter.validate_json(event_adapter.dump_json(event)) == event


def test_a_manifest_can_always_be_written() -> None:
    manifest = RunManifest(run_id="r", turn_number=1, end_reason="completed", answer="\ud83d", remarks=("\ud83d",))
    assert RunManifest.model_validate_json(manifest.model_dump_json()) == manifest


def test_an_event_of_no_known_type_is_refused() -> None:
    with pytest.raises(ValidationError):
        event_adapter.validate_python({"type": "surprise"})


def test_usage_adds_up() -> None:
    one = Usage(model_calls=1, input_tokens=2, cache_read_tokens=3, cache_write_tokens=4, output_tokens=5)
    both = one.plus(one)
    assert (both.prompt_tokens, both.total_tokens, both.model_calls) == (18, 28, 2)
