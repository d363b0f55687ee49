"""An entry of App Configuration: a plain value, the address of a secret, or a value that is kept together with others."""

import json
from dataclasses import dataclass

from deployment_templates.errors import MergeError
from deployment_templates.resources.configuration import AppConfigurationEntry, Merge
from orchestration_service.deploying.configuration_store import AppConfigurationStore, Entry
from orchestration_service.deploying.errors import ChangedMeanwhile, Refused
from orchestration_service.deploying.finding import Finding
from orchestration_service.deploying.leaves import Leaf, changed_since, differences, digest, digests
from orchestration_service.deploying.record import Record, Written

MERGE_TRIES = 4


@dataclass(frozen=True)
class EntryStep:
    """One entry."""

    store: AppConfigurationStore
    """Where it is."""

    record: Record
    """What was written before."""

    entry: AppConfigurationEntry
    """What it is to be."""

    vault_address: str
    """The vault that references lead to."""

    overwrite: bool
    """Whether a value somebody else chose is replaced."""

    force: bool
    """Whether a value somebody else changed is removed all the same."""

    @property
    def what(self) -> str:
        """What it is about, in words."""
        return f"entry {self.entry.key!r}"

    async def inspect(self) -> Finding:
        """Compare what is there with what is wanted."""
        return self._compared(await self.store.get(self.entry.key))[0]

    async def apply(self) -> Finding:
        """Write the difference."""
        for _ in range(MERGE_TRIES):
            there = await self.store.get(self.entry.key)
            finding, value = self._compared(there)
            if not finding.acts:
                return finding
            try:
                await self._write(there, value)
            except ChangedMeanwhile:
                continue
            return finding
        raise ChangedMeanwhile(f"The {self.what} was changed by others {MERGE_TRIES} times. Run the command again.")

    async def inspect_removal(self) -> Finding:
        """Tell whether it can be taken away."""
        return self._compared_for_removal(await self.store.get(self.entry.key))[0]

    async def remove(self) -> Finding:
        """Take it away."""
        for _ in range(MERGE_TRIES):
            there = await self.store.get(self.entry.key)
            finding, value = self._compared_for_removal(there)
            if not finding.acts:
                await self.record.forget_taken_over(self.what)
                return finding
            try:
                if there is not None and value is None:
                    await self.store.delete(there)
                elif there is not None and value != there.value:
                    await self.store.put(Entry(there.key, value or "", there.content_type, there.etag))
            except ChangedMeanwhile:
                continue
            await self.record.forget(self.what)
            return finding
        raise ChangedMeanwhile(f"The {self.what} was changed by others {MERGE_TRIES} times. Run the command again.")

    def _compared(self, there: Entry | None) -> tuple[Finding, str]:
        value = self._wanted(there)
        if there is not None and self._is_shared() and _means_the_same(there.value, value):
            return Finding(self.what, "nothing"), there.value
        if there is None:
            return Finding(self.what, "create", (Leaf(("value",), None, value, is_theirs=False),), note=self.entry.why), value
        now, then = self._seen(there), _shape(value, self._content_type(there))
        ours = {path: [known] for path, known in digests(now).items()} if self._is_shared() else self.record.digests(self.what)
        leaves = differences(now, then, ours)
        kept = () if self.overwrite else tuple(leaf for leaf in leaves if leaf.is_theirs)
        if kept:  # a value makes no sense with another content type
            return Finding(self.what, "nothing", kept=tuple(leaves), note="kept: somebody else chose it; see --overwrite"), there.value
        return Finding(self.what, "change" if leaves else "nothing", leaves), value

    async def _write(self, there: Entry | None, value: str) -> None:
        after = digests(_shape(value, self._content_type(there)))
        before = there.value if there is not None and self.entry.secret_name is None else None
        known = self.record.written(self.what)
        is_outdated = known is not None and there is not None and not (_is_ours(there, known) or there.value == known.before)
        await self.record.intend(self.what, after, existed=there is not None, before=before, before_is_outdated=is_outdated)
        await self.store.put(Entry(self.entry.key, value, self._content_type(there), there.etag if there else None))
        await self.record.settle(self.what, after)

    def _compared_for_removal(self, there: Entry | None) -> tuple[Finding, str | None]:
        """What there is to do, and the value that is to stay; None for none."""
        written = self.record.written(self.what)
        if written is None:
            return Finding(self.what, "nothing", note="kept: it was there before" if there and not self._is_shared() else ""), None
        if there is None:
            return Finding(self.what, "remove", note="only the note of it is left"), None
        if self.entry.merge is not None:
            return self._shared_removal(self.entry.merge, there, written)
        if written.existed and written.before is None:
            return Finding(self.what, "nothing", note="kept: it was there before"), None
        theirs = changed_since(self._seen(there), written.leaves)
        if theirs and not self.force:
            return Finding(self.what, "nothing", kept=theirs, note="kept: somebody else has changed it; see --force", stays=True), None
        leaves = (Leaf(("value",), there.value, written.before, is_theirs=False),) if written.existed else ()
        return Finding(self.what, "remove", leaves, note="back to what it was before" if written.existed else ""), written.before

    def _shared_removal(self, merge: Merge, there: Entry, written: Written) -> tuple[Finding, str | None]:
        try:
            value: str | None = merge.removed(there.value)
            if _is_ours(there, written) or there.value == written.before:
                value = value if written.existed and written.before is None else written.before  # nobody wrote it since: as it was
            elif not written.existed and value == merge.removed(merge.added(None)):
                value = None  # nobody else is in it, and it was not there before us
        except MergeError as error:
            raise Refused(str(error), 0) from error
        leaves = (Leaf(("value",), there.value, value, is_theirs=False),)
        return Finding(self.what, "remove", leaves if value != there.value else (), note="others in it stay"), value

    def _seen(self, there: Entry) -> dict[str, str]:
        """What is there; a key that somebody wrote down in clear, where a reference belongs, is not to be shown."""
        in_clear = self.entry.secret_name is not None and there.content_type != self.entry.content_type
        return _shape("(a value in clear, not shown)" if in_clear else there.value, there.content_type)

    def _wanted(self, there: Entry | None) -> str:
        if self.entry.secret_name is not None:
            return self.entry.reference_to(self.vault_address)
        try:
            return self.entry.desired(there.value if there else None)
        except MergeError as error:
            raise Refused(str(error), 0) from error

    def _content_type(self, there: Entry | None) -> str:
        return there.content_type if there is not None and self._is_shared() else self.entry.content_type

    def _is_shared(self) -> bool:
        return self.entry.merge is not None


def _is_ours(there: Entry, written: Written) -> bool:
    """Whether a value is one that we wrote."""
    return digest(there.value) in written.leaves.get("value", ())


def _means_the_same(one: str, other: str) -> bool:
    """Whether two values are the same, or the same JSON in another form."""
    try:
        return one == other or bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _shape(value: str, content_type: str) -> dict[str, str]:
    return {"value": value, "content_type": content_type}
