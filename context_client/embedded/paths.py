"""Paths as ASP.NET reads them: the fixed words in any case, the ids exactly."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

# Position in the path -> words that may stand there. Ids are at the even places and stay as they are.
_WORDS: Mapping[int, Mapping[str, str]] = {
    1: {"instances": "instances"},
    3: {
        "status": "status",
        "codesessions": "codeSessions",
        "conversations": "conversations",
        "agents": "agents",
        "files": "files",
        "filerecords": "fileRecords",
    },
    5: {
        "uploadfiles": "uploadFiles",
        "executecode": "executeCode",
        "downloadfiles": "downloadFiles",
        "files": "files",
    },
}


class CaseInsensitivePaths:
    """Rewrites the fixed words of a request's path to their canonical case."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            scope = {**scope, "path": canonical(scope["path"])}
        await self._app(scope, receive, send)


def canonical(path: str) -> str:
    """Write a path's fixed words in their canonical case and drop one slash at the end."""
    segments = path.split("/")
    if len(segments) > 2 and segments[-1] == "":
        segments.pop()
    for place, words in _WORDS.items():
        if place < len(segments):
            segments[place] = words.get(segments[place].lower(), segments[place])
    return "/".join(segments)
