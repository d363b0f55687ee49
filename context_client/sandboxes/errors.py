"""What can go wrong with a place where sandboxes live, whichever it is.

SandboxError
├── SandboxUnavailable     no sandbox can run here at all; the advice says what to change
├── SandboxPoolFull        as many sandboxes run as may; try again when one was given back
├── SandboxStartFailed     this one did not come up; what it said is in the message
├── SandboxEnded           it ran and was ended: over a limit, or its server stopped; its files are gone
└── SandboxesClosed        the provider was closed while somebody still asked
"""


class SandboxError(Exception):
    """Anything this package raises on purpose."""


class SandboxUnavailable(SandboxError):
    """No sandbox can run on this machine as it is.

    Attributes:
        reason: What was tried and what came of it.
        advice: What to install or change, one step per item.
    """

    def __init__(self, reason: str, *, advice: tuple[str, ...]) -> None:
        self.reason = reason
        self.advice = advice
        steps = "".join(f"\n  - {step}" for step in advice)
        super().__init__(f"Sandboxes cannot run here: {reason}{steps}")


class SandboxPoolFull(SandboxError):
    """As many sandboxes run as may.

    Attributes:
        maximum: How many that is.
    """

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        super().__init__(f"All {maximum} sandboxes are in use; try again when one is idle, or raise the maximum number of sandboxes.")


class SandboxStartFailed(SandboxError):
    """A sandbox did not come up; repeating may help."""


class SandboxEnded(SandboxError):
    """The session's sandbox ran and was ended; its files are gone and the next use starts an empty one.

    Attributes:
        reason: Why, in a sentence.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The sandbox of this session was ended: {reason} The next use starts an empty one.")


class SandboxesClosed(SandboxError):
    """The provider was closed, so that no sandbox can be started any more."""
