"""Errors of the templates.

TemplateError
├── ProfileError      a profile cannot be used; the message names each key and how to set it
├── RenderError       a template cannot be rendered as asked
└── MergeError        a value of the installation cannot be merged with ours
"""


class TemplateError(Exception):
    """The resources of an installation cannot be made. The message is fit for operators."""


class ProfileError(TemplateError):
    """A profile cannot be used.

    Attributes:
        keys: The keys in question, written as in the file (`models.provider`).
    """

    def __init__(self, message: str, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys


class RenderError(TemplateError):
    """A template cannot be rendered: a text would be changed by the platform's own renderer, or the place to write to is not fit."""


class MergeError(TemplateError):
    """What the installation holds under a key cannot be read, so nothing is merged into it.

    Attributes:
        key: The key in question.
    """

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key
