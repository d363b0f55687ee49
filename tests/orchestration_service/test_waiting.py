"""Who listens for a session that waits hears of that one, in words."""

from typing import Any

import pytest

from context_client.pools import Waiting
from orchestration_service.waiting import WaitingRoom, in_words


def news(session_id: str = "s", **more: Any) -> Waiting:
    known: dict[str, Any] = {"position": 2, "waiting": 5, "waited_seconds": 7.0, "estimate_seconds": None}
    return Waiting(session_id=session_id, upn="ann@example.com", **(known | more))


def test_each_hears_of_its_own_session_while_it_listens() -> None:
    room, heard = WaitingRoom(), list[str]()
    room.hear(news())
    with room.listening("ann@example.com", "s", heard.append), room.listening("eve@example.com", "s", heard.append):
        room.hear(news("other"))
        room.hear(news())
    room.hear(news())
    assert heard == ["Waiting for room in the session pool: place 2 of 5."]
    assert not room._listening


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"estimate_seconds": 41.2}, "place 2 of 5, at the latest in about 41 s"),
        ({"estimate_seconds": 0.0}, "in about 1 s"),
        ({"estimate_seconds": 290}, "in about 5 min"),
        ({"position": 0}, "no room for this sandbox at the moment; asking again for 7 s"),
    ],
    ids=["seconds", "now", "minutes", "evicted"],
)
def test_the_estimate_is_rounded(more: dict[str, Any], words: str) -> None:
    assert words in in_words(news(**more))
