"""Runs the embedded platform inside this process, on a free port of this machine."""

import gc
import secrets
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from orchestration_service.composition import open_service
from orchestration_service.model_routes import ModelRoutes
from orchestration_service.scripted.app import ScriptedModel
from orchestration_service.scripted.endpoint import scripted_endpoint, serve
from orchestration_service.scripted.script import Script
from orchestration_service.settings import load_settings

SCRIPTED_KEY = "scripted-model-key"
_AHEAD = "-10"


@dataclass(frozen=True)
class Platform:
    """The embedded platform, ready to be called."""

    base_url: str
    """Address of the service; the Context API is below `/context`."""

    instance_id: str
    """The one instance it serves."""

    api_key: str
    """Key for both."""

    sandbox: str
    """What sandboxes are made of here."""


@asynccontextmanager
async def scripted_routes(script: Script) -> AsyncIterator[ModelRoutes]:
    """Serve a scripted model and yield routes that lead every call to it."""
    async with scripted_endpoint(ScriptedModel(script)) as endpoint:
        yield ModelRoutes(default_key=SecretStr(SCRIPTED_KEY), base_url=endpoint.base_url)


@asynccontextmanager
async def hosted_platform(data_dir: Path, *, routes: ModelRoutes | None = None, **chosen: Any) -> AsyncIterator[Platform]:
    """Serve the embedded platform until the context ends.

    Args:
        data_dir: Where operations and files are kept.
        routes: Where model calls go; by default as the environment says.
        chosen: Further settings, before those of the environment.
    """
    settings = load_settings(instance_id=str(uuid.uuid4()), api_key=secrets.token_urlsafe(24), data_dir=data_dir, **chosen)
    async with open_service(settings, routes=routes) as service, serve(service.app) as endpoint:
        yield Platform(endpoint.base_url, settings.instance_id, settings.api_key.get_secret_value(), service.sandbox)


@contextmanager
def quick_to_answer() -> Iterator[None]:
    """Keep this process prompt while the sandboxes of its machine are busy. For the entry point of a program, once all is loaded.

    A full garbage collection would walk the hundred thousand objects that live as long as the process, and answer nothing for a tenth of a
    second; so these are exempt. And the session's scheduling group goes ahead of all others.
    """
    gc.collect()
    gc.freeze()
    try:
        with ahead(Path("/proc/self/autogroup")):
            yield
    finally:
        gc.unfreeze()


@contextmanager
def ahead(group: Path) -> Iterator[None]:
    """Let a scheduling group (sched(7), "autogroup") go before others, where the kernel keeps one and allows it; at the end as before.

    A group which has used up its share waits, however small the others' shares are.

    Args:
        group: The group's file: empty for a process that is in none.
    """
    before = ""
    with suppress(OSError):
        before = group.read_text(encoding="ascii")
    if not before:
        yield
        return
    with suppress(OSError):
        group.write_text(_AHEAD, encoding="ascii")
    try:
        yield
    finally:
        with suppress(OSError):
            group.write_text(before.split()[-1], encoding="ascii")
