"""Makes the small git repository that the shipped scripts work on: a price list with one bug and a test that shows it.

Authors and dates are fixed, so the repository has the same commit ids everywhere; a journey can assert them. The tests
in it need nothing but the standard library.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from orchestration_service.scripted.errors import FolderNotEmpty, GitFailed

DEMO_PROMPT = "The unit tests of this repository fail. Find out why, fix it, and show me that they pass."
"""What a user of the demo asks for."""

TEST_COMMAND = ("python3", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
"""Runs the tests of the repository, from its root."""

_AUTHOR = ("Robin Winter", "robin.winter@example.com")
_GIT_SECONDS = 60.0

_README = """\
# pricing

Prices for the web shop, in cents.

- `pricing/discount.py`: how much a line of an order costs
- `pricing/cart.py`: what a whole cart costs

Run the tests with `python3 -m unittest discover -s tests -t .`
"""

_DISCOUNT = '''\
"""Discounts for large quantities."""

BULK_QUANTITY = 10
BULK_PERCENT = 5


def line_price(unit_cents: int, quantity: int) -> int:
    """Price of one line of an order; from BULK_QUANTITY pieces on, BULK_PERCENT is taken off."""
    if quantity < 0:
        raise ValueError("quantity must not be negative")
    total = unit_cents * quantity
    if quantity > BULK_QUANTITY:
        total -= total * BULK_PERCENT // 100
    return total
'''

_CART = '''\
"""A cart of things to buy."""

from pricing.discount import line_price


class Cart:
    """Collects lines and adds up what they cost."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, int, int]] = []

    def add(self, name: str, unit_cents: int, quantity: int = 1) -> None:
        """Put a number of equal pieces into the cart."""
        self._lines.append((name, unit_cents, quantity))

    def total(self) -> int:
        """What the cart costs, in cents."""
        return sum(line_price(unit_cents, quantity) for _, unit_cents, quantity in self._lines)
'''

_TESTS = '''\
"""Tests of the prices."""

import unittest

from pricing.cart import Cart
from pricing.discount import line_price


class LinePriceTest(unittest.TestCase):
    """What one line costs."""

    def test_small_quantities_cost_the_full_price(self) -> None:
        self.assertEqual(line_price(200, 9), 1800)

    def test_the_discount_starts_at_ten_pieces(self) -> None:
        self.assertEqual(line_price(200, 10), 1900)

    def test_more_than_ten_pieces(self) -> None:
        self.assertEqual(line_price(200, 20), 3800)


class CartTest(unittest.TestCase):
    """What a cart costs."""

    def test_the_total_is_the_sum_of_the_lines(self) -> None:
        cart = Cart()
        cart.add("pencil", 50, 3)
        cart.add("notebook", 300)
        self.assertEqual(cart.total(), 450)


if __name__ == "__main__":
    unittest.main()
'''


@dataclass(frozen=True)
class DemoRepository:
    """The repository that was made."""

    path: Path
    """Its folder."""
    head: str
    """Commit id of its last commit; the same on every machine."""
    failing_test: str
    """Name of the test that fails until the bug is fixed."""


def create_demo_repository(folder: Path) -> DemoRepository:
    """Make the repository in a folder that is empty or does not exist. Blocking.

    Raises:
        FolderNotEmpty: there is something in the folder.
        GitFailed: git is missing or refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FolderNotEmpty(f"the folder {str(folder)!r} is not empty; give a new one for the demo repository")
    _git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
    _write(folder, {".gitignore": "__pycache__/\n", "README.md": _README, "pricing/__init__.py": ""})
    _write(folder, {"pricing/discount.py": _DISCOUNT})
    _commit(folder, "Add prices with a discount for large quantities", "2026-01-12T09:30:00+00:00")
    _write(folder, {"pricing/cart.py": _CART, "tests/__init__.py": "", "tests/test_pricing.py": _TESTS})
    _commit(folder, "Add the cart and tests", "2026-01-13T16:05:00+00:00")
    head = _git(folder, "rev-parse", "HEAD").strip()
    return DemoRepository(folder, head, "test_the_discount_starts_at_ten_pieces")


def _write(folder: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _commit(folder: Path, message: str, date: str) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--no-gpg-sign", "--message", message, date=date)


def _git(folder: Path, *arguments: str, date: str = "2026-01-12T09:30:00+00:00") -> str:
    executable = shutil.which("git")
    if executable is None:
        raise GitFailed("git is not installed; install it, for instance with 'apt install git'")
    name, email = _AUTHOR
    # nothing of the user's own configuration may change the commits, nor may hooks or signing get in the way
    environment = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
        "GIT_COMMITTER_DATE": date,
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run([executable, *arguments], cwd=folder, env=environment, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git {arguments[0]} could not run in {str(folder)!r}: {error}") from error
    if done.returncode:
        raise GitFailed(f"git {arguments[0]} failed in {str(folder)!r}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()
