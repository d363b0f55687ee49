"""Everything a deployment raises on purpose.

DeploymentError (a ServiceError)
├── ProfileRefused      the profile, or a variable it names, is missing or wrong; nothing was asked of anybody
├── NotSignedIn         there is no Azure identity here, or it gets no token
├── Forbidden           a place knows who asks, and refuses
├── Unreachable         a place does not answer in time, or says that it is broken
├── WrongInstance       the places do not belong to the instance the profile names
├── Refused             a place refuses what it was sent
│   └── NameTaken       the name belongs to something else, or to something deleted that was not purged
├── ChangedMeanwhile    somebody else wrote the same thing at the same time, more often than we try again
└── Halted              a step failed; says what was done, what is left, and why
"""

from collections.abc import Sequence

from orchestration_service.errors import ServiceError


class DeploymentError(ServiceError):
    """Root of the tree. The message says what happened and what to do next."""


class ProfileRefused(DeploymentError):
    """The profile or a variable it names does not do."""


class NotSignedIn(DeploymentError):
    """No token could be had."""


class Forbidden(DeploymentError):
    """The identity lacks a role."""


class Unreachable(DeploymentError):
    """No usable answer within the time and tries we allow."""


class WrongInstance(DeploymentError):
    """The profile names an instance that these places do not serve."""


class Refused(DeploymentError):
    """The request was understood and refused.

    Attributes:
        status: HTTP status of the refusal.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NameTaken(Refused):
    """The name cannot be used."""


class ChangedMeanwhile(DeploymentError):
    """What was to be written has changed since it was read."""


class Halted(DeploymentError):
    """A step failed. What the steps before it did stands; running the command again goes on from there.

    Attributes:
        step: Title of the step that failed.
        done: What was done before, one line each.
        left: Titles of the steps that were not reached.
    """

    def __init__(self, step: str, reason: str, done: Sequence[str], left: Sequence[str]) -> None:
        told = "; ".join(done) or "nothing"
        rest = ", ".join(left) or "nothing"
        super().__init__(f"{step} failed: {reason}\nDone before: {told}.\nNot reached: {rest}.\nRun the command again to go on from here.")
        self.step = step
        self.done = tuple(done)
        self.left = tuple(left)
