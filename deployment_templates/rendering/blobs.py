"""The two generations that seed blobs: standard (AKS) and quick start (Container Apps). They differ in placeholders and scripts only."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deployment_templates.rendering.scripts import generate_config_additions, postprovision_additions
from deployment_templates.rendering.source import Source, references
from deployment_templates.resources import AppConfigurationEntry
from deployment_templates.resources.configuration import ImportedItem, ImportedItems

VAULT: Mapping[str, str] = {"standard": "{{keyvaultUri}}", "quick-start": "${env:AZURE_KEY_VAULT_ENDPOINT}"}
"""How each generation writes the vault's address; it ends in a slash."""

DEPLOY_TIME: Mapping[str, str] = {"standard": "{{deployTime}}", "quick-start": "${env:DEPLOY_TIME}"}


def files(source: Source) -> dict[str, str]:
    """Return the files of a generation by their path below its folder."""
    resources = source.resources
    found = {
        f"data/resource-provider/{resource.provider}/{resource.name}.template.json": source.resource(resource)
        for resource in resources.resources
    }
    found["data/resource-provider/resource-references.additions.json"] = source.written(references(resources.resources))
    found["data/role-assignments/DefaultRoleAssignments.additions.json"] = source.role_assignments(DEPLOY_TIME[source.generation])
    own = [entry for entry in (*resources.configuration, *resources.portal) if entry.merge is None]
    shared = [entry for entry in (*resources.configuration, *resources.portal) if entry.merge is not None]
    found["config/appconfig.additions.json"] = source.written(_imported(source, own))
    found["config/appconfig.shared.json"] = source.written(_imported(source, shared))
    if source.generation == "standard":
        return found | {"azd-hooks/Generate-Config.additions.ps1.txt": generate_config_additions(source, found)}
    return found | {"azd-hooks/postprovision.additions.ps1.txt": postprovision_additions(source, found)}


def _imported(source: Source, entries: list[AppConfigurationEntry]) -> dict[str, Any]:
    return ImportedItems(items=tuple(_items(source, entries))).body()


def _items(source: Source, entries: list[AppConfigurationEntry]) -> Iterator[ImportedItem]:
    """Yield the entries. The secret itself never passes through such a file: it is in the vault before."""
    for entry in entries:
        reference = json.dumps({"uri": f"{VAULT[source.generation]}secrets/{entry.secret_name}"}, separators=(",", ":"))
        fields: dict[str, Any] = {"key": entry.key, "value": entry.value or reference}
        if source.generation == "quick-start":
            fields |= {"key_vault_secret_name": entry.secret_name, "key_vault_secret_value": None}
        yield ImportedItem(**fields, label=None, content_type=entry.content_type, tags={})
