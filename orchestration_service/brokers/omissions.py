"""What an endpoint does not take, read from its refusals, so that a call can be made without it.

Providers and models differ in the parameters and beta names they accept, and tell so with a 400 that names what they
mind. A refusal is read strictly: it must be one of the sentences known, and name something that may be left out.
What lasts for a model (it never takes a temperature) is told apart from what was wrong with one request. Inside a
message only what the API reads is looked at: the input of a tool is free JSON, and stays as it is.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestration_service.brokers.call import JsonObject
from orchestration_service.brokers.gate import blocks_of, content_of

_NEEDED = frozenset({"model", "messages", "max_tokens", "stream", "system", "tools", "tool_choice", "thinking", "anthropic_version"})
_NEEDED_INSIDE = frozenset(
    {"type", "name", "role", "content", "text", "input", "input_schema", "id", "tool_use_id", "source", "budget_tokens"}
)
_SAMPLING = ("temperature", "top_p", "top_k")
_NAME = r"[`'\"]?([a-z_]{2,40})[`'\"]?"
_LASTING = (
    re.compile(rf"{_NAME}(?: parameter)? (?:is|are) (?:deprecated|not supported|unsupported|not allowed|no longer supported)\b"),
    re.compile(rf"(?:\A|[\s\"{{]){_NAME}: (?:Extra inputs are not permitted|This field is not supported)"),
    re.compile(r"#: extraneous key \[([a-z_]{2,40})\] is not permitted"),
    re.compile(rf"(?:Unsupported|Unknown|Unrecognized) (?:parameter|field|argument)s?:? {_NAME}"),
)
_EXTRA_INSIDE = re.compile(r"(?:\A|[\s\"{])([a-z_]+(?:\.[A-Za-z0-9_]+){1,8}): Extra inputs are not permitted")
_EXTRANEOUS_INSIDE = re.compile(r"#/([a-z_]+(?:/[A-Za-z0-9_]+){0,8}): extraneous key \[([a-z_]{2,40})\] is not permitted")
_ONE_OF_TWO = re.compile(rf"{_NAME} and {_NAME} cannot both be specified")
_OUT_OF_PLACE = re.compile(rf"(?:\A|[\s\"]){_NAME}(?: may| must|: )")
_BETAS = re.compile(r"Unexpected value\(s\) (.{1,2000}?) for the `?anthropic-beta`? header")
_BETA = re.compile(r"[`'\"]([A-Za-z0-9._-]{1,100})[`'\"]")
_ANY_BETA = re.compile(r"invalid beta flag", re.IGNORECASE)
_MOST_NAMES = 64


class Part(NamedTuple):
    """A key inside one of the body's fields, wherever in it such a key can be."""

    field: str
    """Name of the field."""
    level: str
    """Whose key it is: of an `item` of a list or the field itself, of a content `block`, or of a `cache_control`."""
    name: str
    """The key."""


@dataclass(frozen=True)
class Omissions:
    """What is left out of a request because its endpoint refuses it."""

    fields: frozenset[str] = frozenset()
    """Names of the body's fields."""
    parts: frozenset[Part] = frozenset()
    """Keys inside fields."""
    betas: frozenset[str] = frozenset()
    """Beta names."""
    all_betas: bool = False
    """Whether no beta name at all is sent, because the endpoint does not say which it minds."""
    lasts: bool = True
    """Whether this holds for every request to the endpoint, not only for this one."""

    def __or__(self, other: "Omissions") -> "Omissions":
        """Leave out what either leaves out."""
        return Omissions(
            fields=self.fields | other.fields,
            parts=self.parts | other.parts,
            betas=self.betas | other.betas,
            all_betas=self.all_betas or other.all_betas,
            lasts=self.lasts and other.lasts,
        )

    @property
    def is_small(self) -> bool:
        """Whether it may be remembered; what refuses this much is broken otherwise."""
        return len(self.fields) + len(self.parts) + len(self.betas) <= _MOST_NAMES

    def leave_out(self, body: JsonObject) -> tuple[str, ...]:
        """Take the fields, and the keys inside fields, out of a body, and say so."""
        gone = [name for name in sorted(self.fields) if body.pop(name, None) is not None]
        for part in sorted(self.parts):
            found = [holder.pop(part.name) for holder in _holders(body, part) if part.name in holder]
            if found:
                gone.append(f"{part.name} in {part.field}")
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
    if (part := _part_of(message)) is not None:
        return Omissions(parts=frozenset({part})) if part.name not in _NEEDED_INSIDE and part.field in sent else None
    lasting = {name for pattern in _LASTING for name in pattern.findall(message)} & droppable
    if lasting:
        return Omissions(frozenset(lasting))
    once = set(_OUT_OF_PLACE.findall(message)) & droppable & set(_SAMPLING)
    return Omissions(frozenset(once), lasts=False) if once else None


def _part_of(message: str) -> Part | None:
    """Read where a key is, from a path such as `messages.0.content.1.text.cache_control.ephemeral.scope` or `thinking.adaptive.display`."""
    if (found := _EXTRA_INSIDE.search(message)) is not None:
        path = found.group(1).split(".")
    elif (found := _EXTRANEOUS_INSIDE.search(message)) is not None:
        path = [*found.group(1).split("/"), found.group(2)]
    else:
        return None
    level = "cache_control" if "cache_control" in path[:-1] else "block" if path[0] == "messages" and "content" in path[:-1] else "item"
    return Part(path[0], level, path[-1])


def _holders(body: JsonObject, part: Part) -> Iterator[JsonObject]:
    """Give the objects that a key may be taken out of."""
    field = body.get(part.field)
    items: list[Any] = field if isinstance(field, list) else [field]
    holders = [item for item in items if isinstance(item, dict)]
    if part.field == "messages" and part.level != "item":
        holders = [block for message in holders for block in blocks_of(content_of(message)) if isinstance(block, dict)]
    if part.level == "cache_control":
        holders = [holder["cache_control"] for holder in holders if isinstance(holder.get("cache_control"), dict)]
    yield from holders
