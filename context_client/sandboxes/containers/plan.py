"""What the engine is asked for, as a pure function of what goes in.

Every line here is a decision about what hostile code can see or use up. What is not named is not there.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .inside import MEETING_PLACE, first_words
from .settings import SHARED_MEMORY, ContainerLimits, ContainerSandboxSettings

LABEL = "claude-code-sandbox"
"""Our containers have this label, with the instance id."""

LABEL_OWNER = f"{LABEL}.owner"
LABEL_PLACE = f"{LABEL}.place"
LABEL_SESSION = f"{LABEL}.session"
LABEL_CREATED = f"{LABEL}.created"

_HOSTNAME = "sandbox"
_CPU_SHARES = 256  # of 1024, what everything else has: a busy service goes ahead
_LOG: Mapping[str, str] = {"max-size": "1m", "max-file": "1"}


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """Whose a container is, so that others can tell when nobody needs it any more."""

    owner: str
    """Path of the service's run directory, whose lock it holds for life."""

    place: str
    """Where that path means something: this boot of this machine, this mount namespace."""


def session_label(salt: bytes, upn: str, session_id: str) -> str:
    """Name a session for a label: neither user nor session can be told from it, not even by guessing.

    Args:
        salt: The service's secret of this run.
        upn: Whose session.
        session_id: Which.
    """
    # lengths first, so that no two pairs give the same text; a hostile name may hold half a character
    text = f"{len(upn)}:{upn}{session_id}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=salt, digest_size=16).hexdigest()


def server_words(settings: ContainerSandboxSettings) -> tuple[str, ...]:
    """Build the server's command line; `{fd}` is where its socket's number goes.

    There is no limit of processes in it: the kernel would count it over all containers of the same user id.
    """
    words = [settings.python, "-P", "-m", "runner_image.server", "--fd", "{fd}"]
    words += ["--timeout-seconds", str(settings.execution_timeout_seconds)]
    if settings.prewarm_runner:
        words.append("--prewarm-runner")
    return tuple(words)


def labels(instance_id: str, ownership: Ownership, session: str, created: datetime) -> dict[str, str]:
    """Build a container's labels; none says anything about a user."""
    return {
        LABEL: instance_id,
        LABEL_OWNER: ownership.owner,
        LABEL_PLACE: ownership.place,
        LABEL_SESSION: session,
        LABEL_CREATED: created.isoformat(timespec="seconds"),
    }


def container_config(
    settings: ContainerSandboxSettings, *, image_id: str, meeting_directory: str, marks: Mapping[str, str]
) -> dict[str, Any]:
    """Build the engine's request for one container, in the words of Docker's API.

    Args:
        settings: What the administrator chose.
        image_id: The image, by content.
        meeting_directory: The directory with the handshake's socket, on the host.
        marks: The labels.
    """
    command = first_words(settings.python, server_words(settings))
    return {
        "Image": image_id,
        "Entrypoint": list(command[:1]),
        "Cmd": list(command[1:]),
        "User": f"{settings.user}:{settings.user}",
        "WorkingDir": "/mnt/data",
        "Hostname": _HOSTNAME,
        "Env": [],
        "Labels": dict(marks),
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},  # the image's own would start a process again and again
        "AttachStdin": False,
        "OpenStdin": False,
        "Tty": False,
        "HostConfig": _host_config(settings, meeting_directory, _tmpfs_options(settings)),
    }


def _host_config(settings: ContainerSandboxSettings, meeting_directory: str, tmpfs: str) -> dict[str, Any]:
    limits = settings.limits
    return {
        "NetworkMode": "none",
        "IpcMode": "private",
        "ReadonlyRootfs": True,
        "Init": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],  # and the engine's default seccomp profile, since none is named
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "NanoCpus": round(limits.cpus * 1e9),
        "CpuShares": _CPU_SHARES,
        "PidsLimit": limits.processes,
        "Ulimits": [
            {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        "ShmSize": limits.places[SHARED_MEMORY],
        "Tmpfs": {place: f"{tmpfs},size={size}" for place, size in limits.places.items() if _in_memory(place, limits)},
        "Mounts": [
            {"Type": "bind", "Source": meeting_directory, "Target": MEETING_PLACE, "ReadOnly": True},
            *(_volume(place, limits.places[place]) for place in sorted(limits.on_disk)),
        ],
        "LogConfig": {"Type": "json-file", "Config": dict(_LOG)},
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,  # why it ended must be readable afterwards
    }


def _in_memory(place: str, limits: ContainerLimits) -> bool:
    return place not in limits.on_disk and place != SHARED_MEMORY


def _tmpfs_options(settings: ContainerSandboxSettings) -> str:
    owner = f"uid={settings.user},gid={settings.user},mode=0700"
    return f"rw,exec,nosuid,nodev,{owner},nr_inodes={settings.limits.files}"


def _volume(place: str, size: int) -> dict[str, Any]:
    """Ask for a volume without a name, which goes with its container; an engine without quotas refuses the size."""
    driver = {"Name": "local", "Options": {"size": str(size)}}
    return {"Type": "volume", "Target": place, "VolumeOptions": {"DriverConfig": driver}}
