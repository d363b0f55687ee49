"""What every Context API server must do, as checks that need a client and two users, and nothing of the server.

They hold for a real server as for the embedded one; a sandbox must stand behind the provider. Each check works in a
conversation of its own and leaves only that conversation's records.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from context_client.client import ContextClient
from context_client.errors import ContentRefused, ContextApiError, InvalidRequest, NotFoundOrNotOwned
from context_client.identity import UserIdentity
from context_client.models import CodeSession, FileRecord, SessionDownload


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a check stands on."""

    client: ContextClient
    """Client of the server under test."""

    user: UserIdentity
    """Who does things."""

    other_user: UserIdentity
    """Who must not see them."""

    conversation_id: str
    """A conversation nobody else uses."""

    agent_name: str = "conformance"
    """Agent to upload for."""

    provider: str = "AzureContainerAppsCustomContainer"
    """Wire name of the sandbox provider."""

    async def open_session(self, context: str = "Conformance") -> CodeSession:
        """Name a sandbox of this conversation."""
        return await self.client.create_code_session(
            self.user,
            agent_name=self.agent_name,
            conversation_id=self.conversation_id,
            context=context,
            endpoint_provider=self.provider,
        )

    async def put(self, file_name: str, content: bytes) -> FileRecord:
        """Keep a file in this conversation."""
        return await self.client.upload_conversation_file(self.user, self.conversation_id, self.agent_name, file_name, content)

    async def run(self, session: CodeSession, code: str) -> str:
        """Run code that must work; gives what it printed."""
        result = await self.client.execute_code(self.user, session.session_id, code)
        assert result.status == "Succeeded", f"the sandbox failed: {result!r}"
        assert not result.error_output, f"the code failed: {result.error_output!r}"
        return result.standard_output

    async def collect(self, session: CodeSession, operation_id: str) -> SessionDownload:
        """Make records of the sandbox's outputs."""
        return await self.client.download_from_session(self.user, session.session_id, operation_id)


Check = Callable[[Ground], Awaitable[None]]


async def run_check(name: str, ground: Ground) -> str | None:
    """Run one check; gives what is wrong, or None."""
    try:
        await CHECKS[name](ground)
    except (AssertionError, ContextApiError) as error:
        return f"{type(error).__name__}: {error}"
    return None


async def says_it_is_ready(ground: Ground) -> None:
    """The status answers without a user."""
    status = await ground.client.status()
    assert (status.name, status.status) == ("ContextAPI", "Ready"), f"unexpected status {status!r}"


async def names_sessions_deterministically(ground: Ground) -> None:
    """Conversation and context give the id, in lower case, again and again."""
    session = await ground.open_session()
    assert session.session_id == f"code-{ground.conversation_id}-conformance".lower(), session.session_id
    assert (await ground.open_session()).session_id == session.session_id


async def refuses_unknown_language_and_provider(ground: Ground) -> None:
    """Languages and providers are exact words."""
    for language, provider in (("python", ground.provider), ("Python", "LocalCustomContainer")):
        error = await _failure(
            ground.client.create_code_session(
                ground.user,
                agent_name=ground.agent_name,
                conversation_id=ground.conversation_id,
                context="x",
                endpoint_provider=provider,
                language=language,
            )
        )
        assert error.status == 500, f"refusals of create arrive as 500, not {error.status}"


async def hides_sessions_of_others(ground: Ground) -> None:
    """Another user has no such session."""
    session = await ground.open_session()
    await _expect(NotFoundOrNotOwned, ground.client.execute_code(ground.other_user, session.session_id, "print('seen')"))


async def keeps_a_file(ground: Ground) -> None:
    """An archive comes back byte for byte, with its name and record."""
    content = _zip({"a.txt": b"one"})
    record = await ground.put("bundle.zip", content)
    assert record.id.startswith("file-"), record.id
    assert (record.file_name, record.file_size_bytes, record.origin) == ("bundle.zip", len(content), "user-upload")
    assert (record.upn, record.conversation_id) == (ground.user.upn, ground.conversation_id)
    fetched = await ground.client.file_content(ground.user, record.id)
    assert (fetched.file_name, fetched.content) == ("bundle.zip", content)
    again = await ground.client.file_record(ground.user, record.id)
    assert again.model_dump(exclude={"created_at"}) == record.model_dump(exclude={"created_at"})


async def keeps_odd_names(ground: Ground) -> None:
    """Names with blanks, umlauts and emoji survive the way in and out."""
    for name in ("two words (1).zip", "Prüfung 🧪.zip", "semi;colon=a.zip"):
        record = await ground.put(name, _zip({"a": b"1"}))
        assert record.file_name == name, f"{name!r} became {record.file_name!r}"
        assert (await ground.client.file_content(ground.user, record.id)).file_name == name


async def hides_files_of_others(ground: Ground) -> None:
    """Another user can neither read nor delete."""
    record = await ground.put("mine.zip", _zip({"a": b"1"}))
    await _expect(NotFoundOrNotOwned, ground.client.file_content(ground.other_user, record.id))
    await _expect(NotFoundOrNotOwned, ground.client.file_record(ground.other_user, record.id))
    await _expect(NotFoundOrNotOwned, ground.client.delete_file_record(ground.other_user, record.id))
    await ground.client.file_record(ground.user, record.id)


async def deletes_once(ground: Ground) -> None:
    """A deleted file is gone, and deleting it again fails in spite of status 200."""
    record = await ground.put("gone.zip", _zip({"a": b"1"}))
    await ground.client.delete_file_record(ground.user, record.id)
    await _expect(NotFoundOrNotOwned, ground.client.file_content(ground.user, record.id))
    await _expect(NotFoundOrNotOwned, ground.client.delete_file_record(ground.user, record.id))


async def gates_uploads(ground: Ground) -> None:
    """Content that does not fit the name, unknown names and empty files are refused."""
    refused = {"change.patch": b"--- a\n+++ b\n", "logs.tar.gz": b"\x1f\x8b\x08\x00abc", "program.zip": b"MZ\x00\x01"}
    for name, content in refused.items():
        await _expect(ContentRefused, ground.put(name, content))
    await _expect(InvalidRequest, ground.put("empty.zip", b""))


async def executes_code(ground: Ground) -> None:
    """Code runs, its output comes back, and its errors come back as data."""
    session = await ground.open_session()
    assert "forty-two" in await ground.run(session, "print('forty-two')")
    result = await ground.client.execute_code(ground.user, session.session_id, "raise ValueError('as planned')")
    assert result.status == "Succeeded", f"an error of the code is not one of the sandbox: {result!r}"
    assert "as planned" in result.error_output, result.error_output


async def executes_side_by_side(ground: Ground) -> None:
    """A quick call does not wait for a slow one in the same sandbox."""
    session = await ground.open_session()
    order: list[str] = []

    async def call(name: str, code: str) -> None:
        await ground.run(session, code)
        order.append(name)

    await ground.run(session, "print('warm')")
    async with anyio.create_task_group() as group:
        group.start_soon(call, "slow", "import time; time.sleep(2); print('slow')")
        await anyio.sleep(0.2)
        group.start_soon(call, "quick", "print('quick')")
    assert order == ["quick", "slow"], f"the order was {order!r}"


async def sends_files_into_the_sandbox(ground: Ground) -> None:
    """The newest file of a name arrives; a missing one is flagged; what was there before is wiped."""
    await ground.put("in.zip", _zip({"old": b"1"}))
    newest = _zip({"new": b"2"})
    await ground.put("in.zip", newest)
    session = await ground.open_session()
    await ground.run(session, "open('left-over.txt', 'w').write('x') and print('ok')")
    upload = await ground.client.upload_to_session(ground.user, session.session_id, ["in.zip", "none.zip", "in.zip"])
    assert upload.file_upload_success == {"in.zip": True, "none.zip": False}, upload
    assert not upload.all_files_uploaded
    code = "import json, os; print(json.dumps([sorted(os.listdir('.')), os.path.getsize('in.zip')]))"
    names, size = json.loads(await ground.run(session, code))
    assert (names, size) == (["in.zip"], len(newest)), f"the sandbox holds {names!r}, {size} bytes"


async def wipes_without_names(ground: Ground) -> None:
    """No names: the store is emptied and there is an operation to download for."""
    session = await ground.open_session()
    await ground.run(session, "open('x.txt', 'w').write('x') and print('ok')")
    upload = await ground.client.upload_to_session(ground.user, session.session_id, [])
    assert upload.all_files_uploaded, upload
    assert (await ground.collect(session, upload.operation_id)).file_records == {}


async def records_outputs(ground: Ground) -> None:
    """New files become records, sent ones do not, refused ones are named, and each call makes new records."""
    await ground.put("in.zip", _zip({"a": b"1"}))
    session = await ground.open_session()
    upload = await ground.client.upload_to_session(ground.user, session.session_id, ["in.zip"])
    code = "[open(n, 'w').write(n) for n in ('out.jsonl', 'in.zip', 'a.patch', 'b.log', 'c.patch.txt')]; print('ok')"
    await ground.run(session, code)
    first = await ground.collect(session, upload.operation_id)
    names = sorted(record.file_name for record in first.file_records.values())
    assert names == ["c.patch.txt", "out.jsonl"], f"records are {names!r}"
    assert sorted(first.errors) == ["//a.patch", "//b.log"], f"errors are {first.errors!r}"
    for file_id, record in first.file_records.items():
        assert (file_id, record.origin, record.agent_name) == (record.id, "code-session", "N/A")
        assert record.metadata["code_session_file_upload_record_id"] == upload.operation_id
        content = await ground.client.file_content(ground.user, file_id)
        assert content.content == record.file_name.encode(), f"{record.file_name!r} holds {content.content!r}"
    second = await ground.collect(session, upload.operation_id)
    assert len(second.file_records) == 2, f"the second call gave {second!r}"
    assert not set(first.file_records) & set(second.file_records), "records were reused"


async def returns_archives_unchanged(ground: Ground) -> None:
    """An archive made in the sandbox arrives byte for byte."""
    session = await ground.open_session()
    upload = await ground.client.upload_to_session(ground.user, session.session_id, [])
    code = (
        "import hashlib, zipfile\n"
        "with zipfile.ZipFile('out.zip', 'w') as z: z.writestr('b.bin', bytes(range(256)) * 400)\n"
        "print(hashlib.sha256(open('out.zip', 'rb').read()).hexdigest())\n"
    )
    digest = (await ground.run(session, code)).strip()
    download = await ground.collect(session, upload.operation_id)
    (file_id,) = download.file_records
    content = (await ground.client.file_content(ground.user, file_id)).content
    assert _sha256(content) == digest


async def refuses_foreign_operations(ground: Ground) -> None:
    """An operation belongs to one session and one user."""
    session = await ground.open_session()
    upload = await ground.client.upload_to_session(ground.user, session.session_id, [])
    await _expect(NotFoundOrNotOwned, ground.collect(session, "00000000-0000-4000-8000-000000000000"))
    other = await ground.open_session("Other")
    await _expect(NotFoundOrNotOwned, ground.collect(other, upload.operation_id))


async def _expect(kind: type[ContextApiError], call: Awaitable[Any]) -> None:
    error = await _failure(call)
    assert isinstance(error, kind), f"expected {kind.__name__}, got {type(error).__name__}: {error}"


async def _failure(call: Awaitable[Any]) -> ContextApiError:
    try:
        value = await call
    except ContextApiError as error:
        return error
    raise AssertionError(f"the call should have failed, but gave {value!r}")


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        says_it_is_ready,
        names_sessions_deterministically,
        refuses_unknown_language_and_provider,
        hides_sessions_of_others,
        keeps_a_file,
        keeps_odd_names,
        hides_files_of_others,
        deletes_once,
        gates_uploads,
        executes_code,
        executes_side_by_side,
        sends_files_into_the_sandbox,
        wipes_without_names,
        records_outputs,
        returns_archives_unchanged,
        refuses_foreign_operations,
    )
}
"""Every check by name, in the order of a visit."""
