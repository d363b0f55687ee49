"""Goes on from an earlier turn: its workspace, and the agent's own session where that is possible.

A live sandbox still has both. Elsewhere the workspace comes from the seal, and the agent's transcript is put back where its CLI looks
for it. What could not be had is told to the user and to the agent; nothing is left out in silence.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from runner_image.difference import Basis, complete
from runner_image.errors import SealError
from runner_image.places import Places
from runner_image.seals import KnownSeal, keep, read_seals, recall, restore
from workflow_schemas.manifest import Beginning
from workflow_schemas.plan import Restore, TurnPlan

TRANSCRIPT = "transcript.jsonl"
_PROJECT = "-workspace"
_MAX_TRANSCRIPT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Continuation:
    """What a run begins with."""

    began: Beginning
    parent: KnownSeal | None = None
    """The seal that the run's own seal can build on."""

    remarks: tuple[str, ...] = ()

    basis: Basis | None = None
    """What the inputs alone make, when only the difference to it was sealed."""

    def system_prompt(self, plan: TurnPlan) -> str:
        """Return the system prompt, with the conversation as text for an agent that does not remember it."""
        if self.began.memory != "history":
            return plan.system_prompt
        return f"{plan.system_prompt}\n\n{plan.history}"

    def session(self, plan: TurnPlan) -> str | None:
        """Return the agent's session to go on with."""
        return plan.agent_session_id if self.began.memory == "session" else None


def continue_turn(plan: TurnPlan, places: Places) -> Continuation:
    """Restore what the plan says, or find it alive. Blocks.

    Raises:
        SealError: The seal cannot be restored; the workspace is empty then, and nothing must run in it.
    """
    if not plan.fresh_workspace:
        known = recall(_known_file(places))
        return _remembering(plan, places, "continued", known.index.turn_number if known else 0, known)
    if plan.restore is None:
        memory = "history" if plan.history else "none"
        return Continuation(Beginning.model_validate({"memory": memory}))
    wanted = plan.restore
    parts = [places.data / name for name in wanted.archives]
    chain = read_seals(parts, turn_number=wanted.turn_number, index_sha256=wanted.index_sha256)
    restored = restore(chain, places.workspace)
    basis = complete(chain, wanted, plan.limits, places)
    with suppress(SealError, OSError):  # a transcript that cannot be had is replaced by the history, and that is told
        _put_back(chain.extra(TRANSCRIPT), plan, places)
    for name in (*wanted.archives, *(name for name in wanted.inputs.values() if name not in {item.name for item in plan.inputs})):
        (places.data / name).unlink(missing_ok=True)
    if wanted.from_conversation:
        return _of_another_conversation(plan, wanted)
    return replace(_remembering(plan, places, "restored", wanted.turn_number, restored.known), basis=basis)


def remember(known: KnownSeal, places: Places) -> None:
    """Keep a seal for the next turn in this sandbox; without it the next seal is a full one. Blocks."""
    with suppress(OSError):
        keep(known, _known_file(places))


def transcript(places: Places, session_id: str) -> Path | None:
    """Return where the CLI keeps the transcript of a session, as seen outside the wall."""
    found = list(places.agent_config.glob(f"projects/*/{session_id}.jsonl")) if session_id else []
    return found[0] if found and not found[0].is_symlink() else None


def _remembering(plan: TurnPlan, places: Places, workspace: str, from_turn: int, parent: KnownSeal | None) -> Continuation:
    remarks: tuple[str, ...] = ()
    memory = "session"
    if transcript(places, plan.agent_session_id) is None:
        memory = "history" if plan.history else "none"
        kept = "it was given their text" if plan.history else "it was told nothing of them"
        remarks = (f"The files are as the earlier turn left them, but the agent does not remember the earlier messages itself: {kept}.",)
    began = Beginning.model_validate({"workspace": workspace, "from_turn": from_turn, "memory": memory})
    return Continuation(began, parent, remarks)


def _of_another_conversation(plan: TurnPlan, wanted: Restore) -> Continuation:
    """Begin with its files only: the turns of two conversations are numbered alike, so its seal cannot be built upon."""
    remark = "The files are those of the last turn in another conversation; the agent knows nothing of what was said there."
    began = Beginning(
        workspace="restored",
        from_turn=wanted.turn_number,
        from_conversation=wanted.from_conversation,
        memory="history" if plan.history else "none",
    )
    return Continuation(began, None, (remark,))


def _put_back(content: bytes, plan: TurnPlan, places: Places) -> None:
    if plan.agent_session_id and content and len(content) <= _MAX_TRANSCRIPT_BYTES:
        folder = places.agent_config / "projects" / _PROJECT
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{plan.agent_session_id}.jsonl").write_bytes(content)


def _known_file(places: Places) -> Path:
    return places.state / "last-seal"
