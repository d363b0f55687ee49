"""Keeps a running service in step with the platform's store, as far as that is safe without a restart.

Keys are: those of model endpoints are asked for at each turn, and the service's own is replaced here, the one before it being admitted for
another hour. Everything else was decided on at the start (what is open, what a turn was promised), so a change of it is told in the log.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from orchestration_service.errors import SettingsError
from orchestration_service.platform_configuration import PlatformConfiguration
from orchestration_service.platform_keys import key_of
from orchestration_service.remarks import STORE_AWAY, Remarks
from orchestration_service.security import Doorkeeper
from orchestration_service.settings import set_nearby

_EVERY_SECONDS = 30.0
_log = logging.getLogger(__name__)


async def keep_fresh(
    platform: PlatformConfiguration, doorkeeper: Doorkeeper, *, remarks: Remarks | None = None, every_seconds: float = _EVERY_SECONDS
) -> None:
    """Look at the store again and again, until cancelled.

    Args:
        platform: The store.
        doorkeeper: Is told of another key.
        remarks: Where it is said that the store cannot be read.
        every_seconds: How often to look.
    """
    remarks = remarks or Remarks()
    told = _told(await platform.settings())
    while True:
        await asyncio.sleep(every_seconds)
        await platform.refresh()
        try:
            values = await platform.settings()
        except SettingsError as error:
            _log.warning("The configuration could not be read again; what is in force stays: %s", error)
            remarks.say("configuration", STORE_AWAY)
            continue
        if platform.is_away:
            remarks.say("configuration", STORE_AWAY)
        else:
            remarks.withdraw("configuration")
        if (key := values.get("api_key")) and "api_key" not in set_nearby() and doorkeeper.replace_key(SecretStr(key)):
            _log.warning("The service's key was replaced; the one before it is admitted for another hour")
        now = _told(values)
        for name in sorted(name for name in {*told, *now} if told.get(name) != now.get(name)):
            _log.warning("%s has changed; that takes effect at the next start", key_of(name))
        told = now


def _told(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "api_key"}
