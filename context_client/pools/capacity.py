"""How many slots do so many users need?

`python -m context_client.pools.capacity --users N --turns-per-hour … --busy … --cooldown …`

A session holds its slot while its turn runs and for the whole cooldown after it. Turns come when they come (Poisson), and
how long each takes does not matter but in the mean (M/G/infinity): the slots held at a moment are Poisson distributed around

    mean = arrivals per second x (busy + cooldown)

so the plan is a quantile of that distribution. Where users send several messages into one conversation within the
cooldown, they keep their slot; the share of turns that begin a new session (`fresh`) is what counts then.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES: Sequence[float] = (0.5, 0.95, 0.99, 0.999)
_LARGEST_MEAN = 1e7


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What users do."""

    users: int
    """How many."""

    turns_per_hour: float
    """Turns of one of them in the busiest hour."""

    busy_seconds: float
    """How long a turn takes in the mean."""

    cooldown_seconds: float = 300.0
    """How long the pool holds a slot after the last call."""

    fresh: float = 1.0
    """Share of turns that begin a session of their own, rather than going on in one that still has its slot."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Slots for one probability."""

    probability: float
    """How often there is a slot at once."""

    slots: int
    """How many that takes."""

    refused_share: float
    """Share of new sessions that would find the pool full, if those were lost (Erlang B)."""


def mean_slots(demand: Demand) -> float:
    """Slots held in the mean.

    Raises:
        ValueError: A number of the demand makes no sense.
    """
    numbers = (demand.users, demand.turns_per_hour, demand.busy_seconds, demand.cooldown_seconds)
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not 0 <= demand.fresh <= 1:
        raise ValueError("users, turns, seconds must not be negative, and the share of fresh sessions is between 0 and 1")
    arrivals = demand.users * demand.turns_per_hour * demand.fresh / 3600
    mean = arrivals * (demand.busy_seconds + demand.cooldown_seconds)
    if mean > _LARGEST_MEAN:
        raise ValueError(f"{mean:.0f} slots are more than any pool has; check the numbers")
    return mean


def plan(demand: Demand, quantiles: Sequence[float] = QUANTILES) -> list[Plan]:
    """Say how many slots it takes to have one free with each probability."""
    mean = mean_slots(demand)
    plans = []
    for probability in quantiles:
        slots = max(poisson_quantile(mean, probability), 1)
        plans.append(Plan(probability=probability, slots=slots, refused_share=erlang_b(mean, slots)))
    return plans


def poisson_quantile(mean: float, probability: float) -> int:
    """The smallest number that a Poisson variable does not exceed with this probability."""
    if not 0 < probability < 1:
        raise ValueError(f"a probability is between 0 and 1, not {probability!r}")
    if mean == 0:
        return 0
    # Terms far below the mean are nothing; beginning there keeps exp(-mean) from becoming zero.
    number = max(0, int(mean - 12 * math.sqrt(mean)) - 1)
    term = math.exp(number * math.log(mean) - mean - math.lgamma(number + 1))
    total = term
    while total < probability and (term > 1e-300 or number < mean):
        number += 1
        term *= mean / number
        total += term
    return number


def erlang_b(load: float, slots: int) -> float:
    """Share of arrivals that find all slots taken, where those go away."""
    share = 1.0
    for number in range(1, slots + 1):
        share = load * share / (number + load * share)
    return share if load > 0 else 0.0


def as_table(demand: Demand) -> str:
    """Write the plan for people."""
    mean = mean_slots(demand)
    lines = [
        f"{demand.users} users x {demand.turns_per_hour:g} turns/h ({demand.fresh:.0%} in a new session), "
        f"{demand.busy_seconds:g} s busy + {demand.cooldown_seconds:g} s cooldown: {mean:.1f} slots held in the mean",
        "",
        "  a slot at once   slots   new sessions that find it full",
    ]
    lines += [f"  {one.probability:>14.1%}   {one.slots:>5}   {one.refused_share:>30.3%}" for one in plan(demand)]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan that the command line asks for."""
    parser = argparse.ArgumentParser(prog="context_client.pools.capacity", description="How many slots do so many users need?")
    parser.add_argument("--users", type=int, required=True, help="how many users")
    parser.add_argument("--turns-per-hour", type=float, default=4.0, help="turns of one user in the busiest hour (default: %(default)s)")
    parser.add_argument("--busy", type=float, default=120.0, help="seconds a turn takes in the mean (default: %(default)s)")
    parser.add_argument("--cooldown", type=float, default=300.0, help="the pool's cooldown in seconds (default: %(default)s)")
    parser.add_argument("--fresh", type=float, default=1.0, help="share of turns that begin a new session (default: %(default)s)")
    given = parser.parse_args(arguments)
    demand = Demand(
        users=given.users,
        turns_per_hour=given.turns_per_hour,
        busy_seconds=given.busy,
        cooldown_seconds=given.cooldown,
        fresh=given.fresh,
    )
    try:
        sys.stdout.write(as_table(demand))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
