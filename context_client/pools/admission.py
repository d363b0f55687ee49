"""How a session gets a slot, and how its calls travel afterwards.

A slot is asked for with the harmless listing of files, never with the caller's own request: so asking may be repeated as
often as it takes, and no code runs twice because a pool was full.

Two ways of waiting. A session without a slot stands in the line. A session that had one a moment ago and is refused (its
sandbox was evicted, or the pool asks to slow down) waits for itself, ahead of the line: a turn under way goes before a
new one. What such a session hears changes nothing for others either, since its container may be hostile and make it up.
"""

from collections.abc import Callable, Sequence

import anyio
import httpx

from context_client.pools.channel import Heard, PoolChannel, health_said, is_repeatable
from context_client.pools.errors import IdentifierRefused, PoolFull, PoolMisfit, PoolRefused, PoolUnreachable
from context_client.pools.line import Observer, Waiting, WaitingLine
from context_client.pools.session import PoolState, Session, Trouble, order
from context_client.pools.settings import DynamicSessionsSettings
from context_client.sandboxes.health import health_differences

_LONGEST_PAUSE_SECONDS = 30.0  # a pool may ask for more; the head of the line looks again all the same
_REFUSED_PAUSE_SECONDS = 30.0
_SHORTEST_PAUSE_SECONDS = 0.02
_ESTIMATE_LASTS_SECONDS = 1.0


class Admission:
    """The counter where sessions get their slots."""

    def __init__(
        self,
        *,
        pools: Sequence[PoolState],
        channel: PoolChannel,
        settings: DynamicSessionsSettings,
        observer: Observer | None,
        clock: Callable[[], float],
    ) -> None:
        self._pools = pools
        self._channel = channel
        self._settings = settings
        self._observer = observer
        self._clock = clock
        self.line = WaitingLine()
        self._frees_up: list[float] = []
        self._frees_up_until = 0.0

    async def call(self, wire: httpx.AsyncBaseTransport, session: Session, request: httpx.Request) -> httpx.Response:
        """Send a request to the session's sandbox, getting it a slot first if it has none.

        The session counts as busy until whoever gets the answer has read it, and says so.

        Raises:
            PoolError: There is no slot to be had, or the pool does not let us in.
            httpx.TransportError: There was no answer, or it broke.
        """
        await self._ensure_slot(wire, session)
        session.under_way += 1
        try:
            began = self._clock()
            while True:
                await self._ensure_fit(wire, session)
                placings = session.placings
                heard = await self._send(wire, session, request)
                if heard.verdict not in {"full", "throttled"}:
                    return heard.response
                await heard.response.aclose()
                await self._slot_again(wire, session, heard, placings=placings, began=began)
                if not is_repeatable(request):
                    return httpx.Response(429, stream=httpx.ByteStream(b""))  # there is a slot by now; its caller repeats
        except BaseException:
            session.under_way -= 1
            raise

    async def _ensure_slot(self, wire: httpx.AsyncBaseTransport, session: Session) -> None:
        if session.has_slot(self._clock()) and session.place is not None:
            return
        async with session.admitting:  # its other calls wait for this one
            if session.has_slot(self._clock()) and session.place is not None:
                return
            began = self._clock()
            told: list[int] = []

            def tell(position: int) -> None:
                told[:] = [position]
                self._tell(session, position, began)

            position = await self.line.stand(lambda: self._ask(wire, session), tell, wait_seconds=self._settings.wait_seconds)
            waited = self._clock() - began
            if position:
                raise PoolFull(waited_seconds=waited, position=position, pools=self._describe())
            if told and session.place is not None:
                session.place.counts.waited = session.place.counts.waited.plus(waited)

    async def _ensure_fit(self, wire: httpx.AsyncBaseTransport, session: Session) -> None:
        """Ask each new sandbox once what it is, before anything of its caller reaches it.

        Only a skew of versions shows that way: a hostile image can say what it likes. A sandbox that has no time to say it is asked again
        at the next call.
        """
        if not self._settings.expected or (session.looked_at == session.placings and not session.misfit):
            return
        async with session.admitting:
            place = session.place
            if session.looked_at != session.placings and place is not None:
                placings = session.placings
                heard = await self._channel.send(wire, place.pool, self._asking(session, "health"), has_slot=True)
                said = await health_said(heard.response)
                session.last_used = self._clock()
                if heard.verdict != "answer":
                    return
                session.looked_at, session.misfit = placings, health_differences(said, self._settings.expected)
            if session.misfit and place is not None:
                place.counts.refused("misfit")
                raise PoolMisfit(place.pool.name, session.misfit)

    async def _ask(self, wire: httpx.AsyncBaseTransport, session: Session) -> float | None:
        """Ask every pool that may be asked; None if one gave a slot, else for how long to leave them alone."""
        last = session.place
        session.lose()
        for state in self._pools:
            state.forget_expired(self._clock())
        for state in order(self._pools, session.identifier, last, self._clock()):
            if state.not_before > self._clock():
                continue
            trouble, said, pause = await self._probe(wire, session, state)
            if not trouble:
                state.served()
                session.put(state, self._clock())
                return None
            state.failed(trouble, said, now=self._clock(), pause=pause)
        self._give_up_if_hopeless()
        return max(min(state.not_before for state in self._pools) - self._clock(), _SHORTEST_PAUSE_SECONDS)

    async def _probe(self, wire: httpx.AsyncBaseTransport, session: Session, state: PoolState) -> tuple[Trouble, str, float]:
        """Ask one pool for a slot; gives what was wrong, its words, and the pause it wants."""
        retry = self._settings.retry_seconds
        try:
            heard = await self._channel.send(wire, state.pool, self._asking(session, "files"), has_slot=False)
            await heard.response.aclose()
        except PoolRefused as error:
            return "refused", str(error), _REFUSED_PAUSE_SECONDS
        except httpx.TransportError as error:
            state.counts.refused("away")
            return "unreachable", f"{type(error).__name__} {error}".strip()[:200], retry
        if heard.verdict == "answer":
            return "", "", 0.0
        state.counts.refused(heard.verdict)
        if heard.verdict == "identifier":
            raise IdentifierRefused(state.pool.name, heard.said)
        if heard.verdict in {"token", "role"}:
            return "refused", heard.said, _REFUSED_PAUSE_SECONDS
        pause = min(retry if heard.pause is None else heard.pause, _LONGEST_PAUSE_SECONDS)
        return ("unreachable" if heard.verdict == "away" else "full"), heard.said, pause

    async def _slot_again(self, wire: httpx.AsyncBaseTransport, session: Session, heard: Heard, *, placings: int, began: float) -> None:
        """Wait, ahead of the line, until a session that was refused is served again.

        A pool that only asks to slow down still has its sandbox, so it is not left. One that says that it is full has not.
        """
        async with session.admitting:
            pause = heard.pause
            while session.placings == placings:  # else another call of this session got it a slot meanwhile
                waited = self._clock() - began
                if waited > self._settings.wait_seconds:
                    raise PoolFull(waited_seconds=waited, position=0, pools=heard.said)
                self._tell(session, 0, began)
                await anyio.sleep(min(self._settings.retry_seconds if pause is None else pause, _LONGEST_PAUSE_SECONDS))
                stays = session.place if heard.verdict == "throttled" else None
                for state in [stays] if stays else order(self._pools, session.identifier, session.place, self._clock()):
                    if state is not session.place and state.not_before > self._clock():
                        continue
                    trouble, _, pause = await self._probe(wire, session, state)
                    if not trouble:
                        session.put(state, self._clock())
                        break

    async def _send(self, wire: httpx.AsyncBaseTransport, session: Session, request: httpx.Request) -> Heard:
        state = session.place
        if state is None:  # lost while it waited for its turn to speak
            return Heard(httpx.Response(429, stream=httpx.ByteStream(b"")), "full", "its slot was given away", 0.0)
        began = self._clock()
        try:
            heard = await self._channel.send(wire, state.pool, request, has_slot=True)
        except httpx.TransportError:
            state.counts.refused("cut")
            raise
        session.last_used = self._clock()
        if heard.verdict == "answer":
            state.counts.answered(self._clock() - began, heard.response.headers)
            return heard
        state.counts.refused(heard.verdict)
        if heard.verdict in {"token", "role", "identifier"}:
            await heard.response.aclose()
            if heard.verdict == "identifier":
                raise IdentifierRefused(state.pool.name, heard.said)
            raise PoolRefused(f"{state.pool.name!r}: {heard.said}")
        return heard

    def _asking(self, session: Session, what: str) -> httpx.Request:
        params = {"api-version": self._settings.api_version, "identifier": session.identifier}
        seconds = self._settings.connect_seconds + 30.0  # an allocation takes well under a second
        timeout = {"read": seconds, "write": seconds, "pool": seconds}
        return httpx.Request("GET", f"http://pool/{what}", params=params, extensions={"timeout": timeout})

    def _give_up_if_hopeless(self) -> None:
        if all(state.trouble == "refused" for state in self._pools):
            raise PoolRefused(self._describe())
        patience = self._clock() - self._settings.unreachable_seconds
        if all(state.trouble == "refused" or (state.trouble == "unreachable" and state.since <= patience) for state in self._pools):
            raise PoolUnreachable(self._describe())

    def _tell(self, session: Session, position: int, began: float) -> None:
        if self._observer is None:
            return
        now = self._clock()
        if now >= self._frees_up_until:  # hundreds may be told at once, and a second more or less is no matter
            self._frees_up = sorted(seconds for state in self._pools for seconds in state.frees_up(now))
            self._frees_up_until = now + _ESTIMATE_LASTS_SECONDS
        frees_up = self._frees_up
        place = max(position, 1)
        news = Waiting(
            session_id=session.session_id,
            upn=session.upn,
            position=position,
            waiting=max(len(self.line), place),
            waited_seconds=now - began,
            estimate_seconds=max(frees_up[place - 1], 0.0) if len(frees_up) >= place else None,
        )
        self._observer(news)

    def _describe(self) -> str:
        return "; ".join(state.describe() for state in self._pools)
