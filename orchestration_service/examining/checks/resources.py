"""The files of resources and the lists beside them, against what the platform makes of them (contract: portals §1.2, §1.3)."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployment_templates.resources.members import PlatformResource
from deployment_templates.values import AGENTS, CONFIGURATION
from orchestration_service.deploying.leaves import leaves_of
from orchestration_service.examining.facts import Facts, as_object, each, known
from orchestration_service.examining.finding import Finding, Kind

_WORDS: Mapping[str, str] = {
    "apiEndpointConfigurations": "endpoint",
    "aiModels": "model",
    "prompts": "prompt",
    "workflows": "workflow",
    "tools": "tool",
    "agents": "agent",
}
_KNOWN: Mapping[str, frozenset[str]] = {
    "FoundationaLLM.Agent": frozenset({"generic-agent", "basic", "workflow", "tool", "agent-template"}),
    "FoundationaLLM.Prompt": frozenset({"multipart"}),
    "FoundationaLLM.AIModel": frozenset({"completion", "embedding", "image-generation", "realtime-speech"}),
    "FoundationaLLM.Configuration": frozenset({"api-endpoint"}),
}
"""Types a provider's list may name."""
_NEEDED: Sequence[str] = ("GatewayAPI", "ContextAPI")
"""Endpoints of the platform itself that go along with every completion."""

MISSING = Kind(
    "resource-missing",
    "resources",
    "A resource of the installation is not there.",
    "Whatever refers to it fails: the agent, or every completion.",
    "Install it again: {apply}",
)
FILE_MISSING = Kind(
    "resource-file-missing",
    "resources",
    "A resource is in its provider's list, and has no file.",
    "The platform fails over it when it loads the resource or lists all of its kind, and cannot write it either.",
    "Take the line {name} out of {list}, restart the Management API, then: {apply}",
)
BROKEN = Kind(
    "resource-broken",
    "resources",
    "The file of a resource is no JSON object.",
    "The platform fails over it when it loads the resource, often together with everything in the same list.",
    "Take the file {path} out of the container of resources and its line out of {list}, restart the Management API, then: {apply}",
)
TYPE_NOT_FIRST = Kind(
    "type-not-first",
    "resources",
    "A resource, or a workflow within one, does not begin with `type`.",
    "The platform's JSON reader has to see the type first; it fails over the resource otherwise.",
    "Edit {path} in the container of resources so that `type` comes first, in the workflow too (az storage blob download, then upload). "
    "Then reset the provider's cache or restart the Management, Core and Orchestration API.",
)
REFERENCE_MISSING = Kind(
    "reference-missing",
    "resources",
    "A resource has a file and no line in its provider's list, or one that is marked as deleted.",
    "What is not listed does not exist for the platform. Uploading a list over one in use drops what was added since.",
    "Put the line {name} back into {list}: {apply}",
)
REFERENCE_TYPE = Kind(
    "reference-type",
    "resources",
    "A line of a list has a type that the provider does not know.",
    "The platform fails over the whole list: no agent, workflow or tool is shown to anybody.",
    "Correct the `Type` of {name} in {list} to one of {types}, then reset the provider's cache or restart the Management, Core and "
    "Orchestration API.",
)
NAME_SHARED = Kind(
    "name-shared",
    "resources",
    "Two resources of a provider have one name.",
    "Agents, workflows, tools and templates share names and files: one of them is loaded as the other.",
    "Choose another name below [names] in {profile}, or remove the other resource named {name}, then: {apply}",
)
STALE = Kind(
    "cache-stale",
    "resources",
    "The platform does not show what is in the container.",
    "Its services remember resources for an hour and lists for longer; what was written past them is not seen.",
    "{apply} resets the cache of {provider}; or restart the Management, Core and Orchestration API.",
)
PLATFORM_ENDPOINT = Kind(
    "platform-endpoint-missing",
    "resources",
    "An endpoint of the platform itself is missing.",
    "GatewayAPI and ContextAPI go along with every request to an orchestrator: without one of them every completion fails.",
    "Restore the endpoint configuration {name} from the platform's own templates (FoundationaLLM.Configuration/{name}.json and its "
    "line in the list).",
)
KINDS: Sequence[Kind] = (
    MISSING,
    FILE_MISSING,
    BROKEN,
    TYPE_NOT_FIRST,
    REFERENCE_MISSING,
    REFERENCE_TYPE,
    NAME_SHARED,
    STALE,
    PLATFORM_ENDPOINT,
)


def there(facts: Facts) -> Iterator[Finding]:
    """Each resource has a file that the platform can read."""

    def judged(member: PlatformResource) -> Iterator[Finding]:
        text, names = known(facts.blobs[member.blob_path]), {**_names(facts, member), "path": member.blob_path}
        if text is None and facts.is_listed(member.provider, member.name):
            yield FILE_MISSING.seen(f"The file {member.blob_path!r} is not there.", **names)
        elif text is None:
            yield MISSING.seen(f"The {words(member)} is not there.", **names)
        elif (resource := as_object(text)) is None:
            yield BROKEN.seen(f"{member.blob_path!r} is no JSON object.", **names)
        elif late := [place for place in _polymorphic(resource) if next(iter(place[1]), None) != "type"]:
            yield TYPE_NOT_FIRST.seen(f"{late[0][0]} of the {words(member)} begins with {next(iter(late[0][1]), None)!r}.", **names)

    return each(facts.wanted.resources, judged)


def listed(facts: Facts) -> Iterator[Finding]:
    """Each resource has its own line in its provider's list."""

    def judged(member: PlatformResource) -> Iterator[Finding]:
        if known(facts.blobs[member.blob_path]) is None:
            return
        lines = [line for line in facts.lines(member.provider) if line.get("Name") == member.name]
        names = _names(facts, member)
        if not lines or all(line.get("Deleted") for line in lines):
            told = "marked as deleted" if lines else "missing"
            yield REFERENCE_MISSING.seen(f"The line of the {words(member)} in {member.reference_path!r} is {told}.", **names)
        elif any(
            line.get("Type") != member.reference_type and line.get("Type") in _KNOWN[member.provider] and not line.get("Deleted")
            for line in lines
        ):
            kinds = ", ".join(sorted(str(line.get("Type")) for line in lines))
            yield NAME_SHARED.seen(f"{member.name!r} is in {member.reference_path!r} with the type {kinds}.", **names)

    return each(facts.wanted.resources, judged)


def lists(facts: Facts) -> Iterator[Finding]:
    """No line of a list stops the whole list, and none is there twice."""

    def judged(provider: str) -> Iterator[Finding]:
        lines = facts.lines(provider)
        names = {**facts.commands, "list": f"{provider}/_resource-references.json", "types": ", ".join(sorted(_KNOWN[provider]))}
        for line in lines:
            if line.get("Type") not in _KNOWN[provider]:
                found = f"The line {line.get('Name')!r} in the list of {provider} has the type {line.get('Type')!r}."
                yield Finding(
                    REFERENCE_TYPE, found, REFERENCE_TYPE.seen(found, **names, name=str(line.get("Name"))).fix, _listings(facts, provider)
                )
        for name, count in Counter(str(line.get("Name")) for line in lines if not line.get("Deleted")).items():
            if count > 1:
                yield NAME_SHARED.seen(f"{name!r} is {count} times in the list of {provider}.", **names, name=name)

    return each(sorted(facts.lists), judged)


def shown(facts: Facts) -> Iterator[Finding]:
    """What was written past the Management API is shown by it."""
    late = [member for member in (*facts.wanted.seeded, *facts.wanted.agents) if _is_usable(facts, member) and not _is_shown(facts, member)]
    if late:
        told = ", ".join(words(member) for member in late)
        yield STALE.seen(f"The platform does not show these as they are: {told}.", **facts.commands, provider=late[0].provider)


def platform(facts: Facts) -> Iterator[Finding]:
    """The platform has the endpoints it needs for every completion."""
    for name in _NEEDED:
        if not facts.is_listed(CONFIGURATION, name):
            yield PLATFORM_ENDPOINT.seen(f"There is no endpoint configuration {name!r}.", name=name)


def words(member: PlatformResource) -> str:
    """Return what a resource is called."""
    return f"{_WORDS[member.path.rpartition('/')[2]]} {member.name!r}"


def _names(facts: Facts, member: PlatformResource) -> dict[str, str]:
    return {**facts.commands, "name": member.name, "list": member.reference_path}


def _polymorphic(resource: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    workflow = resource.get("workflow")
    return [("The file", resource), *([("The workflow", workflow)] if isinstance(workflow, dict) else [])]


def _listings(facts: Facts, provider: str) -> frozenset[str]:
    return frozenset(f"the Management API's list of {path}" for path in facts.listings if path.startswith(f"{provider}/"))


def _is_usable(facts: Facts, member: PlatformResource) -> bool:
    lines = [line for line in facts.lines(member.provider) if line.get("Name") == member.name and not line.get("Deleted")]
    return facts.wanted_resource(member) is not None and [line.get("Type") for line in lines] == [member.reference_type]


def _is_shown(facts: Facts, member: PlatformResource) -> bool:
    """Whether the listing has it; of an agent, into which the platform writes by itself, only that it is there."""
    listing = [one for one in known(facts.listings[member.path]) if one.get("name") == member.name]
    if not listing or member.path == AGENTS:
        return bool(listing)
    there = json.loads(str(known(facts.blobs[member.blob_path])))
    return leaves_of(there) == leaves_of(listing[0])
