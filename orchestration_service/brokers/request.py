"""Turns what the CLI sent into what the upstream gets: another model, the administrator's parameters, always a stream.

A stream is asked for even if the CLI wants one piece: bytes that keep coming tell a slow model from a dead one, and
they are the live text for the user.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestration_service.brokers.call import JsonObject, ModelCall
from orchestration_service.brokers.dialect import spoken
from orchestration_service.brokers.gate import refusal
from orchestration_service.brokers.omissions import NOTHING, Omissions
from orchestration_service.brokers.route import ModelParameters, ModelRoute
from workflow_schemas.model_stream import error_body

_PATHS: Mapping[str, bool] = {"/v1/messages": True, "/v1/messages/count_tokens": False}
_HEADER_VALUE = re.compile(r"[A-Za-z0-9._,\- ]{1,4000}\Z")
_LEAST_THINKING = 1024
_MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class UpstreamRequest:
    """A request as it goes to the upstream; the proof of who asks is added when it is sent."""

    path: str
    """Path below the route's address."""
    headers: dict[str, str]
    """Headers, those of the route included; never shown."""
    content: bytes
    """JSON body."""
    streams: bool
    """Whether the answer is an event stream."""
    remarks: tuple[str, ...] = ()
    """What was changed besides model and stream."""
    fields: frozenset[str] = frozenset()
    """Names of the body's fields."""
    betas: tuple[str, ...] = ()
    """Beta names that are sent."""

    def __repr__(self) -> str:
        return f"UpstreamRequest(content of {len(self.content)} bytes)"


@dataclass(frozen=True)
class Refusal:
    """A request that is not sent."""

    status: int
    """Status to tell the CLI."""
    error: JsonObject
    """Error body to tell the CLI."""


def prepare(route: ModelRoute, call: ModelCall, omissions: Omissions = NOTHING) -> UpstreamRequest | Refusal:
    """Check a call from the sandbox and give the request for the upstream.

    Args:
        route: where it goes.
        call: what came out of the sandbox.
        omissions: what the upstream is known to refuse.
    """
    path, _, query = call.path.partition("?")
    if path not in _PATHS or query not in ("", "beta=true"):
        return _refuse(404, f"the path {call.path[:80]!r} is not offered; there are {sorted(_PATHS)}")
    for value in (call.anthropic_version, call.anthropic_beta or "none"):
        if not _HEADER_VALUE.match(value):
            return _refuse(400, "an anthropic header has characters that no version has")
    if len(call.body) > _MAX_BODY_BYTES:
        return _refuse(413, f"the request is larger than {_MAX_BODY_BYTES} bytes")
    try:
        body = json.loads(call.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return _refuse(400, "the body of a model call must be a JSON object")
    reason = refusal(body, allow_server_tools=route.allow_server_tools)
    if reason is not None:
        return _refuse(403, reason)
    streams = _PATHS[path]
    body["model"] = route.model
    remarks = _apply(route.parameters, body) if streams else ()
    if streams:
        body["stream"] = True
    remarks += omissions.leave_out(body)
    betas, dropped = omissions.allowed(_betas(route, call))
    form = spoken(route, body, betas, streams=streams, path=f"{path}?{query}" if query and route.forward_betas else path)
    headers = {**form.headers, "anthropic-version": call.anthropic_version} if form.is_versioned else form.headers
    content = json.dumps(form.body).encode()
    headers.update(route.extra_headers())
    return UpstreamRequest(form.path, headers, content, streams, remarks + dropped, frozenset(body), tuple(betas))


def _betas(route: ModelRoute, call: ModelCall) -> list[str]:
    if not call.anthropic_beta or not route.forward_betas:
        return []
    return [name for name in (part.strip() for part in call.anthropic_beta.split(",")) if name]


def _apply(parameters: ModelParameters, body: JsonObject) -> tuple[str, ...]:
    remarks: list[str] = []
    thinking = body.get("thinking")
    thinks = isinstance(thinking, dict) and thinking.get("type") not in (None, "disabled")
    for name in ("temperature", "top_p", "top_k"):
        value = getattr(parameters, name)
        if value is None:
            continue
        if thinks:  # the API refuses sampling parameters together with thinking
            remarks.append(f"{name} of the model was left out because the request uses thinking")
        elif name == "top_p" and parameters.temperature is not None:  # newer models take one of the two
            body.pop("top_p", None)
            remarks.append("top_p of the model was left out because temperature is set")
        else:
            body[name] = value
    asked = body.get("max_tokens")
    cap = parameters.max_tokens
    if cap is not None and isinstance(asked, int) and asked > cap:
        body["max_tokens"] = cap
        _fit_thinking(body, thinking, cap)
        remarks.append(f"max_tokens was lowered from {asked} to {cap}")
    return tuple(remarks)


def _fit_thinking(body: JsonObject, thinking: Any, cap: int) -> None:
    """The budget for thinking has to be below max_tokens, and cannot be less than the API's minimum."""
    if not isinstance(thinking, dict) or not isinstance(thinking.get("budget_tokens"), int):
        return
    if cap <= _LEAST_THINKING:
        body["thinking"] = {"type": "disabled"}
    elif thinking["budget_tokens"] >= cap:
        body["thinking"] = {**thinking, "budget_tokens": max(_LEAST_THINKING, cap // 2)}


def _refuse(status: int, message: str) -> Refusal:
    kinds = {403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
    return Refusal(status, error_body(kinds.get(status, "invalid_request_error"), message))
