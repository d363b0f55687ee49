"""A data folder may lie as deep as its administrator likes: sockets, whose paths are short by nature, lie elsewhere."""

import tempfile
from pathlib import Path

import pytest
from pydantic import SecretStr

from context_client import EmbeddedContext, UserIdentity, connect
from context_client.embedded.provider import DEFAULT_PROVIDER_NAME, SandboxProvider
from context_client.embedded.settings import EmbeddedSettings
from context_client.sandboxes import LocalSandboxes, LocalSandboxSettings

USER = UserIdentity(upn="one@example.test")


def deepen(parent: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a long path, and put everything that is temporary below it too."""
    deep = parent / ("d" * 150) / "data"
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    return deep


async def a_session_works(folder: Path, sandboxes: SandboxProvider) -> None:
    """Start the embedded Context API on a folder; a file goes in, code runs, a file comes out."""
    server = EmbeddedSettings(folder=folder, instance_id="i", api_key=SecretStr("k"))
    async with connect(EmbeddedContext(server=server), providers={DEFAULT_PROVIDER_NAME: sandboxes}) as client:
        session = await client.create_code_session(
            USER, agent_name="analyst", conversation_id="c-1", context="Code", endpoint_provider=DEFAULT_PROVIDER_NAME
        )
        await client.upload_conversation_file(USER, "c-1", "analyst", "in.csv", b"a,b\n")
        upload = await client.upload_to_session(USER, session.session_id, ["in.csv"])
        told = await client.execute_code(USER, session.session_id, "open('out.csv', 'w').write(open('in.csv').read())")
        assert told.error_output == ""
        download = await client.download_from_session(USER, session.session_id, upload.operation_id)
        assert [record.file_name for record in download.file_records.values()] == ["out.csv"]


@pytest.mark.anyio
async def test_a_session_works_on_a_deep_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = deepen(tmp_path, monkeypatch)
    async with LocalSandboxes(LocalSandboxSettings(prewarm_runner=False)) as sandboxes:
        await a_session_works(deep, sandboxes)
