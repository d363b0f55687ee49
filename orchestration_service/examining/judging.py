"""Judges what was gathered."""

from collections.abc import Sequence

from orchestration_service.examining.catalogue import CHECKS, KINDS, NOT_EXAMINED
from orchestration_service.examining.errors import NotKnown
from orchestration_service.examining.facts import Facts
from orchestration_service.examining.finding import Finding


def judge(facts: Facts) -> Sequence[Finding]:
    """Return what is wrong, and what could not be examined, in the order of the groups.

    A check that lacks a fact says so; facts that are missing because of something found are not told again.
    """
    found: list[Finding] = []
    unknown: dict[str, NotKnown] = {}
    for check in CHECKS:
        try:
            for finding in check(facts):
                found.append(finding)  # noqa: PERF402  # what was found before a fact was missed stays
        except NotKnown as error:
            unknown[error.what] = error
    explained = {what for finding in found for what in finding.explains}
    not_seen = [
        NOT_EXAMINED.seen(f"{error.what[:1].upper()}{error.what[1:]}: {error.why}", fix=error.fix)
        for what, error in unknown.items()
        if what not in explained
    ]
    order = {kind.code: place for place, kind in enumerate(KINDS)}
    told = dict.fromkeys([*found, *not_seen])  # two checks may come upon the same thing
    return sorted(told, key=lambda finding: order[finding.kind.code])
