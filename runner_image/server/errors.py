"""What can go wrong in the code-session server.

ServerError
├── RefusedRequest          the caller's fault
│   ├── BadName               a file name that does not stay inside the data root, or that no disk can hold
│   ├── BadRequest            a body that is not what the route takes
│   └── NoSuchFile            nothing to download under that name
└── WorldFault              the sandbox's fault
    ├── StoreFull             the data root has no room left
    ├── StoreUnusable         the data root cannot be opened
    └── ForkServerGone        the process that starts executions ended, and took this one with it
"""


class ServerError(Exception):
    """Anything this package raises on purpose."""

    http_status = 500


class RefusedRequest(ServerError):
    """The caller's fault: repeating the same request fails again."""

    http_status = 400


class BadName(RefusedRequest):
    """A file name that does not stay inside the data root, or that no disk can hold."""


class BadRequest(RefusedRequest):
    """A body that is not what the route takes."""


class NoSuchFile(RefusedRequest):
    """Nothing to download under that name."""

    http_status = 404


class WorldFault(ServerError):
    """The sandbox's fault: the request may be right."""


class StoreFull(WorldFault):
    """The data root has no room left; delete files or give the sandbox a larger one."""

    http_status = 507


class StoreUnusable(WorldFault):
    """The data root cannot be opened as a directory."""


class ForkServerGone(WorldFault):
    """The process that starts executions ended while this one was running."""
