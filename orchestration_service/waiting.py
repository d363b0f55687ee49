"""Who waits for room in a session pool, and tells it to the turn that waits: so that its user sees the place in the line.

The pools know sessions, the service knows turns; here they meet. Everything runs on the event loop's thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from context_client.pools import Waiting

Tell = Callable[[str], None]
"""Takes what a user may read; must not block."""


class WaitingRoom:
    """Hands news of waiting sessions to those who listen for them."""

    def __init__(self) -> None:
        self._listening: dict[tuple[str, str], list[Tell]] = {}

    def hear(self, news: Waiting) -> None:
        """Take news from the pools; nobody need listen."""
        for tell in self._listening.get((news.upn, news.session_id), ()):
            tell(in_words(news))

    @contextmanager
    def listening(self, upn: str, session_id: str, tell: Tell) -> Iterator[None]:
        """Listen for news of one session until the end of the block.

        Args:
            upn: Its owner.
            session_id: The code session.
            tell: Is told in words.
        """
        key = (upn, session_id)
        self._listening.setdefault(key, []).append(tell)
        try:
            yield
        finally:
            self._listening[key].remove(tell)
            if not self._listening[key]:
                del self._listening[key]


def in_words(news: Waiting) -> str:
    """Say it so that a user understands it."""
    if news.position == 0:
        return f"The session pool has no room for this sandbox at the moment; asking again for {news.waited_seconds:.0f} s."
    text = f"Waiting for room in the session pool: place {news.position} of {news.waiting}"
    if news.estimate_seconds is not None:
        text += f", at the latest in about {_rounded(news.estimate_seconds)} as far as this service knows"
    return f"{text}."


def _rounded(seconds: float) -> str:
    return f"{max(round(seconds), 1)} s" if seconds < 90 else f"{round(seconds / 60)} min"
