"""Becomes bubblewrap: run by path, as a program of its own, with nothing but the standard library.

A service started as root has an interpreter that only root can read (below /root, say), and a nested sandbox with a
fresh /proc is possible only if the outer one does not belong to the real root. So, as root, this process takes a mount
namespace of its own, binds what the sandbox needs into a staging place there, becomes an unprivileged user that no
other sandbox has, and only then turns into bubblewrap. The staging place vanishes with the last process in it.

It reads one JSON object from its first argument: `arguments`, `environment`, `parent`, `niceness`, `limits` (name of
an rlimit to its value), `group` (the file of a control group to join, or null) and, as root, `user` and `stage` (a list
of [path of the host, name in the staging place]).
"""

import ctypes
import json
import os
import resource
import signal
import stat
import sys

STAGE = "/tmp"  # replaced inside the private mount namespace only; the machine's /tmp is untouched

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MS_NOSUID, _MS_NODEV = 2, 4
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Do what the first argument says, and turn into bubblewrap."""
    plan = json.loads(sys.argv[1])
    if plan["group"] is not None:
        with open(plan["group"], "w") as group:  # noqa: PTH123 - importing pathlib is a third of this program's time
            group.write("0")  # this process, and all that it starts
    for name, value in plan["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))
    os.nice(plan["niceness"])
    os.umask(0o022)
    if plan["user"] is not None:
        _stage(plan["stage"])
        os.setgroups([])
        os.setresgid(plan["user"], plan["user"], plan["user"])
        os.setresuid(plan["user"], plan["user"], plan["user"])
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    # After the change of user, which would clear it; bubblewrap sets it again for itself.
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
    if os.getppid() != plan["parent"]:
        sys.exit("the service that asked for this sandbox is gone")
    _become(plan["arguments"], plan["environment"])


def _become(arguments: list[str], environment: dict[str, str]) -> None:
    """Turn into bubblewrap, with its options in a file: on the command line code inside would read the host's paths."""
    end = arguments.index("--")
    options = os.memfd_create("options", 0)
    os.write(options, b"".join(os.fsencode(word) + b"\0" for word in arguments[1:end]))
    os.lseek(options, 0, os.SEEK_SET)
    os.execve(arguments[0], ["bwrap", "--args", str(options), *arguments[end:]], environment)


def _stage(items: list[list[str]]) -> None:
    _check(_libc.unshare(_CLONE_NEWNS), "a mount namespace of its own")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    # Opened before the staging place hides what is below it, after the namespace was left, as binding demands.
    sources = [(os.open(path, os.O_PATH | os.O_CLOEXEC), name) for path, name in items]
    _mount("tmpfs", STAGE, "tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755,size=1m")
    for fd, name in sources:
        target = f"{STAGE}/{name}"
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.mkdir(target)  # noqa: PTH102 - importing pathlib is a third of this program's time
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        _mount(f"/proc/self/fd/{fd}", target, None, _MS_BIND | _MS_REC)
        os.close(fd)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: bytes | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else os.fsencode(value)

    _check(_libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), data), f"mounting {target}")


def _check(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        sys.exit(f"{what} is refused: {os.strerror(number)}")


if __name__ == "__main__":
    main()
