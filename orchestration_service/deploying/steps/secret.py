"""A secret in the vault: from a variable of the environment, or made here. Its value is shown nowhere, nor remembered."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from orchestration_service.deploying.errors import ProfileRefused
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.record import Record
from orchestration_service.deploying.vault import VaultStore

_MADE_BYTES = 32
"""Written as letters and digits: other renderers of the platform stumble over anything else."""


@dataclass(frozen=True)
class SecretStep:
    """One secret."""

    vault: VaultStore
    """Where it is."""

    record: Record
    """What was written before."""

    name: str
    """Its name in the vault."""

    variable: str
    """Variable its value comes from."""

    environment: Mapping[str, str]
    """The variables."""

    made: bool
    """Whether one is made when there is none: only for keys that nobody else issues."""

    overwrite: bool
    """Whether a secret that was not ours is replaced."""

    @property
    def what(self) -> str:
        """What it is about, in words."""
        return f"secret {self.name!r}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        return (await self._compared())[0]

    async def apply(self) -> Finding:
        """Write the difference."""
        finding, value = await self._compared()
        if finding.act == "blocked":
            raise ProfileRefused(finding.note)
        if finding.acts:
            await self.record.intend(self.what, {}, existed=finding.act == "change")
            await self.vault.put(self.name, value)
        return finding

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        written = self.record.written(self.what)
        if written is not None and not written.existed:
            note = "the vault keeps it for its retention time; to be rid of it at once: az keyvault secret purge"
            return Finding(self.what, "remove", note=note)
        there = await self.vault.get(self.name) is not None
        return Finding(self.what, "nothing", note="kept: it was there before" if there else "")

    async def remove(self) -> Finding:
        """Take it away."""
        finding = await self.inspect_removal()
        if finding.acts:
            await self.vault.delete(self.name)
            await self.record.forget(self.what)
        await self.record.forget_taken_over(self.what)
        return finding

    async def _compared(self) -> tuple[Finding, SecretStr]:
        given, there = SecretStr(self.environment.get(self.variable, "").strip()), await self.vault.get(self.name)
        if there is None:
            return self._missing(given)
        if not given.get_secret_value() or secrets.compare_digest(given.get_secret_value().encode(), there.get_secret_value().encode()):
            return Finding(self.what, "nothing"), there
        if self.record.written(self.what) is None and not self.overwrite:
            return Finding(
                self.what, "nothing", note=f"kept: it was there before, and is not that of {self.variable}; see --overwrite"
            ), there
        return Finding(self.what, "change", note=f"to the value of {self.variable}"), given

    def _missing(self, given: SecretStr) -> tuple[Finding, SecretStr]:
        if given.get_secret_value():
            return Finding(self.what, "create", note=f"from {self.variable}"), given
        if self.made:
            return Finding(self.what, "create", note="made here, at random"), SecretStr(secrets.token_hex(_MADE_BYTES))
        return Finding(
            self.what, "blocked", note=f"There is no {self.what}. Set {self.variable} to its value and run the command again."
        ), given
