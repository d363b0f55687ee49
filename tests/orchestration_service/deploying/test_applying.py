"""Installing: once, twice, after failures, beside others."""

import json
from dataclasses import replace
from typing import Any, Literal

import anyio
import pytest

from deployment_templates.profile import Sandbox, Uploads
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS, KNOWLEDGE_EXTENSIONS, AppConfigurationEntry
from orchestration_service.deploying.errors import Halted, NameTaken
from orchestration_service.deploying.record import RECORD
from orchestration_service.deploying.steps.entry import EntryStep
from tests.orchestration_service.deploying.standins.world import AGENT_LIST, FEATURED, World

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulator

OUR_POOL, THEIR_POOL = "https://ours.dynamicsessions.io", "https://theirs.dynamicsessions.io"
AGENT = "FoundationaLLM.Agent/claude-code.json"


async def test_a_first_apply_keeps_the_order_and_a_second_one_writes_nothing(world: World) -> None:
    done = await world.apply()
    kinds = [line.split()[1] for line in done]
    assert list(dict.fromkeys(kinds)) == ["secret", "entry", "endpoint", "model", "prompt", "workflow", "tool", "memory", "agent", "role"]
    assert done[-1] == f"change entry {FEATURED!r}", "users see the agent last"
    assert world.stores.settings[FEATURED]["value"] == "claude-code"
    world.faults.writes.clear()
    before = await world.etags()
    assert await world.apply() == []
    assert (world.faults.writes, await world.etags()) == ([], before)
    assert [finding for finding in await world.plan() if finding.kept or finding.note] == []


@pytest.mark.parametrize("how", ["refused", pytest.param("answer lost", marks=pytest.mark.faults)])
async def test_failing_at_every_write_in_turn_ends_like_an_undisturbed_apply(world: World, how: Literal["refused", "answer lost"]) -> None:
    """One write more gets through each time; whether the last one was carried out is not known to who sent it."""
    clean = await world.state()
    await world.apply()
    undisturbed = await world.state()
    await world.remove()
    assert await world.state() == clean
    world.faults.how = how
    failures = 0
    for _ in range(120):
        world.faults.passing = 1 if how == "refused" else 0
        try:
            await world.apply()
        except Halted:
            failures += 1
        else:
            break
    world.faults.passing = None
    assert await world.apply() == []
    assert await world.state() == undisturbed
    assert failures > 20


@pytest.mark.parametrize("passing", [4, pytest.param(1, marks=pytest.mark.faults)])
async def test_removing_leaves_no_trace_and_can_fail_in_between(world: World, passing: int) -> None:
    before = await world.state()
    await world.apply()
    for _ in range(120):
        world.faults.passing = passing
        try:
            await world.remove()
        except Halted:
            continue
        break
    world.faults.passing = None
    assert [finding.what for finding in await world.remove() if finding.acts] == []
    assert await world.state() == before
    assert await world.apply(), "and it can be installed again, over deleted secrets"


async def test_an_edit_of_a_list_in_the_very_moment_of_ours_is_not_lost(world: World) -> None:
    theirs = {"ObjectId": None, "Name": "theirs", "Filename": "/FoundationaLLM.Agent/theirs.json", "Type": "tool", "Deleted": False}

    async def act() -> None:
        await world.api._write("FoundationaLLM.Agent/theirs.json", {"type": "tool", "name": "theirs"})
        await world.edit(AGENT_LIST, lambda content: content["ResourceReferences"].append(theirs))

    world.door.before_write = (AGENT_LIST, act)
    await world.apply()
    names = [line["Name"] for line in json.loads(await world.read(AGENT_LIST))["ResourceReferences"]]
    assert names == ["FoundationaLLM", "GenericAgentWorkflow", "theirs", "ClaudeCodeAgentWorkflow", "ClaudeCodeSettings", "claude-code"]
    world.door.before_write = (AGENT_LIST, lambda: world.edit(AGENT_LIST, lambda content: content["ResourceReferences"].pop(0)))
    late = {"Name": "late", "Filename": "/FoundationaLLM.Agent/late.json", "Type": "tool", "Deleted": False}
    await world.edit(AGENT_LIST, lambda content: content["ResourceReferences"].append(late))
    await world.remove()
    names = [line["Name"] for line in json.loads(await world.read(AGENT_LIST))["ResourceReferences"]]
    assert names == ["GenericAgentWorkflow", "theirs", "late"], "also what the Management API had not read yet when it wrote its list"


async def test_a_list_that_the_platform_is_writing_is_waited_for(world: World) -> None:
    """It holds a lease meanwhile."""
    async with anyio.create_task_group() as tasks:

        async def hold() -> None:
            lease = await world.container.get_blob_client(AGENT_LIST).acquire_lease(15)
            tasks.start_soon(let_go, lease)

        async def let_go(lease: Any) -> None:
            await anyio.sleep(0.5)
            await lease.release()

        world.door.before_write = (AGENT_LIST, hold)
        assert "create workflow 'ClaudeCodeAgentWorkflow'" in await world.apply()


async def test_two_deployments_at_once_do_not_mix(world: World) -> None:
    async def act() -> None:
        await world.apply()

    world.door.before_write = (RECORD, act)
    with pytest.raises(Halted, match="Another deployment of this agent is running"):
        await world.apply()
    assert await world.apply() == []


async def test_an_edit_of_a_shared_value_in_the_very_moment_of_ours_is_not_lost(world: World) -> None:
    def act(key: str) -> None:
        world.stores.set(FEATURED, "FoundationaLLM")

    async with world.deployment() as deployment:
        for step in deployment.steps[:-1]:
            await step.apply()
        world.stores.before_put = act
        await deployment.steps[-1].apply()
    assert world.stores.settings[FEATURED]["value"] == "claude-code,FoundationaLLM"


async def test_what_administrators_chose_stays_and_what_the_portal_wiped_is_put_back(world: World) -> None:
    await world.apply()
    await world.save_agent_in_portal(display_name="Our coder", properties={"welcome_message": "Hi."})
    finding = next(one for one in await world.plan() if one.what == "agent 'claude-code'")
    assert sorted(".".join(leaf.path) for leaf in finding.kept) == ["display_name", "properties.welcome_message"]
    await world.apply()
    agent = json.loads(await world.read(AGENT))
    assert agent["display_name"] == "Our coder"
    assert agent["conversation_history_settings"]["history_content_artifact_types"] == "File,WorkflowExecution"
    assert [one for one in await world.remove() if one.stays][0].what == "agent 'claude-code'"
    assert json.loads(await world.read(AGENT))["display_name"] == "Our coder", "changed by others: kept, and all it needs"
    assert await world.apply(overwrite=True) == ["change agent 'claude-code'"]
    assert json.loads(await world.read(AGENT))["display_name"] == "Claude Code"


async def test_a_new_version_of_ours_changes_what_nobody_else_touched(world: World) -> None:
    await world.apply()
    models = world.profile.models.model_copy(update={"sonnet": "claude-sonnet-5"})
    world.profile = world.profile.model_copy(update={"models": models})
    finding = next(one for one in await world.plan() if one.acts)
    assert [str(leaf) for leaf in finding.leaves] == ['deployment_name: "claude-sonnet-4-5" -> "claude-sonnet-5"']
    assert await world.apply() == ["change model 'ClaudeSonnetCompletionAIModel'"]
    world.profile = world.profile.model_copy(update={"names": world.profile.names.model_copy(update={"prompt": "another"})})
    async with world.deployment() as deployment:
        await deployment.plan()
        assert list(deployment.leftovers()) == ["prompt 'claude-code-system'"]


async def test_things_that_were_there_before_are_neither_changed_nor_removed(world: World) -> None:
    endpoint = {"type": "api-endpoint", "name": "Anthropic", "category": "LLM", "url": "https://gateway.example.com"}
    await world.api._write("FoundationaLLM.Configuration/Anthropic.json", endpoint)
    line = {"ObjectId": None, "Name": "Anthropic", "Filename": "/FoundationaLLM.Configuration/Anthropic.json", "Type": "api-endpoint"}
    await world.edit("FoundationaLLM.Configuration/_resource-references.json", lambda content: content["ResourceReferences"].append(line))
    world.stores.secrets["foundationallm-apiendpoints-anthropic-apikey"] = "theirs"
    await world.api.reset("FoundationaLLM.Configuration")
    await world.apply()
    await world.remove()
    assert json.loads(await world.read("FoundationaLLM.Configuration/Anthropic.json")) == endpoint
    assert world.stores.secrets["foundationallm-apiendpoints-anthropic-apikey"] == "theirs"


async def test_values_kept_together_with_others_come_back_as_they_were(world: World) -> None:
    """To the letter where nobody wrote them since; otherwise only what is ours goes."""
    world.profile = world.profile.model_copy(update={"uploads": Uploads(mode="plain-files"), "sandbox": Sandbox(pool_url=OUR_POOL)})
    compact = json.dumps({"Endpoints": {"Python": [THEIR_POOL], "CSharp": []}}, separators=(",", ":"))
    world.stores.set(KNOWLEDGE_EXTENSIONS, "md,pdf")
    world.stores.set(CUSTOM_CONTAINERS, compact)
    await world.apply()
    pools = {"Endpoints": {"Python": [OUR_POOL, THEIR_POOL], "CSharp": []}}
    assert json.loads(world.stores.settings[CUSTOM_CONTAINERS]["value"]) == pools
    await world.remove()
    assert [world.stores.settings[key]["value"] for key in (KNOWLEDGE_EXTENSIONS, CUSTOM_CONTAINERS)] == ["md,pdf", compact]
    await world.apply()
    world.stores.set(CUSTOM_CONTAINERS, json.dumps(pools, indent=4))
    assert await world.apply() == [], "another form is not another value"
    await world.remove()
    assert json.loads(world.stores.settings[CUSTOM_CONTAINERS]["value"])["Endpoints"]["Python"] == [THEIR_POOL]


async def test_a_plain_value_of_others_is_taken_over_only_when_told_to_and_comes_back(world: World) -> None:
    async with world.deployment() as deployment, world.places() as places:
        await deployment.plan()
        entry = AppConfigurationEntry(key="FoundationaLLM:Some:Key", why="a test", value="ours")
        world.stores.set(entry.key, "theirs")
        step = EntryStep(places.store, deployment.record, entry, places.vault.address, overwrite=False, force=False)
        assert [str(leaf) for leaf in (await step.apply()).kept] == ['value: "theirs" -> "ours"']
        assert (await replace(step, overwrite=True).apply()).act == "change"
        assert world.stores.settings[entry.key]["value"] == "ours"
        assert (await step.remove()).note == "back to what it was before"
        assert world.stores.settings[entry.key]["value"] == "theirs"


async def test_a_name_that_something_else_has_is_refused(world: World) -> None:
    line = {"Name": "ClaudeCodeSettings", "Filename": "/FoundationaLLM.Agent/ClaudeCodeSettings.json", "Type": "generic-agent"}
    await world.edit(AGENT_LIST, lambda content: content["ResourceReferences"].append(line))
    with pytest.raises(NameTaken, match=r"of the type 'generic-agent', and agents, workflows and tools share their names"):
        await world.plan()
