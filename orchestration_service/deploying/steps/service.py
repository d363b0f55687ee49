"""The service itself: it must answer before anything of the platform leads to it."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from orchestration_service.deploying.errors import Unreachable
from orchestration_service.deploying.finding import Finding

REQUEST_SECONDS = 10.0


@dataclass(frozen=True)
class ServiceStep:
    """The service's own answer to `/status`."""

    address: str
    """Where the platform will reach it."""

    trusted: str | bool
    """Certificates to trust."""

    skipped: bool
    """Whether it is not looked at: from here it may not be reachable at all."""

    pauses_seconds: Sequence[float]
    """Waits between tries."""

    @property
    def what(self) -> str:
        """What it is about, in words."""
        return f"service at {self.address}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        if self.skipped:
            return Finding(self.what, "nothing", note="not looked at")
        complaint = await self._complaint(())
        return Finding(self.what, "run" if complaint else "nothing", note=complaint)

    async def apply(self) -> Finding:
        """Write the difference."""
        if self.skipped:
            return Finding(self.what, "nothing", note="not looked at")
        if complaint := await self._complaint(self.pauses_seconds):
            raise Unreachable(complaint)
        return Finding(self.what, "nothing")

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        return Finding(self.what, "nothing")

    async def remove(self) -> Finding:
        """Take it away."""
        return Finding(self.what, "nothing")

    async def _complaint(self, pauses: Sequence[float]) -> str:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=self.trusted if isinstance(self.trusted, str) else None)
        said = ""
        async with httpx.AsyncClient(timeout=REQUEST_SECONDS, verify=context) as client:
            for pause in (*pauses, None):
                try:
                    answer = await client.get(f"{self.address}/status")
                except httpx.TransportError as error:
                    said = str(error) or type(error).__name__
                else:
                    if answer.is_success:
                        return ""
                    said = f"status {answer.status_code}"
                if pause is not None:
                    await asyncio.sleep(pause)
        return (
            f"{self.address}/status does not answer as it should ({said}). Start the service: the keys it needs are in place after the "
            "steps before this one. If it can only be reached from inside the platform's network, say --skip-service."
        )
