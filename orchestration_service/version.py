"""The version of the installed service."""

from importlib.metadata import PackageNotFoundError, version


def service_version() -> str:
    """Return the installed version, ``0+checkout`` when run from a checkout that is not installed."""
    try:
        return version("foundationallm-claude-code")
    except PackageNotFoundError:
        return "0+checkout"
