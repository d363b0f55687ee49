"""Things that go wrong in the emulated pool when a test, or a developer, asks for them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Fault(BaseModel):
    """One thing to go wrong, some number of times."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["full", "status", "cut", "cut-half", "slow", "evict", "token", "identifier"] = Field(
        description="`full`: refused as if there were no slot; `status`: an answer with that status and no words; `cut`: the connection "
        "ends before the request is carried out; `cut-half`: it ends within the answer; `slow`: it takes `seconds` longer; `evict`: the "
        "session's sandbox is replaced by an empty one first; `token`: the token is refused; `identifier`: the identifier is refused."
    )
    path: str = Field(default="", description="Only for requests whose path ends so; empty for all.")
    identifier: str = Field(default="", description="Only for this session; empty for all.")
    times: int = Field(default=1, ge=1, description="How often.")
    skip: int = Field(default=0, ge=0, description="How many requests that fit go well before.")
    status: int = Field(default=500, ge=400, le=599, description="For `status` and `full`.")
    seconds: float = Field(default=0.0, ge=0, description="For `slow`.")
    retry_after_seconds: int | None = Field(default=None, ge=0, description="`Retry-After` of `full` and `status`.")


class Faults:
    """What is still to go wrong, in the order in which it was asked for."""

    def __init__(self) -> None:
        self._pending: list[tuple[Fault, int]] = []
        self.happened: list[Fault] = []
        """What went wrong so far."""

    def add(self, fault: Fault) -> None:
        """Let something go wrong from now on."""
        self._pending.append((fault, fault.skip + fault.times))

    def clear(self) -> None:
        """Let all go well from now on."""
        self._pending.clear()

    def take(self, path: str, identifier: str) -> Fault | None:
        """Give what goes wrong with this request, if anything."""
        for place, (fault, left) in enumerate(self._pending):
            if path.endswith(fault.path) and fault.identifier in {"", identifier}:
                self._pending[place] = (fault, left - 1)
                if left == 1:
                    del self._pending[place]
                if left > fault.times:
                    return None
                self.happened.append(fault)
                return fault
        return None
