"""The document about the HTTP API says what the service says of itself, about every route."""

import json
from pathlib import Path

import httpx
import pytest

from orchestration_service.api_document import api_part, describe_api
from orchestration_service.cli.schemas import main
from tests.orchestration_service.serving import served
from workflow_schemas.tables import renewed

DOCS = Path(__file__).parents[2] / "docs"
DESCRIBED = describe_api()
OPERATIONS = {f"{method.upper()} {path}": operation for path, item in DESCRIBED["paths"].items() for method, operation in item.items()}


def test_the_document_is_up_to_date() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert renewed(text, api_part(DESCRIBED)) == text, "run: ./dev schemas --docs docs"


@pytest.mark.anyio
async def test_what_is_described_without_a_store_is_what_a_running_service_describes(tmp_path: Path) -> None:
    async with served(tmp_path) as service, httpx.AsyncClient() as client:
        assert (await client.get(f"{service.url}/openapi.json")).json() == DESCRIBED


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_route_is_described_whole(name: str) -> None:
    """What it does, each parameter and each answer, and a body with a model."""
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"]
    assert [item["name"] for item in operation.get("parameters", ()) if not item.get("description")] == []
    assert [status for status, answer in operation["responses"].items() if not answer.get("description")] == []
    assert f"### `{name}`\n" in (DOCS / "api.md").read_text(encoding="utf-8")


def test_the_command_writes_the_description_and_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("api.md", "doctor.md", "events.md", "properties.md"):
        (docs / name).write_bytes((DOCS / name).read_bytes())
    (docs / "api.md").write_text((docs / "api.md").read_text().replace("### Problem", "### Trouble"))
    assert main([str(tmp_path / "made"), "--docs", str(docs)]) == 0
    assert json.loads((tmp_path / "made" / "openapi.json").read_text()) == DESCRIBED
    assert (docs / "api.md").read_bytes() == (DOCS / "api.md").read_bytes()
    assert f"updated {docs / 'api.md'}\n" in capsys.readouterr().out
