"""Why bubblewrap may not run on a machine, and what to do about it. Pure, but for the few settings it is given."""

from collections.abc import Mapping
from pathlib import Path

SETTINGS = (
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
)


def read_settings() -> Mapping[str, str]:
    """Read the kernel's settings that decide about user namespaces; blocks for a moment."""
    return {name: Path(name).read_text(encoding="ascii").strip() for name in SETTINGS if Path(name).is_file()}


def advise(settings: Mapping[str, str], *, binary: str, in_container: bool, as_root: bool) -> tuple[str, ...]:
    """Say what to change so that sandboxes run.

    Args:
        settings: What `read_settings` gave.
        binary: The bubblewrap that was tried.
        in_container: Whether this process runs in a container itself.
        as_root: Whether it runs as root.
    """
    steps = []
    if settings.get(SETTINGS[0]) == "0":
        steps.append("Allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 (and keep it in /etc/sysctl.d).")
    if settings.get(SETTINGS[1]) == "1":
        steps.append(
            "AppArmor restricts user namespaces (Ubuntu 24.04). Allow them for bubblewrap alone: write to "
            f'/etc/apparmor.d/bwrap-sandboxes: profile bwrap-sandboxes "{binary}" flags=(unconfined) {{ userns, }} '
            "and run: apparmor_parser -r /etc/apparmor.d/bwrap-sandboxes"
        )
    if settings.get(SETTINGS[2]) == "0":
        steps.append("Allow user namespaces: sysctl -w user.max_user_namespaces=15000 (and keep it in /etc/sysctl.d).")
    if in_container:
        steps.append(
            "In a container the default seccomp profile refuses user namespaces: start it with "
            "--security-opt seccomp=unconfined --security-opt systempaths=unconfined, or use another sandbox provider."
        )
    if as_root and in_container:
        steps.append("As root in a container also CAP_SYS_ADMIN is needed (--cap-add SYS_ADMIN), or run as another user.")
    if not steps:
        steps.append(f"Try by hand what fails: {binary} --unshare-all --ro-bind / / --proc /proc /bin/true")
        steps.append("Check that the service's user can read the interpreter, the packages and this project.")
    return tuple(steps)
