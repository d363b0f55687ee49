"""What can go wrong between us and a session pool.

PoolError                     (an httpx.TransportError: to whoever speaks through the transport, the line broke)
├── PoolFull                    no pool gave a slot within the time there was to wait
├── PoolUnreachable             no pool answered
├── PoolRefused                 a pool does not let us in: token, role, or clock
├── IdentifierRefused           a pool does not take the identifier we made
└── PoolMisfit                  what runs in a pool is not of this service's version

What the code inside a session answers is never an error here, whatever its status.
"""

import httpx


class PoolError(httpx.TransportError):
    """Anything this package raises on purpose while it speaks to a pool."""


class PoolFull(PoolError):
    """No slot became free in time.

    Attributes:
        waited_seconds: How long was waited.
        position: Place in the line when the time was over; 1 is the head.
    """

    def __init__(self, *, waited_seconds: float, position: int, pools: str) -> None:
        self.waited_seconds = waited_seconds
        self.position = position
        super().__init__(
            f"no session pool had a free slot within {waited_seconds:.0f} seconds (place {position} in the line; {pools}). "
            "Try again later; if this happens often, raise the pool's maximum number of sessions or lower its cooldown."
        )


class PoolUnreachable(PoolError):
    """No pool answered, or only with errors of its own."""

    def __init__(self, pools: str) -> None:
        super().__init__(f"no session pool can be reached: {pools}. Check the endpoints in the settings and the network in between.")


class PoolRefused(PoolError):
    """A pool does not let us in, with a fresh token either."""

    def __init__(self, pools: str) -> None:
        super().__init__(
            f"the session pool does not let us in: {pools}. The identity needs the role 'Azure ContainerApps Session Executor' on the "
            "pool, a token for the audience https://dynamicsessions.io, and a clock that is right."
        )


class IdentifierRefused(PoolError):
    """A pool does not take an identifier; a mistake of ours, since they are made to its rules."""

    def __init__(self, pool: str, said: str) -> None:
        super().__init__(f"session pool {pool!r} does not take the session's identifier: {said[:200]!r}. Please report this.")


class PoolMisfit(PoolError):
    """The image of a pool holds another version of the server than this service needs.

    Attributes:
        pool: The pool.
        differences: What was expected and what is there, one item each; hostile text.
    """

    def __init__(self, pool: str, differences: tuple[str, ...]) -> None:
        self.pool = pool
        self.differences = differences
        super().__init__(
            f"the image of session pool {pool!r} does not fit this service: {'; '.join(differences)}. Let the pool run the image that was "
            "built from the same version of this project as the service, or update the service."
        )
