"""A caller of the service as the platform is one: uploads a file, starts a completion, follows it, fetches what it made."""

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from context_client import ContextClient, FileRecord, UserIdentity
from deployment_templates import fill_template
from orchestration_service.cli.hosting import Platform

AGENT = "claude-code"


@dataclass
class Caller:
    """One user's view of the service."""

    http: httpx.AsyncClient
    context: ContextClient
    identity: UserIdentity
    instance_id: str

    async def upload(self, conversation_id: str, name: str, content: bytes) -> FileRecord:
        """Attach a file to a conversation."""
        return await self.context.upload_conversation_file(self.identity, conversation_id, AGENT, name, content)

    def completion(self, conversation_id: str, prompt: str, files: list[FileRecord], *, model: str) -> dict[str, Any]:
        """Return the body of a completion with these files attached."""
        values = {
            "instanceId": self.instance_id,
            "operationId": str(uuid.uuid4()),
            "conversationId": conversation_id,
            "prompt": prompt,
            "model": model,
        }
        body: dict[str, Any] = fill_template("embedded/completion.json", values)
        for order, record in enumerate(files, start=1):
            body["file_history"].append(
                {
                    "order": order,
                    "current_message_attachment": True,
                    "original_file_name": record.file_name,
                    "object_id": record.file_object_id,
                    "file_path": record.file_path,
                    "content_type": record.content_type,
                    "embed_content_in_request": False,
                }
            )
        return body

    async def start(self, body: dict[str, Any]) -> str:
        """Start a completion and return its operation id."""
        answer = await self.http.post(f"/instances/{self.instance_id}/async-completions", json=body)
        answer.raise_for_status()
        return str(answer.json()["operation_id"])

    async def status(self, operation_id: str) -> dict[str, Any]:
        """Return the state of an operation as the portal polls it."""
        answer = await self.http.get(f"/instances/{self.instance_id}/async-completions/{operation_id}/status")
        answer.raise_for_status()
        state: dict[str, Any] = answer.json()
        return state

    async def events(self, operation_id: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the activity of an operation until it ends."""
        path = f"/instances/{self.instance_id}/async-completions/{operation_id}/events"
        async with self.http.stream("GET", path, timeout=None) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])


@asynccontextmanager
async def open_caller(platform: Platform, upn: str = "demo.user@example.com") -> AsyncIterator[Caller]:
    """Open a caller for a user."""
    identity = UserIdentity(name=upn.split("@")[0], user_name=upn, upn=upn, user_id=None, group_ids=())
    headers = {"X-API-KEY": platform.api_key, "X-USER-IDENTITY": identity.to_header()}
    async with (
        httpx.AsyncClient(base_url=platform.base_url, headers=headers, timeout=60) as http,
        ContextClient(base_url=f"{platform.base_url}/context/", api_key=platform.api_key, instance_id=platform.instance_id) as context,
    ):
        yield Caller(http, context, identity, platform.instance_id)
