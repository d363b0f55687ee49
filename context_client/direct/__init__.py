"""The direct path from outside: one agent in one sandbox, driven through `POST /code/execute` of a pool, without a service.

`SessionProxy` is the way in. See docs/direct.md, also for when the service is the better way.
"""

from context_client.direct.errors import (
    BadAnswer,
    BadSession,
    CallDied,
    DirectCallerFault,
    DirectError,
    DirectWorldFault,
    ExecutionFailed,
    NoSuchPlace,
    NotLetIn,
    NotOurImage,
    PoolFault,
    PoolFull,
    SandboxReplaced,
    SessionBusy,
    Unreachable,
)
from context_client.direct.events import (
    ConfirmRequest,
    DeviceCode,
    DirectEvent,
    Done,
    Failed,
    Progress,
    Replaced,
    Text,
    ToolEnd,
    ToolStart,
    Warned,
)
from context_client.direct.line import FixedToken, Patience, TokenSource
from context_client.direct.programs import ModelAccess, StoredSession
from context_client.direct.proxy import SessionProxy, SessionStatus
from context_client.direct.stream import DirectSettings, EventStream

__all__ = [
    "BadAnswer",
    "BadSession",
    "CallDied",
    "ConfirmRequest",
    "DeviceCode",
    "DirectCallerFault",
    "DirectError",
    "DirectEvent",
    "DirectSettings",
    "DirectWorldFault",
    "Done",
    "EventStream",
    "ExecutionFailed",
    "Failed",
    "FixedToken",
    "ModelAccess",
    "NoSuchPlace",
    "NotLetIn",
    "NotOurImage",
    "Patience",
    "PoolFault",
    "PoolFull",
    "Progress",
    "Replaced",
    "SandboxReplaced",
    "SessionBusy",
    "SessionProxy",
    "SessionStatus",
    "StoredSession",
    "Text",
    "TokenSource",
    "ToolEnd",
    "ToolStart",
    "Unreachable",
    "Warned",
]
