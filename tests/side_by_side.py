"""Lets the suite run in several processes at once (pytest-xdist): the long files begin, and what a process leaks is told.

The tests of a file stay in one process, for what they share. More is not needed: tests take free ports and folders of their own,
and look only below themselves for what is left behind.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest

LONG: Sequence[str] = (
    *("security", "faults", "journeys", "bad_input", "images"),
    *("context_client/direct", "runner_image/direct", "context_client/containers", "context_client/pools", "context_client/test_azure"),
)
"""Where the long files are, longest first: what comes last has to be short, or one process works on when the others are done."""

LEAKS = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first; a run in one process keeps the order of the folders."""
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, place in enumerate(LONG) if item.nodeid.startswith(f"tests/{place}")), len(LONG))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look for what nobody closed. pytest does so later, when nobody listens any more to one of several processes."""
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["leaks"] = _unclosed(session.config)
    elif session.config.stash.get(LEAKS, []):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process told at its end."""
    node.config.stash.setdefault(LEAKS, []).extend(getattr(node, "workeroutput", {}).get("leaks", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was leaked."""
    for leak in config.stash.get(LEAKS, []):
        terminalreporter.write_line(f"LEAKED {leak}", red=True)


def _unclosed(config: pytest.Config) -> list[str]:
    """What pytest itself finds at its end."""
    finder: Any = config.pluginmanager.get_plugin("unraisableexception")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            finder.pytest_unconfigure(config)
    except (Warning, ExceptionGroup) as found:
        return [str(one) for one in getattr(found, "exceptions", (found,))]
    return []
