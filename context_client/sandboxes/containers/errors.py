"""What can go wrong with containers, beside what every place for sandboxes knows.

SandboxError                  (context_client.sandboxes.errors)
├── SandboxUnavailable        on entering: no engine, no client library, no image; the advice says what to change
├── SandboxPoolFull, SandboxEnded, SandboxesClosed: as everywhere
├── EngineSilent              the container engine does not answer now; it was asked again for a while
└── SandboxStartFailed
    ├── EngineRefused         the engine answered that it will not do this
    └── SandboxMismatch       the image holds another version of the server than this service needs
"""

from context_client.sandboxes.errors import SandboxError, SandboxStartFailed


class EngineSilent(SandboxError):
    """The container engine does not answer.

    Attributes:
        doing: What it was asked for.
    """

    def __init__(self, doing: str, detail: str) -> None:
        self.doing = doing
        super().__init__(f"The container engine does not answer ({doing}): {detail}. See whether it runs, and try again.")


class EngineRefused(SandboxStartFailed):
    """The engine answered that it will not do what it was asked for.

    Attributes:
        doing: What that was.
        status: The engine's HTTP status; 404 says that the thing does not exist, 409 that it is being changed already.
    """

    def __init__(self, doing: str, status: int, detail: str) -> None:
        self.doing = doing
        self.status = status
        super().__init__(f"The container engine refuses ({doing}): {detail}")


class SandboxMismatch(SandboxStartFailed):
    """The server inside is not the one this service was made with.

    Attributes:
        image: The image.
        differences: What was expected and what is there, one item each.
    """

    def __init__(self, image: str, differences: tuple[str, ...]) -> None:
        self.image = image
        self.differences = differences
        super().__init__(
            f"The image {image!r} does not fit this service: {'; '.join(differences)}. "
            "Build the image from the same version of this project, or name one that fits."
        )
