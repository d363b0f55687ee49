"""The command line of the outer sandbox, as a pure function of what goes in.

Every line here is a decision about what hostile code can see. What is not named is not there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .limits import SandboxLimits

HOSTNAME = "sandbox"
USER_ID = 1000
PYTHON = "/opt/python"
SITE_PACKAGES = "/opt/claude-code/site-packages"
SOURCES = "/opt/claude-code/src"
BUBBLEWRAP = "/opt/claude-code/bwrap"
HOME = "/home/agent"

SYNTHETIC_FILES: Mapping[str, str] = {
    "passwd": (
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"agent:x:{USER_ID}:{USER_ID}:agent:{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "group": f"root:x:0:\nagent:x:{USER_ID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files of /etc that the sandbox has instead of the host's, by name."""

_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Something of the host that is shown inside, read-only."""

    host: str
    """Path as bubblewrap finds it."""

    inside: str
    """Path in the sandbox."""


@dataclass(frozen=True, kw_only=True)
class SystemLink:
    """A top-level symbolic link of the host's system, such as /lib to usr/lib."""

    inside: str
    """Path in the sandbox."""

    target: str
    """What it points to."""


def sandbox_arguments(
    *,
    bwrap: str,
    sources: tuple[Source, ...],
    links: tuple[SystemLink, ...],
    limits: SandboxLimits,
    python: str,
    server_words: tuple[str, ...],
) -> tuple[str, ...]:
    """Build the command that runs the code-session server inside a new sandbox.

    Args:
        bwrap: The binary to run.
        sources: What of the host is shown inside.
        links: The host's top-level links.
        limits: Sizes of the writable places.
        python: Path of the interpreter inside the sandbox.
        server_words: What follows the interpreter on its command line.
    """
    words = [
        bwrap,
        "--unshare-all",
        "--unshare-user",  # --unshare-all merely tries it
        "--die-with-parent",
        "--new-session",
        *("--cap-drop", "ALL"),
        *("--uid", str(USER_ID), "--gid", str(USER_ID)),
        *("--hostname", HOSTNAME),
        "--clearenv",
        *_environment(sources),
    ]
    for source in sources:
        words += ["--ro-bind", source.host, source.inside]
    for link in links:
        words += ["--symlink", link.target, link.inside]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place, size in limits.places.items():
        words += ["--perms", "0700", "--size", str(size), "--tmpfs", place]
    # What bubblewrap made itself, its root and /dev, are tmpfs without a limit: nobody may write there.
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/mnt/data"]
    return (*words, "--", python, *server_words)


def system_sources() -> tuple[str, ...]:
    """Name the files of /etc that the dynamic linker and the alternatives system need, where the host has them."""
    return _SYSTEM_FILES


def _environment(sources: tuple[Source, ...]) -> list[str]:
    packages = [source.inside for source in sources if source.inside.startswith(SITE_PACKAGES)]
    variables = {
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "LD_LIBRARY_PATH": f"{PYTHON}/lib:{BUBBLEWRAP}/lib",
        "PATH": f"{PYTHON}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{BUBBLEWRAP}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ":".join((SOURCES, *packages)),
        "TMPDIR": "/tmp",
        "USER": "agent",
        "CLAUDE_CODE_BWRAP": f"{BUBBLEWRAP}/bwrap",
        "CLAUDE_CODE_BWRAP_LIBS": f"{BUBBLEWRAP}/lib",
    }
    return [word for name, value in variables.items() for word in ("--setenv", name, value)]
