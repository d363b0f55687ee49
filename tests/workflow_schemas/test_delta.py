"""Bodies as differences: small, exact, and refused when they are not what was announced."""

import random
import sys
import zlib

import pytest

from tests.workflow_schemas.conversation import requests
from workflow_schemas.delta import MAX_BODY_BYTES, Bodies, compress, digest, expand
from workflow_schemas.errors import DeltaError
from workflow_schemas.mailbox import Message, Reply, encode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@pytest.mark.parametrize("base", [b"", b"short", b"x" * 5000, bytes(range(256)) * 40], ids=["none", "tiny", "plain", "binary"])
@pytest.mark.parametrize("body", [b"", b"a", b"x" * 4999 + b"y", bytes(range(256)) * 41], ids=["empty", "one", "plain", "binary"])
def test_a_body_comes_back_as_it_was(body: bytes, base: bytes) -> None:
    assert expand(compress(body, base), base) == body


def test_the_twentieth_call_costs_what_is_new_in_it() -> None:
    """The cache marks move from call to call, and nothing that was sent before is sent again."""
    bodies, sent, new = Bodies(), [], []
    for body, addition in requests(20):
        _, base = bodies.closest(body)
        sent.append(len(compress(body, base)))
        new.append(len(zlib.compress(addition, 9)))
        bodies.add(body)
    assert sent[19] <= 1.3 * new[19]
    assert sent[0] > 4 * sent[19], "the first call carries the system prompt, the others do not"


def test_the_twentieth_frame_costs_what_is_new_too() -> None:
    """With its ASCII armour (5/4) and all its words around it."""
    *earlier, (body, addition) = requests(20, new_words=800)
    base = earlier[-1][0]
    about = {"call_id": digest(b"id")[:32], "path": "/v1/messages", "headers": {}, "digest": digest(body), "base": digest(base)}
    request = Message(seq=40, kind="model_request", body=about, data=compress(body, base))
    frame = encode(Reply(generation=digest(b"here")[:32], ack=19, messages=(request,)))
    assert len(frame) <= 1.3 * len(zlib.compress(addition, 9))


def test_a_parallel_conversation_finds_its_own_base() -> None:
    """A subagent's requests are interleaved with the main one's; each is sent against its own last one."""
    bodies = Bodies()
    first, second = list(requests(6, seed=1)), list(requests(6, seed=2))
    for (one, _), (other, _) in zip(first[:5], second[:5], strict=True):
        bodies.add(one)
        bodies.add(other)
    assert bodies.closest(first[5][0])[1] == first[4][0]
    assert bodies.closest(second[5][0])[1] == second[4][0]


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, MAX_BODY_BYTES * 4], ids=["just above", "far above"])
def test_a_bomb_that_says_its_size_is_refused(size: int) -> None:
    with pytest.raises(DeltaError, match="claims"):
        expand(zstd.compress(bytes(size)))


def test_a_bomb_that_hides_its_size_is_refused() -> None:
    packer = zstd.ZstdCompressor()
    pieces = [packer.compress(bytes(1 << 20)) for _ in range(66)]
    with pytest.raises(DeltaError, match="larger"):
        expand(b"".join([*pieces, packer.flush()]))


def test_damage_is_never_taken_for_a_body() -> None:
    """Any cut, appended or flipped byte is an error, or another body that the digest tells apart; never another exception."""
    body, base = b"".join(new for _, new in requests(3)), b"some base of an earlier request"
    packed, chance = compress(body, base), random.Random(3)
    for _ in range(300):
        damaged = bytearray(packed)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        for attempt in (bytes(damaged), packed[: chance.randrange(len(packed))], packed + b"more"):
            try:
                result = expand(attempt, base)
            except DeltaError:
                continue
            assert digest(result) != digest(body) or attempt != packed


def test_another_base_does_not_give_the_body() -> None:
    body, base = b"the request " * 50 + b"new", b"the request " * 50
    packed = compress(body, base)
    try:
        assert digest(expand(packed, b"another ba" * 60)) != digest(body)
    except DeltaError:
        pass


def test_old_bodies_are_forgotten_but_never_the_last_two() -> None:
    bodies = Bodies(max_bytes=100)
    names = [bodies.add(bytes([number]) * 90) for number in range(4)]
    assert [bodies.get(name) is not None for name in names] == [False, False, True, True]
    assert Bodies().closest(b"anything") == ("", b"")
