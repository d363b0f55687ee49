"""Downloads and uploads that are asked for again.

The real server makes new records each time, and a caller that lost its answer cannot know them. A caller that names its call by an
`Idempotency-Key` gets the records of the first call again. What was made is kept with the records, so it outlives this process; the
real server ignores the header, and does not send it back.
"""

import hashlib

from context_client.embedded.identifiers import now_nanoseconds, timestamp
from context_client.embedded.records import FILE_RECORD, Document
from context_client.embedded.storage import Records

DOWNLOAD_RECORD = "code-session-download-record"


class Repeats:
    """The named calls of an instance.

    Args:
        records: Where they are kept.
        instance_id: The instance.
    """

    def __init__(self, records: Records, instance_id: str) -> None:
        self._records = records
        self._instance_id = instance_id

    async def find(self, upn: str, session_id: str, key: str) -> tuple[list[Document], list[str]] | None:
        """Return what the call of this name has given before, None when there was none. Files deleted since are left out."""
        known = await self._records.find(DOWNLOAD_RECORD, upn, _identifier(session_id, key))
        if known is None:
            return None
        files = [await self._records.find(FILE_RECORD, upn, file_id) for file_id in known["file_ids"]]
        return [file for file in files if file is not None], list(known["errors"])

    async def keep(self, upn: str, session_id: str, key: str, made: list[Document], lost: list[str]) -> None:
        """Remember what a call of this name has given."""
        await self._records.put(
            {
                "id": _identifier(session_id, key),
                "type": DOWNLOAD_RECORD,
                "instance_id": self._instance_id,
                "upn": upn,
                "origin": "",
                "code_session_id": session_id,
                "file_ids": [document["id"] for document in made],
                "errors": lost,
                "created_at": timestamp(now_nanoseconds()),
                "created_by": upn,
                "deleted": False,
                "metadata": {},
            }
        )


def _identifier(session_id: str, key: str) -> str:
    """Return an id of a fixed form: both parts are the caller's words."""
    return f"download-{hashlib.sha256(f'{len(session_id)} {session_id} {key}'.encode()).hexdigest()[:40]}"
