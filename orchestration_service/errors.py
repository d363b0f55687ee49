"""Everything this service raises on purpose.

ServiceError
├── CallerError              the caller can put it right; no retry helps
│   ├── KeyRefused           no key, or not ours
│   ├── InstanceRefused      another platform instance is meant
│   ├── IdentityRefused      nobody is named on whose behalf we would act
│   ├── RequestInvalid       the body cannot be read as a completion request
│   ├── RequestTooLarge      the body is over the limit
│   ├── OperationConflict    the operation id belongs to somebody or something else
│   ├── OperationUnknown     there is no such operation for this user
│   ├── ConversationUnknown  there is no such conversation for this user
│   └── ConversationBusy     a turn is running in the conversation
├── StoreError               the operation store failed; the caller did nothing wrong
│   ├── StoreFull            no space left
│   ├── StoreBusy            another process holds it for too long
│   └── StoreUnusable        not a database, damaged, made by a newer version, not readable
├── Superseded               somebody else has gone further since; nothing was changed, and what stands is theirs
│   ├── LeaseLost            another process has claimed the operation
│   └── ConversationChanged  the conversation was saved by somebody else after it was read
├── TurnError                a turn cannot go on; the text becomes the user's answer
│   ├── PlanRefused          the request or the agent's configuration does not allow a turn
│   │   ├── TurnUnknown      there is no sealed turn of this number
│   │   └── ForkRefused      the conversation cannot begin with the turns of the other one
│   ├── SandboxUnavailable   no sandbox could be had, or it does not answer
│   ├── SandboxLost          the sandbox was replaced or vanished in the middle of the turn
│   └── TurnUnreadable       what was stored of a turn that was taken over leads nowhere
├── GatewayRefusal           a model call at the gateway is not answered
│   ├── TokenRefused         no token, or one that does not hold (any more)
│   └── RunElsewhere         the run belongs to another replica, or its owner is changing
└── SettingsError            the service is configured wrongly; it does not start

The edge (`routes/problems.py`) turns the first two branches into HTTP answers.
"""

from __future__ import annotations

from pathlib import Path


class ServiceError(Exception):
    """Root of the tree. The message is fit to be shown: what happened and what to do next."""


class CallerError(ServiceError):
    """The request cannot be served as it is; the message tells its sender what to change."""


class KeyRefused(CallerError):
    """The API key is missing or wrong."""


class InstanceRefused(CallerError):
    """The path names a platform instance this service does not serve."""


class IdentityRefused(CallerError):
    """The identity header is missing, unreadable, or names no user."""


class RequestInvalid(CallerError):
    """The body is not a completion request."""


class RequestTooLarge(CallerError):
    """The body is larger than this service accepts.

    Attributes:
        limit_bytes: The largest body accepted.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"The request body is larger than {limit_bytes} bytes. Send less (files travel as attachments, not in the "
            "request), or raise CLAUDE_CODE_MAX_BODY_BYTES on the service."
        )
        self.limit_bytes = limit_bytes


class OperationConflict(CallerError):
    """An operation with this id exists and is not the one the caller means.

    Attributes:
        operation_id: The id in question.
    """

    def __init__(self, operation_id: str, reason: str = "belongs to another user or instance") -> None:
        super().__init__(f"The operation {operation_id!r} {reason}. Start a new one under an id of its own.")
        self.operation_id = operation_id


class OperationUnknown(CallerError):
    """There is no such operation, at least not for this user.

    Attributes:
        operation_id: The id in question.
    """

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"There is no operation {operation_id!r} of this user here. Check the id, or start a new one.")
        self.operation_id = operation_id


class ConversationUnknown(CallerError):
    """There is no such conversation, at least not for this user.

    Attributes:
        conversation_id: The id in question.
    """

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"There is no conversation {conversation_id!r} of this user here. Check the id; it begins with its first turn.")
        self.conversation_id = conversation_id


class ConversationBusy(CallerError):
    """A turn is running in the conversation.

    Attributes:
        conversation_id: The id in question.
    """

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"A turn is running in the conversation {conversation_id!r}. Wait for its end, then ask again.")
        self.conversation_id = conversation_id


class StoreError(ServiceError):
    """The operation store failed.

    Attributes:
        path: Where the store lives, when it lives in a file.
    """

    def __init__(self, message: str, path: Path | None = None) -> None:
        super().__init__(message)
        self.path = path


class StoreFull(StoreError):
    """No space is left for the store."""


class StoreBusy(StoreError):
    """Another process kept the store locked for longer than we wait."""


class StoreUnusable(StoreError):
    """The store cannot be opened or read."""


class Superseded(ServiceError):
    """Somebody else has gone further since; the write was refused and changed nothing."""


class LeaseLost(Superseded):
    """A newer claim owns the operation: let go of its turn at once.

    Attributes:
        operation_id: The operation in question.
        generation: The outdated generation.
    """

    def __init__(self, operation_id: str, generation: int) -> None:
        super().__init__(
            f"The operation {operation_id!r} has been claimed by another process since claim {generation}. "
            "Stop working on it; the newer owner finishes it."
        )
        self.operation_id = operation_id
        self.generation = generation


class ConversationChanged(Superseded):
    """The conversation was saved by somebody else after it was read.

    Attributes:
        conversation_id: The conversation in question.
        version: The version that was to be replaced.
    """

    def __init__(self, conversation_id: str, version: int) -> None:
        super().__init__(
            f"The conversation {conversation_id!r} is not at version {version} any more, or not there. "
            "Read it again, and repeat the change."
        )
        self.conversation_id = conversation_id
        self.version = version


class GatewayRefusal(ServiceError):
    """A model call is not answered here; the runner that makes it has the mailbox."""


class TokenRefused(GatewayRefusal):
    """The token is missing, was not issued here, is too old, or its run has ended."""


class RunElsewhere(GatewayRefusal):
    """The token may hold, and the run is not worked on by this replica."""


class SettingsError(ServiceError):
    """A setting is missing or wrong.

    Attributes:
        names: Names of the environment variables concerned.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


class TurnError(ServiceError):
    """A turn cannot go on. The message is written for the user who asked."""


class PlanRefused(TurnError):
    """The request or the agent's configuration does not allow a turn; the message says what to change."""


class TurnUnknown(PlanRefused):
    """There is no sealed turn of this number to go on from; the message names those there are."""


class ForkRefused(PlanRefused):
    """The conversation cannot begin with the turns of the other one."""


class SandboxUnavailable(TurnError):
    """No sandbox could be had, or it does not answer."""


class SandboxLost(TurnError):
    """The sandbox was replaced or vanished in the middle of the turn; what was not sealed is gone.

    Attributes:
        may_answer: It only does not answer: it may still be there, and end the turn.
        never_started: It was replaced before the run began in it: the turn can begin anew in the one that took its place.
    """

    def __init__(self, message: str, *, may_answer: bool = False, never_started: bool = False) -> None:
        super().__init__(message)
        self.may_answer = may_answer
        self.never_started = never_started


class TurnUnreadable(TurnError):
    """What was stored of a turn that was taken over makes no sense, or leads nowhere time and again."""
