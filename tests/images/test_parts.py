"""What can be said of the image without an engine."""

import re
import shutil
from pathlib import Path

import pytest

from context_client.sandboxes.limits import WRITABLE_PLACES
from runner_image.image.starting import MEBIBYTES, SHARED_MEMORY
from runner_image.image.wheelhouse import lines_for
from runner_image.server.settings import parse_settings
from tests.images.building import ROOT
from workflow_schemas.sources import sources_digest

LOCK = """# made by hand
always==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
old==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
windows==3.0 ; sys_platform == 'win32' \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize(("version", "names"), [("3.11", ["always==1.0", "old==2.0"]), ("3.13", ["always==1.0"])], ids=["3.11", "3.13"])
def test_wheels_are_chosen_for_the_python_of_the_image(version: str, names: list[str]) -> None:
    entries = list(lines_for(LOCK, version))
    assert [entry.split(" ")[0] for entry in entries] == names
    assert "--hash=sha256:bb" in entries[0]


def test_the_image_has_the_versions_of_the_project() -> None:
    image, project = (_pins(ROOT / name) for name in ("runner_image/image/requirements.lock", "requirements.lock"))
    assert image <= project


def test_digest_changes_with_a_byte_of_code_and_with_nothing_else(tmp_path: Path) -> None:
    for package in ("runner_image", "workflow_schemas"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    digest = sources_digest(tmp_path)
    (tmp_path / "runner_image/__pycache__").mkdir()
    (tmp_path / "runner_image/__pycache__/mailbox.cpython-313.pyc").write_bytes(b"compiled")
    (tmp_path / "runner_image/Dockerfile").write_text("FROM scratch\n")
    assert sources_digest(tmp_path) == digest == sources_digest(ROOT)
    with (tmp_path / "workflow_schemas/mailbox.py").open("a") as file:
        file.write("\n")
    assert sources_digest(tmp_path) != digest


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ([], {}, (None, 80)),
        ([], {"CLAUDE_CODE_SERVER_PORT": "8080"}, (None, 8080)),
        ([], {"CLAUDE_CODE_SERVER_UDS": "/run/s"}, (Path("/run/s"), 80)),
        (["--uds", "/run/mine"], {"CLAUDE_CODE_SERVER_UDS": "/run/s"}, (Path("/run/mine"), 80)),
        (["--port", "81"], {"CLAUDE_CODE_SERVER_UDS": "/run/s", "CLAUDE_CODE_SERVER_PORT": "82"}, (None, 81)),
        (["--fd", "3"], {"CLAUDE_CODE_SERVER_UDS": "/run/s"}, (None, 80)),
    ],
    ids=["default", "port", "socket", "word before environment", "port word before socket", "inherited socket"],
)
def test_where_the_server_listens(words: list[str], environment: dict[str, str], expected: tuple[Path | None, int]) -> None:
    settings = parse_settings(words, environment)
    assert (settings.uds, settings.port) == expected


def test_a_port_that_is_no_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings([], {"CLAUDE_CODE_SERVER_PORT": "http"})
    assert "CLAUDE_CODE_SERVER_PORT is 'http'" in capsys.readouterr().err


def test_containers_have_the_writable_places_of_local_sandboxes() -> None:
    sizes = {place: size // (1024 * 1024) for place, size in WRITABLE_PLACES.items()}
    assert {**MEBIBYTES, "/dev/shm": SHARED_MEMORY} == sizes


def _pins(lock: Path) -> set[str]:
    return set(re.findall(r"^[A-Za-z0-9._-]+==\S+", lock.read_text(encoding="utf-8"), re.MULTILINE))
