"""What a run leaves behind passes the platform's gate, is what was written, and survives a full disk as far as it goes."""

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context_client.embedded.gate import Pass, judge_content
from context_client.embedded.settings import FilePolicy
from runner_image.outputs import Outputs, events_text, log_text
from runner_image.passing import passes
from runner_image.places import Places
from runner_image.snapshot import Change
from workflow_schemas.events import Event, Text, ToolEnd, ToolStart
from workflow_schemas.manifest import PatchFacts, RunManifest
from workflow_schemas.plan import Limits, TurnPlan

ROOT = Path(__file__).resolve().parents[2]
EVENTS: list[Event] = [
    Text(seq=1, content="It says “done” – \x1b[31mred\x1b[0m \ud83d 🙂"),
    ToolStart(seq=2, id="1", name="Bash", input={"command": "ls\x07"}),
    ToolEnd(seq=3, id="1", name="Bash", success=True, output="\x1b[1;32mok\x1b[0m\n\x1b]0;title\x07text\x9b31m\r\n"),
]
MANIFEST = RunManifest(run_id="run-12345678", turn_number=1, end_reason="completed", answer="ü")


def planned(max_output_bytes: int = 1 << 20) -> TurnPlan:
    limits = Limits(
        soft_seconds=1,
        hard_seconds=2,
        max_turns=1,
        command_timeout_seconds=1,
        max_output_bytes=max_output_bytes,
        max_unpacked_bytes=1 << 20,
    )
    return TurnPlan(
        run_id="run-12345678", turn_number=1, prompt="p", system_prompt="s", model="m", tools=(), limits=limits, output_stem="turn-001"
    )


def changed(patch: bytes) -> Change:
    return Change(facts=PatchFacts(base_tree="1" * 40, result_tree="2" * 40, proven=True), patch=patch, remarks=())


def passes_the_gate(path: Path) -> bool:
    return isinstance(judge_content(path.name, path.read_bytes()[: 64 * 1024], FilePolicy()), Pass)


@pytest.fixture
def outputs(places: Places) -> Outputs:
    return Outputs(planned(), places)


def put(outputs: Outputs, name: str | bytes, content: bytes) -> Path:
    path = outputs.places.outputs / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = [member for member in archive if member.isreg() or member.islnk()]
        return {member.name: found.read() if (found := archive.extractfile(member)) else b"" for member in files}


def zipped(*names: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return target.getvalue()


def tarred(name: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return target.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
STARTS: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello\n",
    "utf-8": "grüße\n".encode(),
    "bom": b"\xef\xbb\xbfhello",
    "latin": b"caf\xe9\n",
    "utf-16": "text".encode("utf-16"),
    "nul": b"a\0b",
    "controls": b"\x1b[31mred\x1b[0m",
    "few controls": b"x" * 500 + b"\x1b",
    "delete": b"\x7f" * 5 + b"x" * 100,
    "xml": b"<?xml version='1.0'?><a/>",
    "xml with bom": b"\xef\xbb\xbf<?xml version='1.0'?>",
    "rtf": b"{\\rtf1 x}",
    "pdf": b"%PDF-1.7\n",
    "png": b"\x89PNG\r\n\x1a\n" + bytes(20),
    "half png": b"\x89PNG",
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(20),
    "gif": b"GIF89a" + bytes(20),
    "bmp": b"BM" + bytes(20),
    "begins like bmp": b"BMI figures of the year\n",
    "begins like exe": b"MZ is a country code\n",
    "begins like tiff": b"I I am\n",
    "begins like aes": b"AES is a cipher\n",
    "begins like mp3": b"ID3 tags\n",
    "begins like bzip": b"BZh\n",
    "begins like rar": b"Rar!\x1a\x07\n",
    "begins like wave": b"RIFFxxxxWAVEfmt\n",
    "begins like riff": b"RIFF raff\n",
    "webp": b"RIFF\x01\x02\x03\x04WEBP",
    "tiff": b"II*\x00" + bytes(20),
    "elf": b"\x7fELF" + bytes(20),
    "gzip": b"\x1f\x8b" + bytes(20),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(20),
    "ole": OLE,
    "zip": zipped("a.txt"),
    "empty zip": zipped(),
    "docx": zipped("[Content_Types].xml", "word/document.xml"),
    "xlsx": zipped("[Content_Types].xml", "xl/workbook.xml"),
    "pptx": zipped("[Content_Types].xml", "ppt/slides.xml"),
    "two offices": zipped("[Content_Types].xml", "word/document.xml", "xl/workbook.xml"),
    "tar": tarred("folder/a"),
    "tar like bmp": tarred("BMW.txt"),
    "tar like xml": tarred("<?xml x"),
    "text with ustar": b"x" * 257 + b"ustar" + b"x" * 300,
}
CAREFUL = ("begins like tiff", "two offices")
"""What is refused here although one of the endings would pass there."""

ENDINGS = (
    "txt md json jsonl xml rtf py csv html toml pdf png jpg jpeg gif bmp tiff wav doc xls ppt docx xlsx pptx zip tar"
    " patch diff log gz svg go rs bin parquet tif webp"
).split()


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_what_passes_here_passes_the_platforms_gate(start: bytes) -> None:
    """Every kind of content under every ending; and no ordinary file is refused without need."""
    for ending in [*ENDINGS, ""]:
        there = isinstance(judge_content(f"name.{ending}", start, FilePolicy()), Pass)
        here = passes(ending, start)
        assert there or not here, f"{ending} would be refused there"
        assert here or not there or start in map(STARTS.get, CAREFUL), f"{ending} would pass there"


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("report.md", "turn-001-report.md"),
        ("sub folder/my report (1).md", "turn-001-sub-folder-my-report-1-.md"),
        ("ünïcode😀.md", "turn-001-n-code-.md"),
        (b"\xff\xfe.md", "turn-001-file.md"),
        ("](x) [y.md", "turn-001-x-y.md"),
        ("..md", "turn-001-file.md"),
        ("a\nb.MD", "turn-001-a-b.MD"),
        ("n" * 200 + ".md", f"turn-001-{'n' * 100}.md"),
    ],
    ids=["plain", "folder and blanks", "unicode", "not utf-8", "markdown", "dots", "newline", "long"],
)
def test_names_are_made_fit_for_links(outputs: Outputs, name: str | bytes, stored: str) -> None:
    put(outputs, name, b"text")
    outputs.deliverables()
    (file,) = outputs.files
    assert file.name == stored
    assert passes_the_gate(outputs.places.data / file.name)


def test_no_deliverable_takes_the_place_of_another_or_of_ours(outputs: Outputs) -> None:
    """An agent cannot write the log, the manifest or the patch."""
    for name in ("log.txt", "LOG.TXT", "manifest.json", "changes.patch.txt", "a/b.md", "a-b.md", "a b.md"):
        put(outputs, name, name.encode())
    outputs.text("log.txt", "log", b"* the log")
    outputs.deliverables()
    outputs.manifest(MANIFEST)
    names = [file.name for file in outputs.files]
    assert len({name.casefold() for name in names}) == len(names) == 8
    assert (outputs.places.data / "turn-001-log.txt").read_bytes() == b"* the log"
    assert "turn-001-manifest.json" not in names
    assert {"turn-001-a-b.md", "turn-001-a-b-2.md", "turn-001-a-b-3.md", "turn-001-log-3.txt", "turn-001-manifest-2.json"} <= set(names)


def test_refused_types_travel_in_an_archive(outputs: Outputs) -> None:
    refused = {
        "fix.patch": b"diff",
        "run.log": b"text",
        "Makefile": b"all:",
        "data.parquet": b"PAR1",
        "s/x.gz": b"\x1f\x8b",
        "e.png": b"text",
    }
    refused |= {"f\udcff.bin": b"1"}
    for name, content in (refused | {"fine.txt": b"text", "fine.png": STARTS["png"]}).items():
        put(outputs, os.fsencode(name), content)
    outputs.deliverables()
    assert [(file.name, file.role, file.byte_exact) for file in outputs.files] == [
        ("turn-001-fine.png", "output", True),
        ("turn-001-fine.txt", "output", True),
        ("turn-001-outputs.tar", "output", True),
    ]
    assert members(outputs.places.data / "turn-001-outputs.tar") == {f"outputs/{name}": content for name, content in refused.items()}
    assert all(passes_the_gate(outputs.places.data / file.name) for file in outputs.files)


def test_of_many_files_most_travel_together(outputs: Outputs) -> None:
    for number in range(70):
        put(outputs, f"f{number:03}.txt", b"x")
    outputs.deliverables()
    assert len(outputs.files) == 51
    assert len(members(outputs.places.data / "turn-001-outputs.tar")) == 20


def test_links_and_pipes_in_the_outputs_are_not_followed(outputs: Outputs, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (outputs.places.outputs / "link.txt").symlink_to(secret)
    (outputs.places.outputs / "folder").symlink_to(tmp_path)
    os.mkfifo(outputs.places.outputs / "pipe.txt")
    outputs.deliverables()
    assert outputs.files == []


@pytest.mark.parametrize(("size", "kept"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_an_output_above_the_limit_is_left_out_and_named(outputs: Outputs, size: int, kept: bool) -> None:
    put(outputs, "large.txt", b"x" * (size - 1024))
    put(outputs, "\x1b[31m.bin", b"x" * size)
    outputs.deliverables()
    assert ("turn-001-large.txt" in [file.name for file in outputs.files]) == kept
    assert len(outputs.remarks) == (1 if kept else 2)
    assert all(remark.isprintable() for remark in outputs.remarks)


def test_whether_a_text_stays_exact_is_said_truly(outputs: Outputs) -> None:
    for name, content in (("a.txt", b"ascii"), ("u.txt", "ü".encode()), ("z.zip", STARTS["zip"])):
        put(outputs, name, content)
    outputs.text("log.txt", "log", "ü".encode())
    outputs.text("events.jsonl", "events", b"{}\n")
    outputs.deliverables()
    assert {file.name[9:]: file.byte_exact for file in outputs.files} == {
        "log.txt": False,
        "events.jsonl": True,
        "a.txt": True,
        "u.txt": False,
        "z.zip": True,
    }


@pytest.mark.parametrize("patch", [b"\x1b[31m" * 500, b"diff\0"], ids=["escapes", "nul"])
def test_a_patch_that_is_no_text_for_the_platform_is_in_the_archive(outputs: Outputs, patch: bytes) -> None:
    outputs.text("changes.patch.txt", "patch", patch)
    outputs.archive(changed(patch), EVENTS, None, MANIFEST)
    assert [file.role for file in outputs.files] == ["workspace"]
    assert members(outputs.places.data / "turn-001-workspace.tar")["turn/changes.patch"] == patch
    assert "archive only" in outputs.remarks[0]


def test_the_log_and_the_events_can_be_stored(outputs: Outputs) -> None:
    outputs.text("events.jsonl", "events", events_text(EVENTS))
    outputs.text("log.txt", "log", log_text(EVENTS, "completed"))
    log = (outputs.places.data / "turn-001-log.txt").read_text()
    events = (outputs.places.data / "turn-001-events.jsonl").read_bytes()
    assert all(passes_the_gate(outputs.places.data / file.name) for file in outputs.files)
    assert events.isascii()
    assert [json.loads(line)["seq"] for line in events.splitlines()] == [1, 2, 3]
    assert not set(log) & {chr(number) for number in (*range(9), *range(14, 32), *range(127, 160))}
    assert all(word in log for word in ("“done”", "red", "ok", "text", "* end: completed"))
    assert "[31m" not in log


def test_the_manifest_can_be_read_back(outputs: Outputs) -> None:
    outputs.text("log.txt", "log", b"* log")
    manifest = MANIFEST.model_copy(update={"outputs": tuple(outputs.files)})
    outputs.manifest(manifest)
    path = outputs.places.data / "turn-001-manifest.json"
    assert path.read_bytes().isascii()
    assert RunManifest.model_validate_json(path.read_bytes()) == manifest
    assert passes_the_gate(path)


def test_the_archive_holds_the_workspace_as_it_is(outputs: Outputs, tmp_path: Path) -> None:
    work, secret = outputs.places.workspace, tmp_path / "secret"
    secret.write_text("secret")
    (work / "BMW").write_bytes(b"\0")
    (work / "run.sh").write_text("x")
    (work / "run.sh").chmod(0o4755)
    (work / "out").symlink_to(secret)
    (work / "folder").mkdir()
    (work / "folder/same").hardlink_to(work / "run.sh")
    (work / os.fsdecode(b"\xff\n")).write_text("odd")
    os.mkfifo(work / "pipe")
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("{}\n")
    outputs.archive(changed(b"diff"), EVENTS, transcript, MANIFEST)
    path = outputs.places.data / "turn-001-workspace.tar"
    with tarfile.open(path) as archive:
        found = {member.name: member for member in archive}
    assert path.read_bytes().startswith(b"workspace/\0")
    assert passes_the_gate(path)
    assert set(found) == {"workspace", "turn"} | {
        f"workspace/{name}" for name in ("BMW", "run.sh", "out", "folder", "folder/same", "\udcff\n")
    } | {f"turn/{name}" for name in ("manifest.json", "events.jsonl", "changes.patch", "transcript.jsonl")}
    assert (found["workspace/run.sh"].mode, found["workspace/run.sh"].uname, found["workspace/run.sh"].uid) == (0o755, "", 0)
    assert found["workspace/out"].linkname == str(secret)
    assert members(path)["workspace/folder/same"] == b"x"
    assert [remark for remark in outputs.remarks if "pipe" in remark]


def test_a_transcript_that_is_a_link_is_not_followed(outputs: Outputs, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "transcript.jsonl").symlink_to(tmp_path / "secret")
    outputs.archive(None, EVENTS, tmp_path / "transcript.jsonl", MANIFEST)
    assert "turn/transcript.jsonl" not in members(outputs.places.data / "turn-001-workspace.tar")


def test_a_workspace_above_the_limit_leaves_the_record(outputs: Outputs) -> None:
    """A sparse file of a terabyte costs nothing to make; it is measured before a byte is written."""
    with (outputs.places.workspace / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    outputs.archive(changed(b"diff"), EVENTS, None, MANIFEST)
    assert [(file.name, file.role) for file in outputs.files] == [("turn-001-record.tar", "output")]
    assert "turn/changes.patch" in members(outputs.places.data / "turn-001-record.tar")
    assert "above the limit" in outputs.remarks[0]
    assert passes_the_gate(outputs.places.data / "turn-001-record.tar")


def test_a_tree_without_end_is_walked_without_recursion(outputs: Outputs) -> None:
    """Deeper than a path may be long: what can be reached is archived, the rest is named."""
    descriptor = os.open(outputs.places.workspace, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
    outputs = Outputs(planned(64 << 20), outputs.places)
    outputs.archive(None, [], None, MANIFEST)
    assert [file.role for file in outputs.files] == ["workspace"]
    assert any("could not be read" in remark for remark in outputs.remarks)
    subprocess.run(["rm", "-rf", str(outputs.places.workspace / "d")], check=True)


def test_remarks_have_an_end(outputs: Outputs) -> None:
    for number in range(500):
        os.mkfifo(outputs.places.workspace / f"pipe{number}")
    outputs.archive(None, [], None, MANIFEST)
    assert len(outputs.remarks) == 31


FULL: dict[str, Callable[[Outputs], None]] = {
    "text": lambda outputs: outputs.text("log.txt", "log", b"x" * 100_000),
    "deliverable": lambda outputs: outputs.deliverables(),
    "archive": lambda outputs: outputs.archive(None, EVENTS, None, MANIFEST),
    "manifest": lambda outputs: outputs.manifest(MANIFEST.model_copy(update={"answer": "x" * 100_000})),
}


def on_a_full_disk(folder: str, what: str) -> list[Any]:
    """Run in a process of its own, in which no file may grow beyond 50 kB."""
    root = Path(folder)
    places = Places(data=root / "data", workspace=root / "workspace", outputs=root / "outputs", state=root / "state")
    outputs = Outputs(planned(), places)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    FULL[what](outputs)
    return [sorted(path.name for path in places.data.iterdir()), [file.name for file in outputs.files], outputs.remarks]


@pytest.mark.parametrize("what", FULL)
def test_a_full_disk_leads_to_a_remark_and_leaves_no_half_file(outputs: Outputs, what: str) -> None:
    put(outputs, "large.txt", b"x" * 100_000)
    put(outputs, "small.txt", b"x")
    (outputs.places.workspace / "large").write_bytes(bytes(100_000))
    code = "import json, sys; from tests.runner_image.test_outputs import on_a_full_disk; print(json.dumps(on_a_full_disk(*sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(outputs.places.data.parent), what]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    left, listed, remarks = json.loads(said)
    assert left == listed == (["turn-001-small.txt"] if what == "deliverable" else [])
    assert len(remarks) == 1
    assert "could not be written" in remarks[0]
