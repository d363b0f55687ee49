"""Which models a turn calls, where, and with which keys: the request names resources, the secrets are the service's own.

A request never carries a key, only the name of one (contract: orchestration §5.2). The name is looked up in what the operator configured.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import SecretStr, ValidationError

from orchestration_service.brokers.route import ModelRoute, Provider
from orchestration_service.endpoint_routes import place_of, proof_of, provider_of
from orchestration_service.errors import PlanRefused, SettingsError
from orchestration_service.model_choice import ModelChoice
from orchestration_service.planning import Planned
from orchestration_service.platform_keys import is_model_key, variable_of_key
from workflow_schemas.platform_request import EndpointConfiguration

ModelKeys = Callable[[str], Awaitable[SecretStr | None]]
"""Finds the key of a model endpoint by the name of its configuration key; None where there is none."""

_log = logging.getLogger(__name__)
_LONGEST_SILENCE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class RoutedModel:
    """A model of a turn and the way to it."""

    role: str
    """What it is for, such as `main_model`."""

    endpoint: str
    """Name of its endpoint, for people."""

    route: ModelRoute
    """The way."""

    @property
    def model(self) -> str:
        """Model name for the provider."""
        return self.route.model


@dataclass(frozen=True, kw_only=True)
class TurnRoutes:
    """The ways to all models of a turn."""

    main: RoutedModel
    """Does the work."""

    small: RoutedModel | None = None
    """Does small tasks in the background; None: the main model does."""

    fallbacks: tuple[RoutedModel, ...] = ()
    """Take the main model's place, in this order."""

    remarks: tuple[str, ...] = ()
    """What the user should be told about models that cannot be used."""

    @property
    def all(self) -> tuple[RoutedModel, ...]:
        """Every model, the main one first."""
        return (self.main, *([self.small] if self.small else []), *self.fallbacks)


@dataclass(frozen=True, kw_only=True)
class ModelRoutes:
    """What the operator configured about models."""

    keys: ModelKeys | None = None
    """Where keys are found by the names that endpoints refer to them by, after the environment; None for nowhere else."""

    default_key: SecretStr | None = None
    """Key for endpoints of Anthropic's protocol whose key name has no secret here; clouds never get it."""

    base_url: str | None = None
    """Address that replaces the endpoint's, for gateways and for the scripted model."""

    async def of_turn(self, planned: Planned, upn: str) -> TurnRoutes:
        """Return the routes of a turn. A further model that cannot be reached is left out with a remark.

        Raises:
            PlanRefused: The main model's endpoint is of a kind not known here, its key is missing, or its address makes no sense.
        """
        choices = planned.models
        main = await self._routed(choices.main, upn)
        remarks: list[str] = []
        further = []
        for choice in (*([choices.small] if choices.small else []), *choices.fallbacks):
            try:
                further.append(await self._routed(choice, upn))
            except PlanRefused as refused:
                remarks.append(f"The model {choice.model!r} with the role {choice.role!r} is not used: {refused}")
        small = next((routed for routed in further if routed.role == choices.small.role), None) if choices.small else None
        fallbacks = tuple(routed for routed in further if routed is not small)
        return TurnRoutes(main=main, small=small, fallbacks=fallbacks, remarks=tuple(remarks))

    async def _routed(self, choice: ModelChoice, upn: str) -> RoutedModel:
        endpoint = choice.endpoint
        address = self.base_url or endpoint.url_for(upn)
        provider = self._provider(endpoint, address)
        fields = {
            "provider": provider,
            **place_of(provider, endpoint, address),
            **await self._proof(provider, endpoint),
            "model": choice.model,
            "parameters": choice.parameters,
            "forward_betas": provider != "anthropic-compatible",
            "idle_timeout_seconds": min(endpoint.timeout_seconds, _LONGEST_SILENCE_SECONDS),
        }
        try:
            return RoutedModel(role=choice.role, endpoint=endpoint.name, route=ModelRoute.model_validate(fields))
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in fault["loc"])
            words = fault["msg"].removeprefix("Value error, ").rstrip(".")
            raise PlanRefused(f"The model endpoint {endpoint.name!r} cannot be used: {where + ': ' if where else ''}{words}.") from error

    def _provider(self, endpoint: EndpointConfiguration, address: str) -> Provider:
        """Return who answers; at the operator's own address that is a gateway, unless the endpoint names Anthropic."""
        if self.base_url is None:
            return provider_of(endpoint, address)
        return "anthropic" if endpoint.provider.casefold() in ("", "anthropic") else "anthropic-compatible"

    async def _proof(self, provider: Provider, endpoint: EndpointConfiguration) -> dict[str, object]:
        if self.base_url is not None:  # whatever the endpoint proves itself with is not for the operator's own address, a key excepted
            endpoint = endpoint.model_copy(update={"authentication_type": "APIKey"})
        proof = await proof_of(provider, endpoint, self._key)
        if proof or provider not in ("anthropic", "anthropic-compatible"):
            return proof
        if self.default_key is None:
            name = endpoint.api_key_configuration_name
            raise PlanRefused(
                f"There is no key for the model endpoint {endpoint.name!r}: the service has no value for {name or 'its key'!r}. "
                "An administrator has to provide it."
            )
        header = endpoint.authentication_parameters.get("api_key_header_name")
        return {"api_key": self.default_key, "api_key_header": header if isinstance(header, str) and header else "x-api-key"}

    async def _key(self, endpoint: EndpointConfiguration, name: str) -> SecretStr | None:
        nearby = os.environ.get(variable_of_key(name)) if is_model_key(name) else None
        if nearby or self.keys is None:
            return SecretStr(nearby) if nearby else None
        try:
            return await self.keys(name)
        except SettingsError as error:
            _log.error("The key of the model endpoint %r cannot be read: %s", endpoint.name, error)
            raise PlanRefused(
                f"The key of the model endpoint {endpoint.name!r} cannot be read just now. "
                "An administrator finds the reason in the service's log."
            ) from error
