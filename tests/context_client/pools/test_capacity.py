"""The planner against numbers that are known, and against a simulation."""

import heapq
import random

import pytest

from context_client.pools.capacity import Demand, erlang_b, main, mean_slots, plan, poisson_quantile


@pytest.mark.parametrize(
    ("mean", "probability", "expected"),
    [
        pytest.param(0, 0.99, 0, id="nobody"),
        pytest.param(1, 0.5, 1, id="one"),
        pytest.param(10, 0.95, 15, id="ten"),
        pytest.param(100, 0.99, 124, id="a hundred"),
        pytest.param(10_000, 0.5, 10_000, id="more than exp can hold"),
    ],
)
def test_quantiles_are_those_of_the_tables(mean: float, probability: float, expected: int) -> None:
    assert poisson_quantile(mean, probability) == expected


def test_erlang_b_is_that_of_the_tables() -> None:
    assert erlang_b(10, 10) == pytest.approx(0.2146, abs=1e-4)
    assert erlang_b(5, 11) == pytest.approx(0.0083, abs=1e-4)
    assert erlang_b(0, 3) == 0


def test_the_mean_is_arrivals_times_holding() -> None:
    """Ten slots and 300 s allow ten new sessions in five minutes: that load is ten."""
    assert mean_slots(Demand(users=10, turns_per_hour=12, busy_seconds=0)) == pytest.approx(10)


def test_a_simulation_agrees() -> None:
    demand = Demand(users=50, turns_per_hour=6, busy_seconds=60, cooldown_seconds=300)
    dice, now, full, arrivals = random.Random(7), 0.0, 0, 20_000
    slots = plan(demand, [0.95])[0].slots
    ends: list[float] = []
    for _ in range(arrivals):
        now += dice.expovariate(50 * 6 / 3600)
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        full += len(ends) >= slots
        heapq.heappush(ends, now + dice.expovariate(1 / 60) + 300)
    assert full / arrivals == pytest.approx(0.05, abs=0.03)


def test_the_command_prints_a_short_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--users", "100", "--turns-per-hour", "4", "--busy", "120", "--cooldown", "300"]) == 0
    said = capsys.readouterr().out
    assert "46.7 slots held in the mean" in said
    assert len(said.splitlines()) == 7


def test_nonsense_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--users", "-1"]) == 2
    assert "must not be negative" in capsys.readouterr().err
