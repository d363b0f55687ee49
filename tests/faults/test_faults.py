"""The fault runs in a bounded form: a few of each kind. `./dev faults` plays as many as one likes."""

from collections.abc import Mapping

import pytest

from tests.faults.choosing import WEIGHTS, Fault, Kind, choose, choose_kind
from tests.faults.judging import Verdict
from tests.faults.suite import play_all
from tests.faults.table import render

pytestmark = pytest.mark.timeout(600)  # the first test waits for all runs

RUNS: Mapping[Kind, int] = {"service_killed": 4, "both_killed": 2, "context_call": 3, "sandbox_call": 2}
"""How many runs of a kind; one of those that are not here."""


@pytest.fixture(scope="module")
def verdicts() -> dict[Kind, list[Verdict]]:
    faults = [choose(kind, seed) for kind in WEIGHTS for seed in range(1, 1 + RUNS.get(kind, 1))]
    played = list(play_all(faults, jobs=2))
    print(render(played))
    return {kind: [verdict for verdict in played if verdict.fault.kind == kind] for kind in WEIGHTS}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_nothing_is_lost_doubled_or_left_behind(verdicts: dict[Kind, list[Verdict]], kind: Kind) -> None:
    broken = [verdict for verdict in verdicts[kind] if verdict.problems]
    told = "\n\n".join(f"{one.fault}\n{one.problems}\n{one.transcript}" for one in broken)
    assert not broken, told


def test_a_seed_means_the_same_fault_each_time() -> None:
    assert [choose(choose_kind(seed), seed) for seed in range(50)] == [choose(choose_kind(seed), seed) for seed in range(50)]


def test_every_kind_comes_up() -> None:
    assert {choose_kind(seed) for seed in range(1, 301)} == set(WEIGHTS)


def test_a_fault_says_how_it_is_repeated() -> None:
    assert str(Fault(kind="service_killed", seed=7, at=3)) == "service_killed #7 at=3 moment=before times=1"
