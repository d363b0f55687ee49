"""The committed templates: fresh, safe for the platform's renderers, and all three generations the same installation."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deployment_templates.errors import RenderError
from deployment_templates.render import differing, main
from deployment_templates.rendering.tree import render
from deployment_templates.resources import ResourceSet, build
from deployment_templates.resources.agents import Agent
from deployment_templates.resources.authorization import RoleAssignmentStore
from deployment_templates.resources.configuration import ImportedItems, KeyValue, KeyVaultReference
from deployment_templates.resources.models import AIModel, Endpoint, Prompt, Resource, Tool, Workflow
from deployment_templates.resources.references import ReferenceAdditions
from tests.deployment_templates import installing
from tests.deployment_templates.installing import FOLDERS, TEMPLATES, filled, installed, profile, values

KINDS: Mapping[str, type[Resource]] = {
    "agents": Agent,
    "workflows": Workflow,
    "tools": Tool,
    "prompts": Prompt,
    "aiModels": AIModel,
    "apiEndpointConfigurations": Endpoint,
}
SECRETS = re.compile(
    r"sk-[A-Za-z0-9-]{8,}|AKIA[A-Z0-9]{12,}|PRIVATE KEY|AccountKey=|eyJ[A-Za-z0-9]{10}|(?<![0-9a-f-])[0-9a-f]{32,}(?![0-9a-f-])"
)

generations = pytest.mark.parametrize("generation", FOLDERS)


def committed(generation: str, part: str = "") -> dict[str, str]:
    """The committed files of a generation, or of one of its variants, by path; the usual set without the variants."""
    folder = TEMPLATES / FOLDERS[generation] / part
    found = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}
    return found if part else {path: text for path, text in found.items() if not path.startswith(("model-providers/", "requires-"))}


def wanted(generation: str) -> ResourceSet:
    return build(profile(generation))


def completed(generation: str) -> dict[str, str]:
    """The committed usual set as the generation's own scripts would fill it."""
    guids = {role.label: role.name for role in wanted(generation).roles}
    texts = {path: text for path, text in committed(generation).items() if not path.endswith(".ps1.txt")}
    return {path: filled(text, generation, values(generation, guids)) for path, text in texts.items()}


@generations
def test_what_is_committed_is_what_would_be_rendered(generation: str) -> None:
    """Otherwise: ./dev templates render --out deployment_templates."""
    assert differing(TEMPLATES / FOLDERS[generation], render(generation)) == []  # type: ignore[arg-type]


@generations
def test_the_installation_is_the_one_that_is_built(generation: str) -> None:
    """Filled and joined as the platform does, every resource is field by field what `build` makes of a profile with these values."""
    assert installed(generation, completed(generation)) == {
        resource.body["object_id"]: resource.body for resource in wanted(generation).resources
    }


@generations
def test_every_resource_is_read_by_the_strict_models(generation: str) -> None:
    for key, body in installed(generation, completed(generation)).items():
        kind = KINDS[key.split("/")[-2]]
        assert kind.model_validate_json(json.dumps(body)).body() == body, key


@generations
def test_type_comes_first(generation: str) -> None:
    """The platform cannot read an object otherwise; told from the text itself, not from what a parser makes of it."""

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert "type" not in names or names[0] == "type", names
        return dict(pairs)

    for path in (TEMPLATES / FOLDERS[generation]).rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=look)


@generations
def test_roles_are_the_same_in_every_generation(generation: str) -> None:
    files, roles = completed(generation), wanted(generation).roles
    if generation == "internal":
        listed = json.loads(files["artifacts/roleAssignments.json"])
        given = {(entry["principal_id"], *role) for entry in listed for role in entry["role_assignments"]}
        names = {"00a53e72-f66e-4c03-8f81-7e885fd2eb35": "Reader"}
        assert given == {
            (role.body["principal_id"], names[role.body["role_definition_id"][-36:]], *_kind_and_name(role.body["scope"])) for role in roles
        }
        return
    store = RoleAssignmentStore.model_validate_json(files["data/role-assignments/DefaultRoleAssignments.additions.json"])
    assert store.instance_id == installing.INSTANCE
    stamps = {"created_on", "updated_on", "created_by", "updated_by"}
    assert [entry.model_dump(exclude=stamps) for entry in store.role_assignments] == [
        role.assignment.model_dump(exclude=stamps) for role in roles
    ]


def _kind_and_name(scope: str) -> list[str]:
    return scope.split("/providers/")[1].rsplit("/", 1)


@generations
def test_configuration_refers_to_secrets_by_name(generation: str) -> None:
    """Each generation has the same keys; a secret is a name in the vault, and what others write into too lies apart."""
    files, resources = completed(generation), wanted(generation)
    entries = [*resources.configuration, *resources.portal]
    if generation == "internal":
        own, shared = (json.loads(files[f"{place}/appConfigurations.json"]) for place in ("artifacts", "shared"))
        for entry in (*own, *shared):
            (KeyVaultReference if "key_vault_secret_name" in entry else KeyValue).model_validate(entry)
    else:
        own, shared = (
            ImportedItems.model_validate_json(files[f"config/appconfig.{place}.json"]).body()["items"] for place in ("additions", "shared")
        )
        for entry in own:
            assert json.loads(entry["value"])["uri"].startswith("https://vault.example/secrets/foundationallm-apiendpoints-")
            assert entry.get("key_vault_secret_value") is None
    assert [entry["key"] for entry in own] == [entry.key for entry in entries if entry.merge is None]
    assert {entry["key"]: entry["value"] for entry in shared} == {entry.key: entry.value for entry in entries if entry.merge is not None}


@generations
def test_the_index_lists_every_seeded_file(generation: str) -> None:
    files = completed(generation)
    place = "blobs" if generation == "internal" else "data/resource-provider"
    additions = json.loads(files[f"{place}/resource-references.additions.json"])
    listed = [
        entry
        for path, content in additions.items()
        for entry in ReferenceAdditions.model_validate_json(json.dumps(content)).ResourceReferences
        if entry.Filename.startswith("/" + path.removesuffix("/_resource-references.json"))
    ]
    seeded = [path for path in files if re.search(r"/FoundationaLLM\.\w+/", path)]
    assert sorted(entry.Filename for entry in listed) == sorted(
        path.removeprefix(place).replace(".template.json", ".json") for path in seeded
    )
    assert {entry.Name: entry.Type for entry in listed}.items() >= {
        "ClaudeCodeAgentWorkflow": "workflow",
        "ClaudeCodeSettings": "tool",
    }.items()


@pytest.mark.parametrize(("generation", "script"), [("standard", "Generate-Config"), ("quick-start", "postprovision")])
def test_pasted_lines_render_every_template_and_fill_every_placeholder(generation: str, script: str) -> None:
    """But endpoints in the quick start, which are found without an entry, and what the platform fills itself."""
    files = committed(generation)
    lines = files[f"azd-hooks/{script}.additions.ps1.txt"]
    for path in files:
        if path.endswith(".template.json") and not (generation == "quick-start" and "FoundationaLLM.Configuration" in path):
            assert path.replace("/", ",") in lines or path in lines
    own = {"standard": ("instanceId", "serviceNamespaceName", "keyvaultUri", "deployTime")}.get(
        generation, ("FOUNDATIONALLM_INSTANCE_ID", "SERVICE_CLAUDE_CODE_API_ENDPOINT_URL", "AZURE_KEY_VAULT_ENDPOINT", "DEPLOY_TIME")
    )
    for name in values(generation, {role.label: role.name for role in wanted(generation).roles}):
        written = f"$tokens.{name} =" if generation == "standard" else f"$env:{name}"
        assert (written in lines) is (name not in own), name


@generations
@pytest.mark.parametrize("provider", ["foundry", "bedrock", "vertex", "gateway"])
def test_another_provider_replaces_endpoint_and_models(generation: str, provider: str) -> None:
    """Laid over the usual set, the variant's models lead to its endpoint, and its configuration has the endpoint's key."""
    files = committed(generation) | committed(generation, f"model-providers/{provider}")
    extra = {"CLAUDE_MODEL_ENDPOINT_URL": "https://models.example", "claudeModelEndpointUrl": "https://models.example"}
    extra |= {"CLAUDE" + provider.upper() + "_API_KEY": "given-elsewhere"}
    given = values(generation, {role.label: role.name for role in wanted(generation).roles}) | extra
    texts = {path: filled(text, generation, given) for path, text in files.items() if not path.endswith(".ps1.txt")}
    found = installed(generation, texts)
    (endpoint,) = {body["endpoint_object_id"] for body in found.values() if body["type"] == "completion"}
    assert found[endpoint]["name"] == f"Claude{provider.capitalize()}"
    key = f"FoundationaLLM:APIEndpoints:Claude{provider.capitalize()}:Essentials:APIKey"
    assert key in found[endpoint]["authentication_parameters"].values()
    assert any(key in text for path, text in texts.items() if "onfig" in path.rpartition("/")[2])


@generations
def test_the_type_that_needs_a_patch_lies_apart(generation: str) -> None:
    """One agent of that type on an unpatched platform stops the listings of all."""
    assert not [path for path, text in committed(generation).items() if "claude-code-agent-workflow" in text]
    apart = committed(generation, "requires-dotnet-patch")
    assert [path for path, text in apart.items() if '"type": "claude-code-agent-workflow"' in text] == list(apart)


def test_no_file_holds_a_secret() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in TEMPLATES.rglob("*") if path.suffix in {".json", ".txt", ".md"}}
    assert not [path for path, text in texts.items() if "service" not in path.parts and SECRETS.search(text)]


@pytest.mark.parametrize(
    ("generation", "welcome"),
    [("standard", "<p>Only $5</p>"), ("quick-start", "<p>Use `code`</p>")],
    ids=["dollar", "backtick"],
)
def test_a_text_the_platforms_renderer_would_change_is_refused(generation: str, welcome: str) -> None:
    """PowerShell's -replace and ExpandString do more with a text than put it in."""
    choices = profile(generation, portal={"welcome_message": welcome})
    with pytest.raises(RenderError, match="renderer would change"):
        render(generation, choices)  # type: ignore[arg-type]


def test_a_profile_decides_names_and_settings_but_no_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own provider only, its own names, and placeholders where installations differ."""
    chosen = {
        "instance_id": installing.INSTANCE,
        "service": {"url": "https://mine.example"},
        "names": {"agent": "coder"},
        "models": {"provider": "foundry", "url": "https://mine.services.ai.azure.com/anthropic", "sonnet": "my-sonnet"},
        "workflow": {"max_turns": 25},
    }
    (tmp_path / "profile.json").write_text(json.dumps(chosen))
    assert main(["--generation", "quick-start", "--profile", str(tmp_path / "profile.json"), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.endswith(" files\n")
    files = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"coder.template.json", "ClaudeFoundry.template.json"} <= files.keys()
    assert not files.keys() & {"claude-code.template.json", "Anthropic.template.json", "ClaudeOpusCompletionAIModel.template.json"}
    assert not [name for name, text in files.items() if installing.INSTANCE in text or "mine.example" in text or "my-sonnet" in text]
    assert json.loads(files["coder.template.json"])["tools"][0]["properties"] == {"claude_code": {"max_turns": 25}}
    assert main(["--profile", str(tmp_path / "nowhere.toml"), "--out", str(tmp_path)]) == 1
    assert "ProfileError: The profile" in capsys.readouterr().err


def test_a_profile_sizes_the_pool() -> None:
    """The shipped 0.25 cores and 0.5 GiB carry no turn."""
    lines = render("internal", profile("internal", sandbox={"cpu": 2, "memory_gib": 4, "max_sessions": 40}))["session-pool.ps1.txt"]
    assert "--cpu 2 --memory 4Gi" in lines
    assert "--max-sessions 40" in lines
    assert "--network-status EgressDisabled" in lines


def test_a_check_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--generation", "internal", "--out", str(tmp_path)]) == 0
    (tmp_path / "internal" / "artifacts" / "agent.json").write_text("{}")
    (tmp_path / "internal" / "left-over.json").write_text("{}")
    assert main(["--generation", "internal", "--out", str(tmp_path), "--check"]) == 1
    assert "artifacts/agent.json, left-over.json" in capsys.readouterr().err
