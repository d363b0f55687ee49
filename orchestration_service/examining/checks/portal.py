"""The User Portal: which agents are featured (contract: portals §2.3, trap 21)."""

from collections.abc import Iterator, Sequence

from deployment_templates.resources.configuration import FEATURED_AGENTS
from orchestration_service.examining.facts import Facts
from orchestration_service.examining.finding import Finding, Kind

EMPTY = Kind(
    "featured-empty",
    "portal",
    "The list of featured agents is empty.",
    "An empty value stops the User Portal from loading its list of agents: users see none at all.",
    "Set {key} to the names of agents, or to true for none: {apply}. Restart the Core API.",
)
MISSING = Kind(
    "featured-missing",
    "portal",
    "The agent is not among the featured ones, though the profile wants it to be.",
    "Users find it below the others, and new conversations do not begin with it.",
    "Add {agent} to {key}: {apply}. Restart the Core API.",
)
KINDS: Sequence[Kind] = (EMPTY, MISSING)


def featured(facts: Facts) -> Iterator[Finding]:
    """The list of agents is shown, with this one in it."""
    entry, agent = facts.entry(FEATURED_AGENTS), facts.profile.names.agent
    names = {**facts.commands, "key": FEATURED_AGENTS, "agent": agent}
    if entry is not None and not entry.value.strip():
        yield EMPTY.seen(f"The entry {FEATURED_AGENTS!r} is empty.", **names)
        return
    there = [item.partition("|")[0].strip() for item in (entry.value if entry else "").split(",")]
    if facts.profile.portal.featured and agent not in there:
        yield MISSING.seen(f"{agent!r} is not in {FEATURED_AGENTS!r}.", **names)
