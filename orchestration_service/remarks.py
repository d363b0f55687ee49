"""What a replica says of itself beside that it is up: sentences that whoever looks after the installation should read.

They go with the service's state for an instance, which asks for no key; so they name no setting's value and nobody's address.
"""

from typing import Literal

Topic = Literal["turns", "sandboxes", "configuration", "settings", "end"]
"""What a sentence is about; there is one sentence at most for each."""

ALONE = "Turns are kept by this replica alone."
"""No other replica can answer for its turns."""
OWN_SANDBOXES = "Sandboxes are not those of the platform's Context API."
"""The platform's entry about session pools is none of its business."""
STORE_AWAY = "App Configuration could not be read again."
"""Changed keys do not arrive; what was read before stays in force."""
UNKNOWN_SETTINGS = "App Configuration has settings that this version does not know."
"""Slips of the pen, or settings of another version."""
NO_DRAIN = "This replica ends without draining."
"""Requests that are on their way to it when it ends are lost."""


class Remarks:
    """The sentences in force."""

    def __init__(self) -> None:
        self._said: dict[Topic, str] = {}

    def say(self, topic: Topic, sentence: str) -> None:
        """Say something, in place of what was said on the topic."""
        self._said[topic] = sentence

    def withdraw(self, topic: Topic) -> None:
        """Say nothing on a topic any more."""
        self._said.pop(topic, None)

    @property
    def text(self) -> str | None:
        """All of it, None where there is nothing to say."""
        return " ".join(self._said.values()) or None
