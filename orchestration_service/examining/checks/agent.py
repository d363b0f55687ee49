"""The agent: its workflow, its settings, its uploads (contract: portals §2, §3, §4.6; orchestration §1.4, §7)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from deployment_templates.resources.configuration import KNOWLEDGE_EXTENSIONS
from deployment_templates.resources.models import SERVICE_ENDPOINT
from deployment_templates.values import WORKFLOWS
from orchestration_service.examining.facts import Facts, Resource, tools_of, uses_of
from orchestration_service.examining.finding import Finding, Kind
from workflow_schemas.properties import WorkflowProperties

PATCHED = "claude-code-agent-workflow"
_TYPES = frozenset(
    {
        "generic-agent-workflow",
        "external-agent-workflow",
        "langchain-agent-workflow",
        "langchain-expression-language-workflow",
        "langgraph-react-agent-workflow",
        "azure-openai-assistants-workflow",
        "azure-ai-agent-service-workflow",
    }
)
"""The closed list of the platform."""
_SERVED = frozenset({"generic-agent-workflow", "external-agent-workflow"})
_UPLOAD_ROLES = frozenset({"file_upload_data_pipeline", "conversation_knowledge_unit", "agent_private_store_knowledge_unit"})
_INHERITED: Sequence[str] = (
    "FoundationaLLM.Agent/workflows/read",
    "FoundationaLLM.Prompt/prompts/read",
    "FoundationaLLM.AIModel/aiModels/read",
    "FoundationaLLM.Configuration/apiEndpointConfigurations/read",
)

HOST = Kind(
    "workflow-host",
    "agent",
    "The agent's workflow host is not ClaudeCode.",
    "The host is the name of the endpoint, letter by letter; with another one LangChain gets the work, or nobody. The Management Portal "
    "offers LangChain alone.",
    "Set workflow.workflow_host of the agent {agent} to ClaudeCode: {overwrite}",
)
TYPE = Kind(
    "workflow-type",
    "agent",
    "The platform does not know the type of the agent's workflow.",
    "The list of types is closed: every service that loads the agent fails over it, and often over the list of agents with it. "
    "`claude-code-agent-workflow` is known to patched platforms only.",
    "Set workflow.type of the agent {agent} to {type}: {overwrite}",
)
TYPE_OTHER = Kind(
    "workflow-type-other",
    "agent",
    "The agent's workflow has a type that the platform treats in ways of its own.",
    "A save in the Management Portal takes the type of the first workflow of the list; files of users and side effects of other "
    "services go by it.",
    "Set workflow.type of the agent {agent} to {type}: {overwrite}",
)
SETTINGS_GONE = Kind(
    "settings-gone",
    "agent",
    "The agent lacks the tool that carries the settings.",
    "Settings of the profile and models for small tasks and fallbacks are on that tool; without it the defaults hold, and nobody is told.",
    "Put the tool {tool} back on the agent: {overwrite}",
)
SETTINGS_ON_WORKFLOW = Kind(
    "settings-on-workflow",
    "agent",
    "Settings are among the properties of the agent's workflow.",
    "The Management Portal replaces these properties by those of a workflow resource whenever somebody saves the agent.",
    "Give {settings} to the tool {tool} instead: put them into [workflow] of {profile}, then: {overwrite}",
)
WIPED = Kind(
    "agent-wiped",
    "agent",
    "The kinds of artifacts in the history were wiped.",
    "The Management Portal drops them when it saves an agent: later turns of a conversation do not learn what earlier ones did.",
    "Put them back after each save in the portal: {apply}",
)
REFERENCE = Kind(
    "workflow-reference-missing",
    "agent",
    "The agent does not refer to its workflow resource.",
    "Properties of the workflow resource do not come with requests, and the Management Portal asks for a workflow at the next save.",
    "Add {workflow} to workflow.resource_object_ids of the agent: {overwrite}",
)
EXPIRED = Kind(
    "agent-expired",
    "agent",
    "The agent's expiration date is past.",
    "An agent that has expired is in nobody's list.",
    "Take the date away, or set a later one, in the Management Portal: Agents, {agent}, Expiration.",
)
INHERITANCE = Kind(
    "agent-inheritance",
    "agent",
    "The agent does not let its readers read what it consists of.",
    "Users have a role on the agent alone; without these actions its prompt, its model or the endpoint is refused to them.",
    "Add {actions} to inheritable_authorizable_actions of the agent {agent}: {overwrite}",
)
UPLOADS = Kind(
    "uploads-refused",
    "agent",
    "Text files that users attach are not taken, though the profile wants them to be.",
    "The platform sends source code, text and documents through a pipeline, and fails every completion with one of them for an agent "
    "without a tool "
    "that has the three roles for it.",
    "With uploads.mode 'knowledge-tool': put the tool with the roles {roles} on the agent. With 'plain-files': take the kinds of "
    "files off {key}. "
    "Both are done by {overwrite}",
)
CATEGORY = Kind(
    "tool-category",
    "agent",
    "A tool of the agent is in the category Knowledge Search.",
    "The platform refuses to save any agent with such a tool: nothing can be changed about the agent any more.",
    "Set the category of the tool {tool} to Generic: {overwrite}",
)
KINDS: Sequence[Kind] = (
    HOST,
    TYPE,
    TYPE_OTHER,
    SETTINGS_GONE,
    SETTINGS_ON_WORKFLOW,
    WIPED,
    REFERENCE,
    EXPIRED,
    INHERITANCE,
    UPLOADS,
    CATEGORY,
)


def workflow(facts: Facts) -> Iterator[Finding]:
    """The work comes to us, in a form the platform knows."""
    agent = facts.agent
    if agent is None:
        return
    names, there = _names(facts), _workflow(agent)
    host, kind = there.get("workflow_host"), there.get("type")
    if host != SERVICE_ENDPOINT:
        yield HOST.seen(f"The workflow host is {host!r}.", **names)
    is_known = kind in _TYPES or (kind == PATCHED and facts.profile.workflow_type == PATCHED)
    if not is_known:
        yield TYPE.seen(f"The type of the agent's workflow is {kind!r}.", **names)
    elif kind not in {*_SERVED, facts.profile.workflow_type}:
        yield TYPE_OTHER.seen(f"The type of the agent's workflow is {kind!r}.", **names)
    if not any(f"/{WORKFLOWS}/" in object_id for object_id in uses_of(there)):
        yield REFERENCE.seen("Nothing in workflow.resource_object_ids is a workflow.", **names)


def settings(facts: Facts) -> Iterator[Finding]:
    """Settings are where a save in the portal leaves them."""
    agent = facts.agent
    if agent is None:
        return
    names, tool = _names(facts), facts.profile.names.tool
    if all(one.get("name") != tool for one in tools_of(agent)):
        yield SETTINGS_GONE.seen(f"There is no tool {tool!r} among those of the agent.", **names)
    resource = facts.wanted_resource(facts.wanted.seeded[0]) or {}
    on_tools = {name for one in tools_of(agent) for name in ((one.get("properties") or {}).get("claude_code") or {})}
    copied, own = resource.get("properties") or {}, _workflow(agent).get("properties") or {}
    ours = sorted(
        name
        for name, value in own.items()
        if name in WorkflowProperties.model_fields and copied.get(name) != value and name not in on_tools
    )
    if ours:
        yield SETTINGS_ON_WORKFLOW.seen(f"workflow.properties has {', '.join(ours)}.", **names, settings=", ".join(ours))
    history = agent.get("conversation_history_settings") or {}
    if history.get("enabled") and not history.get("history_content_artifact_types"):
        yield WIPED.seen("history_content_artifact_types is empty.", **names)


def offered(facts: Facts) -> Iterator[Finding]:
    """It can be chosen and read."""
    agent = facts.agent
    if agent is None:
        return
    names, until = _names(facts), str(agent.get("expiration_date") or "")
    if until and _is_past(until):
        yield EXPIRED.seen(f"The agent expired on {until[:10]}.", **names)
    lacking = [action for action in _INHERITED if action not in (agent.get("inheritable_authorizable_actions") or ())]
    if lacking:
        yield INHERITANCE.seen(f"These actions are not inherited: {', '.join(lacking)}.", **names, actions=", ".join(lacking))


def uploads(facts: Facts) -> Iterator[Finding]:
    """Files come in as the profile says."""
    agent, chosen = facts.agent, facts.profile.uploads
    if agent is None:
        return
    names = {**_names(facts), "roles": ", ".join(sorted(_UPLOAD_ROLES)), "key": KNOWLEDGE_EXTENSIONS}
    takes = any(_UPLOAD_ROLES <= set(uses_of(tool).values()) for tool in tools_of(agent))
    if chosen.mode == "knowledge-tool" and not takes:
        yield UPLOADS.seen("No tool of the agent has the three roles.", **names)
    if chosen.mode == "plain-files" and not takes:
        entry = facts.entry(KNOWLEDGE_EXTENSIONS)
        listed = {item.strip() for item in entry.value.split(",")} if entry else set(chosen.plain_extensions)
        if held := [one for one in chosen.plain_extensions if one in listed]:
            yield UPLOADS.seen(f"{KNOWLEDGE_EXTENSIONS!r} still has {', '.join(held)}.", **names)
    for tool in tools_of(agent):
        if tool.get("category") == "Knowledge Search":
            yield CATEGORY.seen(
                f"The tool {tool.get('name')!r} is in the category 'Knowledge Search'.", **{**names, "tool": str(tool.get("name"))}
            )


def _names(facts: Facts) -> dict[str, str]:
    names = facts.profile.names
    return {**facts.commands, "agent": names.agent, "tool": names.tool, "workflow": names.workflow, "type": facts.profile.workflow_type}


def _workflow(agent: Resource) -> Mapping[str, Any]:
    found = agent.get("workflow")
    return found if isinstance(found, dict) else {}


def _is_past(text: str) -> bool:
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return False
    return (until if until.tzinfo else until.replace(tzinfo=UTC)) < datetime.now(UTC)
