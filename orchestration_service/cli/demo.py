"""The main job, as a user would see it: one completion over HTTP, activity while it works, files at the end."""

import asyncio
import os
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestration_service.cli.client import Caller, open_caller
from orchestration_service.cli.hosting import hosted_platform, scripted_routes
from orchestration_service.cli.repository import applies, is_clean, pack
from orchestration_service.cli.screen import Screen
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.demo_repository import create_demo_repository
from orchestration_service.scripted.script import shipped_script
from workflow_schemas.receipt import Receipt

_PROMPT = "A test of this repository fails. Find out why, fix the code, and show me that the tests pass."


@dataclass(frozen=True)
class Sent:
    """The repository the agent was given."""

    repository: Path
    """Where it is."""

    packed: bytes
    """What was sent of it."""

    place: Path
    """An empty folder for trying things out."""


async def demo(*, repository: Path | None, prompt: str | None, model: str, color: bool, keep: Path | None) -> int:
    """Run the demo.

    Args:
        repository: A git repository of the user's; None for a small one that is made here.
        prompt: What to do; None for the demo's own task.
        model: Model to use when there is a key.
        color: Whether the terminal can show colours and a live line.
        keep: Folder to put the files of the turn into.

    Returns:
        0 when the turn completed and its patch applies, 1 otherwise.
    """
    screen = Screen(live=color)
    has_key = bool(os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("CLAUDE_CODE_ANTHROPIC_API_KEY"))
    if repository is not None and not has_key:
        screen.say("Work on your own repository needs a model: set ANTHROPIC_API_KEY (and ANTHROPIC_BASE_URL for a gateway) and repeat.")
        return 1
    scripted = not has_key or repository is None
    if scripted and has_key:
        screen.say("The demo's own repository is played by the scripted model; give --repo and --prompt to use yours.")
    with tempfile.TemporaryDirectory(prefix="claude-code-demo-") as folder:
        place = Path(folder)
        if repository is None:
            made = await asyncio.to_thread(create_demo_repository, place / "pricing")
            repository = made.path
            screen.say(f"Repository: a small one with a failing test ({made.failing_test}), made in {repository}")
        async with _routes(scripted) as routes, hosted_platform(place / "data", routes=routes) as platform, open_caller(platform) as caller:
            screen.say(f"Platform:   {platform.base_url} (embedded; sandbox: {platform.sandbox})")
            screen.say(f"Model:      {'a scripted model, because no model key is set' if scripted else model}")
            return await _turn(screen, caller, repository, prompt or _PROMPT, model, place, keep)


@asynccontextmanager
async def _routes(scripted: bool) -> AsyncIterator[ModelRoutes | None]:
    if not scripted:
        yield None
        return
    async with scripted_routes(shipped_script("demo")) as routes:
        yield routes


async def _turn(screen: Screen, caller: Caller, repository: Path, prompt: str, model: str, place: Path, keep: Path | None) -> int:
    conversation = f"demo-{uuid.uuid4()}"
    packed = await asyncio.to_thread(pack, repository)
    record = await caller.upload(conversation, "repository.tar", packed)
    screen.title("Completion")
    screen.say(f"  {prompt}")
    operation = await caller.start(caller.completion(conversation, prompt, [record], model=model))
    screen.title("Activity")
    async for event in caller.events(operation):
        screen.event(event)
    state = await caller.status(operation)
    screen.say(f"{' ' * 8}    {screen.figures()}")
    return await _show_result(screen, caller, state, Sent(repository, packed, place), keep)


async def _show_result(screen: Screen, caller: Caller, state: dict[str, Any], sent: Sent, keep: Path | None) -> int:
    result = state["result"]
    screen.title("Answer")
    screen.block(result["completion"])
    if state["status"] != "Completed":
        return 1
    artifacts = result["content_artifacts"]
    execution = next(item for item in artifacts if item["type"] == "WorkflowExecution")
    receipt = Receipt.model_validate_json(execution["metadata"]["receipt"])
    screen.title("Receipt")
    screen.data(receipt.model_dump(mode="json", exclude={"files", "steps", "operation_id", "wall"}))
    screen.data({"wall": receipt.wall.in_words() if receipt.wall else ""})
    screen.data({"steps": ", ".join(f"{step.step} {step.seconds:.2f} s" for step in receipt.steps)})
    screen.title("Files (records of the user who asked)")
    files = [item for item in artifacts if item["type"] == "File"]
    rows = [_row(item["metadata"]) for item in files]
    screen.table(rows, ("name", "bytes", "SHA-256"))
    ok = True
    for item in files:
        content = (await caller.context.file_content(caller.identity, item["filepath"])).content
        if keep is not None:
            await asyncio.to_thread(_keep, keep, item["metadata"]["original_file_name"], content)
        if item["metadata"]["role"] == "patch":
            ok = await _show_patch(screen, content, sent)
    if not any(item["metadata"]["role"] == "patch" for item in files):
        screen.title("Patch")
        screen.say("  None: no file of the repository was changed.")
    return 0 if ok else 1


async def _show_patch(screen: Screen, patch: bytes, sent: Sent) -> bool:
    screen.title("Patch")
    screen.block(patch.decode(errors="replace"))
    ok, said = await asyncio.to_thread(applies, sent.repository, sent.packed, patch, sent.place)
    clean = await asyncio.to_thread(is_clean, sent.repository)
    where = "a fresh clone" if clean else "a copy of what was sent, with what is not committed,"
    screen.title(f"In {where} the patch {'applies' if ok else 'does NOT apply'}:")
    screen.block(said)
    return ok


def _row(metadata: dict[str, str]) -> tuple[str, ...]:
    return metadata["original_file_name"], f"{int(metadata['file_size']):,}", metadata["sha256"]


def _keep(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / Path(name).name).write_bytes(content)
