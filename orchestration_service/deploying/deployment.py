"""Runs the steps of a deployment: looks at all of them, or carries them out in order, or takes everything away in the opposite order."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestration_service.deploying.configuration_store import AppConfigurationStore
from orchestration_service.deploying.errors import Halted, ProfileRefused, WrongInstance
from orchestration_service.deploying.finding import Finding, Step
from orchestration_service.deploying.record import Record
from orchestration_service.errors import ServiceError

INSTANCE_KEY = "FoundationaLLM:Instance:Id"

Tell = Callable[[Finding], None]
"""Is told of each step as soon as it is done."""

_Act = Callable[[], Awaitable[Finding]]
_NEEDED = "kept: needed by"


@dataclass(frozen=True)
class Deployment:
    """One installation, with the places it is in open. Made by `open_deployment`."""

    instance_id: str
    """The platform's instance."""

    store: AppConfigurationStore
    """Says which instance these places belong to."""

    record: Record
    """What was written before."""

    steps: Sequence[Step]
    """In the order of a first install."""

    needs: Mapping[str, frozenset[str]]
    """What a thing needs, both by what they are: it stays as long as the thing stays."""

    restarts: Sequence[str]
    """What must be restarted after a change, and why, one line each."""

    async def plan(self) -> Sequence[Finding]:
        """Return what there is to do; changes nothing.

        Raises:
            DeploymentError: Something cannot be looked at.
        """
        await self._begin()
        return [await step.inspect() for step in self.steps]

    def leftovers(self) -> Sequence[str]:
        """Return what was installed under names this profile does not have; valid after any other call."""
        known = {step.what for step in self.steps}
        return [name for name in self.record.names() if name not in known]

    async def apply(self, tell: Tell) -> Sequence[Finding]:
        """Do what the plan says; return what was done, and what there was nothing to do about.

        Raises:
            ProfileRefused: Something is missing that only the operator has; nothing was written.
            Halted: A step failed.
        """
        planned = await self.plan()
        if blocked := [finding.note for finding in planned if finding.act == "blocked"]:
            raise ProfileRefused("\n".join(blocked))
        left = [finding.what for finding in planned if finding.acts]
        return await self._run([(step.what, step.apply) for step in self.steps], left, tell)

    async def plan_removal(self) -> Sequence[Finding]:
        """Return what there is to take away, in the order it is taken away; changes nothing."""
        await self._begin()
        found = [await step.inspect_removal() for step in reversed(self.steps)]
        held: dict[str, str] = {}
        for finding in found:
            if finding.stays:
                held |= dict.fromkeys(self.needs.get(finding.what, ()), finding.what)
        return [
            Finding(one.what, "nothing", note=f"{_NEEDED} {held[one.what]}, which stays") if one.acts and one.what in held else one
            for one in found
        ]

    async def remove(self, tell: Tell) -> Sequence[Finding]:
        """Take away what the plan says; return what was taken away and what stays.

        Raises:
            Halted: A step failed.
        """
        planned = {finding.what: finding for finding in await self.plan_removal()}
        needed = {what: finding for what, finding in planned.items() if finding.note.startswith(_NEEDED)}
        steps = [(step.what, step.remove) for step in reversed(self.steps) if step.what not in needed]
        found = await self._run(steps, [name for name, finding in planned.items() if finding.acts], tell)
        return [*found, *needed.values()]

    async def _begin(self) -> None:
        entry = await self.store.get(INSTANCE_KEY)
        there = entry.value if entry else None
        if there is None or there.casefold() != self.instance_id.casefold():
            owner = f"the instance {there!r}" if there else "no instance"
            raise WrongInstance(
                f"The App Configuration at {self.store.address!r} belongs to {owner}, the profile to {self.instance_id!r} "
                f"({INSTANCE_KEY}). Correct instance_id or [platform] in the profile."
            )
        await self.record.load()

    async def _run(self, steps: Sequence[tuple[str, _Act]], left: Sequence[str], tell: Tell) -> Sequence[Finding]:
        found: list[Finding] = []
        for what, act in steps:
            try:
                finding = await act()
            except ServiceError as error:
                done = [one.what for one in found if one.acts]
                raise Halted(what, str(error), done, [name for name in left if name not in (*done, what)]) from error
            found.append(finding)
            if finding.acts:
                tell(finding)
        return found
