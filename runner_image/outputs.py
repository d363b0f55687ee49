"""Writes what a run leaves behind into the session's file store, under names that pass the platform's content gate.

Archives stay byte-exact on the platform, text may be re-encoded; so everything that must be exact is (also) in the archive, whose
first member is a folder with a harmless name, because the platform looks at the first bytes to tell what a file is
(contract: context API §4.4–4.5).
"""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runner_image.places import Places
from runner_image.snapshot import Change
from workflow_schemas.events import Event, Failed, ModelCalled, Progress, Text, ToolEnd, ToolStart, Warned, event_adapter
from workflow_schemas.manifest import OutputFile, RunManifest
from workflow_schemas.plan import TurnPlan

_PASSING = frozenset(
    "c cpp cs css html ini java js json jsonl md php py rb rtf sh tex toml ts txt xml yaml yml csv tsv "
    "bmp gif jpeg jpg png tiff wav pdf docx pptx xlsx doc ppt xls zip tar".split()
)
_BINARY = frozenset("bmp gif jpeg jpg png tiff wav pdf docx pptx xlsx doc ppt xls zip tar".split())
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
Role = Literal["patch", "workspace", "events", "log", "manifest", "output"]


@dataclass
class Outputs:
    """The output files of one run."""

    plan: TurnPlan
    places: Places
    files: list[OutputFile] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def name(self, ending: str) -> str:
        """Return a name of this turn, such as `turn-001-log.txt`."""
        return f"{self.plan.output_stem}-{ending}"

    def text(self, ending: str, role: Role, content: bytes) -> None:
        """Write a text file."""
        self._add(self.name(ending), role, content, byte_exact=False)

    def archive(self, change: Change | None, events: Sequence[Event], transcript: Path | None, manifest: RunManifest) -> None:
        """Write the byte-exact archive: `workspace/…` as it is, and `turn/…` with patch, events, transcript and manifest."""
        path = self.places.data / self.name("workspace.tar")
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            self._add_tree(archive, self.places.workspace, "workspace")
            for name, content in _turn_members(change, events, transcript, manifest):
                member = tarfile.TarInfo(f"turn/{name}")
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
        size = path.stat().st_size
        if size > self.plan.limits.max_output_bytes:
            path.unlink()
            self.remarks.append(
                f"The workspace archive of {size} bytes is above the limit of {self.plan.limits.max_output_bytes} bytes and was left out."
            )
            return
        self.files.append(_described(path, "workspace", byte_exact=True))

    def deliverables(self) -> None:
        """Take over what the agent put into the outputs folder; what the platform would refuse goes into one archive."""
        refused: list[Path] = []
        for path in _regular_files(self.places.outputs):
            name = "-".join(path.relative_to(self.places.outputs).parts)
            ending = path.suffix.lstrip(".").lower()
            if path.stat().st_size > self.plan.limits.max_output_bytes:
                self.remarks.append(f"The output {name!r} is above the size limit and was left out.")
            elif _plain(name) and ending in _PASSING and (ending in _BINARY or _is_text(path)):
                self._add(self.name(name), "output", path.read_bytes(), byte_exact=ending in _BINARY)
            else:
                refused.append(path)
        if refused:
            target = self.places.data / self.name("outputs.tar")
            with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
                _add_folder(archive, "outputs")
                for path in refused:
                    archive.add(path, f"outputs/{path.relative_to(self.places.outputs)}", recursive=False, filter=_plain_owner)
            self.files.append(_described(target, "output", byte_exact=True))

    def manifest(self, manifest: RunManifest) -> None:
        """Write the manifest; it is not listed in itself."""
        content = manifest.model_dump_json(indent=1).encode()
        (self.places.data / self.name("manifest.json")).write_bytes(_ascii(content))

    def _add(self, name: str, role: Role, content: bytes, *, byte_exact: bool) -> None:
        path = self.places.data / name
        path.write_bytes(content)
        self.files.append(_described(path, role, byte_exact=byte_exact))

    def _add_tree(self, archive: tarfile.TarFile, folder: Path, name: str) -> None:
        _add_folder(archive, name)
        for here, folders, names in os.walk(folder):
            folders.sort()
            for entry in sorted([*names, *folders]):
                path = Path(here) / entry
                inside = f"{name}/{path.relative_to(folder)}"
                try:
                    archive.add(path, inside, recursive=False, filter=_plain_owner)
                except OSError as error:
                    self.remarks.append(f"{inside!a} could not be read and is not in the archive: {error.strerror}")


def log_text(events: Iterable[Event], end: str) -> bytes:
    """Return the readable log of a run: one line per step, command and text; no control characters."""
    lines = []
    for event in events:
        match event:
            case Progress():
                lines.append(f"* {event.step}: {event.message}")
            case Text():
                lines.append(f"Claude: {event.content}")
            case ToolStart():
                lines.append(f"> {event.name} {json.dumps(event.input, ensure_ascii=False)[:500]}")
            case ToolEnd():
                verdict = "ok" if event.success else "failed"
                lines.append(f"  {verdict} after {event.duration_seconds:.2f} s\n{_indented(event.output)}".rstrip())
            case ModelCalled() | Warned() | Failed():
                lines.append(f"! {event.model_dump(exclude={'seq', 'at', 'type'})}")
            case _:
                continue
    text = _ESCAPES.sub("", "\n".join([*lines, f"* end: {end}", ""]))
    return text.encode("utf-8", "backslashreplace")


def events_text(events: Iterable[Event]) -> bytes:
    """Return the event log as JSON Lines, in ASCII, so that no re-encoding changes it."""
    return _ascii(b"".join(event_adapter.dump_json(event) + b"\n" for event in events))


def _turn_members(
    change: Change | None, events: Sequence[Event], transcript: Path | None, manifest: RunManifest
) -> Iterable[tuple[str, bytes]]:
    yield "manifest.json", _ascii(manifest.model_dump_json(indent=1).encode())
    yield "events.jsonl", events_text(events)
    if change is not None and change.patch:
        yield "changes.patch", change.patch
    if transcript is not None and transcript.is_file():
        yield "transcript.jsonl", transcript.read_bytes()


def _ascii(content: bytes) -> bytes:
    """Write every character beyond ASCII as a JSON escape; the input is JSON in UTF-8."""
    text = content.decode("utf-8")
    return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text).encode("ascii")


def _described(path: Path, role: Role, *, byte_exact: bool) -> OutputFile:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return OutputFile(name=path.name, role=role, sha256=sha256, size_bytes=path.stat().st_size, byte_exact=byte_exact)


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(member)


def _plain_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _regular_files(folder: Path) -> list[Path]:
    found = []
    for here, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(here) / name for name in sorted(names) if not (Path(here) / name).is_symlink() and (Path(here) / name).is_file()]
    return found


def _plain(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._()+-]{0,120}", name))


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(65536)
    control = sum(byte < 32 and byte not in (9, 10, 13) for byte in start)
    return b"\0" not in start and control * 100 < max(1, len(start))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[:40])
