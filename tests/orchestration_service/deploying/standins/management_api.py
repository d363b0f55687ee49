"""A stand-in of the platform's Management API over a container of resources (contract: portals and deployment §1.2-1.4).

It keeps the platform's habits: GET, POST and DELETE only; workflows and tools are read only; one namespace of names per provider; lists
and resources are remembered until its cache is reset, and a list is written as it is remembered; a deleted resource holds its name until
it is purged, and endpoint configurations have no purge; whoever makes a resource owns it; a role assignment exists once for the same
principal, role and scope.
"""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.orchestration_service.deploying.standins.faults import Faults
from tests.orchestration_service.deploying.standins.resource_rules import (
    KIND_OF_PATH,
    REFERENCE_TYPES,
    TYPES,
    NotAccepted,
    read_assignment,
    read_resource,
)
from tests.orchestration_service.deploying.standins.stores import MANAGEMENT_TOKEN

AUTHORIZATION = "FoundationaLLM.Authorization"
PURGED = {"agents", "prompts", "aiModels"}
READ_ONLY = {"workflows", "tools"}
RESET = "FoundationaLLM.ResourceProvider.Cache.ResetCommand"


class Answered(Exception):
    """Ends a request with a status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass
class Memory:
    """What one provider remembers."""

    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    default: str | None = None


@dataclass
class ManagementApiStandIn:
    """One instance."""

    instance_id: str
    container: ContainerClient
    faults: Faults
    url: str = ""
    memory: dict[str, Memory] = field(default_factory=dict)
    assignments: list[dict[str, Any]] = field(default_factory=list)
    may_reset: bool = True
    """Whether the caller is a 'Resource Providers Administrator'."""
    forbidden: str = ""
    """A path that the caller may not touch."""
    broken: int = 0
    """How many requests are answered 503 first."""
    requests: list[str] = field(default_factory=list)

    def route(self) -> Route:
        return Route("/instances/{iid}/providers/{provider}/{path:path}", self._answer, methods=["GET", "POST", "DELETE"])

    async def reset(self, provider: str) -> None:
        """Forget what is remembered, and read the list of a provider again."""
        await self._read_list(provider)
        self.memory[provider].resources = {}

    async def _answer(self, request: Request) -> Response:
        provider, path = request.path_params["provider"], request.path_params["path"].split("/")
        self.requests.append(f"{request.method} {provider}/{'/'.join(path)}")
        try:
            self._admit(request)
            text = (await request.body()).decode()
            is_read = request.method == "GET" or path[-1] in {"filter", "checkname"}
            fate = "fine" if is_read else self.faults.write(self.requests[-1])
            if fate == "refused":
                raise Answered(500, "refused by the test")
            answer = await self._handled(request.method, provider, path, text)
        except Answered as error:
            return PlainTextResponse(error.text, error.status)
        except NotAccepted as error:
            return PlainTextResponse(str(error), 400)
        return PlainTextResponse("lost by the test", 500) if fate == "answer lost" else JSONResponse(answer)

    def _admit(self, request: Request) -> None:
        if self.broken:
            self.broken -= 1
            raise Answered(503, "busy")
        if request.headers.get("authorization") != f"Bearer {MANAGEMENT_TOKEN}":
            raise Answered(401, "")
        path = request.url.path
        if request.path_params["iid"] != self.instance_id or (self.forbidden and self.forbidden in path):
            raise Answered(403, f"Access is not authorized for {path}.")

    async def _handled(self, method: str, provider: str, path: list[str], text: str) -> Any:
        if provider == AUTHORIZATION:
            return self._roles(method, path, text)
        if path == ["management", "trigger-command"]:
            return await self._command(provider, text)
        if method == "GET":
            return await (self._one(provider, path) if len(path) > 1 else self._all(provider, path[0]))
        if path[0] in READ_ONLY or (len(path) == 3 and (path[2] != "purge" or path[0] not in PURGED)):
            raise Answered(400, f"The resource path {'/'.join(path)} does not support operation {method}.")
        if len(path) == 3:
            return await self._purge(provider, path, text)
        return await (self._upsert(provider, path[0], path[1], text) if method == "POST" else self._delete(provider, path[1]))

    async def _all(self, provider: str, kind: str) -> Any:
        memory = await self._memory(provider)
        for line in memory.lines.values():
            if line["Type"] not in REFERENCE_TYPES[provider]:
                raise Answered(500, f"The {provider} encountered an error: the type {line['Type']} is not supported.")
        shown = [
            line
            for line in memory.lines.values()
            if not line.get("Deleted") and line["Type"] in KIND_OF_PATH.get(kind, TYPES.get(kind, ()))
        ]
        loaded = [await self._load(memory, line) for line in shown]
        return [_got(one) for one in loaded if one is not None]

    async def _one(self, provider: str, path: list[str]) -> Any:
        memory = await self._memory(provider)
        line = await self._line(provider, path[1])
        if line is None:
            raise Answered(404, f"The resource reference for resource {path[1]} could not be found.")
        if line["Type"] not in KIND_OF_PATH.get(path[0], TYPES.get(path[0], ())):
            raise Answered(400, f"The resource reference {path[1]} is not of the expected type.")
        return [_got(await self._load(memory, line) or _gone(path[1]))]

    async def _upsert(self, provider: str, kind: str, name: str, text: str) -> Any:
        body, memory = read_resource(text, kind, name), await self._memory(provider)
        line, object_id = await self._line(provider, name), f"/instances/{self.instance_id}/providers/{provider}/{kind}/{name}"
        if line is not None and line["Type"] not in KIND_OF_PATH.get(kind, TYPES.get(kind, ())):
            raise Answered(400, f"The resource reference {name} is not of the expected type.")
        before = (await self._load(memory, line) if line else None) or {}
        body["object_id"], body["updated_on"], body["updated_by"] = object_id, "2026-01-01T00:00:00+00:00", "somebody@example.com"
        group_is_made = kind == "agents" and not body["virtual_security_group_id"] and not before.get("virtual_security_group_id")
        if kind == "agents" and not body["virtual_security_group_id"]:
            body["virtual_security_group_id"] = before.get("virtual_security_group_id") or str(uuid.uuid4())
        await self._write(f"{provider}/{name}.json", body)
        memory.resources[name] = body
        if line is None:
            filename = f"/{provider}/{name}.json"
            memory.lines[name] = {"ObjectId": None, "Name": name, "Filename": filename, "Type": body["type"], "Deleted": False}
            await self._save_list(provider)
            self._give("1301f8d4-3bea-4880-945f-315dbd2ddb46", str(uuid.UUID(int=7)), "User", object_id, "Owner role for Somebody")
        if group_is_made:
            group = body["virtual_security_group_id"]
            self._give("00a53e72-f66e-4c03-8f81-7e885fd2eb35", group, "Group", object_id, f"Reader role for the {name} agent's group")
        return {"object_id": object_id, "resource_exists": line is not None, "resource": None}

    async def _delete(self, provider: str, name: str) -> Any:
        memory = await self._memory(provider)
        line = memory.lines.get(name)
        if line is None or line.get("Deleted"):
            raise Answered(404, f"The resource {name} cannot be deleted because it was either already deleted or does not exist.")
        line["Deleted"] = True
        await self._save_list(provider)
        return {"is_success": True}

    async def _purge(self, provider: str, path: list[str], text: str) -> Any:
        memory, name = await self._memory(provider), path[1]
        if not text:
            raise Answered(400, "Empty payloads are not allowed on resource provider action requests.")
        if not memory.lines.get(name, {}).get("Deleted"):
            raise Answered(400, f"The resource {name} cannot be purged because it is either not soft-deleted or does not exist.")
        await self.container.delete_blob(memory.lines.pop(name)["Filename"].lstrip("/"))
        memory.resources.pop(name, None)
        await self._save_list(provider)
        return {"is_success": True}

    async def _command(self, provider: str, text: str) -> Any:
        body = json.loads(text)
        if not self.may_reset:
            raise Answered(403, "The resource path is not authorized for the management action.")
        if provider == "FoundationaLLM.AIModel":
            raise Answered(500, f"The {provider} encountered an error while handling the request.")
        if next(iter(body)) != "type" or body["type"] != "send-event" or body.get("event_type") != RESET:
            raise Answered(400, "The management action could not be deserialized.")
        await self.reset(provider)
        return {"is_success": True}

    def _roles(self, method: str, path: list[str], text: str) -> Any:
        if path[0] != "roleAssignments" or method == "GET":
            raise Answered(400, f"The resource type {path[0]} is not supported by the {AUTHORIZATION} resource provider.")
        if path[1] == "filter":
            asked = json.loads(text)
            ids = asked.get("security_principal_ids")
            found = [
                one for one in self.assignments if one["scope"].startswith(asked["scope"]) and (ids is None or one["principal_id"] in ids)
            ]
            return [_got(one) for one in found]
        if method == "DELETE":
            if all(one["name"] != path[1] for one in self.assignments):
                raise Answered(400, "An error occurred while attempting to retrieve the scope resource object identifier.")
            self.assignments = [one for one in self.assignments if one["name"] != path[1]]
            return {"is_success": True}
        body = read_assignment(text, path[1])
        if any(all(one[key] == body[key] for key in ("principal_id", "role_definition_id", "scope")) for one in self.assignments):
            raise Answered(409, "The role assignment already exists.")
        self.assignments.append(body)
        return {"object_id": f"/providers/{AUTHORIZATION}/roleAssignments/{path[1]}", "resource_exists": False}

    def _give(self, role: str, principal: str, kind: str, scope: str, why: str) -> None:
        definition = f"/providers/{AUTHORIZATION}/roleDefinitions/{role}"
        facts = {"role_definition_id": definition, "principal_id": principal, "principal_type": kind, "scope": scope}
        if all(any(one[key] != facts[key] for key in ("principal_id", "role_definition_id", "scope")) for one in self.assignments):
            self.assignments.append({"type": f"{AUTHORIZATION}/roleAssignments", "name": str(uuid.uuid4()), "description": why, **facts})

    async def _line(self, provider: str, name: str) -> dict[str, Any] | None:
        """The line of a resource; one that is not remembered is looked for in the list."""
        if name not in (await self._memory(provider)).lines:
            await self._read_list(provider)
        line = self.memory[provider].lines.get(name)
        if line is not None and line.get("Deleted"):
            raise Answered(
                400,
                f"The resource reference for the resource {name} cannot be retrieved. It is either null or points to a resource that "
                "has been deleted but not purged yet.",
            )
        return line

    async def _load(self, memory: Memory, line: dict[str, Any]) -> dict[str, Any] | None:
        if line["Name"] not in memory.resources:
            found = await self._read(line["Filename"].lstrip("/"))
            if found is None:
                return None
            memory.resources[line["Name"]] = found
        return dict(memory.resources[line["Name"]])

    async def _memory(self, provider: str) -> Memory:
        if provider not in self.memory:
            await self.reset(provider)
        return self.memory[provider]

    async def _read_list(self, provider: str) -> None:
        memory = self.memory.setdefault(provider, Memory())
        listed = await self._read(f"{provider}/_resource-references.json") or {}
        memory.lines = {line["Name"]: line for line in listed.get("ResourceReferences", [])}
        memory.default = listed.get("DefaultResourceName")

    async def _save_list(self, provider: str) -> None:
        memory = self.memory[provider]
        listed = {"SchemaVersion": 1, "ResourceReferences": list(memory.lines.values()), "DefaultResourceName": memory.default}
        await self._write(f"{provider}/_resource-references.json", listed)

    async def _read(self, name: str) -> Any:
        try:
            return json.loads(await (await self.container.download_blob(name)).readall())
        except ResourceNotFoundError:
            return None

    async def _write(self, name: str, content: Any) -> None:
        await self.container.upload_blob(name, json.dumps(content).encode(), overwrite=True)


def _gone(name: str) -> dict[str, Any]:
    raise Answered(500, f"The resource {name} could not be loaded.")


def _got(resource: dict[str, Any]) -> dict[str, Any]:
    return {"resource": resource, "roles": ["Owner"], "actions": [], "Properties": {}}
