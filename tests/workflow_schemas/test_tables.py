"""Documents whose tables are made from the models say what the models say."""

from pathlib import Path

import pytest

from workflow_schemas.events import Event, event_adapter
from workflow_schemas.properties import WorkflowProperties
from workflow_schemas.tables import MarkMissing, events_part, properties_part, renewed, update_documents

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "part"), [("properties.md", properties_part()), ("events.md", events_part())], ids=["properties", "events"]
)
def test_a_document_is_up_to_date(name: str, part: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert renewed(text, part) == text, "run: ./dev schemas --docs docs"


def test_the_property_table_has_every_property() -> None:
    table = properties_part()
    assert [name for name in WorkflowProperties.model_fields if f"| `{name}" not in table] == []


def test_the_events_have_every_kind() -> None:
    text = events_part()
    kinds = event_adapter.json_schema()["discriminator"]["mapping"]
    assert Event is not None
    assert [kind for kind in kinds if f"## `{kind}`\n" not in text] == []


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    for name in ("properties.md", "events.md"):
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    assert update_documents(tmp_path) == ()
    events = tmp_path / "events.md"
    events.write_text(events.read_text().replace("## `progress`", "## gone"))
    assert update_documents(tmp_path) == (events,)
    assert events.read_bytes() == (DOCS / "events.md").read_bytes()


def test_prose_around_the_marks_stays() -> None:
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    changed = renewed(text + "\nMore.\n", "new")
    assert changed.startswith("# Activity events")
    assert changed.endswith("\nMore.\n")
    assert "## `progress`" not in changed


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(MarkMissing, match="to here"):
        renewed("# Nothing here\n", "x")
