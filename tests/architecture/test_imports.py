"""Who may import whom. The layers are in pyproject.toml for import-linter; the finer rules are here."""

import graphlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, imported_names, source_modules, told

EDGES: Mapping[str, tuple[str, ...]] = {
    # the agent's SDK: its quirks stay in one file
    "claude_agent_sdk": ("runner_image/agent.py",),
    # the web framework: only where requests come in
    "fastapi|starlette|uvicorn|sse_starlette": (
        "context_client/embedded/",
        "orchestration_service/app.py",
        "orchestration_service/composition.py",
        "orchestration_service/cli/",
        "orchestration_service/portal/",
        "orchestration_service/routes/",
        "orchestration_service/routes.py",
        "orchestration_service/scripted/",
        "runner_image/relay.py",
        "runner_image/server.py",
        "runner_image/server/",
    ),
    # cloud SDKs: only in adapters, so that everything runs and is tested without an account
    "azure": (
        "orchestration_service/deploying/azure_errors.py",
        "orchestration_service/deploying/configuration_store.py",
        "orchestration_service/deploying/identity.py",
        "orchestration_service/deploying/installation.py",
        "orchestration_service/deploying/management_api.py",
        "orchestration_service/deploying/reference_blobs.py",
        "orchestration_service/deploying/vault.py",
        "orchestration_service/brokers/entra_identity.py",
        "orchestration_service/operations/blob.py",
        "orchestration_service/operations/cosmos_account.py",
        "orchestration_service/operations/cosmos_documents.py",
        "orchestration_service/operations/cosmos_errors.py",
        "orchestration_service/platform_configuration.py",
        "context_client/embedded/azure_blobs.py",
        "context_client/embedded/azure_records.py",
        "context_client/embedded/azure_storage.py",
        "context_client/pools/identity.py",
    ),
    "boto3|botocore": ("orchestration_service/brokers/aws_frames.py", "orchestration_service/brokers/aws_identity.py"),
    "google": ("orchestration_service/brokers/google_identity.py",),
    # models' own client library: it knows addresses and proofs, we keep attempts and waits
    "anthropic": ("orchestration_service/brokers/clients.py",),
    "docker": ("context_client/sandboxes/containers/engine.py",),
    # not for us at all
    "requests|flask|django|aiohttp": (),
}
"""Packages (alternatives split by a bar) and the path prefixes of the only files that may import them."""


def test_import_contracts_hold() -> None:
    """import-linter finds no broken contract."""
    command = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("packages", EDGES)
def test_a_foreign_package_is_imported_only_at_its_edge(packages: str) -> None:
    strangers = [
        f"{module.path} imports {name}"
        for module in source_modules()
        for name in imported_names(module)
        if name.split(".")[0] in packages.split("|") and not module.path.startswith(EDGES[packages])
    ]
    assert not strangers, told("only these may: " + ", ".join(EDGES[packages]), strangers)


def test_no_import_cycle() -> None:
    """Imports inside functions count too: they only hide a cycle."""
    names = {module.name for module in source_modules()}
    graph = {module.name: {_owner(name, names) for name in imported_names(module)} - {""} for module in source_modules()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(error.args[1])}")


def _owner(name: str, modules: set[str]) -> str:
    """The module of ours that an imported name comes from, or nothing."""
    return next((candidate for candidate in (name, name.rpartition(".")[0]) if candidate in modules), "")
