"""Writes what is made from the models and the routes: `./dev schemas [FOLDER] [--docs FOLDER]`.

JSON Schemas of all models, the OpenAPI description of the service, and, with `--docs`, the made parts of the documents.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestration_service.api_document import api_part, describe_api
from orchestration_service.examining.catalogue import findings_part
from workflow_schemas import export
from workflow_schemas.tables import renewed

API_DOCUMENT = "api.md"
"""Name of the document about the HTTP API."""

DOCTOR_DOCUMENT = "doctor.md"
"""Name of the document about the findings of an examination."""

OPENAPI = "openapi.json"
"""Name of the file with the OpenAPI description."""


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="./dev schemas", description="Write JSON Schemas, the OpenAPI description and the documents' tables."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=export.DEFAULT_FOLDER, help="where to (default: %(default)s)")
    parser.add_argument("--docs", type=Path, help="folder of the documents whose tables are made from the models")
    given = parser.parse_args(words)
    docs = ["--docs", str(given.docs)] if given.docs else []
    export.main([str(given.folder), *docs])
    document = describe_api()
    (given.folder / OPENAPI).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, part in [(API_DOCUMENT, api_part(document)), (DOCTOR_DOCUMENT, findings_part())] if given.docs else []:
        if update_document(given.docs / name, part):
            sys.stdout.write(f"updated {given.docs / name}\n")
    return 0


def update_document(path: Path, part: str) -> bool:
    """Write the made part of a document anew; tell whether it changed."""
    before = path.read_text(encoding="utf-8")
    after = renewed(before, part)
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


if __name__ == "__main__":
    sys.exit(main())
