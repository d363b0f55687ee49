"""The platform's Management API: GET, POST and DELETE below one instance (contract: portals and deployment §1.4).

What it answers was read in its source where the contract is silent: a GET gives a list even for one resource; what is not there is 404,
what was deleted and not purged is 400 and holds its name; a role assignment exists as soon as role, principal and scope are the same,
whatever its name; API endpoint configurations can be deleted and never purged.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from azure.core.credentials_async import AsyncTokenCredential

from orchestration_service.deploying.errors import DeploymentError, Forbidden, NameTaken, NotSignedIn, Refused, Unreachable
from orchestration_service.deploying.identity import Token
from orchestration_service.deploying.leaves import type_first

SCOPE = "api://FoundationaLLM-Management/.default"
"""Carries the permission `Data.Manage`. Named in full, the scope is taken for a resource by the identity of the Azure command line."""

CACHE_RESET: Mapping[str, Any] = {
    "type": "send-event",
    "target_service_name": None,
    "event_type": "FoundationaLLM.ResourceProvider.Cache.ResetCommand",
}
"""Makes all services of the platform read the resources of a provider again."""

REQUEST_SECONDS = 60.0
"""How long one request may take; an upsert asks three other services."""
PAUSES_SECONDS: Sequence[float] = (0.5, 1.0, 2.0, 4.0)
"""Waits between tries. Every request can be repeated: names are ours, and what exists already is told."""
_AGAIN = frozenset({408, 429, 502, 503, 504})
_NOBODY = "ClaudeCode-asks-for-what-is-not-there"
_DELETED_WORDS = ("not purged", "is either null or points to a resource that has been deleted")


@dataclass(frozen=True)
class ManagementApi:
    """The API of one instance. Made by `open_management_api`."""

    address: str
    """Where it is."""

    instance_id: str
    """The instance everything is asked of."""

    _client: httpx.AsyncClient
    _token: Token
    _pauses: Sequence[float]

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return a resource, None when there is none.

        Args:
            path: Provider, type and name: `FoundationaLLM.Agent/agents/claude-code`.

        Raises:
            NameTaken: It was deleted and not purged, and cannot be made again.
        """
        answer = await self._send("GET", path, accept=(HTTPStatus.NOT_FOUND,))
        found = None if answer is None else _resources(answer)
        return found[0] if found else None

    async def list(self, path: str) -> Sequence[dict[str, Any]]:
        """Return the resources of a type, as the API remembers them: what was written past it does not show until its cache is reset."""
        return _resources(await self._send("GET", path))

    async def read_again(self, path: str) -> None:
        """Make the API read the list of a provider again, by asking for what is not there.

        Deleting and purging write the list as the API remembers it: what others wrote into the file since would be lost.
        """
        await self._send("GET", f"{path}/{_NOBODY}", accept=(HTTPStatus.NOT_FOUND,))

    async def upsert(self, path: str, resource: Mapping[str, Any]) -> None:
        """Make or replace a resource.

        Raises:
            NameTaken: A deleted one of the same name was not purged.
        """
        await self._send("POST", path, type_first(resource))

    async def delete(self, path: str) -> None:
        """Delete a resource; its name stays taken until it is purged. One that is gone already is fine."""
        try:
            await self._send("DELETE", path, accept=(HTTPStatus.NOT_FOUND,))
        except NameTaken:
            return

    async def purge(self, path: str) -> None:
        """Purge a deleted resource."""
        await self._send("POST", f"{path}/purge", {})

    async def role_assignments(self, scope: str) -> Sequence[dict[str, Any]]:
        """Return the role assignments of exactly one scope."""
        body = {"scope": scope, "security_principal_ids": None}
        found = _resources(await self._send("POST", "FoundationaLLM.Authorization/roleAssignments/filter", body))
        return [one for one in found if str(one.get("scope", "")).casefold() == scope.casefold()]

    async def assign(self, assignment: Mapping[str, Any]) -> bool:
        """Make a role assignment.

        Returns:
            False when the principal has this role on this scope already.
        """
        path = f"FoundationaLLM.Authorization/roleAssignments/{assignment['name']}"
        return await self._send("POST", path, type_first(assignment), accept=(HTTPStatus.CONFLICT,)) is not None

    async def unassign(self, name: str) -> None:
        """Delete a role assignment."""
        await self._send("DELETE", f"FoundationaLLM.Authorization/roleAssignments/{name}", accept=(HTTPStatus.NOT_FOUND,))

    async def reset_cache(self, provider: str) -> None:
        """Make all services read the resources of a provider again.

        Raises:
            Forbidden: The role 'Resource Providers Administrator' is missing.
        """
        try:
            await self._send("POST", f"{provider}/management/trigger-command", CACHE_RESET)
        except Forbidden as error:
            raise Forbidden(
                "The Management API does not let this identity reset its cache. Give it the role 'Resource Providers Administrator', or "
                "restart the Management, Core and Orchestration API by hand and run the command again."
            ) from error

    async def _send(self, method: str, path: str, body: Any = None, *, accept: Sequence[int] = ()) -> Any:
        """Return the parsed answer, None for a status that is accepted."""
        answer = await self._tried(method, path, body)
        if answer.status_code in accept:
            return None
        if answer.is_success:
            try:
                return answer.json()
            except ValueError as error:
                raise self._strange(path) from error
        raise self._told(answer, path)

    async def _tried(self, method: str, path: str, body: Any) -> httpx.Response:
        url = f"/instances/{self.instance_id}/providers/{quote(path, safe='/:')}"
        content = None if body is None else json.dumps(body).encode()
        told = ""
        for pause in (*self._pauses, None):
            headers = {"Authorization": f"Bearer {await self._token.value()}", "Content-Type": "application/json"}
            try:
                answer = await self._client.request(method, url, content=content, headers=headers)
            except httpx.TransportError as error:
                told = f"does not answer ({error or type(error).__name__})"
            else:
                if answer.status_code not in _AGAIN:
                    return answer
                told = f"does not work at the moment (status {answer.status_code})"
            if pause is not None:
                await asyncio.sleep(pause)
        raise Unreachable(f"The Management API at {self.address!r} {told}. Check the address in the profile and the network.")

    def _told(self, answer: httpx.Response, path: str) -> DeploymentError:
        said = answer.text.strip().strip('"')[:300] or answer.reason_phrase
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            return NotSignedIn(
                f"The Management API at {self.address!r} does not admit the token. Sign in to the platform's tenant: "
                f"az login --scope {self._token.scope}."
            )
        if answer.status_code == HTTPStatus.FORBIDDEN:
            return Forbidden(
                f"The Management API refuses {path!r} to this identity ({said}). Give it the platform's roles "
                f"'Contributor' and 'User Access Administrator' (or 'Owner') on /instances/{self.instance_id}; "
                "an instance it does not serve gets the same answer."
            )
        if answer.status_code == HTTPStatus.BAD_REQUEST and any(words in said for words in _DELETED_WORDS):
            return NameTaken(
                f"{path!r} was deleted and not purged, so its name is taken ({said}). Run 'deploy remove' and then 'deploy apply', or "
                "choose another name in the profile.",
                answer.status_code,
            )
        return Refused(f"The Management API refuses {path!r}: status {answer.status_code}, {said}.", answer.status_code)

    def _strange(self, path: str) -> Refused:
        return Refused(
            f"What answers at {self.address!r} is no Management API: {path!r} gave no JSON. Check the address in the profile.", 200
        )


@asynccontextmanager
async def open_management_api(
    address: str,
    instance_id: str,
    credential: AsyncTokenCredential,
    *,
    scope: str = SCOPE,
    trusted: str | bool = True,
    pauses_seconds: Sequence[float] = PAUSES_SECONDS,
) -> AsyncIterator[ManagementApi]:
    """Open the API of an instance; nothing is asked of it yet.

    Args:
        address: Of the API, without a path of ours.
        instance_id: The instance.
        credential: Who asks.
        scope: What a token is asked for.
        trusted: File with the certificates to trust, where it is not the machine's.
        pauses_seconds: Waits between tries.
    """
    context = await asyncio.to_thread(ssl.create_default_context, cafile=trusted if isinstance(trusted, str) else None)  # reads files
    async with httpx.AsyncClient(base_url=address, timeout=REQUEST_SECONDS, verify=context, follow_redirects=False) as client:
        yield ManagementApi(address, instance_id, client, Token(credential, scope), pauses_seconds)


def _resources(answer: Any) -> Sequence[dict[str, Any]]:
    """Unwrap what a GET or a filter answers: a list of resources, each beside its roles and actions."""
    if not isinstance(answer, list):
        raise Refused("The Management API answered with something that is no list of resources. Check its version.", HTTPStatus.OK)
    return [dict(one["resource"]) if isinstance(one.get("resource"), dict) else dict(one) for one in answer if isinstance(one, dict)]
