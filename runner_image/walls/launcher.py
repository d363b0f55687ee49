"""Starts a program behind a wall of Landlock and seccomp, and ends everything it started: run by path, standard library only.

    python -I -S launcher.py SPECIFICATION PROGRAM [ARGUMENT...]

Three processes. The *front* is what the caller started, and it ends with the program's status. The *keeper*, in a session of its own,
outlives a front that is killed, and kills everything behind the wall as soon as the program or the front has ended. The third becomes the
program. The keeper is in a Landlock domain of its own round that of the program, and a domain's signals do not leave it: so one
`kill(-1)` of the keeper reaches every process behind the wall at the same instant, and nothing else (docs/decisions/0014).

The kernel's interfaces are documented in landlock(7) and seccomp(2). What is missing makes the launcher fail before the program starts.
"""

import ctypes
import errno
import json
import os
import platform
import select
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

_DIE_SECONDS = 5.0
NEEDED_ABI = 6
"""The Landlock of Linux 6.12, the first that keeps signals and abstract sockets in."""

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_ALL_RIGHTS = (1 << 16) - 1
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_ALL_TCP = 0b11
_ALL_SCOPES = 0b11

RIGHTS: Mapping[str, int] = {
    "list": _READ_DIR,
    "read": _READ_FILE | _READ_DIR,
    "run": _EXECUTE | _READ_FILE | _READ_DIR,
    "device": _READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL_DEV,
    "write": _ALL_RIGHTS & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK | _IOCTL_DEV),
    "own": _ALL_RIGHTS & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
}
"""What a rule of a specification may allow below its path; only what is `own` may hold Unix sockets."""

_NO_NEW_PRIVILEGES, _SECCOMP, _SUBREAPER, _DEATH_SIGNAL, _DUMPABLE = 38, 22, 36, 1, 4
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NEW_NAMESPACES = 0x7E020080

_MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41, "clone": 56, "unshare": 272, "setns": 308, "clone3": 435, "io_uring_setup": 425, "shmget": 29, "semget": 64,
            "msgget": 68, "mq_open": 240, "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
            "userfaultfd": 323,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "socket": 198, "clone": 220, "unshare": 97, "setns": 268, "clone3": 435, "io_uring_setup": 425, "shmget": 194, "semget": 190,
            "msgget": 186, "mq_open": 180, "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
            "userfaultfd": 282,
        },
    ),
}  # fmt: skip
"""How the kernel's audit calls a machine, and the numbers of the system calls that are looked at there."""

_DENIED: Mapping[str, int] = {
    "unshare": errno.EPERM, "setns": errno.EPERM,  # in a user namespace of its own a program could mount
    "clone3": errno.ENOSYS,  # its flags cannot be seen; the C library then takes clone, whose flags can
    "io_uring_setup": errno.ENOSYS,  # makes sockets that no filter sees
    "shmget": errno.ENOSYS, "semget": errno.ENOSYS, "msgget": errno.ENOSYS, "mq_open": errno.ENOSYS,  # what they make outlives a command
    "add_key": errno.ENOSYS, "request_key": errno.ENOSYS, "keyctl": errno.ENOSYS,  # shared by everything of a user id
    "bpf": errno.EPERM, "perf_event_open": errno.EPERM, "userfaultfd": errno.EPERM,
}  # fmt: skip


def landlock_abi() -> int:
    """Return the version of Landlock this kernel offers, 0 if none; a container's seccomp profile may forbid it."""
    return max(0, int(_kernel().syscall(_CREATE, None, 0, 1)))


def machine_is_known() -> bool:
    """Tell whether the filter of system calls can be written for this machine."""
    return platform.machine() in _MACHINES


def hide_own_memory() -> None:
    """Keep other processes of this user from this one's memory, environment and descriptors, and the kernel from writing a core file."""
    _prctl(_kernel(), _DUMPABLE, 0)


def main() -> None:
    """Do what the command line says; the exit status is the program's, 128 and more for a signal, 125 for a wall that cannot stand."""
    specification = json.loads(sys.argv[1])
    alive, front = os.pipe()
    parent = os.getpid()
    keeper = os.fork()
    if keeper:
        os.close(alive)
        os._exit(_status(os.waitpid(keeper, 0)[1]))
    status = 125
    try:
        os.close(front)
        os.setsid()
        status = _keep(specification, sys.argv[2:], alive, parent)
    except OSError as error:
        with suppress(OSError):  # standard error may be closed by now, and then nobody listens
            os.write(2, f"the wall cannot be raised: {error}\n".encode())
    finally:
        os._exit(status)


def _keep(specification: Mapping[str, object], program: Sequence[str], alive: int, front: int) -> int:
    """Start the program, wait for its end or that of the front, and end everything behind the wall."""
    kernel = _kernel()
    _prctl(kernel, _NO_NEW_PRIVILEGES, 1)
    _prctl(kernel, _SUBREAPER, 1)
    _prctl(kernel, _DUMPABLE, 0)
    _give_up_capabilities(kernel)
    _enter(kernel, ())
    _prove(front)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        _become(specification, program, keeper)
    handle = os.pidfd_open(child)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # else a reader would wait for our end of the program's pipes
        os.dup2(null, descriptor)
    ready: list[tuple[int, int]] = []
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(alive, select.POLLIN)
    while not ready:
        ready = poll.poll(500)
        _reap(child)
    status = _status(os.waitpid(child, 0)[1]) if ready[0][0] == handle else 128 + signal.SIGKILL
    _end_everything()
    return status


def _reap(child: int) -> None:
    """Take the ends of what was orphaned behind the wall, but not that of the program."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and ended.si_pid != child:
            os.waitpid(ended.si_pid, 0)


def _prove(front: int) -> None:
    """Make sure that signals stay inside; where they did not, the keeper's last `kill(-1)` would reach the whole machine."""
    try:
        os.kill(front, 0)
    except PermissionError:
        return
    raise OSError(errno.ENOTSUP, "the kernel lets signals leave a Landlock domain")


def _end_everything() -> None:
    """Kill what is behind the wall and wait until it is gone."""
    until = time.monotonic() + _DIE_SECONDS
    while time.monotonic() < until:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _become(specification: Mapping[str, object], program: Sequence[str], keeper: int) -> None:
    """Turn into the program, behind the wall."""
    try:
        kernel = _kernel()
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        _prctl(kernel, _DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(125)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them, and a program would inherit that
            signal.signal(number, signal.SIG_DFL)
        os.chdir(str(specification["folder"]))
        environment = _environment(specification)
        _enter(kernel, _rules(specification))
        _filter(kernel)
        os.execvpe(program[0], list(program), environment)
    except OSError as error:
        os.write(2, f"{program[0]!r} cannot be started behind the wall: {error}\n".encode())
    finally:
        os._exit(125)


def _environment(specification: Mapping[str, object]) -> dict[str, str]:
    """Return the program's environment: what is given, and of ours what is passed, or all but what is hidden."""
    given, passed, hidden = specification["environment"], specification.get("passed"), specification.get("hidden", ())
    assert isinstance(given, dict)
    assert isinstance(hidden, Sequence)
    names = passed if isinstance(passed, Sequence) else [name for name in os.environ if name not in hidden]
    return {**{name: os.environ[name] for name in names if name in os.environ}, **given}


def _rules(specification: Mapping[str, object]) -> list[tuple[str, int]]:
    rules = specification["rules"]
    assert isinstance(rules, list)
    return [(path, RIGHTS[right]) for path, right in rules]


def _kernel() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(kernel: ctypes.CDLL, option: int, value: int, address: ctypes.c_void_p | None = None) -> None:
    _done(kernel.prctl(option, ctypes.c_ulong(value), address, None, None), f"prctl {option}")


def _give_up_capabilities(kernel: ctypes.CDLL) -> None:
    """Drop what root or a generous container may have: some of it reads the environment of a process whatever Landlock says."""
    version, pid, none = 0x20080522, 0, 0
    header, sets = struct.pack("=Ii", version, pid), struct.pack("=6I", *(none,) * 6)
    _done(kernel.capset(header, sets), "capset")


def _enter(kernel: ctypes.CDLL, rules: Sequence[tuple[str, int]]) -> None:
    """Enter a new domain: its signals and abstract sockets stay inside; with rules, so do files, and TCP is refused."""
    files, tcp = (_ALL_RIGHTS, _ALL_TCP) if rules else (0, 0)
    attributes = struct.pack("=QQQ", files, tcp, _ALL_SCOPES)
    ruleset = _done(kernel.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock_create_ruleset")
    for path, rights in rules:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # what is not there needs no right
        allowed = rights if os.path.isdir(path) else rights & _OF_A_FILE  # noqa: PTH112 - pathlib would double the time to start
        rule = struct.pack("=Qi", allowed, place)
        _done(kernel.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path!r}")
        os.close(place)
    _done(kernel.syscall(_RESTRICT, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _filter(kernel: ctypes.CDLL) -> None:
    """Refuse what Landlock does not govern. It is also a mark nobody can take off: see `runner_image.strangers`."""
    words = b"".join(struct.pack("=HBBI", *word) for word in _program())
    kept = ctypes.create_string_buffer(words)
    program = struct.pack("@HP", len(words) // 8, ctypes.addressof(kept))
    _prctl(kernel, _SECCOMP, 2, ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p))


def _program() -> list[tuple[int, int, int, int]]:
    """Return the filter as instructions of the kernel's packet filter; see seccomp(2) for its words.

    Sockets are those of this machine (AF_UNIX), and the kernel's own list of interfaces; everything else could leave it: UDP, and the
    ways of TCP that Landlock does not govern.
    """
    audit, numbers = _MACHINES[platform.machine()]
    load, equal, at_least, any_bit = 0x20, 0x15, 0x35, 0x45

    def answer(value: int) -> tuple[int, int, int, int]:
        return (0x06, 0, 0, value)

    def argument(number: int) -> tuple[int, int, int, int]:
        return (load, 0, 0, 16 + 8 * number)

    refused = answer(_REFUSE | errno.EPERM)
    words = [(load, 0, 0, 4), (equal, 1, 0, audit), refused]  # the calls of another machine have other numbers
    words += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), refused]
    for name, fault in _DENIED.items():
        words += [(equal, 0, 1, numbers[name]), answer(_REFUSE | fault)]
    words += [(equal, 0, 4, numbers["clone"]), argument(0), (any_bit, 0, 1, _NEW_NAMESPACES & ~0x80), refused, answer(_ALLOW)]
    words += [(equal, 0, 6, numbers["socket"]), argument(0), (equal, 4, 0, 1), (equal, 0, 2, 16), argument(2), (equal, 1, 0, 0)]
    return [*words, answer(_REFUSE | errno.EACCES), answer(_ALLOW)]


def _status(ended: int) -> int:
    code = os.waitstatus_to_exitcode(ended)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
