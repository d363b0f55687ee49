"""Errors of the runner.

RunnerError
├── WallUnavailable     the agent cannot be separated from the runner here
│   └── WallTooWeak     it can, but not as well as was demanded
├── InputError          the inputs cannot be put into the workspace
├── WorkspaceError      the workspace cannot be read or recorded
├── AgentError          the agent's process failed
├── GatewayUnusable     the service's gateway for model calls is not there, or does not take the token
├── RunnerUnreachable   no runner answers in this sandbox
└── SealError           a seal cannot be written, read or restored
"""


class RunnerError(Exception):
    """Something went wrong inside the sandbox; the message is for the service and may reach the user."""


class WallUnavailable(RunnerError):
    """The agent would not be separated from the runner; nothing is run."""


class WallTooWeak(WallUnavailable):
    """The wall there is keeps less than was demanded; nothing is run."""


class InputError(RunnerError):
    """An input is damaged, hostile or too large; nothing of the run was done."""


class WorkspaceError(RunnerError):
    """The workspace cannot be recorded; the archive may still be whole."""


class AgentError(RunnerError):
    """The agent's process could not start, died, or spoke nonsense."""


class GatewayUnusable(RunnerError):
    """Model calls cannot be sent to the service's gateway; the mailbox carries them."""


class RunnerUnreachable(RunnerError):
    """The runner of this sandbox did not come up."""


class SealError(RunnerError):
    """A seal cannot be written, or what was read is damaged, incomplete or hostile; nothing half-done is passed off as whole."""
