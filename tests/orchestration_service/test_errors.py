"""The error tree is what its drawing says, and the edge answers all of it."""

import re
from collections.abc import Iterator

from orchestration_service import errors
from orchestration_service.routes.problems import STATUS


def drawn() -> set[tuple[int, str]]:
    """Depth and name of each line of the drawing."""
    lines = re.findall(r"^([│├└─ ]*)([A-Z]\w+)(?:  .*)?$", errors.__doc__ or "", re.MULTILINE)
    return {(len(indent) // 4, name) for indent, name in lines}


def real(kind: type[BaseException], depth: int = 0) -> Iterator[tuple[int, str]]:
    yield depth, kind.__name__
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from real(child, depth + 1)


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == set(real(errors.ServiceError))


def test_every_fault_of_callers_and_store_has_a_status() -> None:
    """A caller's mistake is never a 5xx, and a fault of ours never a 4xx."""
    for branch, family in ((errors.CallerError, 4), (errors.StoreError, 5)):
        assert {STATUS[leaf] // 100 for leaf in branch.__subclasses__()} == {family}
