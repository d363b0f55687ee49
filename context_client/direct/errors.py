"""What can go wrong on the direct path, seen from outside the sandbox.

ContextClientError
└── DirectError
    ├── DirectCallerFault      repeating the same call fails again
    │   ├── BadSession           an identifier that no pool takes
    │   ├── SessionBusy          another call is at work in this session
    │   ├── NotLetIn             401, 403: the token or the role
    │   ├── NoSuchPlace          404, 405: nothing executes code at this address
    │   └── NotOurImage          the sandbox executes code, and has no direct path in it
    └── DirectWorldFault       the call may be right; the other side is not
        ├── Unreachable          no answer: refused, cut, or out of time
        ├── PoolFull             429: the pool has no sandbox to give
        ├── PoolFault            another status that is no success
        ├── ExecutionFailed      the sandbox could not execute what was sent
        ├── BadAnswer            an answer that is not the direct path's, or larger than may be
        ├── SandboxReplaced      another, empty sandbox answers under the session's identifier
        └── CallDied             the call ended without its last event, or never ended

What an agent cannot do is no error here: it arrives as the event `error`. All text from a sandbox is data; it is shortened, never read.
"""

from context_client.errors import ContextClientError


class DirectError(ContextClientError):
    """A call of the direct path did not succeed."""


class DirectCallerFault(DirectError):
    """Repeating the same call fails again."""


class BadSession(DirectCallerFault):
    """A session identifier that no pool takes."""


class SessionBusy(DirectCallerFault):
    """Another call is at work in this session; wait for it, follow it, or stop it.

    Attributes:
        call: Its name; None when the sandbox did not tell it well.
    """

    def __init__(self, message: str, *, call: str | None = None) -> None:
        self.call = call
        super().__init__(message)


class NotLetIn(DirectCallerFault):
    """The pool does not take the token; check the token's audience and the role of who asks."""


class NoSuchPlace(DirectCallerFault):
    """Nothing executes code at this address."""


class NotOurImage(DirectCallerFault):
    """The sandbox executes code and has no direct path in it; give the pool the runner's image."""


class DirectWorldFault(DirectError):
    """The call may be right; the other side is not."""


class Unreachable(DirectWorldFault):
    """No complete answer came: refused, cut, or out of time."""


class PoolFull(DirectWorldFault):
    """The pool has no sandbox to give.

    Attributes:
        retry_after_seconds: How long it asks to wait, if it says so.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class PoolFault(DirectWorldFault):
    """The pool, or something on the way to it, failed.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, message: str, *, status: int) -> None:
        self.status = status
        super().__init__(message)


class ExecutionFailed(DirectWorldFault):
    """The sandbox could not execute what was sent; its own sentence is in the message."""


class BadAnswer(DirectWorldFault):
    """An answer that is not the direct path's, or larger than may be."""


class SandboxReplaced(DirectWorldFault):
    """Another, empty sandbox answers under the session's identifier; files and conversation of the former are gone."""


class CallDied(DirectWorldFault):
    """The call ended without its last event, or did not end in the time it had."""
