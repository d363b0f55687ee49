"""Makes the emulated pool for a server program that is started with nothing but an environment."""

import json
import os

from pydantic import SecretStr

from context_client.pools.emulator.app import PoolEmulator
from context_client.pools.emulator.settings import EmulatorSettings
from context_client.sandboxes.local import LocalSandboxes, LocalSandboxSettings

KEY = "POOL_EMULATOR_TOKEN_KEY"
"""Environment: the key that tokens are signed with."""

SETTINGS = "POOL_EMULATOR_SETTINGS"
"""Environment: the other settings, as JSON."""

_SPARE = 4


def from_environment() -> PoolEmulator:
    """Make the app, with local sandboxes behind it that live as long as the server."""
    given = json.loads(os.environ.get(SETTINGS, "{}"))
    settings = EmulatorSettings(**given, token_key=SecretStr(os.environ[KEY]))
    sandboxes = LocalSandboxes(
        LocalSandboxSettings(
            maximum=settings.max_sessions + _SPARE,  # one whose slot is gone may not have ended yet
            cooldown_seconds=max(settings.cooldown_seconds, 1.0),
            spare_idle_seconds=0.5,
        )
    )
    return PoolEmulator(settings, sandboxes, lifespan=sandboxes)
