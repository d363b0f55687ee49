"""Settings: read once, from the environment or a file, refused in words, secrets never shown."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from context_client import USUAL_SIZE, SandboxSize
from orchestration_service.errors import SettingsError
from orchestration_service.settings import Settings, load_settings

SECRET = "sk-ant-very-secret-value"
GOOD = {"CLAUDE_CODE_INSTANCE_ID": "7c1b6f0e", "CLAUDE_CODE_API_KEY": SECRET}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A good environment in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_two_variables_are_enough(environment: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert settings.is_embedded
    assert (settings.max_body_bytes, settings.sync_timeout_seconds) == (64 * 1024 * 1024, 1740)


def test_a_file_is_read_and_the_environment_wins(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CLAUDE_CODE_PORT=1\nCLAUDE_CODE_HOST=0.0.0.0\nUNRELATED=1\nCLAUDE_CODE_ENTRYPOINT=x\n")
    environment.setenv("CLAUDE_CODE_PORT", "2")
    settings = load_settings()
    assert (settings.port, settings.host) == (2, "0.0.0.0")


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ({"ANTHROPIC_API_KEY": "plain"}, "plain"),
        ({"CLAUDE_CODE_ANTHROPIC_API_KEY": "own"}, "own"),
        ({"ANTHROPIC_API_KEY": "plain", "CLAUDE_CODE_ANTHROPIC_API_KEY": "own"}, "own"),
        ({"ANTHROPIC_API_KEY": ""}, None),
    ],
    ids=["usual-name", "own-name", "both", "empty"],
)
def test_the_model_key_comes_from_two_names(environment: pytest.MonkeyPatch, sent: dict[str, str], key: str | None) -> None:
    for name, value in sent.items():
        environment.setenv(name, value)
    found = load_settings().anthropic_api_key
    assert (found.get_secret_value() if found else None) == key


def test_secrets_do_not_show(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ANTHROPIC_API_KEY", SECRET + "2")
    settings = load_settings(context_url="https://context", context_api_key=SECRET + "3")
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CLAUDE_CODE_INSTANCE_ID", "", "is missing"),
        ("CLAUDE_CODE_INSTANCE_ID", "a/b", "pattern"),
        ("CLAUDE_CODE_API_KEY", "", "is missing"),
        ("CLAUDE_CODE_API_KEY", "short", "at least 8"),
        ("CLAUDE_CODE_API_KEY", SECRET + "\n", "line break"),
        ("CLAUDE_CODE_PORT", "http", "valid integer"),
        ("CLAUDE_CODE_MAX_BODY_BYTES", "-1", "greater than"),
        ("CLAUDE_CODE_CONTEXT_URL", "context", "valid URL"),
        ("CLAUDE_CODE_CONTEXT_URL", "https://context", "CLAUDE_CODE_CONTEXT_API_KEY is missing"),
        ("CLAUDE_CODE_CONTEXT_API_KEY", SECRET, "CLAUDE_CODE_CONTEXT_URL is missing"),
        ("CLAUDE_CODE_SESSION_LANGUAGE", "CSharp", "would have no effect"),
        ("CLAUDE_CODE_SESSION_LANGUAGE", "Ruby", "'Python' or 'CSharp'"),
        ("ANTHROPIC_BASE_URL", "ftp://x", "URL scheme"),
        ("CLAUDE_CODE_SYNC_TIMEOUT_SECONDS", "nan", "finite"),
    ],
)
def test_a_wrong_value_is_named_and_not_shown(environment: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    """The message names the variable, says what is wrong and how to set it, and repeats no secret."""
    environment.setenv(name, value)
    with pytest.raises(SettingsError, match=words) as raised:
        load_settings()
    said = str(raised.value)
    assert name in said or words in said
    assert SECRET not in said
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


COSMOS = {"CLAUDE_CODE_COSMOS_ENDPOINT": "https://cosmos.example", "CLAUDE_CODE_BLOB_ENDPOINT": "https://blob.example"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"CLAUDE_CODE_BLOB_ENDPOINT": ""}, "CLAUDE_CODE_BLOB_ENDPOINT is missing"),
        ({"CLAUDE_CODE_COSMOS_ENDPOINT": ""}, "CLAUDE_CODE_COSMOS_ENDPOINT is missing"),
        ({**dict.fromkeys(COSMOS, ""), "CLAUDE_CODE_COSMOS_DATABASE": "d"}, "there is CLAUDE_CODE_COSMOS_DATABASE"),
        ({"CLAUDE_CODE_COSMOS_ENDPOINT": "http://cosmos.example"}, "CLAUDE_CODE_COSMOS_ENDPOINT: must begin with https"),
        ({"CLAUDE_CODE_COSMOS_KEY": f"AccountKey={SECRET}"}, "CLAUDE_CODE_COSMOS_KEY: is no account key"),
        ({"CLAUDE_CODE_BLOB_CONTAINER": "Mine"}, "CLAUDE_CODE_BLOB_CONTAINER: can name no blob container"),
        ({"CLAUDE_CODE_COSMOS_CONTAINER": "a/b"}, "CLAUDE_CODE_COSMOS_CONTAINER: .*pattern"),
        ({"CLAUDE_CODE_INSTANCE_ID": "my_instance"}, "CLAUDE_CODE_INSTANCE_ID can name no blob container"),
        ({"CLAUDE_CODE_STATE_API_URL": "https://state"}, "CLAUDE_CODE_STATE_API_KEY is missing"),
        ({"CLAUDE_CODE_STATE_API_KEY": SECRET}, "CLAUDE_CODE_STATE_API_URL is missing"),
    ],
    ids=["no-blob", "no-cosmos", "no-account", "open", "connection-string", "blob-name", "cosmos-name", "instance", "state-key", "state"],
)
def test_half_a_store_is_refused(environment: pytest.MonkeyPatch, more: dict[str, str], words: str) -> None:
    """What was meant for an account never lands in a local file."""
    for name, value in {**COSMOS, **more}.items():
        environment.setenv(name, value)
    with pytest.raises(SettingsError, match=words) as raised:
        load_settings()
    assert SECRET not in str(raised.value)


def test_settings_do_not_change(environment: pytest.MonkeyPatch) -> None:
    settings: Any = load_settings()
    with pytest.raises(ValidationError):
        settings.port = 1


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


POOLS = '[{"name": "west", "endpoint": "https://west.example/pool"}]'
POOL = {"SANDBOXES": "session-pool", "SESSION_POOLS": POOLS, "SESSION_POOL_KEY": "k" * 32}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"SANDBOXES": "cloud"}, "CLAUDE_CODE_SANDBOXES: .*'local'"),
        ({"SANDBOXES": "session-pool"}, "CLAUDE_CODE_SESSION_POOLS is missing"),
        ({"SANDBOXES": "session-pool", "SESSION_POOLS": POOLS}, "CLAUDE_CODE_SESSION_POOL_KEY is missing"),
        ({"SANDBOXES": "session-pool", "SESSION_POOLS": POOLS, "SESSION_POOL_KEY": "short"}, "KEY is too short"),
        ({"SANDBOXES": "session-pool", "SESSION_POOLS": '[{"name": "west", "endpoint": "http://west"}]'}, "CLAUDE_CODE_SESSION_POOLS"),
        ({"SESSION_POOLS": POOLS}, "set it to 'session-pool'"),
        ({"SANDBOXES": "container", "CONTEXT_URL": "https://context", "CONTEXT_API_KEY": SECRET}, "set only one of them"),
        ({"SESSION_POOL_WAIT_SECONDS": "10"}, "CLAUDE_CODE_SESSION_POOL_WAIT_SECONDS is set, but"),
        ({**POOL, "SESSION_POOL_WAIT_SECONDS": "soon"}, "CLAUDE_CODE_SESSION_POOL_WAIT_SECONDS: .*number.*How long a turn waits"),
        ({**POOL, "SESSION_POOL_WAIT_SECONDS": "901"}, "CLAUDE_CODE_SESSION_POOL_WAIT_SECONDS: .*900"),
        ({**POOL, "SESSION_POOL_API_VERSION": "v2"}, "CLAUDE_CODE_SESSION_POOL_API_VERSION: .*pattern.*a date"),
        ({**POOL, "SESSION_POOL_KIND": "custom"}, "CLAUDE_CODE_SESSION_POOL_KIND: .*'custom-container'"),
        ({**POOL, "SESSION_POOL_KIND": "code-interpreter"}, "such a pool has no runner"),
        ({**POOL, "SANDBOX_MAX_CPUS": "4"}, "CLAUDE_CODE_SANDBOX_MAX_CPUS would have no effect: CLAUDE_CODE_SANDBOXES is"),
        (
            {"SANDBOX_MAX_DISK_MIB": "9000", "CONTEXT_URL": "https://context", "CONTEXT_API_KEY": SECRET},
            "from CLAUDE_CODE_CONTEXT_URL",
        ),
        ({"MODEL_ACCESS_URL": "https://here"}, "CLAUDE_CODE_MODEL_ACCESS_URL would have no effect"),
        ({**POOL, "MODEL_ACCESS_URL": "http://10.0.0.1:8000"}, "CLAUDE_CODE_MODEL_ACCESS_URL is not https"),
        ({**POOL, "MODEL_ACCESS_URL": "http://localhost", "MODEL_ACCESS_KEY": "short"}, "CLAUDE_CODE_MODEL_ACCESS_KEY is too short"),
        ({"SANDBOX_MAX_MEMORY_MIB": "100"}, "CLAUDE_CODE_SANDBOX_MAX_MEMORY_MIB: .*256"),
        ({"SANDBOXES": "container", "CONTAINER_ENGINE_URL": "tcp://10.0.0.1:2375"}, "CLAUDE_CODE_CONTAINER_ENGINE_URL: .*pattern"),
    ],
    ids=["kind", "no-pools", "no-key", "short-key", "open", "not-chosen", "elsewhere"]
    + [
        "unused-wait",
        "no-wait",
        "long-wait",
        "version",
        "no-kind",
        "interpreter",
        "unkept",
        "unkept-far",
        "no-network",
        "in-the-clear",
        "short-signing-key",
        "small",
        "far-engine",
    ],
)
def test_a_choice_of_sandboxes_that_is_not_whole_is_refused(environment: pytest.MonkeyPatch, given: dict[str, str], words: str) -> None:
    """Nobody who asked for a pool gets a sandbox on this machine."""
    for name, value in given.items():
        environment.setenv(f"CLAUDE_CODE_{name}", value)
    with pytest.raises(SettingsError, match=words):
        load_settings()


def test_session_pools_are_read(environment: pytest.MonkeyPatch) -> None:
    for name, value in POOL.items():
        environment.setenv(f"CLAUDE_CODE_{name}", value)
    settings = load_settings()
    assert [(pool.name, pool.endpoint) for pool in settings.session_pools] == [("west", "https://west.example/pool")]
    assert "kkkk" not in repr(settings)


def test_the_largest_sandbox_is_the_usual_one_unless_the_operator_says_more(environment: pytest.MonkeyPatch) -> None:
    assert load_settings().largest_sandbox == USUAL_SIZE
    environment.setenv("CLAUDE_CODE_SANDBOX_MAX_CPUS", "0.5")
    environment.setenv("CLAUDE_CODE_SANDBOX_MAX_MEMORY_MIB", "8192")
    assert load_settings().largest_sandbox == USUAL_SIZE.model_copy(update={"cpus": 0.5, "memory_bytes": 8192 * 2**20})
    for name in ("CPUS", "MEMORY_MIB"):
        environment.delenv(f"CLAUDE_CODE_SANDBOX_MAX_{name}")
    for name, value in POOL.items():
        environment.setenv(f"CLAUDE_CODE_{name}", value)
    assert load_settings().largest_sandbox == SandboxSize(), "the pool decides"
