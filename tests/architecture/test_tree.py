"""What the tracked files may not say, and what the documents promise."""

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT, told, tracked_files

FORBIDDEN_TEXT: Mapping[str, str] = {
    "a machine's path": r"(?<![\w.~-])/(?:root|work)/\w|(?<![\w.~-])/(?:home|Users)/(?!agent\b)[a-z]\w+",
    "a package registry's host": (
        r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org|security\.debian\.org|archive\.ubuntu\.com"
    ),
    "a private index setting": r"--(?:extra-)?index-url\b(?!`)|--find-links|--trusted-host",
}

ALLOWED_TEXT: Mapping[str, tuple[str, ...]] = {
    "a machine's path": ("tests/security/",),  # looks for the host's folders from inside, and must not find them
    "a private index setting": ("tests/architecture/test_tree.py",),
}
"""Path prefixes of the tracked files that may say such a thing."""

DOCUMENTS = tuple(path for path in tracked_files() if path.suffix == ".md")
LOCKS = ("requirements.lock", "requirements-azure.lock", "requirements-dev.lock")


@pytest.mark.parametrize("what", FORBIDDEN_TEXT)
def test_no_file_tells_where_it_was_made(what: str) -> None:
    pattern = re.compile(FORBIDDEN_TEXT[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked_files()
        if not str(path.relative_to(ROOT)).startswith(ALLOWED_TEXT.get(what, ()))
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, told("say it in general words:", found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_inside_the_documents_lead_somewhere(document: Path) -> None:
    """Relative links name a file that exists, and fragments name one of its headings."""
    dead = [target for target in _links(document) if not _resolves(document, target)]
    assert not dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"\./dev +([a-z]+)", document.read_text(encoding="utf-8")))
    assert named <= _commands()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_and_file_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    modules = [name.replace(".", "/") for name in re.findall(r"python3? (?:-P )?-m +([a-z_.]+)", text)]
    ways = [way for name in modules for way in (f"{name}.py", f"{name}/__main__.py")]
    assert sum((ROOT / way).is_file() for way in ways) == len(modules), modules
    own = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    assert not [path for path in re.findall(rf"`((?:{own})/[\w./-]+)`", text) if not (ROOT / path).exists()]


def test_every_command_the_script_describes_is_handled() -> None:
    """An unknown one is refused with the usage text."""
    script = (ROOT / "dev").read_text(encoding="utf-8")
    handled = set(re.findall(r"[a-z]+", " ".join(re.findall(r"^  +([a-z |-]+)\)", script, re.MULTILINE))))
    assert _commands() <= handled
    refused = subprocess.run([ROOT / "dev", "nonsense"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "usage:" in refused.stderr


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_is_hashed_and_holds_every_declared_dependency(lock: str) -> None:
    """Else somebody changed pyproject.toml without `./dev lock`."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)
    declared = {canonicalize_name(Requirement(line).name) for line in _declared(lock)}
    assert declared <= {canonicalize_name(name) for name in pins}
    assert len(re.findall(r"^\S.*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(pins)


def test_the_locks_agree() -> None:
    """Each is a part of the next larger one, so one environment serves all."""
    texts = [(ROOT / lock).read_text(encoding="utf-8") for lock in LOCKS]
    runtime, azure, full = (set(re.findall(r"^[A-Za-z0-9._-]+==\S+", text, re.MULTILINE)) for text in texts)
    assert runtime <= azure <= full


def _declared(lock: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines: list[str] = list(project["project"]["dependencies"])
    if lock != "requirements.lock":
        lines += project["project"]["optional-dependencies"]["azure"]
    if lock == "requirements-dev.lock":
        lines += project["dependency-groups"]["dev"]
    return lines


def _commands() -> set[str]:
    usage = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  ([a-z]+)  ", usage, re.MULTILINE))


def _prose(document: Path) -> str:
    """The text without code, which only shows links."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)


def _links(document: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(<?([^)\s>]+)>?[^)]*\)", _prose(document)):
        if not re.match(r"[a-z]+:", target):
            yield target


def _resolves(document: Path, target: str) -> bool:
    name, _, fragment = target.partition("#")
    path = (document.parent / name).resolve() if name else document
    if not path.exists() or not path.is_relative_to(ROOT):
        return False
    return not fragment or (path.is_file() and fragment in _anchors(path))


def _anchors(document: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ +(.+?) *$", _prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
