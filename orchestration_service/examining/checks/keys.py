"""Keys: the secret, the entry that leads to it, and whether the service takes it (contract: orchestration §1.2, trap 19)."""

import json
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from deployment_templates.resources.configuration import REFERENCE_CONTENT
from deployment_templates.resources.members import NeededSecret
from orchestration_service.deploying.installation import variable_of
from orchestration_service.examining.facts import Answer, Facts, each, known
from orchestration_service.examining.finding import Finding, Kind

SECRET_MISSING = Kind(
    "secret-missing",
    "keys",
    "A secret is not in the key vault, and nothing refers to it yet.",
    "Nobody can open the service or the model provider without it.",
    "Set {variable} to its value (the service's own key is made where none is given): {apply}",
)
ENTRY_BEFORE_SECRET = Kind(
    "entry-before-secret",
    "keys",
    "An entry refers to a secret that is not in the key vault.",
    "Services of the platform read all entries below FoundationaLLM:APIEndpoints when they start, and do not start over a reference "
    "to nothing.",
    "Put the secret there before anything is restarted: az keyvault secret set --vault-name {vault} --name {secret} --value VALUE",
)
SECRET_EMPTY = Kind(
    "secret-empty",
    "keys",
    "A secret is in the key vault and has no value.",
    "It is sent as an empty key, which nobody accepts.",
    "az keyvault secret set --vault-name {vault} --name {secret} --value VALUE",
)
ENTRY_MISSING = Kind(
    "entry-missing",
    "keys",
    "A secret is in the key vault, and no entry of App Configuration refers to it.",
    "The platform and the service look keys up in App Configuration; without the entry there is no key.",
    "Make the entry {key}: {apply}",
)
ENTRY_IN_CLEAR = Kind(
    "entry-in-clear",
    "keys",
    "An entry holds something else than a reference to the key vault.",
    "A key in clear is read by everybody who may read App Configuration; a reference with another content type is taken for the key "
    "itself.",
    "{overwrite} makes {key} a reference again. If a key stood there in clear, replace it where it comes from.",
)
ENTRY_ELSEWHERE = Kind(
    "entry-elsewhere",
    "keys",
    "An entry refers to another secret than the installation's.",
    "The platform then sends another key than the one that is kept and rotated.",
    "{overwrite} makes {key} refer to {secret}; or name the vault and the prefix of the secrets in the profile as they are.",
)
KEY_REFUSED = Kind(
    "key-refused",
    "keys",
    "The service refuses the key that is in the key vault.",
    "The Orchestration API sends that key and is answered 401: every completion fails at once.",
    "The service reads its key from App Configuration within six minutes, unless CLAUDE_CODE_API_KEY is set for it: take that variable "
    "away, "
    "or set it to the value of {secret}, and restart the service. Then restart the Orchestration API if the key was changed.",
)
KEY_NOT_ASKED = Kind(
    "key-not-asked",
    "keys",
    "The service, or what answers in its place, does not ask for a key.",
    "Anybody who reaches the address could act as any user.",
    "Look at what is in front of {address}: a proxy that adds the header X-API-KEY has to stop doing so.",
)
KINDS: Sequence[Kind] = (
    SECRET_MISSING,
    ENTRY_BEFORE_SECRET,
    SECRET_EMPTY,
    ENTRY_MISSING,
    ENTRY_IN_CLEAR,
    ENTRY_ELSEWHERE,
    KEY_REFUSED,
    KEY_NOT_ASKED,
)


def secrets(facts: Facts) -> Iterator[Finding]:
    """Each secret is there, and an entry refers to it; in this order."""

    def judged(wanted: NeededSecret) -> Iterator[Finding]:
        entry, value = facts.entry(wanted.key), known(facts.secrets[wanted.name])
        names = {**facts.commands, **_names(facts), "secret": wanted.name, "key": wanted.key, "variable": variable_of(wanted.key)}
        if value is None and entry is None:
            yield SECRET_MISSING.seen(f"There is no secret {wanted.name!r}, and no entry {wanted.key!r}.", **names)
        elif value is None:
            yield ENTRY_BEFORE_SECRET.seen(f"The entry {wanted.key!r} is there, the secret {wanted.name!r} is not.", **names)
        elif entry is None:
            yield ENTRY_MISSING.seen(f"The secret {wanted.name!r} is there, the entry {wanted.key!r} is not.", **names)
        elif not value.get_secret_value().strip():
            yield SECRET_EMPTY.seen(f"The secret {wanted.name!r} is empty.", **names)

    return each(facts.wanted.secrets, judged)


def entries(facts: Facts) -> Iterator[Finding]:
    """Each entry of a secret is a reference, and leads to the installation's own secret."""

    def judged(wanted: NeededSecret) -> Iterator[Finding]:
        entry = facts.entry(wanted.key)
        if entry is None:
            return
        names = {**facts.commands, "secret": wanted.name, "key": wanted.key}
        address = _address_in(entry.value)
        if address is None or entry.content_type.replace(" ", "") != REFERENCE_CONTENT:
            yield ENTRY_IN_CLEAR.seen(f"The entry {wanted.key!r} is no reference to a secret; its value is not shown.", **names)
        elif not _is_secret_of(address, str(facts.profile.platform.key_vault_url), wanted.name):
            yield ENTRY_ELSEWHERE.seen(f"The entry {wanted.key!r} leads to {address!r}.", **names)

    return each(facts.wanted.secrets, judged)


def accepted(facts: Facts) -> Iterator[Finding]:
    """The service takes the key of the vault, and nothing without it."""
    secret = facts.wanted.secrets[0].name
    with_key = facts.service.with_key
    if with_key is not None and known(with_key).status == 401:
        yield KEY_REFUSED.seen(f"The service at {facts.service.address!r} answers 401 to the key of {secret!r}.", secret=secret)
    without = known(facts.service.without_key)
    if with_key is not None and known(with_key).status == without.status == 404 and _is_ours(without):
        yield KEY_NOT_ASKED.seen(f"A request without a key was let in at {facts.service.address!r}.", address=facts.service.address)


def _names(facts: Facts) -> dict[str, str]:
    return {"vault": (urlsplit(str(facts.profile.platform.key_vault_url)).hostname or "VAULT").partition(".")[0]}


def _address_in(value: str) -> str | None:
    try:
        address = json.loads(value)["uri"]
    except (ValueError, KeyError, TypeError):
        return None
    return address if isinstance(address, str) else None


def _is_secret_of(address: str, vault: str, name: str) -> bool:
    """Whether an address is that of a secret, in any of its versions."""
    there, ours = urlsplit(address), urlsplit(vault)
    parts = there.path.strip("/").split("/")
    return there.netloc.casefold() == ours.netloc.casefold() and parts[:2] == ["secrets", name]


def _is_ours(answer: Answer) -> bool:
    """Whether an answer speaks of a turn, as the service does, and is not that of a proxy without a route."""
    return answer.content is not None and answer.content.get("status") == 404
