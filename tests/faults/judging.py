"""What must hold after every run, whatever went wrong in it."""

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_client import ContextApiError, ContextClient, UserIdentity
from tests.faults.choosing import Fault
from tests.faults.gateway import Passed
from tests.faults.ground import ANSWER, ATTACHED, PATCH_LINES
from tests.faults.replica import API_KEY, INSTANCE

if TYPE_CHECKING:
    from tests.faults.scene import Scene


@dataclass
class Verdict:
    """What came of a run."""

    fault: Fault
    seconds: float
    status: str = ""
    happened: bool = False
    """Whether the fault took place at all."""
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Model calls asked again although their answer had been stored."""
    polls: list[str] = field(default_factory=list)
    transcript: str = ""

    @property
    def problems(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.unfinished, *self.left_behind, *self.repeated, *self.polls]


async def judge(scene: "Scene", seconds: float) -> Verdict:
    """Look at everything a run has left, and say what is wrong with it."""
    fault, poller = scene.fault, scene.poller
    verdict = Verdict(fault, seconds, status=poller.status, polls=poller.faults, left_behind=scene.problems)
    notes = await asyncio.to_thread(_notes, scene.folder / "journal.jsonl")
    verdict.happened = _took_place(scene, notes)
    verdict.unfinished = await asyncio.to_thread(_unfinished, scene.folder / "data" / "operations.sqlite")
    records = await asyncio.to_thread(_records, scene.records, scene.upn)
    if poller.status not in ("Completed", "Failed"):
        verdict.lost.append(f"the turn did not end: {poller.status or 'no answer at all'}")
    else:
        result = poller.state["result"]
        linked = [artifact for artifact in result.get("content_artifacts") or [] if artifact["type"] == "File"]
        verdict.doubled = _doubled(records, len(linked))
        if not fault.destroys_work:
            verdict.lost += await _missing(scene, result, linked)
    verdict.repeated = _repeated(scene.model_gate.passed, notes)
    verdict.transcript = await asyncio.to_thread(_transcript, scene, notes, records)
    return verdict


async def _missing(scene: "Scene", result: dict[str, Any], linked: list[dict[str, Any]]) -> list[str]:
    """What a turn must have brought in which nothing was destroyed."""
    if scene.poller.status == "Failed":
        return [f"the turn failed: {result['completion'][:300]}"]
    found = [] if result["completion"] == ANSWER else [f"the answer is another one: {result['completion'][:300]!r}"]
    runs = [artifact for artifact in result["content_artifacts"] if artifact["type"] == "WorkflowExecution"]
    receipt = json.loads(runs[0]["metadata"]["receipt"]) if runs else {}
    if receipt.get("end_reason") != "completed" or receipt.get("lost"):
        found.append(f"the receipt says {receipt.get('end_reason')!r}: {receipt.get('detail')!r}, lost {receipt.get('lost')}")
    patches = [artifact for artifact in linked if artifact["metadata"].get("role") == "patch"]
    if len(patches) != 1:
        return [*found, f"there are {len(patches)} patches"]
    identity = UserIdentity(name="Ann", user_name=scene.upn, upn=scene.upn)
    try:  # over a new connection: the server closes one that has been idle for some seconds, and may do so at this moment
        async with ContextClient(base_url=scene.ground.context_url, api_key=API_KEY, instance_id=INSTANCE) as context:
            patch = (await context.file_content(identity, patches[0]["filepath"])).content.decode()
    except ContextApiError as error:
        return [*found, f"the patch cannot be read: {error}"]
    lines = [line for line in patch.splitlines() if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")]
    return found if lines == PATCH_LINES else [*found, f"the patch is another one: {lines}"]


def _doubled(records: list[tuple[str, str]], linked: int) -> list[str]:
    """Records of one name twice, and records that no answer leads to."""
    made = [name for name, _ in records if name != ATTACHED]
    twice = [f"{count} records named {name}" for name, count in Counter(made).items() if count > 1]
    if not twice and len(made) > linked > 0:
        twice.append(f"{len(made)} records were made, the answer leads to {linked}")
    return twice


def _repeated(calls: list[Passed], notes: list[dict[str, Any]]) -> list[str]:
    """Calls asked again after their answer had been stored. An answer that was lost on its way, or with its process, excuses."""
    found = []
    answered: dict[str, Passed] = {}
    for call in calls:
        before = answered.get(call.digest)
        if before is not None and (stored := _stored(notes, before.ended, call.began)):
            found.append(f"model call {call.number} repeats call {before.number}, whose answer {stored['who']} had stored")
        if call.status == 200:
            answered[call.digest] = call
    return found


def _stored(notes: list[dict[str, Any]], since: float, until: float) -> dict[str, Any] | None:
    for note in notes:
        holds = "model_answer" in note["does"] or note["does"].startswith("end_effect model")
        if note["state"] == "done" and holds and since <= note["t"] <= until:
            return note
    return None


def _took_place(scene: "Scene", notes: list[dict[str, Any]]) -> bool:
    fault = scene.fault
    if fault.kind == "nothing":
        return True
    if fault.damage:
        gates = (scene.context_gate, scene.model_gate, scene.sandbox_gate)
        return any(fault.damage in call.note for gate in gates if gate is not None for call in gate.passed)
    if fault.call:
        return bool(scene.happened)
    return any(note["who"] == "a" and note["n"] == fault.at for note in notes)


def _notes(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _unfinished(path: Path) -> list[str]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT operation_id, last_step FROM operations WHERE status='InProgress'").fetchall()
    return [f"operation {operation_id} is in progress, last step {step}" for operation_id, step in rows]


def _records(path: Path, upn: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT body FROM documents WHERE type='file-record' AND deleted=0 AND upn=?", (upn,)).fetchall()
    found = [json.loads(row[0]) for row in rows]
    return [(str(record["file_name"]), str(record.get("origin", ""))) for record in found]


def _transcript(scene: "Scene", notes: list[dict[str, Any]], records: list[tuple[str, str]]) -> str:
    """Everything that was seen, in the order of time."""
    at = scene.fault.at
    told_of = [note for note in notes if note["state"] != "done" or note["n"] == at]
    lines = [(note["t"], f"store    {note['who']} {note['n']:>3} {note['state']:<6} {note['does']}") for note in told_of]
    for gate in (scene.context_gate, scene.model_gate, scene.sandbox_gate):
        for call in gate.passed if gate is not None else ():
            took = f"{call.status} after {call.ended - call.began:.2f} s" if call.status else "no whole answer"
            lines.append((call.began, f"{gate.name if gate else '':<8} {call.call} {call.number} {call.digest[:6]} {took}{call.note}"))
    for moment, name, state in scene.poller.seen:
        words = " ".join(str(state["result"]["completion"] or state["result"]["content"]).split())
        lines.append((moment, f"poll     {name} {state['status']} {words[:160]}"))
    start = min((moment for moment, _ in lines), default=0.0)
    told = [f"{moment - start:8.3f} {line}" for moment, line in sorted(lines, key=lambda item: item[0])]
    for log in sorted(scene.folder.glob("*.log")):
        told += [f"log {log.stem}: {line}" for line in log.read_text(errors="replace").splitlines()[-40:]]
    told += [f"seen: {event}" for event in scene.happened] + [f"record: {name} ({origin})" for name, origin in sorted(records)]
    return "\n".join(told)
