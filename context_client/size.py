"""How large a sandbox shall be: the words for it, which the platform's wire lacks.

They travel in a header of their own, which a server that does not know it ignores (docs/decisions/0016). On `codeSessions` it says what
is asked for; on the answer to `uploadFiles` it says what the sandbox in use really has. No such answer: its size is decided elsewhere.
"""

from pydantic import BaseModel, ConfigDict, Field

SIZE_HEADER = "X-Sandbox-Size"
"""Carries a size as JSON."""

MEBIBYTE = 1024 * 1024


class SandboxSize(BaseModel):
    """What one sandbox may use; what is not said is the provider's to choose."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: float | None = Field(None, gt=0, le=1024, allow_inf_nan=False, description="Processors; 0.25 is a quarter of one.")
    memory_bytes: int | None = Field(None, gt=0, description="Memory in bytes.")
    processes: int | None = Field(None, gt=0, description="Processes and threads at the same time.")
    disk_bytes: int | None = Field(None, gt=0, description="Space of all writable places together, in bytes.")

    @classmethod
    def from_header(cls, text: str) -> "SandboxSize":
        """Read what `to_header` gave.

        Raises:
            ValueError: It is no size.
        """
        return cls.model_validate_json(text)

    def to_header(self) -> str:
        """Write it as the header's value."""
        return self.model_dump_json(exclude_none=True)

    def said(self) -> dict[str, str]:
        """Give what it says, in words for people, by name."""
        words = {
            "cpus": f"{self.cpus:g} CPU" if self.cpus is not None else "",
            "memory_bytes": f"{_mebibytes(self.memory_bytes)} of memory",
            "processes": f"{self.processes} processes",
            "disk_bytes": f"{_mebibytes(self.disk_bytes)} for files",
        }
        return {name: text for name, text in words.items() if getattr(self, name) is not None}

    def in_words(self) -> str:
        """Say it in one line; empty when it says nothing."""
        return ", ".join(self.said().values())

    def beyond(self, largest: "SandboxSize") -> tuple[str, ...]:
        """Name what is more than another size has, each with both; what that one does not say is without bound.

        Args:
            largest: What there may be at most.
        """
        words = largest.said()
        more = (name for name in words if (getattr(self, name) or 0) > getattr(largest, name))
        return tuple(f"{self.said()[name]} (at most {words[name]})" for name in more)

    def within(self, largest: "SandboxSize") -> "SandboxSize":
        """Return the smaller of each; what one of the two does not say is the other's.

        Args:
            largest: What there may be at most.
        """
        pairs = {name: (getattr(self, name), getattr(largest, name)) for name in SandboxSize.model_fields}
        known = {name: [value for value in pair if value is not None] for name, pair in pairs.items()}
        return SandboxSize.model_validate({name: min(values) for name, values in known.items() if values})


USUAL_SIZE = SandboxSize(cpus=2.0, memory_bytes=2048 * MEBIBYTE, processes=512, disk_bytes=2560 * MEBIBYTE)
"""What a sandbox has when nobody says anything, and the most that may be asked for unless the operator allows more."""


def _mebibytes(value: int | None) -> str:
    return f"{(value or 0) / MEBIBYTE:g} MiB"
