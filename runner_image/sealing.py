"""Seals a run: the change, the log, the archive and the manifest, whatever state the run ended in."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner_image.continuing import TRANSCRIPT, Continuation, remember, transcript
from runner_image.difference import DIFFERENCE, Difference, find_difference
from runner_image.errors import RunnerError, SealError
from runner_image.leftovers import end_leftovers
from runner_image.outputs import Outputs, events_text, log_text
from runner_image.places import Places
from runner_image.seals import KnownSeal, Witness, WrittenSeal, write_seal
from runner_image.snapshot import Base, Change, Snapshots
from runner_image.walls import Wall
from workflow_schemas.events import Event
from workflow_schemas.manifest import Beginning, EndReason, RunManifest, SealFacts
from workflow_schemas.plan import TurnPlan
from workflow_schemas.usage import Usage


@dataclass
class Ended:
    """What is known about a run when the agent has ended."""

    reason: EndReason = "completed"
    detail: str = ""
    answer: str = ""
    session_id: str = ""
    usage: Usage = field(default_factory=Usage)
    base: Base | None = None
    wall: Wall | None = None
    remarks: list[str] = field(default_factory=list)
    continuation: Continuation | None = None
    witness: Witness | None = None


async def seal(plan: TurnPlan, places: Places, generation: str, ended: Ended, events: Sequence[Event]) -> RunManifest:
    """Write every output of a run and return its manifest. What cannot be written is a remark, so that the rest survives."""
    left = await end_leftovers()
    change = await _change(ended)
    manifest = RunManifest(
        run_id=plan.run_id,
        turn_number=plan.turn_number,
        end_reason=ended.reason,
        detail=ended.detail,
        answer=ended.answer,
        session_id=ended.session_id,
        generation=generation,
        usage=ended.usage,
        patch=change.facts if change else None,
        wall=ended.wall.describe() if ended.wall else None,
        processes_left=left,
        began=ended.continuation.began if ended.continuation else Beginning(),
    )
    return await asyncio.to_thread(_write, plan, places, ended, change, manifest, events)


async def _change(ended: Ended) -> Change | None:
    if ended.base is None or ended.wall is None:
        return None
    try:
        return await Snapshots(ended.wall).change(ended.base)
    except (RunnerError, OSError) as error:
        ended.remarks.append(f"The change of the workspace could not be recorded: {error}")
        return None


def _write(
    plan: TurnPlan, places: Places, ended: Ended, change: Change | None, manifest: RunManifest, events: Sequence[Event]
) -> RunManifest:
    outputs = Outputs(plan, places)
    steps: list[Callable[[], None]] = [
        lambda: outputs.text("events.jsonl", "events", events_text(events)),
        lambda: outputs.text("log.txt", "log", log_text(events, f"{ended.reason} {ended.detail}".strip())),
    ]
    if ended.continuation is not None:  # else what lies there is an earlier turn's
        steps.append(outputs.deliverables)
    if change is not None and change.patch:
        steps.insert(0, lambda: outputs.text("changes.patch.txt", "patch", change.patch))
    if ended.base is not None:
        steps.append(lambda: outputs.archive(change, events, transcript(places, ended.session_id), manifest))
    for step in steps:
        try:
            step()
        except OSError as error:
            outputs.remarks.append(f"An output could not be written: {error.strerror or error}")
    facts = _seal(plan, places, ended, change, manifest, events, outputs)
    remarks = (*ended.remarks, *(change.remarks if change else ()), *outputs.remarks)
    manifest = manifest.model_copy(update={"outputs": tuple(outputs.files), "remarks": remarks, "seal": facts})
    with suppress(OSError):
        outputs.manifest(manifest)
    return manifest


def _seal(
    plan: TurnPlan,
    places: Places,
    ended: Ended,
    change: Change | None,
    manifest: RunManifest,
    events: Sequence[Event],
    outputs: Outputs,
) -> SealFacts | None:
    """Seal the workspace with everything a later turn needs, in whatever sandbox that runs."""
    if plan.persistence == "none" or ended.continuation is None:
        return None
    extras: dict[str, bytes | Path] = {
        "manifest.json": manifest.model_dump_json().encode(),
        "plan.json": plan.model_dump_json(exclude={"prompt", "history", "system_prompt"}).encode(),
        "events.jsonl": events_text(events),
    }
    if change is not None:
        extras["changes.patch"] = change.patch
    if (said := transcript(places, ended.session_id)) is not None:
        extras[TRANSCRIPT] = said
    try:
        written, difference = _sealed(plan, places, ended, ended.continuation.parent, extras)
    except SealError as error:
        outputs.remarks.append(f"This turn could not be sealed, so the next one cannot go on from it elsewhere: {error}")
        return None
    # what is still alive could write where nobody watches, between this turn and the next
    remember(replace(written.known, stamps={}) if manifest.processes_left else written.known, places)
    for part in written.parts:
        outputs.add_seal(part)
    if written.left_out:
        outputs.remarks.append(f"{len(written.left_out)} entries of the workspace could not be sealed; the seal's index names them.")
    return _facts(written, difference, has_transcript=said is not None)


def _sealed(
    plan: TurnPlan, places: Places, ended: Ended, parent: KnownSeal | None, extras: dict[str, bytes | Path]
) -> tuple[WrittenSeal, Difference | None]:
    difference = find_difference(plan, places)
    if difference is not None:
        extras[DIFFERENCE] = difference.document
    written = write_seal(
        places.workspace,
        places.data,
        stem=f"{plan.output_stem}-seal",
        turn_number=plan.turn_number,
        parent=parent,
        extras=extras,
        testimony=ended.witness.testify() if ended.witness else None,
        exclude=difference.excluded if difference else None,
    )
    return written, difference


def _facts(written: WrittenSeal, difference: Difference | None, *, has_transcript: bool) -> SealFacts:
    index = written.index
    return SealFacts(
        index_sha256=written.known.index_sha256,
        tree_sha256=difference.whole_tree(index.entries) if difference else index.tree_sha256,
        parts=tuple(part.name for part in written.parts),
        builds_on=tuple(reference.turn_number for reference in index.chain),
        entries=len(index.entries),
        new_bytes=written.new_bytes,
        left_out=len(written.left_out),
        inputs=difference.inputs if difference else (),
        has_transcript=has_transcript,
    )
