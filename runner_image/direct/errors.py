"""Errors of the direct path; they end a call with an `error` event, or are told by the desk, and are never raised to its caller.

RunnerError
└── DirectError
    ├── EndpointUnusable    no model endpoint is configured, or it cannot be reached
    ├── SandboxUnusable     the folders, the wall or the agent's program do not work here
    ├── SignInFailed        the image's sign-in program did not succeed
    ├── AnotherAtWork       a detached call has not ended yet
    └── BadOrder            what was asked at the desk makes no sense
"""

from runner_image.errors import RunnerError


class DirectError(RunnerError):
    """A call of the direct path cannot go on."""


class EndpointUnusable(DirectError):
    """The model is not configured or cannot be reached; the message names the variables to set."""


class SandboxUnusable(DirectError):
    """Something this path needs does not work here; nothing is run."""


class SignInFailed(DirectError):
    """The image's sign-in program could not be run, ended badly, or nobody confirmed it in time."""


class AnotherAtWork(DirectError):
    """A detached call has not ended yet.

    Attributes:
        call: Its name.
    """

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(f"The call {call!r} is at work in this sandbox. Wait until it is done, or stop it.")


class BadOrder(DirectError):
    """What was asked at the desk makes no sense; caller and image are of different versions."""
