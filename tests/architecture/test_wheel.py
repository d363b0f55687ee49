"""What is shipped is what works: the wheel, not only the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGES, ROOT, source_modules


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    result = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_source_file_and_its_data(installed: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = [name for name in tracked.stdout.split("\0") if name and (ROOT / name).is_file() and not (installed / name).is_file()]
    assert not missing


def test_every_module_of_the_wheel_can_be_imported(installed: Path, tmp_path: Path) -> None:
    """In a process of its own, that finds our packages only in the wheel; warnings are errors."""
    names = [module.name for module in source_modules() if not module.path.endswith("__main__.py")]
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(installed)!r})\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"strays = [name for name in {PACKAGES!r} if not sys.modules[name].__path__[0].startswith({str(installed)!r})]\n"
        "sys.exit(f'imported from elsewhere: {strays}' if strays else 0)"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
