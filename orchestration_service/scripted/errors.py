"""What can be wrong when a scripted model or its repository is set up.

    ScriptedModelError
    ├── ScriptNotFound        no script file at that place, or none shipped under that name
    ├── ScriptInvalid         the file is no script; the message names the field
    ├── FolderNotEmpty        the demo repository would have to mix with other files
    └── GitFailed             git is missing or refused

A request the script has no step for is no exception: the model's client gets it as an answer, as from a real model.
"""


class ScriptedModelError(Exception):
    """Root of this package's errors."""


class ScriptNotFound(ScriptedModelError):
    """There is no such script."""


class ScriptInvalid(ScriptedModelError):
    """The script can be read, and is not one."""


class FolderNotEmpty(ScriptedModelError):
    """The folder for the demo repository holds something already."""


class GitFailed(ScriptedModelError):
    """Git could not be run or said no."""
