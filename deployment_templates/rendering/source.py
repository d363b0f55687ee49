"""What a generation is rendered from: the resources of a profile whose every blank is a stand-in."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deployment_templates.profile import ModelProvider, Profile, Sandbox, read_profile
from deployment_templates.rendering import tokens
from deployment_templates.rendering.tokens import FIXED, Generation, Token, model_tokens, role_token, with_placeholders
from deployment_templates.resources import PlatformResource, ResourceSet, RoleMember, build
from deployment_templates.values import WorkflowType

CHOICES: Mapping[str, Any] = {"instance_id": tokens.INSTANCE, "service": {"url": tokens.SERVICE_URL}}
"""The profile of templates for which nobody chose anything: every default."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Resources with stand-ins, and how to write them."""

    generation: Generation
    """The generation to write."""

    resources: ResourceSet
    """The resources."""

    sandbox: Sandbox
    """The session pool."""

    @property
    def tokens(self) -> tuple[Token, ...]:
        """All blanks there can be."""
        return (*FIXED, *model_tokens(), *(role_token(role.label, role.name) for role in self.resources.roles))

    def written(self, value: Any) -> str:
        """Return a JSON value as the text of a file, with placeholders. ASCII only: old PowerShell guesses encodings."""
        return self.text(json.dumps(value, indent=2))

    def text(self, text: str) -> str:
        """Return a text of ours with placeholders, ending in a line end."""
        return with_placeholders(text, self.generation, self.tokens) + "\n"

    def resource(self, resource: PlatformResource) -> str:
        """Return a resource's file."""
        return self.written(resource.blob_body)

    def role_assignments(self, deploy_time: str) -> str:
        """Return the part of the authorization store's file; `deploy_time` is the generation's own placeholder for the time."""
        return self.written(
            {
                "instance_id": self.resources.instance_id,
                "role_assignments": [stored(role, deploy_time) for role in self.resources.roles],
            }
        )


def references(resources: Iterable[PlatformResource]) -> dict[str, Any]:
    """Return the entries to merge into the indexes, by index."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for resource in resources:
        index = found.setdefault(resource.reference_path, {"ResourceReferences": []})
        index["ResourceReferences"].append(resource.reference.body())
    return found


def stored(role: RoleMember, deploy_time: str) -> dict[str, Any]:
    """Return a role assignment as the authorization store keeps it."""
    stamps = {"created_on": deploy_time, "updated_on": deploy_time, "created_by": "SYSTEM", "updated_by": "SYSTEM"}
    return role.assignment.model_copy(update=stamps).body()


def source_of(
    generation: Generation,
    choices: Profile | None = None,
    *,
    provider: ModelProvider | None = None,
    workflow_type: WorkflowType | None = None,
) -> Source:
    """Return what a generation is rendered from.

    Args:
        generation: The generation.
        choices: A profile for its names, provider and settings; its addresses and identifiers become blanks. None for the defaults.
        provider: Another provider of models than the profile's, with its default way to be opened.
        workflow_type: Another type of workflow than the profile's.
    """
    given: dict[str, Any] = (
        json.loads(choices.model_dump_json(exclude_unset=True)) if choices else {**CHOICES, "models": dict(tokens.MODELS)}
    )
    if provider is not None:
        given["models"] = {"provider": provider, **tokens.MODELS}
    if workflow_type is not None:
        given["workflow_type"] = workflow_type
    models = given["models"]
    models |= {size: stand_in for size, stand_in in tokens.MODELS.items() if models.get(size)}
    if models.get("provider", "anthropic") != "anthropic" or models.get("url"):
        models["url"] = tokens.MODEL_URL
    blanks = {
        "instance_id": tokens.INSTANCE,
        "service": given["service"] | {"url": tokens.CLUSTER_URL if generation == "standard" else tokens.SERVICE_URL},
        "models": models,
        "sandbox": given.get("sandbox", {}) | {"pool_url": tokens.POOL_URL},
        "roles": {
            "users": [tokens.USERS],
            "editors": [tokens.EDITORS] if choices and choices.roles.editors else [],
            "virtual_security_group_id": tokens.VIRTUAL_GROUP,
        },
        "platform": {},
    }
    profile = read_profile(given | blanks)
    return Source(generation=generation, resources=build(profile), sandbox=profile.sandbox)
