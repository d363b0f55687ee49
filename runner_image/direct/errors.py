"""Errors of the direct path; they end a call with an `error` event and are never raised to its caller.

RunnerError
└── DirectError
    ├── EndpointUnusable    no model endpoint is configured, or it cannot be reached
    └── SandboxUnusable     the folders, the wall or the agent's program do not work here
"""

from runner_image.errors import RunnerError


class DirectError(RunnerError):
    """A call of the direct path cannot go on."""


class EndpointUnusable(DirectError):
    """The model is not configured or cannot be reached; the message names the variables to set."""


class SandboxUnusable(DirectError):
    """Something this path needs does not work here; nothing is run."""
