"""The Bicep files: valid shapes, whole wiring, and in step with the code they run."""

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.mgmt.appcontainers import ContainerAppsAPIClient
from fastapi import FastAPI

from context_client.pools.settings import SessionPool
from orchestration_service import app, keeper, vitals
from orchestration_service.settings import Settings, load_settings, variable_of
from runner_image.server.settings import parse_settings
from tests.deployment_templates.bicep_reading import Template, faults, read
from tests.images.building import ROOT

FOLDER = ROOT / "deployment_templates/bicep"
FILES = sorted(FOLDER.glob("*.bicep"))
MODELS: Mapping[str, str] = {"Microsoft.App/sessionPools": "SessionPool", "Microsoft.App/containerApps": "ContainerApp"}
OTHERS: Mapping[str, set[str]] = {
    "Microsoft.Authorization/roleAssignments@2022-04-01": {"name", "scope", "properties"},
    "Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31": {"name", "location", "tags"},
}


@pytest.fixture(scope="module")
def templates() -> Mapping[str, Template]:
    return {path.stem: read(path) for path in FILES}


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_resources_have_the_documented_shape(templates: Mapping[str, Template], name: str) -> None:
    template = templates[name]
    for resource in template.part("resources").values():
        if resource["existing"]:
            assert set(resource["config"]) == {"name"}
        elif resource["type"] in MODELS:
            assert not list(faults(MODELS[resource["type"]], resource["config"], template))
        else:
            assert set(resource["config"]) <= OTHERS[f"{resource['type']}@{resource['api_version']}"]


def test_the_api_version_is_the_one_of_the_models() -> None:
    told = re.search(r'api_version: Api Version. Default value is "([\d-]+)"', inspect.getdoc(ContainerAppsAPIClient) or "")
    assert told
    named = {version for path in FILES for version in re.findall(r"'Microsoft\.App/\w+@([\w-]+)'", path.read_text(encoding="utf-8"))}
    assert named == {told[1]}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"properties": {"egress": "x"}}, "no such field"),
        ({"properties": {"containerType": "Custom"}}, "none of ContainerType"),
        ({"properties": {"scaleConfiguration": {"maxConcurrentSessions": "ten"}}}, "no int"),
        ({"properties": {"poolManagementEndpoint": "x"}}, "read-only"),
        ({"location": None, "properties": {"customContainerTemplate": {"containers": [{"ports": []}]}}}, "no such field"),
    ],
    ids=["unknown", "enumeration", "type", "read-only", "nested"],
)
def test_a_wrong_shape_would_be_found(templates: Mapping[str, Template], change: dict[str, Any], fault: str) -> None:
    assert any(fault in found for found in faults("SessionPool", {"location": "l", **change}, templates["main"]))


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_everything_is_described_and_used(templates: Mapping[str, Template], name: str) -> None:
    template = templates[name]
    for kind in ("parameters", "outputs"):
        for declared, parts in template.part(kind).items():
            assert "description" in {decorator["type"] for decorator in parts["decorators"]}, declared
    code = re.sub(r"(?m)(?:^|\s)//.*$", "", template.text)
    code = re.sub(r"'(?:[^'\\\n$]|\\.|\$(?!\{))*'", "", code)
    for declared in (*template.part("parameters"), *template.part("variables")):
        uses = re.findall(rf"in {declared}:|(?<!\.)\b{declared}\b(?!:)", code)  # but not as the name of a field
        assert len(uses) > 1, f"{declared} is declared and not used"
    assert "secure" not in {decorator["type"] for parts in template.part("parameters").values() for decorator in parts["decorators"]}


def test_modules_are_given_exactly_what_they_ask_for(templates: Mapping[str, Template]) -> None:
    for module in templates["main"].part("modules").values():
        asked = templates[Path(module["detail"]["path"]).stem].part("parameters")
        config = module["config"]
        while "params" not in config:
            config = config["config"]  # of a loop or a condition
        required = {name for name, parts in asked.items() if parts["default"] is None}
        assert required <= config["params"].keys() <= asked.keys()


def test_the_parameters_file_fits(templates: Mapping[str, Template]) -> None:
    given = json.loads((FOLDER / "main.parameters.json").read_text(encoding="utf-8"))["parameters"]
    asked = templates["main"].part("parameters")
    required = {name for name, parts in asked.items() if parts["default"] is None}
    assert required <= given.keys() <= asked.keys()
    kinds: Mapping[str, type] = {"string": str, "int": int, "bool": bool, "array": list, "object": dict}
    assert all(isinstance(value["value"], kinds[asked[name]["type"]]) for name, value in given.items())
    known = {variable_of(name) for name in Settings.model_fields}
    assert given["settings"]["value"].keys() <= known


def test_sandboxes_have_no_way_out_and_no_identity(templates: Mapping[str, Template]) -> None:
    properties = templates["session_pool"].part("resources")["pool"]["config"]["properties"]
    assert properties["sessionNetworkConfiguration"] == {"status": "egress"}
    assert templates["main"].part("parameters")["egress"]["default"] == "EgressDisabled"
    assert properties["managedIdentitySettings"] == [{"identity": "pullIdentityId", "lifecycle": "None"}]
    assert properties["dynamicPoolConfiguration"]["lifecycleConfiguration"]["lifecycleType"] == "Timed"


def test_sandboxes_listen_where_the_pool_looks(templates: Mapping[str, Template]) -> None:
    template = templates["session_pool"]
    port = template.part("variables")["targetPort"]["value"]
    (container,) = template.part("resources")["pool"]["config"]["properties"]["customContainerTemplate"]["containers"]
    ((variable,),) = [[one["name"] for one in container["env"]]]
    assert parse_settings([], {variable: str(port)}).port == port > 1024


def test_sizes_come_in_pairs_and_are_enough(templates: Mapping[str, Template]) -> None:
    """Container Apps wants twice as many Gi as processors; the agent's program alone takes 290 MB at its peak."""
    parameters = templates["main"].part("parameters")
    allowed = {name: _decorator(parameters[name], "allowed") for name in ("sandboxCpu", "sandboxMemory")}
    assert [2 * float(cpu) for cpu in allowed["sandboxCpu"]] == [float(memory.removesuffix("Gi")) for memory in allowed["sandboxMemory"]]
    for one in ("sandbox", "service"):
        assert 2 * float(parameters[f"{one}Cpu"]["default"]) == float(parameters[f"{one}Memory"]["default"].removesuffix("Gi"))
    assert parameters["readySessions"]["default"] <= parameters["maxSessions"]["default"]


def _decorator(parts: Mapping[str, Any], kind: str) -> Any:
    return next(decorator["argument"] for decorator in parts["decorators"] if decorator["type"] == kind)


def service(templates: Mapping[str, Template]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The service's template, and its variables."""
    template = templates["service"]
    variables = {name: parts["value"] for name, parts in template.part("variables").items()}
    return template.part("resources")["app"]["config"]["properties"]["template"], variables


def test_the_service_is_given_settings_that_it_knows(templates: Mapping[str, Template]) -> None:
    _, variables = service(templates)
    named = {one["name"] for one in variables["own"]}
    assert named - {variable_of(name) for name in Settings.model_fields} == {"AZURE_CLIENT_ID", "FOUNDATIONALLM_APP_CONFIGURATION_URI"}


def test_probes_fit_the_service_and_the_platform(templates: Mapping[str, Template]) -> None:
    """Container Apps takes thresholds up to ten."""
    (container,) = service(templates)[0]["containers"]
    assert {probe["type"]: probe["httpGet"] for probe in container["probes"]} == {
        "Startup": {"path": "/live", "port": "probePort"},
        "Liveness": {"path": "/live", "port": "probePort"},
        "Readiness": {"path": "/ready", "port": "probePort"},
    }
    assert all(probe["failureThreshold"] <= 10 and probe["timeoutSeconds"] > vitals._PATIENCE_SECONDS for probe in container["probes"])


def test_a_replica_has_time_to_hand_its_turns_over(templates: Mapping[str, Template], tmp_path: Path) -> None:
    running, variables = service(templates)
    settings = load_settings(_env_file=None, instance_id="i", api_key="k" * 8, data_dir=tmp_path)
    requests = app.server_config(FastAPI(), settings).timeout_graceful_shutdown
    assert requests is not None
    assert running["terminationGracePeriodSeconds"] > variables["drainSeconds"] + requests + keeper._RELEASE_SECONDS + 5
    assert templates["main"].part("parameters")["minReplicas"]["default"] >= 2, "somebody has to take them over"


def test_a_pool_of_these_templates_can_be_configured_in_the_service(templates: Mapping[str, Template]) -> None:
    """The output goes into CLAUDE_CODE_SESSION_POOLS where the service asks the pool itself."""
    assert {"poolEndpoint", "serviceUrl"} <= templates["main"].part("outputs").keys()
    assert SessionPool(name="claudecodesessions", endpoint="https://region.dynamicsessions.io/subscriptions/s", max_sessions=20)


def test_the_command_line_makes_the_same_pool(templates: Mapping[str, Template]) -> None:
    """The document's command against the defaults of the files."""
    text = (ROOT / "docs/kubernetes_and_container_apps.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = [line for line in text.splitlines() if line.startswith("az containerapp sessionpool create")]
    said = dict(re.findall(r"--([a-z-]+) (\S+)", command))
    usual = {name: parts["default"] for name, parts in templates["main"].part("parameters").items()}
    fields = {"cpu": "sandboxCpu", "memory": "sandboxMemory", "cooldown-period": "cooldownSeconds", "network-status": "egress"}
    fields |= {"max-sessions": "maxSessions", "ready-sessions": "readySessions", "name": "poolName"}
    assert {word: said[word] for word in fields} == {word: str(usual[field]) for word, field in fields.items()}
    port = templates["session_pool"].part("variables")["targetPort"]["value"]
    assert (said["target-port"], said["env-vars"]) == (str(port), f"CLAUDE_CODE_SERVER_PORT={port}")


SECRETS = re.compile(
    r"sk-ant-|AccountKey=|SharedAccessSignature|-----BEGIN|(?i:password|passwd)\s*[:=]\s*['\"]\w|eyJ[A-Za-z0-9_-]{20,}|\b[A-Za-z0-9+/]{40,}=="
)


def test_no_deployment_file_holds_a_secret() -> None:
    files = [path for part in ("bicep", "helm", "service") for path in (ROOT / "deployment_templates" / part).rglob("*") if path.is_file()]
    assert len(files) > 20
    found = [
        f"{path.name}: {match[0]}"
        for path in files
        if path.suffix != ".lock"
        for match in SECRETS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found
