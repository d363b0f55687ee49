"""What a refusal names, read from sentences that providers were seen to write."""

import json
from typing import Any

import pytest

from orchestration_service.brokers.omissions import NOTHING, Omissions, Part, refused_parts

BETAS = ("effort-2025-11-24", "web-search-2025-03-05", "interleaved-thinking-2025-05-14")
BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "context_management": {"edits": []},
    "output_config": {"effort": "medium"},
    "thinking": {"type": "adaptive", "display": "updates"},
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "scope": "global"}}],
    "tools": [{"name": "Read", "input_schema": {}, "defer_loading": True, "cache_control": {"type": "ephemeral", "scope": "global"}}],
    "messages": [
        {
            "role": "assistant",
            "output_config": {"effort": "low"},
            "content": [
                {"type": "tool_use", "id": "t", "name": "x", "input": {"scope": 1, "cache_control": {"scope": 2}}},
                {"type": "text", "text": "t", "cache_control": {"type": "ephemeral", "scope": "global"}},
            ],
        }
    ],
}


def refused(message: str, fixed: tuple[str, ...] = ()) -> Omissions | None:
    """Read a refusal of the body."""
    return refused_parts(message, BODY, BETAS, fixed)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("`temperature` is deprecated for this model.", Omissions(frozenset({"temperature"})), id="deprecated"),
        pytest.param("context_management: Extra inputs are not permitted", Omissions(frozenset({"context_management"})), id="extra"),
        pytest.param(
            '{"message":"context_management: Extra inputs are not permitted"}', Omissions(frozenset({"context_management"})), id="wrapped"
        ),
        pytest.param("Unsupported parameter: 'top_p'", Omissions(frozenset({"top_p"})), id="unsupported"),
        pytest.param("temperature: range: 0..1", Omissions(frozenset({"temperature"}), lasts=False), id="only_now"),
        pytest.param(
            "`temperature` may only be set to 1 when thinking is enabled", Omissions(frozenset({"temperature"}), lasts=False), id="thinking"
        ),
        pytest.param(
            "Unexpected value(s) `effort-2025-11-24`, `web-search-2025-03-05`, `stranger` for the `anthropic-beta` header. Please consult",
            Omissions(betas=frozenset(BETAS[:2])),
            id="betas",
        ),
        pytest.param("invalid beta flag", Omissions(all_betas=True), id="some_beta"),
        pytest.param(
            "messages.0.output_config: Extra inputs are not permitted",
            Omissions(parts=frozenset({Part("messages", "item", "output_config")})),
            id="in_message",
        ),
        pytest.param(
            "messages.0.content.1.text.cache_control.ephemeral.scope: Extra inputs are not permitted",
            Omissions(parts=frozenset({Part("messages", "cache_control", "scope")})),
            id="in_cache_control",
        ),
        pytest.param(
            "Malformed input request: #: extraneous key [context_management] is not permitted, please reformat your input and try again.",
            Omissions(frozenset({"context_management"})),
            id="extraneous",
        ),
        pytest.param(
            "Malformed input request: #/messages/0: extraneous key [output_config] is not permitted",
            Omissions(parts=frozenset({Part("messages", "item", "output_config")})),
            id="extraneous_inside",
        ),
        pytest.param("tools.0.custom.input_schema: Extra inputs are not permitted", None, id="needed_inside"),
        pytest.param("messages: Extra inputs are not permitted", None, id="needed"),
        pytest.param("top_k: Extra inputs are not permitted", None, id="not_sent"),
        pytest.param("messages.0: the temperature of the water is not supported here", None, id="talk"),
        pytest.param("max_tokens: 5 > 4, which is the maximum", None, id="something_else"),
    ],
)
def test_what_a_refusal_names(message: str, expected: Omissions | None) -> None:
    assert refused(message) == expected


@pytest.mark.parametrize(("fixed", "goes"), [((), "top_p"), (("top_p",), "temperature"), (("temperature",), "top_p")])
def test_of_two_that_do_not_go_together_the_administrators_stays(fixed: tuple[str, ...], goes: str) -> None:
    message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    assert refused(message, fixed) == Omissions(frozenset({goes}), lasts=False)


def test_keys_go_wherever_the_api_reads_them_and_stay_in_what_is_free() -> None:
    body = json.loads(json.dumps(BODY))
    names = ("scope", "defer_loading", "output_config", "display")
    paths = (
        "system.0.cache_control.ephemeral.scope",
        "messages.0.content.1.text.cache_control.ephemeral.scope",
        "tools.0.custom.defer_loading",
        "messages.0.output_config",
        "thinking.adaptive.display",
    )
    omissions = NOTHING
    for path in paths:
        more = refused(f"{path}: Extra inputs are not permitted")
        assert more is not None
        omissions |= more
    remarks = omissions.leave_out(body)
    assert len(remarks) == len(paths)
    tool_use, text = body["messages"][0]["content"]
    assert tool_use == BODY["messages"][0]["content"][0]
    assert text["cache_control"] == {"type": "ephemeral"}
    left = json.dumps([body["system"], body["messages"][0].keys() - {"content"}, body["thinking"]], default=sorted)
    assert not [name for name in names if name in left]
    assert body["tools"][0]["cache_control"]["scope"] == "global"  # nobody minded that one
    assert body["output_config"] == {"effort": "medium"}


def test_beta_names_are_taken_out_and_told() -> None:
    kept, remarks = Omissions(betas=frozenset(BETAS[:1])).allowed(BETAS)
    assert (kept, len(remarks)) == (list(BETAS[1:]), 1)
    assert Omissions(all_betas=True).allowed(BETAS)[0] == []
    assert NOTHING.allowed(BETAS) == (list(BETAS), ())
