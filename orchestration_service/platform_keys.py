"""The names under which the platform's App Configuration keeps what this service needs (contract: portals and deployment §5.2)."""

import re
from collections.abc import Collection, Mapping, Sequence

ADDRESS_VARIABLE = "FOUNDATIONALLM_APP_CONFIGURATION_URI"
"""Variable that leads to the store, the same one for all services of the platform."""

OURS = "FoundationaLLM:APIEndpoints:ClaudeCode"
SELECTED: Sequence[str] = ("FoundationaLLM:Instance:Id", "FoundationaLLM:APIEndpoints:*")
"""What is read of the store: it has a thousand keys, most of which are nobody's business here."""

_ENDPOINTS = "FoundationaLLM:APIEndpoints:"
_MODEL_KEY = re.compile(
    rf"{_ENDPOINTS}(?P<endpoint>[^:]+):Essentials:"
    r"(?:APIKey|AccessKey|SecretKey|SessionToken|RoleArn|Scope|ServiceAccountCredentials)\Z"
)
_OWN_SETTINGS = f"{OURS}:Configuration:"
_SHARED: Mapping[str, str] = {
    "FoundationaLLM:Instance:Id": "instance_id",
    f"{OURS}:Essentials:APIKey": "api_key",
    "FoundationaLLM:APIEndpoints:ContextAPI:Essentials:APIUrl": "context_url",
    "FoundationaLLM:APIEndpoints:ContextAPI:Essentials:APIKey": "context_api_key",
    "FoundationaLLM:APIEndpoints:StateAPI:Essentials:APIUrl": "state_api_url",
    "FoundationaLLM:APIEndpoints:StateAPI:Essentials:APIKey": "state_api_key",
}


def field_of(key: str, fields: Collection[str]) -> str | None:
    """Return the setting a key of the store stands for, None for a key that is not ours.

    Every setting has a key `FoundationaLLM:APIEndpoints:ClaudeCode:Configuration:<Name>`, its name written as the platform writes names:
    `LeaseSeconds` is `lease_seconds`. Some are known under the name all services share.
    """
    if (shared := _SHARED.get(key)) is not None:
        return shared
    if not key.startswith(_OWN_SETTINGS):
        return None
    wanted = key.removeprefix(_OWN_SETTINGS).casefold()
    return next((name for name in fields if name.replace("_", "") == wanted), None)


def key_of(field: str) -> str:
    """Return the key of a setting; that of the section all services share, where it has one."""
    own = _OWN_SETTINGS + "".join(word.capitalize() for word in field.split("_"))
    return next((key for key, name in _SHARED.items() if name == field), own)


def unknown_keys(keys: Collection[str], fields: Collection[str]) -> tuple[str, ...]:
    """Return the keys in this service's own section that stand for no setting: slips of the pen, or of another version."""
    return tuple(sorted(key for key in keys if key.startswith(_OWN_SETTINGS) and field_of(key, fields) is None))


def variable_of_key(key: str) -> str:
    """Return the environment variable that stands for a key of the store, as the platform's own services spell it."""
    return key.replace(":", "__")


def is_model_key(key: str) -> bool:
    """Tell whether a request may name this key as that of a model endpoint.

    A request names the address and the key's name together. Were any key allowed, whoever can write an endpoint configuration could have
    the key of the Context API sent to an address of his own; so the keys of the platform's own services are not given out.
    """
    named = _MODEL_KEY.match(key)
    return named is not None and not named["endpoint"].endswith("API") and named["endpoint"] != "ClaudeCode"
