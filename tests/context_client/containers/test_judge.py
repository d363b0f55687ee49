"""The pure parts: what is asked of the engine, what is made of what it says, whose a container is."""

import fcntl
import re
import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from context_client.sandboxes.containers import ContainerLimits, ContainerSandboxSettings
from context_client.sandboxes.containers.inside import is_cut
from context_client.sandboxes.containers.judge import engine_shortcomings, image_shortcomings, why_ended
from context_client.sandboxes.containers.orphans import ended_before, judge_container, owner_lives
from context_client.sandboxes.containers.plan import LABEL_OWNER, LABEL_PLACE, Ownership, container_config, session_label
from context_client.sandboxes.health import health_differences
from context_client.sandboxes.limits import WRITABLE_PLACES

SETTINGS = ContainerSandboxSettings(instance_id="i")
NOW = datetime(2026, 1, 2, tzinfo=UTC)
GOOD: Mapping[str, Any] = {
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
}


def test_the_request_opens_nothing() -> None:
    """One read-only bind, nothing privileged, no network, and every limit named."""
    config = container_config(SETTINGS, image_id="sha256:1", meeting_directory="/meet", marks={})
    host = config["HostConfig"]
    assert host["Mounts"] == [{"Type": "bind", "Source": "/meet", "Target": "/run/service", "ReadOnly": True}]
    assert (host["CapDrop"], host["SecurityOpt"], host["NetworkMode"]) == (["ALL"], ["no-new-privileges"], "none")
    assert (host["ReadonlyRootfs"], host["Init"], host["Privileged"]) == (True, True, False)
    assert host["Memory"] == host["MemorySwap"] == SETTINGS.limits.memory_bytes
    assert (host["PidsLimit"], host["NanoCpus"]) == (512, 2_000_000_000)
    assert {*host["Tmpfs"], "/dev/shm"} == WRITABLE_PLACES.keys()
    assert all("nosuid,nodev,uid=10001" in options and ",size=" in options for options in host["Tmpfs"].values())
    assert (config["User"], config["Env"]) == ("10001:10001", [])


def test_a_place_on_disk_is_a_volume_with_a_size() -> None:
    settings = ContainerSandboxSettings(instance_id="i", limits=ContainerLimits(on_disk=frozenset({"/workspace"})))
    host = container_config(settings, image_id="sha256:1", meeting_directory="/meet", marks={})["HostConfig"]
    assert "/workspace" not in host["Tmpfs"]
    assert host["Mounts"][1]["VolumeOptions"]["DriverConfig"]["Options"] == {"size": str(WRITABLE_PLACES["/workspace"])}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"cpus": 0}, id="no processor"),
        pytest.param({"memory_bytes": 0}, id="no limit of memory"),
        pytest.param({"cpus": float("inf")}, id="endless"),
        pytest.param({"places": {"/tmp": 1}}, id="a place missing"),
        pytest.param({"on_disk": frozenset({"/etc"})}, id="a strange place"),
    ],
)
def test_limits_that_would_not_limit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limit needs|need a size|cannot be on disk"):
        ContainerLimits(**wrong)


def test_root_is_refused() -> None:
    with pytest.raises(ValueError, match="never runs as root"):
        ContainerSandboxSettings(instance_id="i", user=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({}, "", id="good"),
        pytest.param({"MemoryLimit": False}, "limit memory", id="memory"),
        pytest.param({"SwapLimit": False}, "limit swap", id="swap"),
        pytest.param({"SecurityOptions": None}, "seccomp", id="no seccomp"),
        pytest.param({"SecurityOptions": ["name=seccomp,profile=unconfined"]}, "seccomp", id="open seccomp"),
        pytest.param({"OSType": "windows"}, "Linux containers", id="windows"),
    ],
)
def test_an_engine_that_cannot_enforce_is_refused(change: dict[str, Any], words: str) -> None:
    steps = engine_shortcomings({**GOOD, **change}, version="Docker 1", has_swap=True)
    assert len(steps) == bool(words)
    assert words in "".join(steps)


def test_swap_needs_no_limit_where_there_is_none() -> None:
    assert engine_shortcomings({**GOOD, "SwapLimit": False}, version="Docker 1", has_swap=False) == ()


def test_podman_is_refused_until_it_keeps_the_limits() -> None:
    (step,) = engine_shortcomings(GOOD, version="Podman 4.3.1", has_swap=True)
    assert "leaves limits out" in step


def test_an_image_with_a_volume_of_its_own_is_refused() -> None:
    assert image_shortcomings({"Config": {"Volumes": {"/workspace": {}}}}, SETTINGS.limits) == ()
    (step,) = image_shortcomings({"Config": {"Volumes": {"/var/lib/x": {}}}}, SETTINGS.limits)
    assert "'/var/lib/x'" in step


def test_health_is_compared_where_something_is_expected() -> None:
    assert health_differences({"version": "1", "more": 2}, {"version": "1"}) == ()
    assert health_differences({}, {"version": "1"}) == ("its version is 'not told' and must be '1'",)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        pytest.param({"OOMKilled": True, "ExitCode": 137}, "2048 MiB", id="memory"),
        pytest.param({"ExitCode": 137}, "killed from outside", id="killed"),
        pytest.param({"ExitCode": 3, "Error": "why"}, r"exit status 3\): why", id="exited"),
        pytest.param({"Running": True}, "from inside", id="watcher"),
    ],
)
def test_an_end_is_told_in_words(state: dict[str, Any], words: str) -> None:
    assert re.search(words, why_ended(state, SETTINGS.limits))


@pytest.mark.parametrize(
    ("place", "owner", "name", "state", "verdict"),
    [
        pytest.param("here", "me", "known", "running", "keep", id="mine"),
        pytest.param("here", "me", "lost", "running", "orphan", id="mine and forgotten"),
        pytest.param("here", "alive", "x", "exited", "keep", id="of a living neighbour"),
        pytest.param("here", "dead", "x", "running", "orphan", id="of a dead neighbour"),
        pytest.param("there", "dead", "x", "running", "keep", id="elsewhere, running"),
        pytest.param("there", "dead", "x", "exited", "ask when it ended", id="elsewhere, ended"),
        pytest.param("there", "dead", "x", "created", "orphan", id="elsewhere, never started"),
    ],
)
def test_only_what_nobody_needs_is_an_orphan(place: str, owner: str, name: str, state: str, verdict: str) -> None:
    record = {
        "Labels": {LABEL_PLACE: place, LABEL_OWNER: owner},
        "Names": [f"/{name}"],
        "State": state,
        "Created": (NOW - timedelta(hours=1)).timestamp(),
    }
    ours = Ownership(owner="me", place="here")
    assert judge_container(record, ours=ours, known={"known"}, lives=lambda owner: owner == "alive", now=NOW) == verdict


def test_an_owner_lives_as_long_as_its_lock(tmp_path: Path) -> None:
    assert not owner_lives(str(tmp_path / "gone"))
    assert owner_lives(str(tmp_path)), "without a lock yet, it is just being made"
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert owner_lives(str(tmp_path))
    assert not owner_lives(str(tmp_path))


@pytest.mark.parametrize("finished", ["2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00Z"])
def test_the_time_of_an_end_is_read_as_any_engine_writes_it(finished: str) -> None:
    assert ended_before({"FinishedAt": finished}, NOW)
    assert not ended_before({"FinishedAt": finished}, NOW - timedelta(days=2))
    assert not ended_before({"FinishedAt": finished, "Running": True}, NOW)
    assert not ended_before({}, NOW)


def test_a_session_is_named_by_nothing_that_can_be_guessed() -> None:
    label = session_label(b"salt", "a", "bc")
    assert label == session_label(b"salt", "a", "bc")
    assert label not in (session_label(b"salt", "ab", "c"), session_label(b"other", "a", "bc"))
    assert session_label(b"salt", "\ud800", "x")


@pytest.mark.parametrize(("deed", "cut"), [("nothing", False), ("close", True), ("speak", True)])
def test_a_lifeline_is_silent_for_life(deed: str, cut: bool) -> None:
    """Words on it would hide its end, so they count as one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if deed == "close":
            theirs.close()
        elif deed == "speak":
            theirs.send(b"x")
        assert is_cut(ours) == cut
