"""Who may do what: readers of agent, endpoint, workflow and tool (contract: portals §1.6, §2.3, trap 24)."""

from collections.abc import Iterator, Mapping, Sequence

from deployment_templates.resources.members import RoleMember
from orchestration_service.examining.facts import Facts, each, known
from orchestration_service.examining.finding import Finding, Kind

_READING = frozenset(
    {"00a53e72-f66e-4c03-8f81-7e885fd2eb35", "a9f0020f-6e3a-49bf-8d1d-35fd53058edf", "1301f8d4-3bea-4880-945f-315dbd2ddb46"}
)
"""Reader, Contributor, Owner: each may read."""
_CHANGING = _READING - {"00a53e72-f66e-4c03-8f81-7e885fd2eb35"}
_USING = frozenset({"d0d21b90-5317-499a-9208-3a6cb71b84f9", "8e77fb6a-7a78-43e1-b628-d9e2285fe25a"})
"""Conversations and Attachments Contributor, which may read every endpoint."""

AGENT = Kind(
    "agent-reader-missing",
    "roles",
    "A group cannot read the agent.",
    "The agent is in the list of those who may read it, and of nobody else.",
    "Give the group {principal} the role {role} on {scope}: {apply}",
)
ENDPOINT = Kind(
    "endpoint-reader-missing",
    "roles",
    "A group cannot read the endpoint of the service.",
    "The platform calls the service as the user: users see the agent, and each of their completions fails.",
    "Give the group {principal} the role {role} on {scope}: {apply}",
)
WORKFLOW = Kind(
    "workflow-reader-missing",
    "roles",
    "Holders of agent access tokens cannot read the workflow or the tool.",
    "Completions with an access token fail when the agent is loaded.",
    "Give the group {principal} the role {role} on {scope}: {apply}",
)
KINDS: Sequence[Kind] = (AGENT, ENDPOINT, WORKFLOW)

_KINDS: Mapping[str, Kind] = {"agents": AGENT, "apiEndpointConfigurations": ENDPOINT, "workflows": WORKFLOW, "tools": WORKFLOW}


def readers(facts: Facts) -> Iterator[Finding]:
    """Everybody who is to have a role has it, or a wider one."""

    def judged(member: RoleMember) -> Iterator[Finding]:
        given = member.assignment
        if not _has(facts, member):
            place = given.scope.split("/")[-2]
            found = f"The group {given.principal_id!r} lacks the role for which it is said: {given.description}"
            yield _KINDS[place].seen(found, **facts.commands, principal=given.principal_id, role=_word(member), scope=given.scope)

    return each(facts.wanted.roles, judged)


def _has(facts: Facts, member: RoleMember) -> bool:
    instance, given = f"/instances/{facts.profile.instance_id}", member.assignment
    enough = _CHANGING if _word(member) == "Contributor" else _READING
    everywhere = enough | (_USING if "/apiEndpointConfigurations/" in given.scope else frozenset())
    return _holds(facts, instance, given.principal_id, everywhere) or _holds(facts, given.scope, given.principal_id, enough)


def _holds(facts: Facts, scope: str, principal: str, enough: frozenset[str]) -> bool:
    return any(
        str(one.get("principal_id", "")).casefold() == principal.casefold()
        and str(one.get("role_definition_id", "")).rpartition("/")[2] in enough
        for one in known(facts.roles[scope])
    )


def _word(member: RoleMember) -> str:
    return "Contributor" if member.label.startswith("agentContributor") else "Reader"
