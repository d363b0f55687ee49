"""Shows the settings in force, so that an operator need not guess which of five places has the say."""

import dataclasses
import json
from collections.abc import Sequence

from orchestration_service.configuration import open_configuration
from orchestration_service.origins import Origin


async def show_config(*, as_json: bool) -> int:
    """Print every setting, its value with secrets masked, and where the value comes from.

    Raises:
        SettingsError: A setting is missing or wrong, or the platform's store cannot be read.
    """
    async with open_configuration() as configuration:
        if as_json:
            settings = [dataclasses.asdict(origin) for origin in configuration.origins]
            print(json.dumps({"settings": settings, "without_effect": configuration.ignored}, indent=2, ensure_ascii=False))
            return 0
        print(_table(configuration.origins))
        for key in configuration.ignored:
            print(f"without effect: App Configuration has {key}, which is no setting of this version")
    return 0


def _table(found: Sequence[Origin]) -> str:
    names, values = max(len(one.variable) for one in found), min(48, max(len(one.value) for one in found))
    return "\n".join(f"{one.variable:<{names}}  {one.value or '-':<{values}}  {one.source}" for one in found)
