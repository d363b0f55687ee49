"""The pure parts: command line, advice, limits, and the directory that outlives no service."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

import anyio
import pytest

from context_client.sandboxes import SandboxLimits, SandboxStartFailed, SandboxUnavailable, rundir
from context_client.sandboxes.advice import SETTINGS, advise
from context_client.sandboxes.bubblewrap import Source, SystemLink, sandbox_arguments
from context_client.sandboxes.containers.inside import MEETING_SOCKET
from context_client.sandboxes.groups import ControlGroups
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
@pytest.mark.parametrize("length", [pytest.param(73, id="longest"), pytest.param(74, id="too long"), pytest.param(150, id="far too long")])
async def test_run_directory_has_room_for_sockets_or_is_refused(short_directory: Path, length: int) -> None:
    """The longest name in it is that of a container's meeting place."""
    parent = short_directory / ("x" * (length - len(str(short_directory)) - 1))
    parent.mkdir()
    if length > 73:
        with pytest.raises(SandboxUnavailable, match=f"has {length} bytes, and 73 are the most"):
            async with open_run_directory(parent):
                pass
        return
    async with open_run_directory(parent) as directory:
        await anyio.Path(directory, "1234567", "m").mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as meeting:
            meeting.bind(str(directory / "1234567" / "m" / MEETING_SOCKET))


@pytest.mark.anyio
async def test_run_directory_lies_elsewhere_where_the_usual_places_are_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 150)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    async with open_run_directory() as directory:
        assert len(str(directory)) <= 90
    monkeypatch.setattr(rundir, "_USUAL_PLACES", (str(tmp_path / "missing"),))
    with pytest.raises(SandboxUnavailable, match="Set XDG_RUNTIME_DIR or TMPDIR"):
        async with open_run_directory():
            pass


@pytest.mark.anyio
async def test_a_run_directory_that_cannot_be_made_is_told(short_directory: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="can be made in .*: No such file or directory"):
        async with open_run_directory(short_directory / "missing"):
            pass


def test_a_control_group_of_version_2_is_told_its_share(tmp_path: Path) -> None:
    groups = ControlGroups(tmp_path, is_unified=True)
    group = groups.make("7", SandboxLimits(cpus=0.5))
    assert {file.name: file.read_text() for file in group.iterdir()} == {"cpu.max": "50000 100000"}
    assert group.name == f"claude-code-sandbox-{os.getpid()}-7"
    with pytest.raises(SandboxStartFailed, match=r"0\.5 CPU"):
        groups.make("7", SandboxLimits(cpus=0.5))
