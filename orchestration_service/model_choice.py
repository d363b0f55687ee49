"""Which models an agent has, and for what: the main one, one for small tasks, and those to fall back on. Pure.

The platform sends the main model of a workflow. A further one it sends only where a tool refers to it (contract: orchestration §5.1), so
the roles `small_model` and `fallback_model` may stand at the workflow or at our own tool. A further model that cannot be used does not
keep a turn from running; the receipt says why it is missing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestration_service.brokers.route import ModelParameters
from orchestration_service.model_parameters import read_parameters
from workflow_schemas.platform import CompletionRequest, MainModel, ResourceProblem, ResourceReference, resolve_model
from workflow_schemas.platform_request import EndpointConfiguration
from workflow_schemas.properties import WorkflowProperties
from workflow_schemas.property_reading import NESTED

MAIN = "main_model"
SMALL = "small_model"
FALLBACK = "fallback_model"
SETTINGS_TOOL = "claudecode"
"""How the name of a tool that carries our settings begins, without regard to case."""

_FALLBACK = re.compile(rf"{FALLBACK}(?:_([1-9]\d?))?\Z")


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """One model of an agent."""

    role: str
    """What it is for: `main_model`, `small_model`, `fallback_model`, `fallback_model_2` and so on."""

    model: str
    """Model name for the provider."""

    endpoint: EndpointConfiguration
    """Where it is served, and the name of its key."""

    parameters: ModelParameters = field(default_factory=ModelParameters)
    """What the administrator fixed for it."""


@dataclass(frozen=True, kw_only=True)
class ModelChoices:
    """The models of a turn."""

    main: ModelChoice
    """Does the work."""

    small: ModelChoice | None = None
    """Does small tasks in the background; None: the main model does."""

    fallbacks: tuple[ModelChoice, ...] = ()
    """Take the main model's place, in this order."""

    remarks: tuple[str, ...] = ()
    """What the user should be told about models that are not used."""


def choose_models(request: CompletionRequest, main: MainModel, properties: WorkflowProperties) -> ModelChoices:
    """Return the models of an agent; those a property names are at the main model's endpoint."""
    further = _Further(request)
    chosen = further.choice(MAIN, main, properties.model)
    small = next(iter(further.with_role({SMALL: SMALL})), None)
    if properties.small_model:
        small = ModelChoice(role=SMALL, model=properties.small_model, endpoint=main.endpoint)
    fallbacks = further.with_role(further.fallback_roles())
    fallbacks += [
        ModelChoice(role=_fallback_role(number), model=name, endpoint=main.endpoint, parameters=chosen.parameters)
        for number, name in enumerate(properties.fallback_models, start=len(fallbacks) + 1)
    ]
    return ModelChoices(main=chosen, small=small, fallbacks=tuple(further.others(chosen, fallbacks)), remarks=tuple(further.remarks))


class _Further:
    """Finds the models besides the main one, and notes what is wrong with them."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self._references = list(_references(request))
        self.remarks: list[str] = []

    def fallback_roles(self) -> dict[str, str]:
        """Return the roles of fallbacks that are there by number, each with the name it gets; one that is misspelt is told."""
        numbers = {}
        for _, reference in self._references:
            match = _FALLBACK.match(reference.role)
            if match:
                numbers[reference.role] = int(match[1] or 1)
            elif reference.role.startswith((FALLBACK, SMALL)) and reference.role != SMALL:
                known = f"{SMALL!r}, {FALLBACK!r}, '{FALLBACK}_2' and so on"
                self.remarks.append(f"The role {reference.role[:60]!r} is not known: there are {known}.")
        ordered = sorted(numbers, key=lambda role: numbers[role])
        return {role: _fallback_role(place) for place, role in enumerate(ordered, start=1)}

    def with_role(self, roles: Mapping[str, str]) -> list[ModelChoice]:
        """Return the models that play these roles, in the order of the roles, each once."""
        found: dict[str, ModelChoice] = {}
        for role, name in roles.items():
            for object_id, reference in self._references:
                if reference.role != role or object_id.casefold() in found:
                    continue
                try:
                    model = resolve_model(self._request, object_id, reference)
                except ResourceProblem as problem:
                    self.remarks.append(
                        f"The model with the role {role!r} is not used: {problem} The platform sends such a model only where a tool of the "
                        "agent refers to it: add it to 'resource_object_ids' of a tool whose name begins with 'ClaudeCode'."
                    )
                    continue
                found[object_id.casefold()] = self.choice(name, model)
        return list(found.values())

    def choice(self, role: str, model: MainModel, name: str | None = None) -> ModelChoice:
        """Return a model with its parameters; what is wrong with these is told."""
        merged = {**model.model.model_parameters, **model.overrides}
        name = name or model.model.deployment_name
        reading = read_parameters({key: value for key, value in merged.items() if key != NESTED}, name)
        self.remarks.extend(reading.remarks)
        return ModelChoice(role=role, model=name, endpoint=model.endpoint, parameters=reading.parameters)

    def others(self, main: ModelChoice, fallbacks: list[ModelChoice]) -> Iterator[ModelChoice]:
        """Yield the fallbacks that are not the main model itself or one before them."""
        seen = {_place(main)}
        for choice in fallbacks:
            if _place(choice) in seen:
                self.remarks.append(f"The fallback model {choice.model!r} was left out: it is the main model or named twice.")
            else:
                seen.add(_place(choice))
                yield choice


def _references(request: CompletionRequest) -> Iterator[tuple[str, ResourceReference]]:
    holders = [request.agent.workflow.resource_object_ids] if request.agent.workflow else []
    holders += [tool.resource_object_ids for tool in request.agent.tools if tool.name.casefold().startswith(SETTINGS_TOOL)]
    for references in holders:
        for key, reference in references.items():
            yield reference.object_id or key, reference


def _place(choice: ModelChoice) -> tuple[str, str]:
    return choice.model, choice.endpoint.object_id or choice.endpoint.name


def _fallback_role(place: int) -> str:
    return FALLBACK if place == 1 else f"{FALLBACK}_{place}"
