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

__all__ = [
    "NOT_APPLICABLE",
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
