"""Models and prompts that the agent leads to, and the keys behind them (contract: orchestration §5, trap 24)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from deployment_templates.values import AI_MODELS, PROMPTS
from orchestration_service.endpoint_routes import provider_of
from orchestration_service.errors import PlanRefused
from orchestration_service.examining.facts import Facts, path_of, tools_of, uses_of
from orchestration_service.examining.finding import Finding, Kind
from orchestration_service.platform_keys import is_model_key
from workflow_schemas.platform_request import EndpointConfiguration

_KEYED: Sequence[str] = ("api_key_configuration_name", "service_account_credentials", "access_key", "secret_key")

NO_MODEL = Kind(
    "main-model-missing",
    "models",
    "The agent has no main model, or more than one.",
    "The platform fails with a null reference before it calls anybody, even though Claude Code chooses its model itself.",
    "Give the agent {agent} exactly one resource with the role main_model: {overwrite}; or in the Management Portal: Agents, {agent}, "
    "Workflow, Main Model.",
)
NO_PROMPT = Kind(
    "main-prompt-missing",
    "models",
    "The agent has no main prompt, or more than one.",
    "The platform fails to look it up before it calls anybody.",
    "Give the agent {agent} exactly one resource with the role main_prompt: {overwrite}; or in the Management Portal: Agents, {agent}, "
    "Workflow, Main Prompt.",
)
UNRESOLVED = Kind(
    "use-unresolved",
    "models",
    "The agent's model or prompt, or the endpoint of its model, does not exist.",
    "The platform looks all of them up for each completion, and fails.",
    "Make {target}, or choose another one for {owner} in the Management Portal (Agents, Workflow; or Models, Endpoint).",
)
PROVIDER = Kind(
    "model-provider",
    "models",
    "Claude Code cannot call the provider of a model's endpoint.",
    "Every turn of the agent is refused with this sentence; the platform itself checks no provider.",
    "Set the provider (and the address) of the endpoint {endpoint} as the sentence says: {overwrite}",
)
KEY = Kind(
    "model-key",
    "models",
    "A model's endpoint has no key that the service can use.",
    "Requests carry names of keys only. The service looks up the ones of the form FoundationaLLM:APIEndpoints:NAME:Essentials:APIKey, "
    "NAME not "
    "ending in API, and calls the provider without a key where there is none.",
    "Set {parameter} of the endpoint {endpoint} to the name of an entry that exists, such as {key}: {overwrite}",
)
DEPLOYMENT = Kind(
    "model-name-missing",
    "models",
    "A model has no name at its provider.",
    "The provider is asked for a model without a name, and refuses.",
    "Set deployment_name of the model {model}: {overwrite}; or in the Management Portal: Models, {model}, Deployment Name.",
)
KINDS: Sequence[Kind] = (NO_MODEL, NO_PROMPT, UNRESOLVED, PROVIDER, KEY, DEPLOYMENT)


def roles(facts: Facts) -> Iterator[Finding]:
    """The agent has one main model and one main prompt, and everything it leads to exists."""
    agent = facts.agent
    if agent is None:
        return
    names, uses = {**facts.commands, "agent": facts.profile.names.agent}, uses_of(agent.get("workflow"))
    for role, kind in (("main_model", NO_MODEL), ("main_prompt", NO_PROMPT)):
        if (count := list(uses.values()).count(role)) != 1:
            yield kind.seen(f"{count or 'No'} resource{'s have' if count > 1 else ' has'} the role {role!r}.", **names)
    owned = {object_id for part in (agent.get("workflow"), *tools_of(agent)) for object_id in uses_of(part)}
    needed = sorted(one for one in owned if f"/{AI_MODELS}/" in one or f"/{PROMPTS}/" in one)
    yield from _unresolved(facts, needed, f"the agent {facts.profile.names.agent!r}")


def endpoints(facts: Facts) -> Iterator[Finding]:
    """Each model has a name, and an endpoint that the service can call."""
    for path, model in _models(facts):
        name = str(model.get("name") or path)
        if not str(model.get("deployment_name") or "").strip():
            yield DEPLOYMENT.seen(f"The model {name!r} has no deployment_name.", **facts.commands, model=name)
        yield from _unresolved(facts, [str(model.get("endpoint_object_id") or "")], f"the model {name!r}")


def providers(facts: Facts) -> Iterator[Finding]:
    """The service knows the provider of each model."""
    for endpoint in _endpoints(facts):
        names = {**facts.commands, "endpoint": str(endpoint.get("name"))}
        try:
            provider_of(EndpointConfiguration.model_validate(dict(endpoint)), str(endpoint.get("url") or ""))
        except PlanRefused as error:
            yield PROVIDER.seen(str(error), **names)
        except ValidationError:
            yield PROVIDER.seen(f"The endpoint {endpoint.get('name')!r} cannot be understood.", **names)


def keys(facts: Facts) -> Iterator[Finding]:
    """The service has a key for each model's endpoint that needs one."""
    known_keys = {secret.key for secret in facts.wanted.secrets}
    for endpoint in _endpoints(facts):
        if str(endpoint.get("authentication_type")).casefold() == "azureidentity":
            continue
        parameters = endpoint.get("authentication_parameters") or {}
        named = {one: str(parameters[one]) for one in _KEYED if parameters.get(one)}
        name = str(endpoint.get("name"))
        example = f"FoundationaLLM:APIEndpoints:{name}:Essentials:APIKey"
        fix = {**facts.commands, "endpoint": name, "key": example, "parameter": next(iter(named), _KEYED[0])}
        if not named:
            yield KEY.seen(f"The endpoint {name!r} names no key.", **fix)
        for parameter, key in named.items():
            if not is_model_key(key):
                yield KEY.seen(
                    f"The endpoint {name!r} names the key {key!r}, which the service gives to no model.", **{**fix, "parameter": parameter}
                )
            elif key not in known_keys and facts.entry(key) is None:
                yield KEY.seen(
                    f"The endpoint {name!r} names the key {key!r}, and there is no such entry.", **{**fix, "parameter": parameter}
                )


def _unresolved(facts: Facts, needed: Sequence[str], owner: str) -> Iterator[Finding]:
    """What is missing of our own resources is told as such."""
    ours = {member.blob_path for member in facts.wanted.resources}
    for object_id in needed:
        path = path_of(object_id)
        if path in ours:
            continue
        if path is None or facts.referred(object_id) is None:
            yield UNRESOLVED.seen(
                f"{owner.capitalize()} leads to {object_id!r}, which is not there.", **facts.commands, target=object_id, owner=owner
            )


def _models(facts: Facts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    agent = facts.agent or {}
    used = {object_id for part in (agent.get("workflow"), *tools_of(agent)) for object_id in uses_of(part) if f"/{AI_MODELS}/" in object_id}
    for path in sorted({*(path for one in used if (path := path_of(one))), *(one.blob_path for one in facts.wanted.models)}):
        if (model := facts.resource(path)) is not None:
            yield path, model


def _endpoints(facts: Facts) -> Iterator[Mapping[str, Any]]:
    """The endpoints of the models, each once."""
    paths = {path for _, model in _models(facts) if (path := path_of(str(model.get("endpoint_object_id") or "")))}
    for path in sorted(paths):
        if (endpoint := facts.resource(path)) is not None:
            yield endpoint
