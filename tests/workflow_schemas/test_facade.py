"""The façade offers what it says, from where the type checker sees it, and costs nothing until it is used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import workflow_schemas


def test_every_name_is_there_once() -> None:
    """The linter keeps them sorted: constants, classes, functions."""
    assert len(set(workflow_schemas.__all__)) == len(workflow_schemas.__all__)
    assert all(getattr(workflow_schemas, name) is not None for name in workflow_schemas.__all__)
    assert dir(workflow_schemas) == sorted(workflow_schemas.__all__)


def test_each_name_comes_from_the_module_the_type_checker_sees() -> None:
    """The imports stand in a block that only the type checker reads; at run time the name is looked up."""
    tree = ast.parse(Path(str(workflow_schemas.__file__)).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module).startswith("workflow_schemas.")]
    seen = {alias.name: str(node.module) for node in imports for alias in node.names}
    assert sorted(seen) == sorted(workflow_schemas.__all__)
    for name, module in seen.items():
        assert getattr(workflow_schemas, name) is getattr(importlib.import_module(module), name)


def test_what_is_not_offered_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'importlib_of_my_own'"):
        _ = workflow_schemas.importlib_of_my_own


def test_a_light_word_does_not_load_the_heavy_ones() -> None:
    code = "import sys, workflow_schemas; workflow_schemas.TurnPlan; print('workflow_schemas.platform' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
