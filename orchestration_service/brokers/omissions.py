"""What an endpoint does not take, read from its refusals, so that a call can be made without it.

Providers and models differ in the parameters and beta names they accept, and tell so with a 400 that names what they
mind. A refusal is read strictly: it must be one of the sentences known, and name something that may be left out.
What lasts for a model (it never takes a temperature) is told apart from what was wrong with one request.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orchestration_service.brokers.call import JsonObject

_NEEDED = frozenset({"model", "messages", "max_tokens", "stream", "system", "tools", "tool_choice", "thinking", "anthropic_version"})
_SAMPLING = ("temperature", "top_p", "top_k")
_NAME = r"[`'\"]?([a-z_]{2,40})[`'\"]?"
_LASTING = (
    re.compile(rf"{_NAME}(?: parameter)? (?:is|are) (?:deprecated|not supported|unsupported|not allowed|no longer supported)\b"),
    re.compile(rf"(?:\A|[\s\"{{]){_NAME}: (?:Extra inputs are not permitted|This field is not supported)"),
    re.compile(rf"(?:Unsupported|Unknown|Unrecognized) (?:parameter|field|argument)s?:? {_NAME}"),
)
_ONE_OF_TWO = re.compile(rf"{_NAME} and {_NAME} cannot both be specified")
_OUT_OF_PLACE = re.compile(rf"(?:\A|[\s\"]){_NAME}(?: may| must|: )")
_BETAS = re.compile(r"Unexpected value\(s\) (.{1,2000}?) for the `?anthropic-beta`? header")
_BETA = re.compile(r"[`'\"]([A-Za-z0-9._-]{1,100})[`'\"]")
_ANY_BETA = re.compile(r"invalid beta flag", re.IGNORECASE)
_MOST_NAMES = 64


@dataclass(frozen=True)
class Omissions:
    """What is left out of a request because its endpoint refuses it."""

    fields: frozenset[str] = frozenset()
    """Names of the body's fields."""
    betas: frozenset[str] = frozenset()
    """Beta names."""
    all_betas: bool = False
    """Whether no beta name at all is sent, because the endpoint does not say which it minds."""
    lasts: bool = True
    """Whether this holds for every request to the endpoint, not only for this one."""

    def __or__(self, other: "Omissions") -> "Omissions":
        """Leave out what either leaves out."""
        return Omissions(
            self.fields | other.fields, self.betas | other.betas, self.all_betas or other.all_betas, self.lasts and other.lasts
        )

    @property
    def is_small(self) -> bool:
        """Whether it may be remembered; what refuses this much is broken otherwise."""
        return len(self.fields) + len(self.betas) <= _MOST_NAMES

    def leave_out(self, body: JsonObject) -> tuple[str, ...]:
        """Take the fields out of a body, and say so."""
        gone = [name for name in sorted(self.fields) if body.pop(name, None) is not None]
        return tuple(f"{name} was left out because the model's endpoint refuses it" for name in gone)

    def allowed(self, betas: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
        """Give the beta names that may be sent, and a remark about the others."""
        kept = [] if self.all_betas else [name for name in betas if name not in self.betas]
        gone = [name for name in betas if name not in kept]
        remark = f"beta names were left out because the model's endpoint refuses them: {', '.join(gone)}"
        return kept, (remark,) if gone else ()


NOTHING = Omissions()
"""Leaves nothing out."""


def refused_parts(message: str, sent: Collection[str], betas: Sequence[str], fixed: Sequence[str]) -> Omissions | None:
    """Read from the words of a 400 what would have to be left out; nothing if that is not what they say.

    Args:
        message: the endpoint's words.
        sent: names of the fields of the body that was refused.
        betas: the beta names that were sent.
        fixed: the parameters that the route sets, which stay if one of two has to go.
    """
    if (named := _BETAS.search(message)) is not None:
        minded = frozenset(_BETA.findall(named.group(1))) & frozenset(betas)
        return Omissions(betas=minded) if minded else None
    if _ANY_BETA.search(message) and betas:
        return Omissions(all_betas=True)
    droppable = frozenset(sent) - _NEEDED
    if (pair := _ONE_OF_TWO.search(message)) is not None:
        out = [name for name in pair.groups() if name in droppable]
        out.sort(key=lambda name: (name in fixed, name == _SAMPLING[0]))  # temperature stays longest: people know it
        return Omissions(frozenset(out[:1]), lasts=False) if out else None
    lasting = {name for pattern in _LASTING for name in pattern.findall(message)} & droppable
    if lasting:
        return Omissions(frozenset(lasting))
    once = set(_OUT_OF_PLACE.findall(message)) & droppable & set(_SAMPLING)
    return Omissions(frozenset(once), lasts=False) if once else None
