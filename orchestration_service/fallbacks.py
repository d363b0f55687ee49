"""Which model is asked, and which one next. Pure: the clock is given.

A model that does not answer is left alone for a while: each call that asked it first would wait through all its attempts again. Falling
back is for what passes and for what is down. A request that is refused will be refused elsewhere too, a key that does not work is to be
seen by whoever can change it, and what the sandbox may not ask it may ask nobody.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestration_service.brokers.call import Reason
from orchestration_service.model_routes import RoutedModel, TurnRoutes

REST_SECONDS = 60.0
"""How long a model that did not answer is asked after the others only."""

_LEAST_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 10.0
_IN_WORDS: Mapping[str, str] = {
    "rate_limited": "took no more requests",
    "overloaded": "was overloaded",
    "server_error": "failed",
    "unreachable": "could not be reached",
    "no_answer": "did not answer",
    "stalled": "fell silent",
    "cut": "broke off",
    "malformed": "answered what cannot be read",
    "empty": "answered nothing",
    "deadline": "took too long",
}
"""The reasons to ask the next model, in words. These end the call: refused, unauthorized, refused_by_gate, not_a_model."""

_NEVER: tuple[float, Reason] = (0.0, "answered")
_MODEL_AT_FRONT = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\]{1,200})"')


def ends_call(reason: Reason, *, is_main: bool) -> bool:
    """Tell whether no other model is asked after one that did not answer for this reason.

    Args:
        reason: Why it did not answer.
        is_main: Whether it is the main model; another one that is set up badly is passed over, and the receipt says so.
    """
    return reason == "refused_by_gate" or (is_main and reason not in _IN_WORDS)


@dataclass
class Turnout:
    """The models of a turn, and which of them are resting.

    Args:
        routes: The models.
        main_name: Model name by which the agent asks for the main model.
        small_name: Model name by which the agent asks for the small one; empty when it is told none.
    """

    routes: TurnRoutes
    main_name: str
    small_name: str = ""
    _resting: dict[str, tuple[float, Reason]] = field(default_factory=dict)

    def candidates(self, body: bytes) -> list[RoutedModel]:
        """Return the models that may answer a request, the one that should first."""
        found = [self.routes.main, *self.routes.fallbacks]
        if self.routes.small is not None and self._asks_small(body):
            found.insert(0, self.routes.small)
        return found

    def awake_first(self, candidates: Sequence[RoutedModel], now: float) -> list[RoutedModel]:
        """Return the same models in the order of asking: those that rest come last."""
        return sorted(candidates, key=lambda model: self._resting.get(model.role, _NEVER)[0] > now)

    def rest(self, model: RoutedModel, reason: Reason, until: float) -> None:
        """Note that a model does not answer."""
        self._resting[model.role] = (until, reason)

    def wake(self, model: RoutedModel) -> None:
        """Note that a model answers."""
        self._resting.pop(model.role, None)

    def remarks(self, candidates: Sequence[RoutedModel], answered: RoutedModel) -> tuple[str, ...]:
        """Return a sentence for each model that should have answered before the one that did, for the receipt."""
        before = candidates[: candidates.index(answered)]
        return tuple(
            f"The model {model.model!r} {_IN_WORDS.get(reason, f'could not help ({reason})')}; {answered.model!r} answered in its place."
            for model in before
            if (reason := self._resting.get(model.role, _NEVER)[1]) != "answered"
        )

    def _asks_small(self, body: bytes) -> bool:
        name = _model_of(body)
        if name == self.main_name:
            return False
        return name == self.small_name or "haiku" in name.casefold()


def share_of(left: float, others: Sequence[RoutedModel]) -> float:
    """Return the seconds one model may take when others could still be asked; all of them for the last one."""
    return left if not others else min(left, max(_LEAST_SECONDS, left / 2))


def wait_of(others: Sequence[RoutedModel]) -> float | None:
    """Return the seconds one model is waited for before it is asked again when others could be asked meanwhile; None for any time."""
    return _LONGEST_WAIT_SECONDS if others else None


def _model_of(body: bytes) -> str:
    """Return the model a request names; the CLI puts it first, so large requests need not be read for it."""
    if found := _MODEL_AT_FRONT.match(body):
        return found[1].decode(errors="replace")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    name = request.get("model") if isinstance(request, dict) else None
    return name if isinstance(name, str) else ""
