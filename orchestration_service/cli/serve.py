"""The embedded platform, until it is told to stop."""

import os
import secrets
import uuid
from pathlib import Path

import uvicorn

from orchestration_service.app import server_config
from orchestration_service.cli.hosting import quick_to_answer
from orchestration_service.composition import CONTEXT_PATH, open_service
from orchestration_service.settings import load_settings


async def serve(*, host: str, port: int) -> int:
    """Serve until Ctrl+C or SIGTERM. Instance id and key come from the environment, or are made and kept in the data folder.

    Raises:
        SettingsError: A setting is wrong.
        SandboxUnavailable: No sandbox can be made on this machine.
    """
    data_dir = Path(os.environ.get("CLAUDE_CODE_DATA_DIR", ".data"))
    overrides = {
        "instance_id": os.environ.get("CLAUDE_CODE_INSTANCE_ID") or _kept(data_dir / "instance-id", str(uuid.uuid4())),
        "api_key": os.environ.get("CLAUDE_CODE_API_KEY") or _kept(data_dir / "api-key", secrets.token_urlsafe(24)),
    }
    settings = load_settings(host=host, port=port, data_dir=data_dir, **overrides)
    async with open_service(settings) as service:
        print(f"ClaudeCode orchestration service: http://{host}:{port}/instances/{settings.instance_id}/")
        if settings.is_embedded:
            print(f"Context API (embedded):          http://{host}:{port}{CONTEXT_PATH}/")
        else:
            print(f"Context API:                     {settings.context_url}")
        print(f"Key (X-API-KEY):                 in {data_dir / 'api-key'}, unless CLAUDE_CODE_API_KEY is set")
        print(f"Sandbox:                         {service.sandbox}")
        if settings.anthropic_api_key is None:
            print("No model key is set (ANTHROPIC_API_KEY): completions will say so.")
        with quick_to_answer():
            await uvicorn.Server(server_config(service.app, settings)).serve()
    return 0


def _kept(path: Path, fresh: str) -> str:
    """Return what the file holds, after putting a fresh value into it if it is not there; only its owner may read it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(fresh)
    return path.read_text(encoding="ascii").strip()
