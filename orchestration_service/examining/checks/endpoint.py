"""The endpoint configuration of the service, by which the platform finds and calls it (contract: orchestration §1.2, §1.3)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from deployment_templates.resources.configuration import SERVICES
from deployment_templates.resources.models import SERVICE_ENDPOINT
from orchestration_service.examining.facts import Facts
from orchestration_service.examining.finding import Finding, Kind

_PORTAL = "in the Management Portal: API Endpoints, {endpoint}, "
CATEGORY = Kind(
    "endpoint-category",
    "endpoint",
    "The endpoint has another category than ExternalOrchestration.",
    "The Orchestration API lists orchestrators by this category when it starts; ours is not among them, and requests fail.",
    f"Set the category to ExternalOrchestration ({_PORTAL}Category; or {{overwrite}}), then restart the Orchestration API.",
)
KEY_PREFIX = Kind(
    "endpoint-key-prefix",
    "endpoint",
    "The name of the endpoint's key does not begin with FoundationaLLM:APIEndpoints.",
    "That prefix is a filter: without it the Orchestration API leaves the endpoint out, and tells nobody.",
    "Set api_key_configuration_name to {key} ({overwrite}), then restart the Orchestration API.",
)
KEY_NAME = Kind(
    "endpoint-key-name",
    "endpoint",
    "The endpoint names another key than the service's.",
    "The Orchestration API then sends a key that the service does not know, and is answered 401.",
    "Set api_key_configuration_name to {key} ({overwrite}), then restart the Orchestration API.",
)
AUTHENTICATION = Kind(
    "endpoint-authentication",
    "endpoint",
    "The endpoint's authentication type is not APIKey.",
    "An external orchestrator is listed by the name of its key; with another type there is none, or calls fail before they are sent.",
    f"Set the authentication type to APIKey ({_PORTAL}Authentication Type; or {{overwrite}}), then restart the Orchestration API.",
)
HEADER = Kind(
    "endpoint-header",
    "endpoint",
    "The key is not sent in X-API-KEY, or with a word before it.",
    "The service looks for the bare key in X-API-KEY, and answers 401.",
    "Set api_key_header_name to X-API-KEY and leave api_key_prefix out: {overwrite}",
)
ADDRESS = Kind(
    "endpoint-address",
    "endpoint",
    "The endpoint's address is more than scheme and host.",
    "The platform joins paths in two ways, and a path in the address is lost in one of them: turns start and their results are never "
    "found.",
    "Set the address to {url} ({overwrite}).",
)
ELSEWHERE = Kind(
    "endpoint-elsewhere",
    "endpoint",
    "The endpoint leads to another address than the profile's.",
    "The platform calls something else than what was installed and looked at here.",
    "Set the address to {url} ({overwrite}), or service.url in {profile} to what it is.",
)
TIMEOUT = Kind(
    "endpoint-timeout",
    "endpoint",
    "The endpoint's timeout_seconds is out of range.",
    "It bounds every call, and the whole of a synchronous completion; the platform gives up on any turn at 1800 seconds, and its own "
    "callers at 2400.",
    "Set timeout_seconds to {seconds} ({overwrite}).",
)
REDIRECTED = Kind(
    "endpoint-redirected",
    "endpoint",
    "The endpoint leads somewhere else for single users.",
    "An exception left over from development sends those users' work, and the key, to another address.",
    f"Remove or disable the exception for {{users}} ({_PORTAL}URL Exceptions).",
)
KINDS: Sequence[Kind] = (CATEGORY, KEY_PREFIX, KEY_NAME, AUTHENTICATION, HEADER, ADDRESS, ELSEWHERE, TIMEOUT, REDIRECTED)


def found(facts: Facts) -> Iterator[Finding]:
    """The Orchestration API lists it."""
    endpoint = facts.endpoint
    if endpoint is None:
        return
    names = _names(facts)
    if endpoint.get("category") != "ExternalOrchestration":
        yield CATEGORY.seen(f"The category is {endpoint.get('category')!r}.", **names)
    key = str(_parameters(endpoint).get("api_key_configuration_name") or "")
    if not key.startswith(f"{SERVICES}:"):
        yield KEY_PREFIX.seen(f"api_key_configuration_name is {key!r}.", **names)
    elif key != names["key"]:
        yield KEY_NAME.seen(f"api_key_configuration_name is {key!r}.", **names)


def opened(facts: Facts) -> Iterator[Finding]:
    """It is called with the key, where the service looks for it."""
    endpoint = facts.endpoint
    if endpoint is None:
        return
    if endpoint.get("authentication_type") != "APIKey":
        yield AUTHENTICATION.seen(f"The authentication type is {endpoint.get('authentication_type')!r}.", **_names(facts))
    header, word = (_parameters(endpoint).get(f"api_key_{part}") for part in ("header_name", "prefix"))
    if str(header).casefold() != "x-api-key" or word:
        yield HEADER.seen(f"The key is sent in {header!r}{f', after the word {word!r}' if word else ''}.", **_names(facts))


def addressed(facts: Facts) -> Iterator[Finding]:
    """It leads to the service, for everybody."""
    endpoint = facts.endpoint
    if endpoint is None:
        return
    names, url = _names(facts), str(endpoint.get("url") or "")
    if not re.fullmatch(r"https?://[^/?#@\s]+", url):
        yield ADDRESS.seen(f"The address is {url!r}.", **names)
    elif url.casefold() != facts.profile.service.url.casefold():
        yield ELSEWHERE.seen(f"The address is {url!r}, in the profile {facts.profile.service.url!r}.", **names)
    others = [one for one in endpoint.get("url_exceptions") or () if isinstance(one, dict) and one.get("enabled")]
    if others:
        users = ", ".join(str(one.get("user_principal_name")) for one in others)
        yield REDIRECTED.seen(f"Calls for {users} go to {', '.join(repr(one.get('url')) for one in others)}.", **names, users=users)


def patient(facts: Facts) -> Iterator[Finding]:
    """It is given the time that the profile says."""
    endpoint = facts.endpoint
    if endpoint is None:
        return
    seconds, wanted = endpoint.get("timeout_seconds"), facts.profile.service.timeout_seconds
    if not isinstance(seconds, int) or seconds < wanted or seconds > max(wanted, 2400):
        yield TIMEOUT.seen(f"timeout_seconds is {seconds!r}.", **_names(facts))


def _parameters(endpoint: Any) -> dict[str, Any]:
    return dict(endpoint.get("authentication_parameters") or {})


def _names(facts: Facts) -> dict[str, str]:
    return {
        **facts.commands,
        "endpoint": SERVICE_ENDPOINT,
        "key": facts.wanted.secrets[0].key,
        "url": facts.profile.service.url,
        "seconds": str(facts.profile.service.timeout_seconds),
    }
