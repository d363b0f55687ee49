"""Operations: what was asked, by whom, how far it got, and what came of it."""

from orchestration_service.operations.board import StatusBoard
from orchestration_service.operations.conversation import Conversation, SandboxMark, TurnRecord
from orchestration_service.operations.lease import Claim, EffectState, Lease
from orchestration_service.operations.model import (
    AcceptedTurn,
    Created,
    FinalStatus,
    NewOperation,
    Operation,
    OperationStore,
    RecordedStep,
    StartTurn,
    StoredEvent,
    StoredMessage,
    StoredRequest,
)
from orchestration_service.operations.sqlite import SqliteOperations

__all__ = [
    "AcceptedTurn",
    "Claim",
    "Conversation",
    "Created",
    "EffectState",
    "FinalStatus",
    "Lease",
    "NewOperation",
    "Operation",
    "OperationStore",
    "RecordedStep",
    "SandboxMark",
    "SqliteOperations",
    "StartTurn",
    "StatusBoard",
    "StoredEvent",
    "StoredMessage",
    "StoredRequest",
    "TurnRecord",
]
