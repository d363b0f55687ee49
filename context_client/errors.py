"""What can go wrong with the Context API.

ContextClientError
├── IdentityError              the identity header cannot be read
└── ContextApiError            an operation of the Context API did not succeed
    ├── CallerFault            repeating the same call will fail again
    │   ├── Unauthorized         401: the key is missing or wrong
    │   ├── WrongInstance        403: the server serves another instance
    │   ├── InvalidRequest       400, or refused by a validator, or by us before sending
    │   ├── NotFoundOrNotOwned   no such session, upload or file for this user (arrives as 500)
    │   ├── ContentRefused       415, 422: the gate or the safety check refuses this file
    │   └── TooLarge             413: more than the server takes in one request
    └── WorldFault             the call may be right; the other side is not
        ├── Unavailable          no answer: refused, cut, or out of time
        ├── ProtocolError        an answer that is not the Context API's
        └── ServerFault          the server failed while working on it

The server answers 500 to most mistakes of a caller; `judge.py` says how they are told apart.
"""


class ContextClientError(Exception):
    """Anything this package raises on purpose."""


class IdentityError(ContextClientError):
    """The identity header cannot be read."""


class ContextApiError(ContextClientError):
    """An operation of the Context API did not succeed.

    Attributes:
        title: Short name of the failure; for exceptions of the server their class name.
        detail: The server's own sentence; hostile text, at most a few kilobytes.
        status: The HTTP status that arrived, or the one inside the body when a failure came as 200; `None` when
            nothing arrived.
    """

    def __init__(self, title: str, *, detail: str | None = None, status: int | None = None) -> None:
        self.title = title
        self.detail = detail
        self.status = status
        shown = title if status is None else f"{title} (HTTP {status})"
        super().__init__(f"{shown}: {detail}" if detail else shown)


class CallerFault(ContextApiError):
    """Repeating the same call will fail again."""


class Unauthorized(CallerFault):
    """The key is missing or wrong; check the configured API key and its header name."""


class WrongInstance(CallerFault):
    """The server serves another instance; check the configured instance id."""


class InvalidRequest(CallerFault):
    """The request breaks a rule of the API; the detail names it."""


class NotFoundOrNotOwned(CallerFault):
    """No such session, upload or file for this user; the server does not say which of the two it is."""


class ContentRefused(CallerFault):
    """The gate or the safety check refuses this file; rename, convert or pack it (zip and tar pass)."""


class TooLarge(CallerFault):
    """More bytes than the server takes in one request."""


class WorldFault(ContextApiError):
    """The call may be right; the other side is not."""


class Unavailable(WorldFault):
    """No complete answer came: refused, cut, or out of time.

    Attributes:
        cause: The transport's own error.
        may_have_arrived: False only if the request certainly did not reach the server, so that repeating it cannot
            do anything twice.
    """

    def __init__(self, title: str, *, cause: Exception, may_have_arrived: bool) -> None:
        self.cause = cause
        self.may_have_arrived = may_have_arrived
        super().__init__(title, detail=f"{type(cause).__name__}: {cause}".rstrip(": "))


class ProtocolError(WorldFault):
    """An answer that is not the Context API's; check the base URL and what stands in front of the server."""


class ServerFault(WorldFault):
    """The server failed while working on the call; do not repeat blindly, part of the work may be done."""
