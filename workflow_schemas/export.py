"""Writes the JSON Schema of every public model: `python -m workflow_schemas.export [FOLDER] [--docs FOLDER]`.

One file per model and an index, in JSON Schema draft 2020-12, the same bytes for the same models. With `--docs` the tables in the
documents that are made from the models are written anew as well.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from workflow_schemas.json_schema import DIALECT, SUFFIX, schemas
from workflow_schemas.tables import update_documents

INDEX = "index.json"
"""File that lists all others."""

DEFAULT_FOLDER = Path("build/schemas")
"""Where the files go when no folder is named."""


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write all schemas and the index into a folder, which is made if it is not there; return the files' paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = schemas()
    written = []
    for name, schema in made.items():
        path = folder / f"{name}{SUFFIX}"
        path.write_text(_text(schema), encoding="utf-8")
        written.append(path)
    entries = [{"name": name, "file": f"{name}{SUFFIX}", "description": schema["description"]} for name, schema in made.items()]
    index = folder / INDEX
    index.write_text(_text({"dialect": DIALECT, "schemas": entries}), encoding="utf-8")
    return (*written, index)


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m workflow_schemas.export", description="Write the JSON Schema of every public model.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="where to (default: %(default)s)")
    parser.add_argument("--docs", type=Path, help="folder of the documents whose tables are made from the models")
    given = parser.parse_args(words)
    written = write_schemas(given.folder)
    sys.stdout.write(f"{len(written)} files in {given.folder}\n")
    if given.docs is not None:
        for path in update_documents(given.docs):
            sys.stdout.write(f"updated {path}\n")
    return 0


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
