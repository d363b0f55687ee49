"""Imports the agent SDK ahead of its use, and without what of it is never used.

The SDK imports the package `mcp` for its types. Importing that package runs its `__init__`, which pulls in its whole client, its web
server and their frameworks: a third of all the time it takes until an agent can start. Here the two packages stand in without their
`__init__`, so that only the modules that are asked for are loaded. If a later version of either is built differently, everything is
imported as usual; nothing depends on the shortcut (docs/decisions/0004).
"""

import asyncio
import importlib
import importlib.util
import sys
import types
from collections.abc import Mapping

import anyio
import anyio.lowlevel

_STANDS_IN: Mapping[str, Mapping[str, str]] = {"mcp": {}, "mcp.server": {"Server": "mcp.server.lowlevel.server"}}
"""Packages that are entered without running them, and where the names lie that they would offer."""


def import_agent() -> None:
    """Import :mod:`runner_image.agent` with everything it needs. Blocks for the better part of a second.

    Raises:
        ImportError: The agent SDK is not installed.
    """
    asyncio.run(anyio.lowlevel.checkpoint())  # has the library under the SDK load what it would load at the agent's start
    if "runner_image.agent" in sys.modules:
        return
    known = set(sys.modules)
    try:
        if not known.intersection(_STANDS_IN):
            for name in _STANDS_IN:
                sys.modules[name] = _stand_in(name)
        importlib.import_module("runner_image.agent")
    except (ImportError, AttributeError):
        for name in set(sys.modules) - known:
            if name.startswith(("mcp", "claude_agent_sdk", "runner_image.agent")):
                del sys.modules[name]
        importlib.import_module("runner_image.agent")


def _stand_in(name: str) -> types.ModuleType:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"the package {name!r} is not installed")
    module = types.ModuleType(name)
    module.__path__ = list(found.submodule_search_locations)
    module.__spec__ = found

    def look_up(attribute: str) -> object:
        home = _STANDS_IN[name].get(attribute)
        if home is None:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(home), attribute)

    module.__dict__["__getattr__"] = look_up
    return module
