r"""How the bytes of a name become text in the index of a seal, and back: `\xNN` for what is no UTF-8, and a backslash twice.

Beside the index's models and not among them, because a process that lives for a fraction of a second needs nothing else of them.
"""

import re

_ESCAPE = re.compile(rb"\\(?:\\|x([0-9a-f]{2}))")


def path_text(path: bytes) -> str:
    """Write the bytes of a name as text that JSON can carry; every name has exactly one such text."""
    return path.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def path_bytes(text: str) -> bytes:
    """Return the bytes of a name.

    Raises:
        ValueError: No name is written like this.
    """
    raw = text.encode()
    if b"\\" not in raw:
        return raw
    raw = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else b"\\", raw)
    if path_text(raw) != text:
        raise ValueError(f"the name {text[:80]!r} is not written in the one way it has")
    return raw
