"""Which model is called, where, and with which key: the request names resources, the secrets are the service's own.

A request never carries a key, only the name of one (contract: orchestration §5.2). The name is looked up in what the operator configured.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr, ValidationError

from orchestration_service.brokers.route import ModelParameters, ModelRoute
from orchestration_service.errors import PlanRefused, SettingsError
from orchestration_service.planning import Planned

ModelKeys = Callable[[str], Awaitable[SecretStr | None]]
"""Finds the key of a model endpoint by the name of its configuration key; None where there is none."""

_log = logging.getLogger(__name__)
_LONGEST_SILENCE_SECONDS = 600.0
_PROVIDERS: Mapping[str, str] = {"": "anthropic", "anthropic": "anthropic", "anthropic-compatible": "anthropic-compatible"}


@dataclass(frozen=True, kw_only=True)
class ModelRoutes:
    """What the operator configured about models."""

    keys: ModelKeys | None = None
    """Where keys are found by the names that endpoints refer to them by; None for nowhere."""

    default_key: SecretStr | None = None
    """Key for endpoints whose key name has no secret here."""

    base_url: str | None = None
    """Address that replaces the endpoint's, for gateways and for the scripted model."""

    async def route(self, planned: Planned, upn: str) -> ModelRoute:
        """Return the route of a turn.

        Raises:
            PlanRefused: The endpoint's provider is not known here, its key is missing, or its address makes no sense.
        """
        endpoint = planned.endpoint
        provider = _PROVIDERS.get(endpoint.provider.casefold())
        if provider is None and self.base_url is None:
            raise PlanRefused(
                f"The model endpoint {endpoint.name!r} has the provider {endpoint.provider!r}, which Claude Code cannot call. "
                "Use 'anthropic' or 'anthropic-compatible'."
            )
        name = endpoint.api_key_configuration_name
        key = await self._key(endpoint.name, name) or self.default_key
        if key is None:
            raise PlanRefused(
                f"There is no key for the model endpoint {endpoint.name!r}: the service has no value for {name or 'its key'!r}. "
                "An administrator has to provide it."
            )
        header = endpoint.authentication_parameters.get("api_key_header_name")
        try:
            return ModelRoute.model_validate(
                {
                    "provider": provider or "anthropic-compatible",
                    "base_url": self.base_url or endpoint.url_for(upn) or "https://api.anthropic.com",
                    "api_key": key,
                    "api_key_header": header if isinstance(header, str) and header else "x-api-key",
                    "model": planned.model,
                    "parameters": _parameters(planned.model_parameters),
                    "forward_betas": provider != "anthropic-compatible",
                    "idle_timeout_seconds": min(endpoint.timeout_seconds, _LONGEST_SILENCE_SECONDS),
                }
            )
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            raise PlanRefused(f"The model endpoint {endpoint.name!r} cannot be used: {fault['loc']}: {fault['msg']}.") from error

    async def _key(self, endpoint: str, name: str | None) -> SecretStr | None:
        if self.keys is None or not name:
            return None
        try:
            return await self.keys(name)
        except SettingsError as error:
            _log.error("The key of the model endpoint %r cannot be read: %s", endpoint, error)
            raise PlanRefused(
                f"The key of the model endpoint {endpoint!r} cannot be read just now. "
                "An administrator finds the reason in the service's log."
            ) from error


def _parameters(raw: Mapping[str, Any]) -> ModelParameters:
    """Translate the platform's names; values a model of today refuses (a temperature beside thinking) are left to the CLI."""
    wanted = {"max_tokens": raw.get("max_new_tokens") or raw.get("max_tokens")}
    try:
        return ModelParameters.model_validate({name: value for name, value in wanted.items() if value})
    except ValidationError:
        return ModelParameters()
