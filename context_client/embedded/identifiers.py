"""The forms of ids and times on this wire; other parts of the platform sort, cut and compare them."""

import base64
import uuid
from datetime import UTC, datetime
from time import time_ns

LONGEST_SESSION_ID = 128


def new_file_id(now_ns: int) -> str:
    """Make a file id: UTC second and 22 random characters."""
    stamp = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"file-{stamp}-{_guid_text().replace('/', '-').replace('+', '-')}"


def new_operation_id() -> str:
    """Make the id of an upload: a GUID in lower case."""
    return str(uuid.uuid4())


def pool_session_id(conversation_id: str, context: str) -> str:
    """Name the sandbox of a conversation and context; long ids lose their end."""
    return f"code-{conversation_id}-{context}"[:LONGEST_SESSION_ID].lower()


def override_session_id() -> str:
    """Make the random session id of an endpoint override."""
    return f"__local_code_session_{_guid_text().replace('/', '_').replace('+', '-')}__"


def normalised_upn(upn: str) -> str:
    """Name a user's blob folder; two UPNs can share one."""
    return upn.translate({ord("."): "-", ord("#"): "-", ord("@"): "-"}).lower()


def now_nanoseconds() -> int:
    """Read the clock."""
    return time_ns()


def timestamp(now_ns: int) -> str:
    """Write a time as .NET does, seven decimals and offset; always of one length, so that text order is time order."""
    seconds, rest = divmod(now_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{rest // 100:07d}+00:00"


def _guid_text() -> str:
    return base64.b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
