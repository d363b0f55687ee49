"""Judges what differs between a resource as it is and as it is wanted, and whose differences they are.

A resource is looked at as its leaves: `workflow.class_name`, `properties.welcome_message`. Three states of each leaf are known: as it is
there now, as it is wanted, and as we wrote it last time (of that only a digest is kept). A leaf nobody touched since is ours to
change. A leaf somebody else changed stays theirs, unless the operator says otherwise: the portal is the administrators' tool, and an
upgrade must not undo their work.

A few leaves are wiped by the Management Portal itself whenever it saves an agent (contract: portals and deployment, trap 7). Nobody
means that, so they are put right.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Leaves = Mapping[tuple[str, ...], Any]
Digests = Mapping[str, Sequence[str]]
"""By path, the digests a leaf may have without anybody else having changed it: as written, and as about to be written."""

SERVER_FIELDS = frozenset({"object_id", "created_on", "updated_on", "created_by", "updated_by", "deleted"})
"""What the platform writes into every resource itself."""

PORTAL_DAMAGE = ("workflow.properties.", "conversation_history_settings.history_content_artifact_types")
"""What the Management Portal drops when it saves an agent; nothing in it lets anybody choose these."""

_MISSING = None
_DEFAULT_MARK = ("properties", "default_resource")  # listings add it to the provider's default resource


@dataclass(frozen=True)
class Leaf:
    """One difference."""

    path: tuple[str, ...]
    """Where it is."""

    there: Any
    """Its value now; None when it is missing."""

    wanted: Any
    """Its value as the profile wants it; None to have it gone."""

    is_theirs: bool
    """Somebody else has changed it since we wrote it, or it was never ours."""

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {_shown(self.there)} -> {_shown(self.wanted)}"


def leaves_of(resource: Mapping[str, Any]) -> Leaves:
    """Return a resource's leaves without the platform's own fields; null, empty and missing are the same."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in resource.items():
        if key not in SERVER_FIELDS:
            _collect(value, (key,), found)
    found.pop(_DEFAULT_MARK, None)
    return MappingProxyType(found)


def differences(there: Mapping[str, Any], wanted: Mapping[str, Any], written: Digests | None) -> tuple[Leaf, ...]:
    """Return what differs, each leaf with whose it is.

    Args:
        there: The resource as it is.
        wanted: The resource as the profile wants it.
        written: Digests of the leaves we wrote; None when this resource was never ours.
    """
    now, then = leaves_of(there), leaves_of(wanted)
    ours = {} if written is None else dict(written)
    found = []
    for path in sorted({*now, *then}):
        if path not in then and ".".join(path) not in ours:
            continue  # the platform's default, or something others added
        if digest(now.get(path, _MISSING)) != digest(then.get(path, _MISSING)):
            found.append(
                Leaf(path, now.get(path, _MISSING), then.get(path, _MISSING), _is_theirs(".".join(path), now.get(path, _MISSING), ours))
            )
    return tuple(found)


def changed_since(there: Mapping[str, Any], written: Digests) -> tuple[Leaf, ...]:
    """Return what somebody else has changed in a resource since we wrote it."""
    now = {".".join(path): value for path, value in leaves_of(there).items()}
    return tuple(Leaf((name,), now.get(name), None, is_theirs=True) for name in written if _is_theirs(name, now.get(name), written))


def merged(there: Mapping[str, Any], leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Return a resource with some leaves as they are wanted; everything else in it stays."""
    result: dict[str, Any] = json.loads(json.dumps(there))
    for leaf in leaves:
        _put(result, leaf.path, leaf.wanted)
    return result


def type_first(value: Any) -> Any:
    """Return a JSON value in which `type` comes first in every object: the platform cannot read it otherwise."""
    if isinstance(value, Mapping):
        keys = sorted(value, key=lambda key: key != "type")
        return {key: type_first(value[key]) for key in keys}
    return [type_first(inner) for inner in value] if isinstance(value, list | tuple) else value


def digest(value: Any) -> str:
    """Return what is remembered of a leaf."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def digests(resource: Mapping[str, Any]) -> dict[str, str]:
    """Return what is remembered of a resource."""
    return {".".join(path): digest(value) for path, value in leaves_of(resource).items()}


def _is_theirs(name: str, value: Any, ours: Digests) -> bool:
    if value in (None, "") and name.startswith(PORTAL_DAMAGE):
        return False
    return digest(value) not in ours.get(name, (digest(_MISSING),) if ours else ())


def _collect(value: Any, path: tuple[str, ...], found: dict[tuple[str, ...], Any]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _collect(inner, (*path, str(key)), found)
    elif _is_named(value):
        for inner in value:
            _collect(inner, (*path, f"[{inner['name']}]"), found)
    elif value not in (None, [], ()):
        found[path] = json.loads(json.dumps(value))


def _is_named(value: Any) -> bool:
    """Whether a list is one of things with names of their own, as tools are: each of them is looked at by itself."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(inner, Mapping) and inner.get("name") for inner in value):
        return False
    return len({inner["name"] for inner in value}) == len(value)


def _put(resource: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    key, *rest = path
    if not rest:
        resource.pop(key, None) if value is None else resource.update({key: value})
    elif rest[0].startswith("["):
        resource[key] = _put_named(resource.get(key) or [], rest[0][1:-1], tuple(rest[1:]), value)
    else:
        if not isinstance(resource.get(key), dict):
            resource[key] = {}
        _put(resource[key], tuple(rest), value)
    if rest and value is None and _is_hollow(resource[key]):
        del resource[key]


def _is_hollow(value: Any) -> bool:
    """Whether nothing is left in a value: the platform cannot read the shell of a reference."""
    if isinstance(value, Mapping):
        return all(_is_hollow(inner) for inner in value.values())
    return value in (None, [], ())


def _put_named(items: list[dict[str, Any]], name: str, path: tuple[str, ...], value: Any) -> list[dict[str, Any]]:
    """A list with one leaf of the thing of a name changed; a thing without a name left is gone."""
    known = next((item for item in items if item.get("name") == name), None)
    if known is None and value is None:
        return items
    changed = {"name": name} if known is None else dict(known)
    _put(changed, path, value)
    if "name" not in changed:
        return [item for item in items if item is not known]
    return [*items, changed] if known is None else [changed if item is known else item for item in items]


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
