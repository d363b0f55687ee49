"""The platform's store, served for a test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.orchestration_service.configuration.store import ENDPOINTS, OURS, SECRET, Store, serve_store


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """A store with all that an installation needs, behind a certificate this process trusts."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    held = Store(
        values={"FoundationaLLM:Instance:Id": "11111111-2222-3333-4444-555555555555", "FoundationaLLM:Branding:CompanyName": "Contoso"},
        references={f"{OURS}:Essentials:APIKey": "claudecode", f"{ENDPOINTS}:Anthropic:Essentials:APIKey": "anthropic"},
        secrets={"claudecode": SECRET, "anthropic": "sk-first"},
    )
    async with serve_store(held, tmp_path) as certificate:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        monkeypatch.setenv("FOUNDATIONALLM_APP_CONFIGURATION_URI", held.url)
        yield held
