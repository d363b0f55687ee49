"""Names of sessions, as a pool takes them.

Whoever has a token and an identifier is in the session, and identifiers stand in addresses and logs. So ours are made with
a key: nobody who knows the user and the conversation can compute one, and two users can't meet under one.
"""

import base64
import hashlib
import hmac

SHORTEST = 4
LONGEST = 128
SPECIAL_CHARACTERS = "|-&^%$#(){}[];<>"
_PREFIX = "cc-"


def identifier_problem(identifier: str) -> str | None:
    """Say which rule of the pools an identifier breaks, or None."""
    if not SHORTEST <= len(identifier) <= LONGEST:
        return f"it has {len(identifier)} characters; {SHORTEST} to {LONGEST} are allowed"
    for character in identifier:
        if not (character.isascii() and character.isalnum()) and character not in SPECIAL_CHARACTERS:
            return f"character {character!r} is not allowed; letters, digits and {SPECIAL_CHARACTERS} are"
    return None


def pool_identifier(key: bytes, *, upn: str, session_id: str) -> str:
    """Name the session of a user: the same name on every replica with this key, 55 characters that need no escaping.

    Args:
        key: At least 16 secret bytes.
        upn: The user, exactly as in the identity header.
        session_id: Our session id, hostile text.
    """
    user = upn.encode("utf-8", "surrogatepass")
    # The length keeps (a, bc) and (ab, c) apart.
    message = len(user).to_bytes(8, "big") + user + session_id.encode("utf-8", "surrogatepass")
    digest = hmac.new(key, message, hashlib.sha256).digest()
    return _PREFIX + base64.b32encode(digest).decode("ascii").rstrip("=").lower()
