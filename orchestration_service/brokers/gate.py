"""What a sandbox may not ask of a model.

The sandbox has no network, and the Messages API could lend it one: a request may name MCP servers for the provider to
connect to, tools the provider runs with network access, files and containers of the organisation, or addresses of
images to fetch. Each of them would carry data out of the sandbox under the service's own key. The agent's tools all
run inside the sandbox, so nothing of this is needed; what is not known to be harmless is refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_HARMLESS_TOOL = re.compile(r"(custom|(bash|text_editor|memory|tool_search_tool_(regex|bm25))(_\d{8})?)\Z")
_HARMLESS_SOURCES = frozenset({"base64", "text", "content"})
_REFUSED_FIELDS = ("mcp_servers", "container")
_REFUSED_BLOCKS = frozenset({"container_upload"})


def refusal(body: Mapping[str, Any], *, allow_server_tools: bool) -> str | None:
    """Say why a request must not be sent, or nothing if it may.

    Args:
        body: the Messages request.
        allow_server_tools: whether the route permits tools that the provider runs, and addresses it fetches.
    """
    for name in _REFUSED_FIELDS:
        if body.get(name):
            return f"the field {name!r} is not allowed from a sandbox"
    if not allow_server_tools:
        for tool in _list(body.get("tools")):
            kind = tool.get("type") if isinstance(tool, dict) else None
            if kind is not None and not _HARMLESS_TOOL.match(str(kind)):
                return f"the tool type {str(kind)[:80]!r} runs outside the sandbox and is not allowed"
    for content in [body.get("system"), *(content_of(message) for message in _list(body.get("messages")))]:
        for block in blocks_of(content):
            if (reason := _block_refusal(block, allow_server_tools)) is not None:
                return reason
    return None


def _block_refusal(block: Mapping[str, Any], allow_addresses: bool) -> str | None:
    if block.get("type") in _REFUSED_BLOCKS:
        return f"content of type {block['type']!r} is not allowed from a sandbox"
    source = block.get("source")
    if not isinstance(source, dict):
        return None  # a source that is text is a citation's title, not a place to fetch from
    kind = source.get("type")
    if kind in _HARMLESS_SOURCES or (kind == "url" and allow_addresses):
        return None
    return f"content with a source of type {str(kind)[:80]!r} is not allowed from a sandbox; send it as base64"


def blocks_of(content: object) -> Iterator[Mapping[str, Any]]:
    """Walk the blocks that the API reads as content; the input of a tool is free JSON and is none of them.

    Without recursion, so that no depth of nesting hides a block or breaks the walk.
    """
    waiting = [content]
    while waiting:
        for block in _list(waiting.pop()):
            if isinstance(block, dict):
                yield block
                source = block.get("source")
                waiting += [block.get("content"), source.get("content") if isinstance(source, dict) else None]


def content_of(message: object) -> object:
    """Give a message's content, if it is a message."""
    return message.get("content") if isinstance(message, dict) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
