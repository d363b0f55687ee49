"""The pure parts: command line, advice, limits, and the directory that outlives no service."""

import fcntl
import os
from pathlib import Path

import anyio
import pytest

from context_client.sandboxes import SandboxLimits, SandboxUnavailable
from context_client.sandboxes.advice import SETTINGS, advise
from context_client.sandboxes.bubblewrap import Source, SystemLink, sandbox_arguments
from context_client.sandboxes.limits import WRITABLE_PLACES
from context_client.sandboxes.rundir import open_run_directory, sweep
from context_client.sandboxes.watchdog import Usage, broken_limit

ARGUMENTS = sandbox_arguments(
    bwrap="/b",
    sources=(Source(host="/usr", inside="/usr"),),
    links=(SystemLink(inside="/lib", target="usr/lib"),),
    limits=SandboxLimits(),
    python="/p",
    server_words=("-m", "server"),
)


def test_nothing_of_the_host_is_bound_writable() -> None:
    assert not {"--bind", "--dev-bind", "--bind-try", "--share-net"} & set(ARGUMENTS)
    assert {"--unshare-all", "--die-with-parent", "--new-session", "--clearenv"} <= set(ARGUMENTS)


def test_every_writable_place_has_a_size() -> None:
    places = {ARGUMENTS[at + 1]: ARGUMENTS[at - 2 : at] for at, word in enumerate(ARGUMENTS) if word == "--tmpfs"}
    assert places == {place: ("--size", str(size)) for place, size in WRITABLE_PLACES.items()}


def test_what_bubblewrap_makes_without_a_size_is_closed_last() -> None:
    end = ARGUMENTS[: ARGUMENTS.index("--chdir")]
    assert end[-4:] == ("--remount-ro", "/dev", "--remount-ro", "/")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({SETTINGS[0]: "0"}, "unprivileged_userns_clone=1", id="debian"),
        pytest.param({SETTINGS[1]: "1"}, "apparmor_parser", id="ubuntu"),
        pytest.param({SETTINGS[2]: "0"}, "max_user_namespaces", id="hardened"),
        pytest.param({}, "Try by hand", id="unknown"),
    ],
)
def test_advice_fits_the_machine(settings: dict[str, str], words: str) -> None:
    steps = advise(settings, binary="/usr/bin/bwrap", in_container=False, as_root=False)
    assert any(words in step for step in steps)


def test_advice_in_a_container() -> None:
    steps = advise({}, binary="/b", in_container=True, as_root=True)
    assert any("seccomp" in step for step in steps)
    assert any("SYS_ADMIN" in step for step in steps)


def test_unavailable_shows_its_advice() -> None:
    assert str(SandboxUnavailable("no.", advice=("first", "second"))).endswith("no.\n  - first\n  - second")


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        pytest.param(Usage(memory_bytes=3 << 30, processes=1, files=1), "3072 MiB", id="memory"),
        pytest.param(Usage(memory_bytes=1, processes=9999, files=1), "9999 processes", id="processes"),
        pytest.param(Usage(memory_bytes=1, processes=1, files=10**7), "10000000 files", id="files"),
        pytest.param(Usage(memory_bytes=1, processes=1, files=None), None, id="none"),
    ],
)
def test_broken_limit(usage: Usage, words: str | None) -> None:
    reason = broken_limit(usage, SandboxLimits())
    assert reason is None if words is None else words in str(reason)


def test_limits_name_every_place() -> None:
    with pytest.raises(ValueError, match="need a size"):
        SandboxLimits(places={"/tmp": 1})


def test_sweep_removes_the_dead_and_nothing_else(short_directory: Path) -> None:
    dead, alive, new = (short_directory / f"fllm-sb-{name}" for name in ("dead", "alive", "new"))
    for directory in (dead, alive, new, short_directory / "other"):
        directory.mkdir()
    (dead / "lock").touch()
    (short_directory / "fllm-sb-link").symlink_to(short_directory / "other")
    with (alive / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweep(short_directory) == 1
    assert {path.name for path in short_directory.iterdir()} == {"fllm-sb-alive", "fllm-sb-new", "other", "fllm-sb-link"}


@pytest.mark.anyio
async def test_run_directory_is_private_and_goes(short_directory: Path) -> None:
    async with open_run_directory(short_directory) as directory:
        status = await anyio.Path(directory).stat()
        assert (status.st_mode & 0o777, status.st_uid) == (0o700, os.geteuid())
    assert not await anyio.Path(directory).exists()


@pytest.mark.anyio
async def test_run_directory_refuses_a_path_no_socket_can_have(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="too long"):
        async with open_run_directory(tmp_path / ("x" * 100)):
            pass
