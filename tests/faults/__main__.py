"""`./dev faults`: plays seeded fault runs and prints a table. A run is repeated by its kind and seed."""

import argparse
import subprocess
import sys
import time

from tests.faults.choosing import WEIGHTS, choose, choose_kind
from tests.faults.suite import play_all
from tests.faults.table import render


def main() -> int:
    """Play the runs the command line asks for; 1 when any of them broke a promise."""
    wanted = _parser().parse_args()
    seeds = range(wanted.seed, wanted.seed + wanted.runs)
    faults = [choose(wanted.only or choose_kind(seed), seed, long=True) for seed in seeds]
    since = time.monotonic()
    verdicts = list(play_all(faults, jobs=wanted.jobs, verbose=wanted.verbose))
    broken = [verdict for verdict in verdicts if verdict.problems]
    print("\nBroken:" if broken else "")
    for verdict in broken:
        print(f"  {verdict.fault}")
        for problem in verdict.problems:
            print(f"      {problem}")
    print(f"\n{render(verdicts)}\n\n{len(verdicts)} runs in {time.monotonic() - since:.0f} s, {len(broken)} broke a promise.")
    if not wanted.only:  # what other folders have that takes long
        others = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "faults"], check=False).returncode
        return 1 if broken or others else 0
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev faults", description="Plays turns in which one thing goes wrong.")
    parser.add_argument("--runs", type=int, default=1000, help="how many; the first has the seed given, the next ones count up")
    parser.add_argument("--seed", type=int, default=1, help="decides what goes wrong, where and when")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    parser.add_argument("--only", choices=list(WEIGHTS), help="only this kind of fault")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what was seen of every run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
