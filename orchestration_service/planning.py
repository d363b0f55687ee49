"""From a completion to an explicit plan. Pure: no clock, no network, no file.

Everything an administrator or a user can get wrong ends here in a :class:`PlanRefused` whose text the user reads as the answer.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from context_client import SandboxSize
from orchestration_service.agent_settings import settings_of
from orchestration_service.errors import PlanRefused
from orchestration_service.granting import not_granted
from orchestration_service.model_choice import ModelChoices, choose_models
from orchestration_service.prompting import WorkspaceOrigin, history, system_prompt
from orchestration_service.sizing import wanted_size
from workflow_schemas.plan import InputFile, Limits, Restore, TurnPlan
from workflow_schemas.platform import (
    CompletionRequest,
    FileHistoryItem,
    MainModel,
    Prompt,
    ResourceProblem,
    resolve_main_model,
    resolve_prompt,
)
from workflow_schemas.properties import WorkflowProperties
from workflow_schemas.property_reading import PropertyReading, read_properties
from workflow_schemas.walls import WallLevel, stricter

_ARCHIVES = (".zip", ".tar")
_SOFT_SHARE = 0.85
_SHORTEST_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """What the installation grants every turn, whatever a workflow asks for."""

    max_turn_seconds: float = 1620.0
    """Longest turn in seconds; the platform's own stop comes at 1800."""

    waited_seconds: float = 0.0
    """How much of the longest turn has gone by in waiting for room."""

    max_unpacked_bytes: int = 1024 * 1024 * 1024
    """Largest workspace in bytes after unpacking the inputs."""

    minimum_wall: WallLevel | None = None
    """The weakest wall between agent and runner that a turn may run behind; None for the strongest a sandbox allows."""


@dataclass(frozen=True, kw_only=True)
class Continuing:
    """The earlier turn that a turn goes on from."""

    agent_session_id: str = ""
    """Session of the agent at its end."""

    restore: Restore | None = None
    """What to restore; None when the sandbox is still the one the earlier turn has left."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, and what only the service needs to know."""

    plan: TurnPlan
    """What the runner gets."""

    uploads: tuple[str, ...]
    """File names to put into the session's file store."""

    sources: tuple[FileHistoryItem, ...]
    """The files behind the inputs."""

    models: ModelChoices
    """The models: where each is served, the names of their keys, and their parameters."""

    properties: WorkflowProperties
    """The workflow's settings in force."""

    full_prompt: str
    """What the portal shows as the prompt."""

    remarks: tuple[str, ...]
    """What the user should be told about the configuration."""

    size: SandboxSize | None = None
    """How large the sandbox shall be; None for as large as they are here."""


def make_plan(
    request: CompletionRequest, *, run_id: str, turn_number: int, limits: SandboxLimits, continuing: Continuing | None = None
) -> Planned:
    """Plan a turn.

    Args:
        request: What the platform sent.
        run_id: Identifier of this run.
        turn_number: Position of the turn in its conversation.
        limits: What the installation grants.
        continuing: The turn to go on from; then only this message's files are put into the workspace.

    Raises:
        PlanRefused: The request or the agent's configuration does not allow a turn; the text says what to change.
    """
    main_model, main_prompt = _resources(request)
    reading = _reading(request, main_model.overrides)
    properties = reading.properties
    models = choose_models(request, main_model, properties)
    if properties.workspace_persistence_mode == "none":
        continuing = None
    files = tuple(request.attached_files if continuing else request.file_history)
    names = _unique_names(files)
    granted = _limits(properties, limits)
    plan = TurnPlan(
        run_id=run_id,
        turn_number=turn_number,
        prompt=request.prompt,
        system_prompt=system_prompt(main_prompt, granted, names, beginning=_beginning(continuing)),
        model=models.main.model,
        small_model=models.small.model if models.small else "",
        tools=properties.allowed_tools,
        inputs=tuple(InputFile(name=name, kind=_kind(name)) for name in names),
        limits=granted,
        output_stem=f"turn-{turn_number:03d}",
        fresh_workspace=continuing is None or continuing.restore is not None,
        restore=continuing.restore if continuing else None,
        agent_session_id=continuing.agent_session_id if continuing else "",
        history=history(request),
        persistence=properties.workspace_persistence_mode,
        minimum_wall=stricter(properties.minimum_wall, limits.minimum_wall),
    )
    return Planned(
        plan=plan,
        uploads=tuple(dict.fromkeys((*names, *_needed(plan.restore)))),
        sources=files,
        models=models,
        properties=properties,
        full_prompt=f"{plan.system_prompt}\n\n{plan.prompt}",
        remarks=(*reading.remarks, *models.remarks, *not_granted(properties, limits.max_turn_seconds, limits.minimum_wall)),
        size=wanted_size(properties),
    )


def _beginning(continuing: Continuing | None) -> WorkspaceOrigin:
    if continuing is None:
        return "attached"
    return "shared" if continuing.restore and continuing.restore.from_conversation else "continued"


def _needed(restore: Restore | None) -> tuple[str, ...]:
    return (*restore.archives, *restore.inputs.values()) if restore else ()


def profile_of(request: CompletionRequest) -> str:
    """Return the sandbox profile the agent of a request asks for.

    Raises:
        PlanRefused: The request or the agent's configuration does not allow a turn.
    """
    (_, _, overrides), _ = _resources(request)
    return read_properties(settings_of(request, overrides).values).properties.sandbox_profile


def _resources(request: CompletionRequest) -> tuple[MainModel, Prompt]:
    """Return the model and the prompt of the agent, after a look at whether it is one of ours and was asked something."""
    workflow = request.agent.workflow
    if workflow is None or not workflow.is_ours:
        kind = workflow.type if workflow else ""
        raise PlanRefused(
            f"The agent {request.agent.name!r} has the workflow type {kind!r}, which Claude Code does not run. "
            "An administrator has to set it to 'external-agent-workflow' with the workflow host 'ClaudeCode'."
        )
    try:
        found = resolve_main_model(request), resolve_prompt(request)
    except ResourceProblem as problem:
        raise PlanRefused(str(problem)) from problem
    if not request.prompt.strip():
        raise PlanRefused("The message is empty. Say what should be done with the files.")
    return found


def _reading(request: CompletionRequest, model_overrides: dict[str, Any]) -> PropertyReading:
    """Return what is understood of the agent's settings; where a turn may not run without a value, it is refused."""
    settings = settings_of(request, model_overrides)
    reading = read_properties(settings.values)
    if reading.refusals:
        raise PlanRefused(" ".join(("An administrator has to correct the agent.", *reading.refusals)))
    return reading.model_copy(update={"remarks": (*settings.remarks, *reading.remarks)})


def _limits(properties: WorkflowProperties, limits: SandboxLimits) -> Limits:
    left = max(limits.max_turn_seconds - limits.waited_seconds, min(_SHORTEST_SECONDS, limits.max_turn_seconds))
    hard = min(float(properties.sandbox_timeout_seconds), left)
    return Limits(
        soft_seconds=hard * _SOFT_SHARE,
        hard_seconds=hard,
        max_turns=properties.max_turns,
        command_timeout_seconds=min(properties.command_timeout_seconds, int(hard)),
        max_output_bytes=properties.max_output_bytes,
        max_unpacked_bytes=limits.max_unpacked_bytes,
    )


def _kind(name: str) -> Any:
    return "archive" if PurePosixPath(name).suffix.lower() in _ARCHIVES else "file"


def _unique_names(files: tuple[FileHistoryItem, ...]) -> tuple[str, ...]:
    """Return each name once: the platform finds files by name, and gives the newest of that name."""
    return tuple(dict.fromkeys(item.original_file_name for item in sorted(files, key=lambda item: item.order) if item.original_file_name))
