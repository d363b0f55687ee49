"""Files as the platform keeps them: a judgement, a record, then bytes, in that order.

The record comes before the bytes as in the real server, so a full disk leaves a record whose content cannot be read;
the caller learns it from the 500.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from context_client.embedded.blobs import Spool
from context_client.embedded.gate import (
    Pass,
    Refusal,
    judge_content,
    judge_safety,
    judge_user_upload,
    processing_type,
    suffix_of,
)
from context_client.embedded.identifiers import new_file_id, normalised_upn, now_nanoseconds, timestamp
from context_client.embedded.problems import ANY_EXCEPTION, Problem, refused, thrown
from context_client.embedded.records import FILE_RECORD, Document
from context_client.embedded.repeats import Repeats
from context_client.embedded.settings import FilePolicy
from context_client.embedded.storage import Blobs, Records
from context_client.models import NOT_APPLICABLE


@dataclass(frozen=True, kw_only=True)
class NewFile:
    """What is known of a file before it is judged."""

    upn: str
    """Owner."""

    file_name: str
    """Original name, hostile text."""

    spool: Spool
    """Its bytes."""

    origin: str = "user-upload"
    """`user-upload` or `code-session`."""

    conversation_id: str = NOT_APPLICABLE
    """Conversation, unless it belongs to an agent."""

    agent_name: str = NOT_APPLICABLE
    """Agent, unless it is an output."""

    metadata: Mapping[str, str] | None = None
    """Where an output came from."""

    @property
    def by_user(self) -> bool:
        """True for uploads, which meet more rules than outputs."""
        return self.origin == "user-upload"

    @property
    def for_agent(self) -> bool:
        """True if no conversation has it."""
        return self.conversation_id == NOT_APPLICABLE


class FileService:
    """Creates, finds and deletes files of users."""

    def __init__(self, *, records: Records, blobs: Blobs, instance_id: str, policy: FilePolicy) -> None:
        self._records = records
        self._blobs = blobs
        self._instance_id = instance_id
        self._policy = policy
        self._repeats = Repeats(records, instance_id)
        self._named = anyio.Lock()

    async def create_once(self, new: NewFile, key: str) -> Document:
        """Keep a file under the name of its call: repeated, it gives the record of the first one. Without a name it is `create`.

        Raises:
            Problem: As `create`.
        """
        if not key:
            return await self.create(new)
        scope = f"files of {new.conversation_id}"
        async with self._named:  # a repetition may come while the first call still runs
            known = await self._repeats.find(new.upn, scope, key)
            if known is not None and known[0]:
                return known[0][0]
            document = await self.create(new)
            await self._repeats.keep(new.upn, scope, key, [document], [])
            return document

    async def create(self, new: NewFile) -> Document:
        """Keep a file.

        Raises:
            Problem: 415 or 422 where a rule refuses it; 500 where the disk does.
        """
        passed = _accepted(judge_content(new.file_name, new.spool.start, self._policy))
        if new.by_user:
            size = -1 if new.for_agent else new.spool.size_bytes
            _accept(judge_user_upload(new.file_name, passed, size, self._policy))
        document = self._document(new, passed)
        await self._records.put(document)
        try:
            await self._blobs.store(new.spool, document["file_path"], as_text=passed.is_text)
        except OSError as error:
            raise thrown("RequestFailedException", f"the file's bytes could not be stored: {error.strerror}") from error
        if new.by_user and not new.for_agent:
            unsafe = judge_safety(new.file_name, document["id"], passed, self._policy)
            if unsafe is not None:
                await self._delete(document)
                raise refused(unsafe.status, unsafe.detail)
        return document

    async def record(self, upn: str, file_id: str) -> Document:
        """Find a user's own record.

        Raises:
            Problem: 500, as the real server says "not found" and "not yours".
        """
        document = await self._records.find(FILE_RECORD, upn, file_id)
        if document is None:
            raise no_such_file(file_id)
        return document

    async def content_size(self, document: Document) -> int:
        """Read the length of a record's bytes, which may differ from the record's for text.

        Raises:
            Problem: 500 where they are missing.
        """
        size = await self._blobs.size(document["file_path"])
        if size is None:
            raise thrown("RequestFailedException", f"the bytes of file {document['id']!r} are missing in the storage")
        return size

    async def delete(self, upn: str, file_id: str) -> None:
        """Delete a user's own file: bytes for good, record softly.

        Raises:
            Problem: 500 where there is none.
        """
        await self._delete(await self.record(upn, file_id))

    async def _delete(self, document: Document) -> None:
        await self._blobs.remove(document["file_path"])
        now = timestamp(now_nanoseconds())
        await self._records.put(document | {"deleted": True, "updated_at": now, "updated_by": document["upn"]})

    def _document(self, new: NewFile, passed: Pass) -> Document:
        now = now_nanoseconds()
        file_id = new_file_id(now)
        folder = f"agents/{new.agent_name}" if new.for_agent else f"users/{normalised_upn(new.upn)}/{new.conversation_id}"
        size = new.spool.size_bytes
        return {
            "id": file_id,
            "type": FILE_RECORD,
            "instance_id": self._instance_id,
            "upn": new.upn,
            "origin": new.origin,
            "conversation_id": new.conversation_id,
            "agent_name": new.agent_name,
            "file_object_id": f"/instances/{self._instance_id}/providers/FoundationaLLM.Context/files/{file_id}",
            "file_name": new.file_name,
            "content_type": passed.content_type,
            "file_path": f"file/{folder}/{file_id}{suffix_of(new.file_name)}",
            "file_size_bytes": size,
            "file_processing_type": processing_type(passed, size, self._policy) if new.by_user else "none",
            "created_at": timestamp(now),
            "created_by": new.upn,
            "deleted": False,
            "metadata": dict(new.metadata or {}),
        }


def no_such_file(file_id: str) -> Problem:
    """Say that a user has no such file."""
    return thrown(ANY_EXCEPTION, f"no file record {file_id!r} for this user; check the id and the user")


def _accepted(verdict: Pass | Refusal) -> Pass:
    if isinstance(verdict, Refusal):
        raise refused(verdict.status, verdict.detail)
    return verdict


def _accept(verdict: Refusal | None) -> None:
    if verdict is not None:
        raise refused(verdict.status, verdict.detail)
