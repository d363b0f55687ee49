"""What administrators see of each property in the exported schema is complete, and its examples are true."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from workflow_schemas.json_schema import schemas
from workflow_schemas.properties import EgressPolicy, WorkflowProperties
from workflow_schemas.property_reading import read_properties

SCHEMA = schemas()["WorkflowProperties"]
GROUPS = {"Sandbox", "Workspace", "Network", "Repositories", "Agent", "Limits"}
POLICY = SCHEMA["$defs"]["EgressPolicy"]["properties"]
PROPERTIES: dict[str, dict[str, Any]] = SCHEMA["properties"] | {f"egress_policy.{name}": item for name, item in POLICY.items()}


def as_written(name: str, value: Any) -> dict[str, Any]:
    outer, _, inner = name.partition(".")
    return {outer: {inner: value} if inner else value}


@pytest.mark.parametrize("name", PROPERTIES)
def test_an_administrator_sees_all_of_a_property(name: str) -> None:
    item = PROPERTIES[name]
    assert [word for word in ("title", "description") if not item.get(word)] == []
    assert item["title"] != name.replace("_", " ").title(), "a title in words, not the name again"
    assert item["x-group"] in GROUPS
    assert "default" in item
    assert item["examples"]


@pytest.mark.parametrize("name", PROPERTIES)
def test_an_example_fits_the_schema_and_is_read(name: str) -> None:
    """Also typed as text, as the Management Portal does it."""
    for example in PROPERTIES[name]["examples"]:
        written = as_written(name, example)
        assert list(Draft202012Validator(SCHEMA).iter_errors(written)) == []
        for form in (written, {key: value if isinstance(value, dict | list) else str(value) for key, value in written.items()}):
            reading = read_properties(form)
            assert not reading.refusals
            assert not [said for said in reading.remarks if "contradict" not in said and "are empty" not in said]
            shown = reading.properties.model_dump(mode="json", exclude_unset=True)
            assert {key: shown[key] for key in written} == written


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_default_fits_the_schema(name: str) -> None:
    assert list(Draft202012Validator(SCHEMA).iter_errors(as_written(name, PROPERTIES[name]["default"]))) == []


def test_no_property_is_left_out() -> None:
    assert set(PROPERTIES) == set(WorkflowProperties.model_fields) | {f"egress_policy.{name}" for name in EgressPolicy.model_fields}
