"""The platform's model parameters, honoured or refused by name. Pure.

The platform knows seven names, made for models of another kind (contract: orchestration §5.1). Four have a meaning for Claude; of the
others, of unknown ones and of values no model takes, the receipt says that they had no effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from orchestration_service.brokers.route import ModelParameters

_MEANING: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_new_tokens": "max_tokens",
    "max_tokens": "max_tokens",
}
_WANTED: Mapping[str, str] = {
    "temperature": "a number from 0 to 1",
    "top_p": "a number above 0, at most 1",
    "top_k": "a whole number from 1",
    "max_tokens": "a whole number from 1",
}
_NO_MEANING: Mapping[str, str] = {
    "do_sample": "Claude always samples; set 'temperature' to 0 for the most predictable answers.",
    "return_full_text": "answers never repeat the prompt.",
    "ignore_eos": "an answer ends where the model ends it; set 'max_new_tokens' for a limit.",
}


@dataclass(frozen=True)
class ParameterReading:
    """What is understood of the parameters of a model."""

    parameters: ModelParameters
    """What is passed to the model."""

    remarks: tuple[str, ...]
    """One sentence for each parameter that has no effect."""


def read_parameters(raw: Mapping[str, Any], model: str) -> ParameterReading:
    """Read the parameters of a model; numbers typed as text are numbers.

    Args:
        raw: Parameters as the platform sends them.
        model: Name of the model, for the remarks.
    """
    known: dict[str, Any] = {}
    remarks = []
    for name, value in raw.items():
        meaning = _MEANING.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if meaning is None:
            why = _NO_MEANING.get(name, f"it is not known; there are {', '.join(sorted({*_MEANING} - {'max_tokens'}))}.")
            remarks.append(f"The parameter {name[:60]!r} of the model {model!r} has no effect: {why}")
        elif (number := _number(meaning, value)) is None:
            shown = repr(value)[:60]
            remarks.append(f"The parameter {name!r} of the model {model!r} is {shown} and was left out: it must be {_WANTED[meaning]}.")
        else:
            known.setdefault(meaning, number)
    return ParameterReading(ModelParameters(**known), tuple(remarks))


def _number(name: str, value: Any) -> float | int | None:
    """Return a value as the model's parameter, None where it is none; a truth value is no number."""
    if isinstance(value, bool):
        return None
    try:
        number = getattr(ModelParameters.model_validate({name: value}), name)
    except ValidationError:
        return None
    return number if isinstance(number, int | float) else None
