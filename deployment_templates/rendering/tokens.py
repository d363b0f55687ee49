"""The blanks of a template: what stands for it while resources are built, and how each generation writes it.

Resources are built from a whole profile, so that every rule is checked, with a recognisable value wherever installations differ. Those
values are then replaced by the generation's own placeholders in the finished text. So a template cannot say anything `build` does not.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from deployment_templates.errors import RenderError

Generation = Literal["standard", "quick-start", "internal"]

GENERATIONS: Sequence[Generation] = ("standard", "quick-start", "internal")
MARK = "stand-in"
"""In every stand-in that is no GUID, so that one left over is found."""

_GUID_MARK = "c1aadec0"


INSTANCE = f"{_GUID_MARK}-0000-4000-8000-000000000001"
USERS = f"{_GUID_MARK}-0000-4000-8000-000000000002"
EDITORS = f"{_GUID_MARK}-0000-4000-8000-000000000003"
VIRTUAL_GROUP = f"{_GUID_MARK}-0000-4000-8000-000000000004"
NAMESPACE = f"{MARK}-namespace"
CLUSTER_URL = f"http://claude-code-api.{NAMESPACE}.svc.cluster.local"
SERVICE_URL = f"https://{MARK}-service.invalid"
POOL_URL = f"https://{MARK}-pool.invalid"
MODEL_URL = f"https://{MARK}-model-endpoint.invalid"
MODELS: Mapping[str, str] = {"sonnet": f"{MARK}-sonnet", "opus": f"{MARK}-opus", "haiku": f"{MARK}-haiku"}


@dataclass(frozen=True, kw_only=True)
class Token:
    """One blank."""

    stand_in: str
    """What is in its place while resources are built."""

    camel: str
    """Its name in the standard generation."""

    upper: str
    """Its name in the other two."""

    internal: str = ""
    """Its name in the internal generation, where that has one of its own."""

    meaning: str
    """What belongs there."""

    known_to: tuple[Generation, ...] = ()
    """Generations whose own scripts fill it already."""

    is_made: bool = False
    """Whether it is an identifier that is made anew rather than given."""

    def written(self, generation: Generation) -> str:
        """Return the placeholder."""
        if generation == "standard":
            return "{{" + self.camel + "}}"
        return "${env:" + self.upper + "}" if generation == "quick-start" else "{{" + self.parameter + "}}"

    @property
    def parameter(self) -> str:
        """Its name as a parameter of a package."""
        return self.internal or self.upper


FIXED: Sequence[Token] = (
    Token(
        stand_in=INSTANCE,
        camel="instanceId",
        upper="FOUNDATIONALLM_INSTANCE_ID",
        internal="INSTANCE_ID",
        meaning="id of the instance",
        known_to=("standard", "quick-start"),
    ),
    Token(
        stand_in=NAMESPACE,
        camel="serviceNamespaceName",
        upper="SERVICE_NAMESPACE_NAME",
        meaning="Kubernetes namespace of the services",
        known_to=("standard",),
    ),
    Token(
        stand_in=SERVICE_URL,
        camel="claudeCodeServiceUrl",
        upper="SERVICE_CLAUDE_CODE_API_ENDPOINT_URL",
        internal="CLAUDECODEAPI_ENDPOINT",
        meaning="address of the service: scheme and host only",
        known_to=("quick-start",),
    ),
    Token(
        stand_in=USERS,
        camel="claudeCodeUsersGroupObjectId",
        upper="CLAUDE_CODE_USERS_GROUP_OBJECT_ID",
        internal="USER_GROUP_OBJECT_ID",
        meaning="group of the users",
    ),
    Token(
        stand_in=EDITORS,
        camel="claudeCodeEditorsGroupObjectId",
        upper="CLAUDE_CODE_EDITORS_GROUP_OBJECT_ID",
        meaning="group of those who may change the agent",
    ),
    Token(
        stand_in=VIRTUAL_GROUP,
        camel="claudeCodeVirtualSecurityGroupId",
        upper="CLAUDE_CODE_VIRTUAL_SECURITY_GROUP_ID",
        meaning="a GUID made once and kept: the group of holders of the agent's access tokens",
    ),
    Token(
        stand_in=POOL_URL,
        camel="claudeCodeSessionPoolEndpoint",
        upper="CLAUDE_CODE_SESSION_POOL_ENDPOINT",
        meaning="management endpoint of the session pool with our image",
    ),
    Token(
        stand_in=MODEL_URL,
        camel="claudeModelEndpointUrl",
        upper="CLAUDE_MODEL_ENDPOINT_URL",
        meaning="address of the model provider",
    ),
)
"""Blanks of every installation."""


def model_tokens() -> tuple[Token, ...]:
    """Return the tokens of the models' names at their provider."""
    return tuple(
        Token(
            stand_in=stand_in,
            camel=f"claude{size.capitalize()}ModelName",
            upper=f"CLAUDE_{size.upper()}_MODEL_NAME",
            meaning=f"the provider's name of Claude {size.capitalize()}",
        )
        for size, stand_in in MODELS.items()
    )


def role_token(label: str, guid: str) -> Token:
    """Return the token of a role assignment's own identifier."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", label).upper()
    return Token(
        stand_in=guid,
        camel=f"claudeCode{label[0].upper()}{label[1:]}Guid",
        upper=f"CLAUDE_CODE_{words}_GUID",
        meaning="identifier of a role assignment",
        is_made=True,
    )


def with_placeholders(text: str, generation: Generation, tokens: Sequence[Token]) -> str:
    """Return a text with placeholders where stand-ins were.

    Raises:
        RenderError: A stand-in is left over, which would reach an installation.
    """
    for token in sorted(tokens, key=lambda token: -len(token.stand_in)):
        text = text.replace(token.stand_in, token.written(generation))
    if left := re.search(rf"[\w./:-]*(?:{MARK}|{_GUID_MARK})[\w./:-]*", text):
        raise RenderError(f"The value {left[0]!r} has no placeholder in the generation {generation!r}: add a token for it.")
    return text


def used(tokens: Sequence[Token], generation: Generation, texts: Mapping[str, str]) -> tuple[Token, ...]:
    """Return the tokens that stand in any of the texts."""
    return tuple(token for token in tokens if any(token.written(generation) in text for text in texts.values()))
