"""How each provider wants a Messages request written down: where the model's name goes, the version, the beta names.

The clients of the official package know this too. They copy the whole body for it and encode it again on the event
loop, which a long conversation makes felt; here it happens once, beside the other changes, and a test holds the result
against theirs.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from orchestration_service.brokers.call import JsonObject
from orchestration_service.brokers.route import ModelRoute

_BEDROCK_VERSION = "bedrock-2023-05-31"
_VERTEX_VERSION = "vertex-2023-10-16"
_AWS_STREAM = "application/vnd.amazon.eventstream"


@dataclass(frozen=True)
class Form:
    """A request in a provider's words."""

    path: str
    """Path below the route's address."""
    body: JsonObject
    """JSON body."""
    headers: dict[str, str]
    """Headers of the form, beta names included."""
    is_versioned: bool = False
    """Whether the API's version is a header."""


def spoken(route: ModelRoute, body: JsonObject, betas: Sequence[str], *, streams: bool, path: str) -> Form:
    """Write a request down for the route's provider.

    Args:
        route: whose provider it is.
        body: the request as Anthropic takes it; is changed.
        betas: the beta names to send.
        streams: whether a message is asked for; otherwise, the count of its tokens.
        path: where Anthropic takes it.
    """
    headers = {"Accept": "text/event-stream" if streams else "application/json", "Content-Type": "application/json"}
    if route.provider == "bedrock":
        return _bedrock(route, body, betas, headers, streams)
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    if route.provider == "vertex":
        return _vertex(route, body, betas, headers, streams)
    return Form(path, body, headers, is_versioned=True)


def _bedrock(route: ModelRoute, body: JsonObject, betas: Sequence[str], headers: dict[str, str], streams: bool) -> Form:
    body.pop("model")
    body.pop("stream", None)
    body["anthropic_version"] = _BEDROCK_VERSION
    if betas:
        body["anthropic_beta"] = list(betas)
    model = f"/model/{quote(route.model, safe=':')}"
    if streams:
        return Form(f"{model}/invoke-with-response-stream", body, {**headers, "Accept": _AWS_STREAM})
    # counting takes a whole request as it would be invoked, which has to have a limit
    asked = json.dumps({"max_tokens": 1, **body}).encode()
    return Form(f"{model}/count-tokens", {"input": {"invokeModel": {"body": base64.b64encode(asked).decode()}}}, headers)


def _vertex(route: ModelRoute, body: JsonObject, betas: Sequence[str], headers: dict[str, str], streams: bool) -> Form:
    models = f"/projects/{route.google_project}/locations/{route.region}/publishers/anthropic/models"
    body["anthropic_version"] = _VERTEX_VERSION
    if betas:  # some names are heeded in the header only, some in the body only
        body["anthropic_beta"] = list(betas)
    if not streams:
        return Form(f"{models}/count-tokens:rawPredict", body, headers)
    model = quote(body.pop("model"), safe="@")
    return Form(f"{models}/{model}:streamRawPredict", body, headers)
