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
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from runner_image.passing import SNIFFED_BYTES, is_text, passes
from runner_image.places import Places
from runner_image.snapshot import Change
from workflow_schemas.events import Event, Failed, ModelCalled, Progress, Text, ToolEnd, ToolStart, Warned, event_adapter
from workflow_schemas.manifest import OutputFile, RunManifest
from workflow_schemas.plan import TurnPlan

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_COPY_BYTES = 1024 * 1024
_MEMBER_BYTES = 1024
_MAX_DELIVERABLES = 50
_MAX_REMARKS = 30
_NAME_CHARACTERS = 100
_OWN = ("changes.patch.txt", "events.jsonl", "log.txt", "workspace.tar", "record.tar", "outputs.tar", "manifest.json")
Role = Literal["patch", "workspace", "seal", "events", "log", "manifest", "output"]


@dataclass
class Outputs:
    """The output files of one run. What cannot be written is a remark, and a file that was begun and not finished is taken away again."""

    plan: TurnPlan
    places: Places
    files: list[OutputFile] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _names: set[str] = field(default_factory=lambda: set(_OWN))

    def name(self, ending: str) -> str:
        """Return a name of this turn, such as `turn-001-log.txt`."""
        return f"{self.plan.output_stem}-{ending}"

    def text(self, ending: str, role: Role, content: bytes) -> None:
        """Write a text file; one that the platform would refuse stays in the archive."""
        name = self.name(ending)
        if len(content) > self._limit:
            self._remark(f"{name} of {len(content)} bytes is above the size limit; it is in the archive only.")
        elif not passes(_ending(name), content[:SNIFFED_BYTES]):
            self._remark(f"{name} holds what the platform does not take for text; it is in the archive only.")
        else:
            self._write(name, role, lambda file: file.write(content), byte_exact=content.isascii())

    def archive(self, change: Change | None, events: Sequence[Event], transcript: Path | None, manifest: RunManifest) -> None:
        """Write the byte-exact archive: `workspace/…` as it is, and `turn/…` with patch, events, transcript and manifest."""
        workspace = self.places.workspace
        paths = list(self._entries(workspace))
        size = sum(map(_size, paths))
        whole = size <= self._limit

        def fill(archive: tarfile.TarFile) -> None:
            if whole:
                _add_folder(archive, "workspace")
                for path in paths:
                    self._add(archive, path, f"workspace/{path.relative_to(workspace)}")
            _add_folder(archive, "turn")
            for name, content in _turn_members(change, events, transcript, manifest):
                member = tarfile.TarInfo(f"turn/{name}")
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))

        if whole:
            self._write_archive("workspace.tar", "workspace", fill)
        else:
            self._remark(f"The workspace archive of {size} bytes is above the limit of {self._limit} bytes and was left out.")
            self._write_archive("record.tar", "output", fill)

    def deliverables(self) -> None:
        """Take over what the agent put into the outputs folder; what the platform would refuse goes into one archive."""
        refused: list[Path] = []
        room = self._limit
        for path in self._entries(self.places.outputs):
            if path.is_symlink() or not path.is_file():
                continue
            shown, size = f"{path.relative_to(self.places.outputs)!s:.80}", _size(path)
            if size > self._limit:
                self._remark(f"The output {shown!a} is above the size limit and was left out.")
            elif len(self._names) < len(_OWN) + _MAX_DELIVERABLES and self._passes(path):
                self._deliver(path)
            elif size > room:
                self._remark(f"The output {shown!a} did not fit into the archive of outputs and was left out.")
            else:
                room -= size
                refused.append(path)
        if refused:
            self._write_archive("outputs.tar", "output", lambda archive: self._fill_refused(archive, refused))

    def manifest(self, manifest: RunManifest) -> None:
        """Write the manifest; it is not listed in itself."""
        content = _ascii(manifest.model_dump_json(indent=1).encode())
        self._write(self.name("manifest.json"), "manifest", lambda file: file.write(content), byte_exact=True)
        self.files = [file for file in self.files if file.role != "manifest"]

    def add_seal(self, part: Path) -> None:
        """Take a part of the seal over; it was written beside the outputs."""
        self.files.append(_described(part, "seal", byte_exact=True))

    @property
    def _limit(self) -> int:
        return self.plan.limits.max_output_bytes

    def _deliver(self, path: Path) -> None:
        name = self._free_name("-".join(path.relative_to(self.places.outputs).parts))
        try:
            with _opened(path) as source:
                exact = not is_text(_ending(name)) or all(piece.isascii() for piece in _pieces(source))
                source.seek(0)
                self._write(self.name(name), "output", lambda file: file.writelines(_pieces(source)), byte_exact=exact)
        except OSError as error:
            self._remark(f"The output {name!a} could not be read: {error.strerror or error}")

    def _passes(self, path: Path) -> bool:
        try:
            with _opened(path) as source:
                return passes(_ending(path.name), source.read(SNIFFED_BYTES))
        except OSError:
            return False

    def _fill_refused(self, archive: tarfile.TarFile, paths: Sequence[Path]) -> None:
        _add_folder(archive, "outputs")
        for path in paths:
            self._add(archive, path, f"outputs/{path.relative_to(self.places.outputs)}")

    def _free_name(self, wanted: str) -> str:
        """Return a name that the platform and a Markdown link take, and that nothing else of this turn has."""
        rest, _, ending = wanted.rpartition(".")
        stem, number = re.sub(r"[^A-Za-z0-9._+-]+", "-", rest).lstrip("-.")[:_NAME_CHARACTERS] or "file", 1
        name = f"{stem}.{ending}"
        while name.casefold() in self._names:
            number += 1
            name = f"{stem}-{number}.{ending}"
        self._names.add(name.casefold())
        return name

    def _write_archive(self, ending: str, role: Role, fill: Callable[[tarfile.TarFile], None]) -> None:
        def write(file: BinaryIO) -> None:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                fill(archive)

        self._write(self.name(ending), role, write, byte_exact=True)

    def _write(self, name: str, role: Role, write: Callable[[BinaryIO], object], *, byte_exact: bool) -> None:
        path = self.places.data / name
        try:
            with path.open("wb") as file:
                write(file)
            self.files.append(_described(path, role, byte_exact=byte_exact))
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            self._remark(f"{name} could not be written: {error.strerror or error}")

    def _add(self, archive: tarfile.TarFile, path: Path, inside: str) -> None:
        """Add one entry as it is. What cannot be read is a remark; what cannot be written ends the archive."""
        try:
            member = _tame(archive.gettarinfo(path, inside))
            source = _opened(path) if member is not None and member.isreg() else None
        except OSError as error:
            self._remark(f"{inside[:200]!a} could not be read and is not in the archive: {error.strerror or error}")
            return
        if member is None:
            self._remark(f"{inside[:200]!a} is a pipe, socket or device and is not in the archive.")
        elif source is None:
            archive.addfile(member)
        else:
            with source:
                member.size = os.fstat(source.fileno()).st_size
                archive.addfile(member, source)

    def _entries(self, folder: Path) -> Iterator[Path]:
        """Yield everything below a folder, sorted, links not followed; without recursion, for trees of any depth."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            try:
                with os.scandir(here) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                self._remark(f"{str(here.relative_to(folder))[:200]!a} could not be read and was left out: {error.strerror or error}")
                continue
            yield from (Path(entry.path) for entry in entries)
            waiting += [Path(entry.path) for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]

    def _remark(self, text: str) -> None:
        if len(self.remarks) == _MAX_REMARKS:
            self.remarks.append("There were further remarks of this kind.")
        elif len(self.remarks) < _MAX_REMARKS:
            self.remarks.append(text)


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
    if transcript is not None and not transcript.is_symlink() and transcript.is_file():
        with suppress(OSError), _opened(transcript) as source:
            yield "transcript.jsonl", source.read()


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


def _tame(member: tarfile.TarInfo | None) -> tarfile.TarInfo | None:
    """Take the sandbox's users and special modes off a member; None for what is no file, folder or link."""
    if member is None or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode &= 0o777
    member.mtime = int(member.mtime)  # a fraction would cost an extended header each
    return member


def _size(path: Path) -> int:
    """Return the room an entry takes in an archive; a sparse file counts with all its zeros."""
    try:
        state = path.lstat()
    except OSError:
        return _MEMBER_BYTES
    return _MEMBER_BYTES + (state.st_size if stat.S_ISREG(state.st_mode) else 0)


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    while piece := source.read(_COPY_BYTES):
        yield piece


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[:40])
