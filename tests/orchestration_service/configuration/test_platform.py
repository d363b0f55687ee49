"""Settings and keys from the platform's own store, read with the real clients over TLS."""

import logging

import pytest

from orchestration_service.configuration import Configuration, open_configuration
from orchestration_service.errors import SettingsError
from orchestration_service.platform_configuration import open_platform_configuration
from tests.orchestration_service.configuration.store import ENDPOINTS, OURS, SECRET, Identity, Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is somebody in Azure."""
    monkeypatch.setattr("orchestration_service.platform_configuration.DefaultAzureCredential", lambda **_: Identity())


def source_of(configuration: Configuration, variable: str) -> str:
    return next(origin.source for origin in configuration.origins if origin.variable == variable)


@pytest.mark.usefixtures("identity")
async def test_the_store_is_enough(store: Store) -> None:
    store.values |= {f"{OURS}:Configuration:LeaseSeconds": "12", f"{OURS}:Configuration:PollingIntervalSeconds": "10"}
    async with open_configuration() as configuration:
        settings = configuration.settings
    assert (settings.instance_id, settings.lease_seconds) == ("11111111-2222-3333-4444-555555555555", 12)
    assert settings.api_key.get_secret_value() == SECRET
    assert source_of(configuration, "CLAUDE_CODE_API_KEY") == f"App Configuration, {OURS}:Essentials:APIKey"
    assert configuration.ignored == (f"{OURS}:Configuration:PollingIntervalSeconds",)
    assert store.asked == ["claudecode"], "a secret that nobody needs is not asked for"


@pytest.mark.usefixtures("identity")
async def test_the_environment_wins(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.values[f"{OURS}:Configuration:Port"] = "81"
    monkeypatch.setenv("CLAUDE_CODE_PORT", "82")
    async with open_configuration(host="0.0.0.0") as configuration:
        assert (configuration.settings.port, configuration.settings.host) == (82, "0.0.0.0")
    assert source_of(configuration, "CLAUDE_CODE_PORT") == "the environment"
    assert source_of(configuration, "CLAUDE_CODE_HOST") == "the command line"
    assert source_of(configuration, "CLAUDE_CODE_SANDBOXES") == "built in"


@pytest.mark.usefixtures("identity")
async def test_a_wrong_value_is_told_with_its_key(store: Store) -> None:
    store.values[f"{OURS}:Configuration:Port"] = "eighty"
    with pytest.raises(SettingsError, match=f"CLAUDE_CODE_PORT: .* valid integer.* {OURS}:Configuration:Port: correct it there"):
        async with open_configuration():
            pass


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("reference", f"CLAUDE_CODE_API_KEY: is missing.* App Configuration as {OURS}:Essentials:APIKey"),
        ("secret", "leads to the secret .*claudecode.*, which is not there"),
    ],
)
async def test_what_is_missing_is_told(store: Store, missing: str, words: str) -> None:
    if missing == "reference":
        del store.references[f"{OURS}:Essentials:APIKey"]
    else:
        del store.secrets["claudecode"]
    with pytest.raises(SettingsError, match=words) as raised:
        async with open_configuration():
            pass
    assert SECRET not in str(raised.value)


async def test_a_store_that_refuses_us_is_told(store: Store) -> None:
    with pytest.raises(SettingsError, match="'App Configuration Data Reader'"):
        async with open_platform_configuration(store.url, credential=Identity("of somebody else")):
            pass


async def test_an_unprotected_address_is_refused() -> None:
    with pytest.raises(SettingsError, match="must begin with https://"):
        async with open_platform_configuration("http://store"):
            pass


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{ENDPOINTS}:Anthropic:Essentials:APIKey", "sk-first"),
        (f"{ENDPOINTS}:Plain:Essentials:APIKey", "sk-plain"),
        (f"{ENDPOINTS}:Nobody:Essentials:APIKey", None),
        (f"{ENDPOINTS}:ContextAPI:Essentials:APIKey", None),
        (f"{OURS}:Essentials:APIKey", None),
        ("FoundationaLLM:Instance:Id", None),
    ],
    ids=["in-the-vault", "in-the-store", "not-there", "of-a-platform-service", "our-own", "no-key-at-all"],
)
async def test_a_request_can_name_keys_of_models_only(store: Store, key: str, value: str | None) -> None:
    """A request names key and address together, and the platform's own keys must not go to an address somebody wrote down."""
    store.values |= {f"{ENDPOINTS}:ContextAPI:Essentials:APIKey": "internal", f"{ENDPOINTS}:Plain:Essentials:APIKey": "sk-plain"}
    async with open_platform_configuration(store.url, credential=Identity()) as platform:
        found = await platform.model_key(key)
    assert (found.get_secret_value() if found else None) == value


async def test_a_key_that_was_changed_is_read_again_and_a_failing_vault_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = f"{ENDPOINTS}:Anthropic:Essentials:APIKey"
    async with open_platform_configuration(store.url, credential=Identity()) as platform:
        for value in ("sk-first", "sk-second"):
            store.secrets["anthropic"] = value
            assert (await platform.model_key(key) or "").get_secret_value() == "sk-first"  # type: ignore[union-attr]
        assert store.asked.count("anthropic") == 1, "it is remembered for some minutes"
        monkeypatch.setattr("orchestration_service.platform_configuration._SECRET_SECONDS", 0)
        assert (await platform.model_key(key) or "").get_secret_value() == "sk-second"  # type: ignore[union-attr]
        store.failing = 403
        with caplog.at_level(logging.WARNING):
            assert (await platform.model_key(key) or "").get_secret_value() == "sk-second"  # type: ignore[union-attr]
    assert "stays in force" in caplog.text


async def test_a_change_of_the_store_is_seen_and_a_failing_store_changes_nothing(store: Store) -> None:
    async with open_platform_configuration(store.url, credential=Identity()) as platform:
        assert not await platform.refresh()
        store.values[f"{OURS}:Configuration:Port"] = "81"
        assert await platform.refresh()
        assert (await platform.settings())["port"] == "81"
        store.failing = 403
        assert not await platform.refresh()
        assert (await platform.settings())["port"] == "81"
