"""All kinds of findings and all checks, and the table of them for people."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestration_service.examining.checks import agent, endpoint, keys, models, portal, resources, roles, sandbox, service
from orchestration_service.examining.facts import Facts
from orchestration_service.examining.finding import GROUP_WORDS, Finding, Kind
from workflow_schemas.tables import row

Check = Callable[[Facts], Iterator[Finding]]
"""Judges one thing; may raise `NotKnown`."""

NOT_EXAMINED = Kind(
    "not-examined",
    "examination",
    "A fact could not be had, so what depends on it was not judged.",
    "What was not seen may be wrong.",
    "{fix}",
)

KINDS: Sequence[Kind] = (
    *keys.KINDS,
    *endpoint.KINDS,
    *resources.KINDS,
    *agent.KINDS,
    *models.KINDS,
    *sandbox.KINDS,
    *roles.KINDS,
    *portal.KINDS,
    *service.KINDS,
    NOT_EXAMINED,
)

CHECKS: Sequence[Check] = (
    keys.secrets,
    keys.entries,
    keys.accepted,
    endpoint.found,
    endpoint.opened,
    endpoint.addressed,
    endpoint.patient,
    resources.there,
    resources.listed,
    resources.lists,
    resources.shown,
    resources.platform,
    agent.workflow,
    agent.settings,
    agent.offered,
    agent.uploads,
    models.roles,
    models.endpoints,
    models.providers,
    models.keys,
    sandbox.slots,
    sandbox.language,
    sandbox.size,
    sandbox.callers,
    sandbox.image,
    roles.readers,
    portal.featured,
    service.answers,
    service.version,
    service.clock,
    service.identities,
    service.replicas,
    service.remarks,
    service.known_to_platform,
)


def findings_part() -> str:
    """Return a table of the kinds of findings for each group."""
    parts: list[str] = []
    for group, words in GROUP_WORDS.items():
        kinds = [kind for kind in KINDS if kind.group == group]
        parts += [f"## {words}", "", row("Code", "What it means", "Why it matters", "What to do"), "|---|---|---|---|"]
        parts += [*(row(f"`{kind.code}`", kind.meaning, kind.why, _general(kind)) for kind in kinds), ""]
    return "\n".join(parts)


def _general(kind: Kind) -> str:
    examples: Mapping[str, str] = {NOT_EXAMINED.code: "What the finding says: a role, a network, or an option of the command."}
    return examples.get(kind.code, kind.fix_in_general)
