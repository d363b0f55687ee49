"""Following a run to its end, whoever began it and whatever its sandbox does."""

import asyncio
from typing import Any

from orchestration_service.course import Course
from orchestration_service.errors import SandboxLost
from orchestration_service.pump import Pump
from workflow_schemas.manifest import RunManifest

STOP_AFTER_SECONDS = 30.0
"""How long after its own deadline a run is told from outside to stop."""

_GIVE_UP_AFTER_SECONDS = 90.0
_AT_LEAST_SECONDS = 60.0
_LATE_SECONDS = 180.0


def seconds_left(course: Course, beyond: float) -> float:
    """Return how long the run of a turn may still go on, a time after its deadline included; a turn taken over has at least a minute."""
    left = course.planned.plan.limits.hard_seconds + beyond - course.seconds_before
    return max(left, _AT_LEAST_SECONDS) if course.seconds_before else left


async def follow(course: Course, pump: Pump, model_access: dict[str, Any] | None = None) -> RunManifest | None:
    """Start the run of a turn, or take it up, and follow it to its end; if the sandbox does not keep the deadline, the service does.

    A run that was given up before is not worked on any more: it is told to stop, so that what it has is sealed.

    Args:
        course: The turn.
        pump: Carries the messages.
        model_access: What to tell the runner about the gateway for model calls, if there is anything to tell.

    Returns:
        How it ended. None when it has never started: it was to be taken up, or is to start in a sandbox that was replaced meanwhile.

    Raises:
        SandboxUnavailable: The runner did not take the run.
    """
    hard = course.planned.plan.limits.hard_seconds
    guard = asyncio.create_task(_stop_later(pump, seconds_left(course, STOP_AFTER_SECONDS), hard))
    try:
        if course.past.opened is None:
            await pump.post("start", {"plan": course.planned.plan.model_dump(mode="json")})
        elif not await pump.rejoin():
            return None
        if model_access is not None and not pump.has_ended:
            await pump.post("model_access", model_access)
        if course.late and not pump.has_ended:
            await pump.post("stop", {"reason": "interrupted", "detail": "The sandbox did not answer for too long."})
        async with asyncio.timeout(_LATE_SECONDS if course.late else seconds_left(course, _GIVE_UP_AFTER_SECONDS)):
            return await pump.follow()
    except TimeoutError:
        course.may_answer = True
        return _lost(course, "The sandbox did not end the turn in time.")
    except SandboxLost as error:
        if error.never_started:
            return None
        course.may_answer = error.may_answer
        return _lost(course, str(error))
    finally:
        guard.cancel()


async def _stop_later(pump: Pump, seconds: float, hard: float) -> None:
    await asyncio.sleep(seconds)
    await pump.post("stop", {"reason": "deadline", "detail": f"The time limit of {hard:.0f} s was reached."})


def _lost(course: Course, detail: str) -> RunManifest:
    plan = course.planned.plan
    return RunManifest(run_id=plan.run_id, turn_number=plan.turn_number, end_reason="sandbox_lost", detail=detail, generation="")
