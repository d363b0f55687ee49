"""What goes wrong in real installations, one thing each: the code of the finding, words its fix must have, and how it comes about."""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from deployment_templates.profile import Uploads
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS, FEATURED_AGENTS, KNOWLEDGE_EXTENSIONS, SESSION_LANGUAGE
from orchestration_service.remarks import ALONE, NO_DRAIN, STORE_AWAY, UNKNOWN_SETTINGS
from tests.orchestration_service.configuration.store import REFERENCE
from tests.orchestration_service.deploying.standins.world import INSTANCE, USERS
from tests.orchestration_service.examining.installation import MODEL_SECRET, SERVICE_SECRET, Installation

Seed = Callable[[Installation], Awaitable[None]]

SERVICE_KEY = "FoundationaLLM:APIEndpoints:ClaudeCode:Essentials:APIKey"
MODEL_KEY = "FoundationaLLM:APIEndpoints:Anthropic:Essentials:APIKey"
ENDPOINT = "FoundationaLLM.Configuration/ClaudeCode.json"
PROVIDER = "FoundationaLLM.Configuration/Anthropic.json"
ENDPOINTS = "FoundationaLLM.Configuration/_resource-references.json"
AGENT = "FoundationaLLM.Agent/claude-code.json"
AGENTS = "FoundationaLLM.Agent/_resource-references.json"
WORKFLOW = "FoundationaLLM.Agent/ClaudeCodeAgentWorkflow.json"
MODEL = "FoundationaLLM.AIModel/ClaudeSonnetCompletionAIModel.json"
PROMPT = "FoundationaLLM.Prompt/claude-code-system.json"


def setting(path: str, *place: str | int, value: Any) -> Seed:
    """A field of a resource has another value."""

    async def seed(there: Installation) -> None:
        def change(content: Any) -> None:
            for step in place[:-1]:
                content = content[step]
            content[place[-1]] = value

        await there.edit(path, change)

    return seed


def line_of(path: str, name: str, **fields: Any) -> Seed:
    """A line of a list has other fields; without any, it is gone."""

    async def seed(there: Installation) -> None:
        def change(content: dict[str, Any]) -> None:
            lines = content["ResourceReferences"]
            line = next(line for line in lines if line["Name"] == name)
            line.update(fields) if fields else lines.remove(line)

        await there.edit(path, change)

    return seed


def around(**fields: Any) -> Seed:
    """Something around the service is otherwise."""

    async def seed(there: Installation) -> None:
        for name, value in fields.items():
            setattr(there.around, name, value)

    return seed


def entry(key: str, value: str | None) -> Seed:
    async def seed(there: Installation) -> None:
        there.entry(key, value)

    return seed


def gone(path: str) -> Seed:
    async def seed(there: Installation) -> None:
        await there.delete(path)

    return seed


def reader_gone(kind: str) -> Seed:
    async def seed(there: Installation) -> None:
        ours = [one for one in there.world.api.assignments if f"/{kind}/" in one["scope"]]
        lost = next(one for one in ours if one["principal_id"] == USERS or kind in {"workflows", "tools"})
        there.world.api.assignments.remove(lost)

    return seed


def secret(name: str, value: str | None) -> Seed:
    async def seed(there: Installation) -> None:
        there.world.stores.secrets.pop(name)
        if value is not None:
            there.world.stores.secrets[name] = value

    return seed


def without_use(role: str) -> Seed:
    async def seed(there: Installation) -> None:
        def change(agent: dict[str, Any]) -> None:
            uses = agent["workflow"]["resource_object_ids"]
            agent["workflow"]["resource_object_ids"] = {
                key: use for key, use in uses.items() if (use["properties"] or {}).get("object_role") != role and role not in key
            }

        await there.edit(AGENT, change)

    return seed


async def no_key_yet(there: Installation) -> None:
    del there.world.stores.secrets[MODEL_SECRET]
    there.entry(MODEL_KEY, None)


async def key_in_clear(there: Installation) -> None:
    there.world.stores.set(MODEL_KEY, "sk-ant-in-the-clear", "")


async def key_elsewhere(there: Installation) -> None:
    there.world.stores.set(SERVICE_KEY, json.dumps({"uri": "https://other.vault.azure.net/secrets/langchain"}), REFERENCE)


async def never_there(there: Installation) -> None:
    await gone(PROMPT)(there)
    await line_of("FoundationaLLM.Prompt/_resource-references.json", "claude-code-system")(there)


async def broken(there: Installation) -> None:
    await there.put(PROMPT, b"{'not': 'JSON'}")


async def type_last(there: Installation) -> None:
    agent = json.loads(there.blobs[AGENT])
    agent["workflow"] = {**{key: value for key, value in agent["workflow"].items() if key != "type"}, "type": agent["workflow"]["type"]}
    await there.put(AGENT, json.dumps(agent).encode())


async def seeded_without_reset(there: Installation) -> None:
    await there.world.api._all("FoundationaLLM.Agent", "workflows")
    await there.edit(WORKFLOW, lambda content: content.update(display_name="Another name"), is_seen=False)


async def never_shown(there: Installation) -> None:
    there.world.api.memory["FoundationaLLM.Agent"].lines.pop("claude-code")


async def another_model(there: Installation) -> None:
    def change(agent: dict[str, Any]) -> None:
        uses = agent["workflow"]["resource_object_ids"]
        key = f"/instances/{INSTANCE}/providers/FoundationaLLM.AIModel/aiModels/Gone"
        there_now = next(key for key in uses if "/aiModels/" in key)
        uses[key] = {**uses.pop(there_now), "object_id": key}

    await there.edit(AGENT, change)


async def tool_gone(there: Installation) -> None:
    await there.edit(AGENT, lambda agent: agent.update(tools=[]))


async def saved_in_portal(there: Installation) -> None:
    await there.world.save_agent_in_portal()


async def uploads_as_files(there: Installation) -> None:
    there.profile = there.profile.model_copy(update={"uploads": Uploads(mode="plain-files")})
    there.entry(KNOWLEDGE_EXTENSIONS, "py, md, pdf")


async def uploads_by_tool(there: Installation) -> None:
    uploads = Uploads(mode="knowledge-tool", data_pipeline="P", knowledge_unit="U", private_store_knowledge_unit="V")
    there.profile = there.profile.model_copy(update={"uploads": uploads})


async def expired(there: Installation) -> None:
    await there.edit(AGENT, lambda agent: agent.update(expiration_date="2020-01-01T00:00:00+00:00"))


async def platform_lacks_gateway(there: Installation) -> None:
    await line_of(ENDPOINTS, "GatewayAPI")(there)


def pools(python: Sequence[str], csharp: Sequence[str] = ()) -> Seed:
    async def seed(there: Installation) -> None:
        slots = {"Python": list(python), "CSharp": list(csharp)}
        filled = {slot: [url.replace("OURS", f"{there.url}/pool") for url in urls] for slot, urls in slots.items()}
        there.entry(CUSTOM_CONTAINERS, json.dumps({"Endpoints": filled}))

    return seed


async def two_pools_and_no_choice(there: Installation) -> None:
    sandbox = there.profile.sandbox.model_copy(update={"pool_url": None})
    there.profile = there.profile.model_copy(update={"sandbox": sandbox})
    await pools(["OURS", "https://theirs.dynamicsessions.io"])(there)


def pool(cpu: float = 1.0, memory: str = "2.0Gi", network: str = "EgressDisabled") -> Seed:
    containers = {"containers": [{"resources": {"cpu": cpu, "memory": memory}}]}
    return around(pool={"customContainerTemplate": containers, "sessionNetworkConfiguration": {"status": network}})


async def wrong_key(there: Installation) -> None:
    there.world.stores.secrets[SERVICE_SECRET] = "a-key-that-the-service-never-had"


async def key_added_on_the_way(there: Installation) -> None:
    there.around.key = there.world.stores.secrets[SERVICE_SECRET]


def clock(minutes: int) -> Seed:
    async def seed(there: Installation) -> None:
        there.around.date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)

    return seed


THEIRS = "https://theirs.dynamicsessions.io"

FAULTS: Sequence[tuple[str, str, Seed]] = (
    ("secret-missing", "Set DEPLOY_ANTHROPIC_APIKEY", no_key_yet),
    ("entry-before-secret", f"--name {MODEL_SECRET}", secret(MODEL_SECRET, None)),
    ("secret-empty", f"--name {MODEL_SECRET}", secret(MODEL_SECRET, "")),
    ("entry-missing", MODEL_KEY, entry(MODEL_KEY, None)),
    ("entry-in-clear", MODEL_KEY, key_in_clear),
    ("entry-elsewhere", SERVICE_SECRET, key_elsewhere),
    ("key-refused", SERVICE_SECRET, wrong_key),
    ("key-not-asked", "X-API-KEY", key_added_on_the_way),
    ("endpoint-category", "ExternalOrchestration", setting(ENDPOINT, "category", value="Orchestration")),
    (
        "endpoint-key-prefix",
        SERVICE_KEY,
        setting(ENDPOINT, "authentication_parameters", "api_key_configuration_name", value="ClaudeCode:APIKey"),
    ),
    ("endpoint-key-name", SERVICE_KEY, setting(ENDPOINT, "authentication_parameters", "api_key_configuration_name", value=MODEL_KEY)),
    ("endpoint-authentication", "to APIKey", setting(ENDPOINT, "authentication_type", value="AzureIdentity")),
    ("endpoint-header", "X-API-KEY", setting(ENDPOINT, "authentication_parameters", "api_key_header_name", value="Authorization")),
    ("endpoint-address", "Set the address", setting(ENDPOINT, "url", value="https://cc.example.com/claude/")),
    ("endpoint-elsewhere", "service.url", setting(ENDPOINT, "url", value="https://another.example.com")),
    ("endpoint-timeout", "1800", setting(ENDPOINT, "timeout_seconds", value=100)),
    (
        "endpoint-redirected",
        "ann@contoso.com",
        setting(ENDPOINT, "url_exceptions", value=[{"user_principal_name": "ann@contoso.com", "url": "http://localhost", "enabled": True}]),
    ),
    ("resource-missing", "deploy apply --profile west.toml", never_there),
    ("resource-file-missing", "Take the line claude-code-system out", gone(PROMPT)),
    ("resource-broken", PROMPT, broken),
    ("type-not-first", AGENT, type_last),
    ("reference-missing", AGENTS, line_of(AGENTS, "ClaudeCodeSettings")),
    ("reference-missing", MODEL.split("/")[0], line_of("FoundationaLLM.AIModel/_resource-references.json", MODEL[23:-5], Deleted=True)),
    ("reference-type", "ClaudeCodeAgentWorkflow", line_of(AGENTS, "ClaudeCodeAgentWorkflow", Type="agent-workflow")),
    ("name-shared", "ClaudeCodeSettings", line_of(AGENTS, "ClaudeCodeSettings", Type="workflow")),
    ("cache-stale", "resets the cache of FoundationaLLM.Agent", seeded_without_reset),
    ("cache-stale", "restart the Management", never_shown),
    ("platform-endpoint-missing", "GatewayAPI", platform_lacks_gateway),
    ("workflow-host", "to ClaudeCode", setting(AGENT, "workflow", "workflow_host", value="claudecode")),
    ("workflow-type", "to generic-agent-workflow", setting(AGENT, "workflow", "type", value="claude-code-agent-workflow")),
    ("workflow-type-other", "to generic-agent-workflow", setting(AGENT, "workflow", "type", value="azure-openai-assistants-workflow")),
    ("settings-gone", "ClaudeCodeSettings", tool_gone),
    (
        "settings-on-workflow",
        "Give max_turns to the tool ClaudeCodeSettings",
        setting(AGENT, "workflow", "properties", value={"max_turns": 7}),
    ),
    ("agent-wiped", "deploy apply", saved_in_portal),
    ("workflow-reference-missing", "Add ClaudeCodeAgentWorkflow", without_use("/workflows/")),
    ("agent-expired", "Expiration", expired),
    ("agent-inheritance", "aiModels/read", setting(AGENT, "inheritable_authorizable_actions", value=[])),
    ("uploads-refused", KNOWLEDGE_EXTENSIONS, uploads_as_files),
    ("uploads-refused", "file_upload_data_pipeline", uploads_by_tool),
    ("tool-category", "ClaudeCodeSettings to Generic", setting(AGENT, "tools", 0, "category", value="Knowledge Search")),
    ("main-model-missing", "main_model", without_use("main_model")),
    ("main-prompt-missing", "main_prompt", without_use("main_prompt")),
    ("use-unresolved", "aiModels/Gone", another_model),
    ("model-provider", "Anthropic", setting(PROVIDER, "provider", value="databricks")),
    ("model-key", MODEL_KEY, setting(PROVIDER, "authentication_parameters", value={})),
    (
        "model-key",
        MODEL_KEY,
        setting(PROVIDER, "authentication_parameters", "api_key_configuration_name", value=MODEL_KEY.replace("Anthropic", "Nobody")),
    ),
    ("model-name-missing", "deployment_name", setting(MODEL, "deployment_name", value="")),
    ("pool-missing", "sandbox.pool_url", pools([], [THEIRS])),
    ("pool-entry-broken", CUSTOM_CONTAINERS, entry(CUSTOM_CONTAINERS, '["https://pool"]')),
    ("pool-other-slot", "slot Python", pools([THEIRS], ["OURS"])),
    ("pool-not-first", "first in the slot Python", pools([THEIRS, "OURS"])),
    ("pool-crowded", "sandbox.pool_url", two_pools_and_no_choice),
    ("session-language", SESSION_LANGUAGE, entry(SESSION_LANGUAGE, "CSharp")),
    ("pool-small", "--cpu 1 --memory 2.0Gi", pool(cpu=0.25, memory="0.5Gi")),
    ("pool-egress", "--network-status EgressDisabled", pool(network="EgressEnabled")),
    ("pool-caller-role", "Azure ContainerApps Session Executor", around(callers=[])),
    ("pool-image", "claude-code-runner", around(health={"status": "ok"})),
    ("runner-differs", "./dev image", around(health={"status": "ready", "version": "0.0.1", "source_digest": "sha256:old"})),
    ("agent-reader-missing", USERS, reader_gone("agents")),
    ("endpoint-reader-missing", "apiEndpointConfigurations/ClaudeCode", reader_gone("apiEndpointConfigurations")),
    ("workflow-reader-missing", "workflows/ClaudeCodeAgentWorkflow", reader_gone("workflows")),
    ("featured-empty", FEATURED_AGENTS, entry(FEATURED_AGENTS, "")),
    ("featured-missing", FEATURED_AGENTS, entry(FEATURED_AGENTS, "FoundationaLLM,claude")),
    ("service-not-ready", "log of the service", around(status=503)),
    ("service-instance", f"set CLAUDE_CODE_INSTANCE_ID to {INSTANCE}", around(refused=INSTANCE)),
    ("service-stranger", "service.url", around(told={"name": "LangChainAPI"})),
    ("service-version", "deploy apply", around(told={"version": "0.0.1"})),
    ("clock-skew", "Synchronise", clock(minutes=10)),
    ("identity-too-big", "64 KiB", around(header_bytes=16 * 1024)),
    (
        "replicas-without-store",
        "CLAUDE_CODE_COSMOS_ENDPOINT",
        around(replicas=[{"instance_name": name, "message": ALONE} for name in "ab"]),
    ),
    ("service-store-away", "App Configuration Data Reader", around(told={"message": STORE_AWAY})),
    ("settings-ignored", "./dev config show", around(told={"message": f"{ALONE} {UNKNOWN_SETTINGS}"})),
    ("no-drain", "CLAUDE_CODE_DRAIN_SECONDS", around(told={"message": NO_DRAIN})),
    ("orchestration-not-restarted", "rollout restart deployment/orchestration-api", around(orchestrators=["LangChain"])),
)
"""Each of them with an installation that is well otherwise."""
