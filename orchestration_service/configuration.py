"""Reads the whole configuration at start: command line, environment, file, the platform's store; and tells where each value comes from."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from orchestration_service.errors import SettingsError
from orchestration_service.origins import Origin, origins
from orchestration_service.platform_keys import ADDRESS_VARIABLE
from orchestration_service.settings import Settings, load_settings, set_nearby

if TYPE_CHECKING:
    from orchestration_service.platform_configuration import PlatformConfiguration

_KEPT: Mapping[str, str] = {"instance_id": "instance-id", "api_key": "api-key"}


@dataclass(frozen=True)
class Configuration:
    """What is in force."""

    settings: Settings
    """The settings."""

    origins: tuple[Origin, ...]
    """Every setting with its value and where that comes from."""

    platform: PlatformConfiguration | None
    """The platform's store; None without one."""

    ignored: tuple[str, ...] = ()
    """Keys in this service's section of the store that stand for no setting."""


@asynccontextmanager
async def open_configuration(*, replica: bool = False, **given: Any) -> AsyncIterator[Configuration]:
    """Read the configuration; the platform's store stays open until the end of the block.

    Without a store this may be an installation of its own: an instance id and a key that nobody has set are then made, and kept in the data
    folder.

    Args:
        replica: This process is one of several or easily replaced, so an id and a key of its own would be known to nobody: none are made.
        given: What the command line says, by field; None for what it does not say.

    Raises:
        SettingsError: A setting is missing or wrong, or the store cannot be read.
    """
    said = {name: value for name, value in given.items() if value is not None}
    address = os.environ.get(ADDRESS_VARIABLE, "").strip()
    if not address:
        values, sources = ({}, {}) if replica else await anyio.to_thread.run_sync(_kept, said)
        settings = load_settings(platform=values, **said)
        yield Configuration(settings, origins(settings, said=said, farther=sources), None)
        return
    async with AsyncExitStack() as stack:
        platform = await stack.enter_async_context(await anyio.to_thread.run_sync(_platform, address))
        settings = load_settings(platform=await platform.settings(), **said)
        sources = {name: f"App Configuration, {key}" for name, key in platform.keys().items()}
        yield Configuration(settings, origins(settings, said=said, farther=sources), platform, platform.unknown_keys())


def _platform(address: str) -> AbstractAsyncContextManager[PlatformConfiguration]:
    try:
        from orchestration_service.platform_configuration import open_platform_configuration
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{ADDRESS_VARIABLE} is set, and the packages for Azure are not installed ({error.name!r} is missing). Install "
            "the extra 'azure': pip install 'foundationallm-claude-code[azure]', in a checkout ./dev setup.",
            (ADDRESS_VARIABLE,),
        ) from error
    return open_platform_configuration(address)


def _kept(said: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what an installation of its own keeps for what nobody sets, by field, and where; what is not there is made."""
    nearby = {**set_nearby(), **said}
    folder = Path(nearby.get("data_dir") or Settings.model_fields["data_dir"].default)
    places = {name: folder / file for name, file in _KEPT.items() if name not in nearby}
    fresh = {"instance_id": str(uuid.uuid4()), "api_key": secrets.token_urlsafe(24)}
    values = {name: _made_once(path, fresh[name]) for name, path in places.items()}
    return values, {name: f"made once, in {path}" for name, path in places.items()}


def _made_once(path: Path, fresh: str) -> str:
    """Return what a file holds, after putting a fresh value into it if it is not there; only its owner may read it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(fresh)
    return path.read_text(encoding="ascii").strip()
