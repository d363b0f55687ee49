"""A healthy installation on a stand-in of the platform, with a real service; one thing at a time can be wrong with it."""

import copy
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import httpx
from azure.core.credentials import AccessToken

from deployment_templates.profile import Profile, Sandbox
from orchestration_service.deploying.identity import Token
from orchestration_service.examining.examination import examine
from orchestration_service.examining.finding import Finding
from orchestration_service.examining.sources import Asked, Sources
from tests.emulators.servers import Emulator
from tests.orchestration_service.deploying.standins.world import INSTANCE, World, open_world
from tests.orchestration_service.examining.surroundings import AZURE_TOKEN, POOL_ID, POOL_TOKEN, Surroundings, serve
from tests.orchestration_service.serving import KEY, served

SERVICE_SECRET = "foundationallm-apiendpoints-claudecode-apikey"
MODEL_SECRET = "foundationallm-apiendpoints-anthropic-apikey"
_PLATFORM = ("GatewayAPI", "ContextAPI", "OrchestrationAPI")
_CONFIGURATION = "FoundationaLLM.Configuration"


class _Bearer:
    """An Azure identity that has been told one token."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(self.token, 4_000_000_000)


class Remembering:
    """One of the places, asked again only when what is behind it has changed: an examination reads some fifty things."""

    def __init__(self, place: Any, methods: Sequence[str]) -> None:
        self._place, self._methods = place, methods
        self._known: dict[Any, Any] = {}
        self.state: Callable[[str], object] = str
        """What is behind the answer for a word."""

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._place, name)
        if name not in self._methods:
            return asked

        async def remembered(*words: str) -> Any:
            key = (repr(self.state(words[0])), name, words)
            if key not in self._known:
                self._known[key] = await asked(*words)
            return self._known[key]

        return remembered


@dataclass
class Installation:
    """It, and who examines it."""

    world: World
    around: Surroundings
    url: str
    profile: Profile
    blobs: dict[str, bytes]
    stores: dict[str, Any]
    well: Surroundings
    sources: Sources
    etags: dict[str, str]
    asked: Asked

    async def remember(self) -> None:
        """Tell the places that remember what state they are in."""
        world, places = self.world, self.sources.places
        blobs = {one.name: bytes(one.content_settings.content_md5 or b"") async for one in world.container.list_blobs()}
        memory = repr(world.api.memory)

        def of_api(word: str) -> object:
            if not word.startswith("FoundationaLLM."):
                return world.api.forbidden, world.api.assignments
            return world.api.forbidden, memory, [one for one in blobs.items() if one[0].startswith(word.partition("/")[0])]

        states = (of_api, world.stores.settings.get, world.stores.secrets.get, blobs.get)
        for place, state in zip((places.api, places.store, places.vault, places.blobs), states, strict=True):
            place.state = state  # type: ignore[attr-defined]  # each remembers

    async def examine(self) -> list[Finding]:
        """Run the examination; it must not have written anything."""
        await self.remember()
        self.world.faults.writes.clear()
        found = await examine(self.sources, self.profile, self.asked, profile_path="west.toml")
        assert self.world.faults.writes == []
        return list(found)

    async def edit(self, path: str, change: Callable[[dict[str, Any]], object], *, is_seen: bool = True) -> None:
        """Change a blob, which the platform sees at once or not."""
        await self.world.edit(path, change)
        if is_seen:
            await self.world.api.reset(path.partition("/")[0])

    async def put(self, path: str, content: bytes) -> None:
        await self.world.container.upload_blob(path, content, overwrite=True)
        await self.world.api.reset(path.partition("/")[0])

    async def delete(self, path: str) -> None:
        await self.world.container.delete_blob(path)
        await self.world.api.reset(path.partition("/")[0])

    def entry(self, key: str, value: str | None) -> None:
        """Change an entry of App Configuration; None takes it away."""
        if value is None:
            del self.world.stores.settings[key]
        else:
            self.world.stores.settings[key] = {**self.world.stores.settings.get(key, {"content_type": "", "etag": "x"}), "value": value}

    async def heal(self) -> None:
        """Put back everything as it was."""
        world = self.world
        there = await world.etags()
        for name in there.keys() - self.blobs.keys():
            await world.container.delete_blob(name)
        for name, content in self.blobs.items():
            if there.get(name) != self.etags[name]:
                written = await world.container.upload_blob(name, content, overwrite=True)
                self.etags[name] = (await written.get_blob_properties()).etag
        world.api.memory = copy.deepcopy(self.stores["memory"])
        world.stores.settings, world.stores.secrets = copy.deepcopy(self.stores["settings"]), dict(self.stores["secrets"])
        world.api.assignments = copy.deepcopy(self.stores["assignments"])
        world.api.forbidden, self.profile, self.asked = "", self.stores["profile"], Asked(pool_id=POOL_ID)
        for one in fields(Surroundings):
            setattr(self.around, one.name, copy.copy(getattr(self.well, one.name)))
        self.around.pool = copy.deepcopy(self.well.pool)


@asynccontextmanager
async def open_installation(emulator: Emulator, folder: Path) -> AsyncIterator[Installation]:
    """Install on a platform, and serve all of it until the end of the block."""
    async with open_world(emulator, folder) as world, served(folder, instance_id=INSTANCE) as service:
        around = Surroundings(INSTANCE, service.client)
        async with httpx.AsyncClient(base_url=service.url) as client, serve(around.routes()) as url:
            around.service = client
            await _furnish(world, url)
            world.stores.secrets[SERVICE_SECRET] = KEY
            sandbox = Sandbox(pool_url=f"{url}/pool")
            world.profile = world.profile.model_copy(
                update={"service": world.profile.service.model_copy(update={"url": url}), "sandbox": sandbox}
            )
            await world.apply()
            blobs = {name: await world.read(name) for name in [one.name async for one in world.container.list_blobs()]}
            stores = {
                "settings": copy.deepcopy(world.stores.settings),
                "secrets": dict(world.stores.secrets),
                "assignments": copy.deepcopy(world.api.assignments),
                "memory": copy.deepcopy(world.api.memory),
                "profile": world.profile,
            }
            well = copy.copy(around)
            well.pool = copy.deepcopy(around.pool)
            async with world.places() as places:
                pool, azure = (Token(_Bearer(token), "scope") for token in (POOL_TOKEN, AZURE_TOKEN))  # type: ignore[arg-type]  # all that is asked of it
                reading = (("api", ["list", "role_assignments"]), ("store", ["get"]), ("vault", ["get"]), ("blobs", ["read"]))
                remembering: dict[str, Any] = {name: Remembering(getattr(places, name), methods) for name, methods in reading}
                places = replace(places, **remembering)
                sources = Sources(places=places, pool_token=pool, azure_token=azure, azure_url=f"{url}/azure")
                asked = Asked(pool_id=POOL_ID)
                yield Installation(world, around, url, world.profile, blobs, stores, well, sources, await world.etags(), asked)


async def _furnish(world: World, url: str) -> None:
    """Endpoints that every platform has, and groups without rights on all of it."""
    for name in _PLATFORM:
        resource = {"type": "api-endpoint", "name": name, "url": f"{url}/orchestration"}
        await world.container.upload_blob(f"{_CONFIGURATION}/{name}.json", json.dumps(resource).encode())
        line = {"Name": name, "Filename": f"/{_CONFIGURATION}/{name}.json", "Type": "api-endpoint", "Deleted": False}
        await world.edit(f"{_CONFIGURATION}/_resource-references.json", _appending(line))
    await world.api.reset(_CONFIGURATION)
    world.api.assignments = [one for one in world.api.assignments if one["scope"] != f"/instances/{INSTANCE}"]


def _appending(line: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["ResourceReferences"].append(line)

    return change
