"""App Configuration entries: plain values, references to secrets by name, and values that others write into too.

No entry holds a secret. Where the Management API wants the secret itself, `body` is given it by the caller and nothing keeps it.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from deployment_templates.errors import MergeError
from deployment_templates.values import PlatformObject

REFERENCE_CONTENT = "application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8"
SERVICES = "FoundationaLLM:APIEndpoints"
FEATURED_AGENTS = "FoundationaLLM:UserPortal:Configuration:FeaturedAgentNames"
CUSTOM_CONTAINERS = "FoundationaLLM:Code:CodeExecution:AzureContainerAppsDynamicSessions:CustomContainer"
KNOWLEDGE_EXTENSIONS = f"{SERVICES}:ContextAPI:Configuration:FileService:KnowledgeSearchFileExtensions"
SESSION_LANGUAGE = f"{SERVICES}:ClaudeCode:Configuration:SessionLanguage"
_NO_AGENT = "true"
"""What the platform ships as its featured agents: the name of none. An empty value would stop the portal's list."""

_SHIPPED_EXTENSIONS = (
    "c, cpp, cs, css, html, java, js, json, jsonl, md, php, py, rb, sh, tex, ts, txt, xml, yaml, yml, "
    "gif, jpeg, jpg, png, wav, pdf, docx, pptx"
)

Slot = Literal["Python", "CSharp"]


class KeyValue(PlatformObject):
    """A plain entry as the Management API takes it."""

    type: Literal["appconfiguration-key-value"]
    """Always the same."""
    name: str
    """The key, once more."""
    key: str = Field(pattern=r"^FoundationaLLM:[\w:.-]+$")
    """The key."""
    value: str
    """The value."""
    content_type: str = ""
    """Media type of the value."""


class KeyVaultReference(KeyValue):
    """An entry whose value is a secret; the Management API puts it into the vault and only a reference into the store."""

    type: Literal["appconfiguration-key-vault-reference"]  # type: ignore[assignment]  # the two are siblings to the platform
    """Always the same."""
    content_type: Literal["application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8"]
    """Always the same."""
    key_vault_uri: str = ""
    """The vault; the server fills it in."""
    key_vault_secret_name: str = Field(pattern=r"^[0-9A-Za-z-]{1,127}$")
    """The secret's name in the vault."""


class ImportedItem(PlatformObject):
    """An entry in a file for `az appconfig kv import --profile appconfig/kvset`."""

    key: str
    """The key."""
    value: str
    """The value, or the address of the secret as JSON."""
    key_vault_secret_name: str | None = None
    """The secret's name in the vault."""
    key_vault_secret_value: str | None = None
    """Where the platform's own template names a variable with the secret; ours leave it out."""
    label: None = None
    """None: services read entries without a label."""
    content_type: str
    """Media type of the value."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags."""


class ImportedItems(PlatformObject):
    """Such a file."""

    items: tuple[ImportedItem, ...]
    """The entries."""


class Merge(Protocol):
    """How a value is kept that holds more than ours."""

    def added(self, current: str | None) -> str:
        """Return the value with ours in it."""

    def removed(self, current: str) -> str:
        """Return the value without ours."""


@dataclass(frozen=True, kw_only=True)
class FeaturedAgent:
    """Our agent among the featured ones: a list of names with commas, a pinned one ending in `|*`."""

    name: str
    """The agent's name."""
    pinned: bool = False
    """Whether users cannot switch it off."""

    def added(self, current: str | None) -> str:
        """Put our agent first, or leave it where it is; others stay."""
        ours = f"{self.name}|*" if self.pinned else self.name
        others = self._others(current)
        place = next((at for at, item in enumerate(_items(current)) if self._is_ours(item)), 0)
        return ",".join((*others[:place], ours, *others[place:]))

    def removed(self, current: str) -> str:
        """Take our agent out; when nobody is left, the value is what the platform ships, since an empty one stops the portal's list."""
        return ",".join(self._others(current)) or _NO_AGENT

    def _others(self, current: str | None) -> tuple[str, ...]:
        return tuple(item for item in _items(current) if not self._is_ours(item))

    def _is_ours(self, item: str) -> bool:
        return item.partition("|")[0].strip() == self.name


@dataclass(frozen=True, kw_only=True)
class PoolInSlot:
    """Our session pool as the first of a language, the only one that is used; the one before it stays behind it and returns on removal."""

    slot: Slot
    """The language whose pool is ours."""
    url: str
    """Management endpoint of the pool."""

    def added(self, current: str | None) -> str:
        """Put our pool first in its slot."""
        endpoints = self._read(current)
        others = [url for url in endpoints[self.slot] if url != self.url]
        return _written(endpoints | {self.slot: [self.url, *others]})

    def removed(self, current: str) -> str:
        """Take our pool out of its slot."""
        endpoints = self._read(current)
        return _written(endpoints | {self.slot: [url for url in endpoints[self.slot] if url != self.url]})

    def _read(self, current: str | None) -> dict[str, list[str]]:
        empty: dict[str, list[str]] = {"Python": [], "CSharp": []}
        if current is None or not current.strip():
            return empty
        try:
            found = json.loads(current)["Endpoints"]
            return empty | {str(language): [str(url) for url in urls or ()] for language, urls in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MergeError(
                f"{CUSTOM_CONTAINERS!r} is not the JSON it should be, so nothing was merged into it: {error}. Correct it first.",
                CUSTOM_CONTAINERS,
            ) from error


@dataclass(frozen=True, kw_only=True)
class PastPipelines:
    """Kinds of files taken off the list of those that go through a pipeline, for all agents; on removal they are on it again."""

    extensions: tuple[str, ...]
    """The kinds."""

    def added(self, current: str | None) -> str:
        """Take ours off the list; where there is none, off the one the platform ships."""
        return ", ".join(item for item in _items(current or _SHIPPED_EXTENSIONS) if item not in self.extensions)

    def removed(self, current: str) -> str:
        """Put on the list again what the platform ships on it."""
        there, shipped = _items(current), _items(_SHIPPED_EXTENSIONS)
        return ", ".join((*(item for item in shipped if item in self.extensions and item not in there), *there))


@dataclass(frozen=True, kw_only=True)
class AppConfigurationEntry:
    """One entry of the installation's App Configuration."""

    key: str
    """The key."""
    why: str
    """What it is for, for the plan an operator reads."""
    value: str | None = None
    """The value; None for a secret. With a merge: the value where nothing is there yet."""
    secret_name: str | None = None
    """Name of the secret in the key vault; None for a plain value."""
    content_type: str = ""
    """Media type of the value."""
    merge: Merge | None = None
    """How it is merged, where others write into the value too; then it must never be replaced or deleted."""

    @property
    def kind(self) -> Literal["app-configuration"]:
        """What kind of member of a resource set this is."""
        return "app-configuration"

    @property
    def management_path(self) -> str:
        """Path of the entry below `/instances/{id}/providers/` of the Management API."""
        return f"FoundationaLLM.Configuration/appConfigurations/{self.key}"

    def desired(self, current: str | None) -> str:
        """Return the value that should be there, given the one that is.

        Raises:
            MergeError: What is there cannot be understood.
        """
        if self.merge is not None:
            return self.merge.added(current)
        if self.value is None:
            raise MergeError(f"The value of {self.key!r} is the secret {self.secret_name!r}, which only the key vault has.", self.key)
        return self.value

    def body(self, value: str) -> dict[str, Any]:
        """Return the body for the Management API.

        Args:
            value: The value as `desired` returns it; for a secret the secret itself, which ends in the vault.
        """
        if self.secret_name is None:
            plain = KeyValue(type="appconfiguration-key-value", name=self.key, key=self.key, value=value, content_type=self.content_type)
            return plain.body()
        return KeyVaultReference(
            type="appconfiguration-key-vault-reference",
            name=self.key,
            key=self.key,
            value=value,
            content_type="application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8",
            key_vault_uri="",
            key_vault_secret_name=self.secret_name,
        ).body()

    def reference_to(self, key_vault_url: str) -> str:
        """Return what the store itself holds for a secret: its address in a vault, as JSON."""
        return json.dumps({"uri": f"{key_vault_url.rstrip('/')}/secrets/{self.secret_name}"}, separators=(",", ":"))


def _items(current: str | None) -> tuple[str, ...]:
    return tuple(item.strip() for item in (current or "").split(",") if item.strip() and item.strip() != _NO_AGENT)


def _written(endpoints: dict[str, list[str]]) -> str:
    return json.dumps({"Endpoints": endpoints})
