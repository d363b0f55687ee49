"""Which model and which prompts a request means.

The platform sends references (workflow → object id → ``objects``) and leaves the joining to us. A reference that leads
nowhere is an administrator's mistake, so each way to fail has its own error that names the resource and the remedy.

    ResourceProblem
    ├── RoleMissing        no resource of the workflow plays the part
    ├── ResourceMissing    the reference points at nothing in ``objects``
    └── ResourceInvalid    the resource is there and lacks something we need
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from workflow_schemas.platform_request import AIModel, CompletionRequest, EndpointConfiguration, Incoming, Prompt, ResourceReference

PromptRole = Literal["main_prompt", "router_prompt", "files_prompt", "final_prompt"]
ResourceT = TypeVar("ResourceT", bound=Incoming)

_MODELS = "/FoundationaLLM.AIModel/aiModels/"
_PROMPTS = "/FoundationaLLM.Prompt/prompts/"


class ResourceProblem(LookupError):
    """The request does not lead to a resource the workflow needs. The message is fit for users and administrators."""


class RoleMissing(ResourceProblem):
    """No resource of the workflow plays the part.

    Attributes:
        role: The part nobody plays.
    """

    def __init__(self, agent: str, role: str, kind: str) -> None:
        super().__init__(
            f"The agent {agent!r} names no {role!r}. Add the {kind} to 'resource_object_ids' of the agent's workflow "
            f"with the property 'object_role' set to {role!r}."
        )
        self.role = role


class ResourceMissing(ResourceProblem):
    """The request holds no resource under the object id.

    Attributes:
        object_id: The id that leads nowhere.
    """

    def __init__(self, object_id: str, wanted_by: str) -> None:
        super().__init__(
            f"The resource {object_id!r}, wanted by {wanted_by}, did not come with the request. Check that it exists "
            "and that the agent lists its read action in 'inheritable_authorizable_actions'."
        )
        self.object_id = object_id


class ResourceInvalid(ResourceProblem):
    """The resource is there and lacks something we need.

    Attributes:
        object_id: The resource in question.
    """

    def __init__(self, object_id: str, what: str) -> None:
        super().__init__(f"The resource {object_id!r} {what}.")
        self.object_id = object_id


class MainModel(NamedTuple):
    """A model of a turn, mostly the main one. Unpacks as ``model, endpoint, overrides``."""

    model: AIModel
    """The model resource."""
    endpoint: EndpointConfiguration
    """The endpoint that serves it."""
    overrides: dict[str, Any]
    """Model parameters of the workflow's entry; they win over the resource's."""


def resolve_main_model(request: CompletionRequest) -> MainModel:
    """Return the model with role ``main_model``, its endpoint and the workflow's overrides.

    Raises:
        ResourceProblem: A reference is missing or leads nowhere; the message says what to add.
    """
    role = "main_model"
    workflow = request.agent.workflow
    references = workflow.references(role) if workflow else iter(())
    for object_id, reference in references:
        if _MODELS.casefold() in object_id.casefold():
            return resolve_model(request, object_id, reference)
    raise RoleMissing(request.agent.name, role, "AI model")


def resolve_model(request: CompletionRequest, object_id: str, reference: ResourceReference) -> MainModel:
    """Return the model a reference leads to, its endpoint and the reference's overrides.

    Raises:
        ResourceProblem: It leads nowhere, or lacks something; the message says what to add.
    """
    model = _resource(request, object_id, AIModel, wanted_by=f"role {reference.role!r}")
    if not model.deployment_name:
        raise ResourceInvalid(object_id, "has no 'deployment_name'. Set it to the provider's model id")
    if not model.endpoint_object_id:
        raise ResourceInvalid(object_id, "has no 'endpoint_object_id'. Set it to the API endpoint that serves it")
    endpoint = _resource(request, model.endpoint_object_id, EndpointConfiguration, wanted_by=f"the model {model.name or object_id!r}")
    overrides = reference.properties.get("model_parameters")
    return MainModel(model, endpoint, dict(overrides) if isinstance(overrides, dict) else {})


def resolve_prompt(request: CompletionRequest, role: PromptRole = "main_prompt") -> Prompt:
    """Return the prompt that plays ``role``.

    Raises:
        ResourceProblem: A reference is missing or leads nowhere; the message says what to add.
    """
    workflow = request.agent.workflow
    references = workflow.references(role) if workflow else iter(())
    for object_id, _ in references:
        if _PROMPTS.casefold() in object_id.casefold():
            return _resource(request, object_id, Prompt, wanted_by=f"role {role!r}")
    raise RoleMissing(request.agent.name, role, "prompt")


def _resource(request: CompletionRequest, object_id: str, kind: type[ResourceT], *, wanted_by: str) -> ResourceT:
    value = request.objects.get(object_id)
    if value is None:  # object ids are compared without regard to case on the platform
        wanted = object_id.casefold()
        value = next((found for key, found in request.objects.items() if key.casefold() == wanted), None)
    if value is None:
        raise ResourceMissing(object_id, wanted_by)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise ResourceInvalid(object_id, f"cannot be read: {where}: {first['msg']}") from error
