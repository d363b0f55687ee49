"""The Context API from both sides: one client for code sessions and files, and a server to put behind it.

`connect(...)` is the way in: it yields a `ContextClient`, be the server remote or embedded.
"""

from context_client.client import ContextClient
from context_client.connect import ContextSettings, EmbeddedContext, RemoteContext, connect
from context_client.errors import (
    CallerFault,
    ContentRefused,
    ContextApiError,
    ContextClientError,
    IdentityError,
    InvalidRequest,
    NotFoundOrNotOwned,
    ProtocolError,
    ServerFault,
    TooLarge,
    Unauthorized,
    Unavailable,
    WorldFault,
    WrongInstance,
)
from context_client.identity import UserIdentity
from context_client.models import (
    NOT_APPLICABLE,
    CodeSession,
    EndpointOverride,
    ExecutionResult,
    FileContent,
    FileRecord,
    ServiceStatus,
    SessionDownload,
    SessionUpload,
)
from context_client.size import USUAL_SIZE, SandboxSize

__all__ = [
    "NOT_APPLICABLE",
    "USUAL_SIZE",
    "CallerFault",
    "CodeSession",
    "ContentRefused",
    "ContextApiError",
    "ContextClient",
    "ContextClientError",
    "ContextSettings",
    "EmbeddedContext",
    "EndpointOverride",
    "ExecutionResult",
    "FileContent",
    "FileRecord",
    "IdentityError",
    "InvalidRequest",
    "NotFoundOrNotOwned",
    "ProtocolError",
    "RemoteContext",
    "SandboxSize",
    "ServerFault",
    "ServiceStatus",
    "SessionDownload",
    "SessionUpload",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UserIdentity",
    "WorldFault",
    "WrongInstance",
    "connect",
]
