"""What the processes of one run share: whether the store answers, and how far its clock is off. A file of three numbers, mapped."""

import mmap
import struct
import sys
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

_FORM = struct.Struct("ddd")


class Weather:
    """The state of the world around the store."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    @staticmethod
    def begin(path: Path) -> None:
        """Make the file, for fair weather."""
        path.write_bytes(_FORM.pack(0.0, 0.0, 0.0))

    def break_store(self, seconds: float, *, answers_lost: bool) -> None:
        """Let every call to the store fail for a while; with ``answers_lost`` it is carried out all the same."""
        _, _, offset = self._read()
        self._write(time.monotonic() + seconds, float(answers_lost), offset)

    def shift_clock(self, seconds: float) -> None:
        """Let the clock jump."""
        until, lost, offset = self._read()
        self._write(until, lost, offset + seconds)

    @property
    def store_is_broken(self) -> bool:
        return time.monotonic() < self._read()[0]

    @property
    def answers_are_lost(self) -> bool:
        return self.store_is_broken and bool(self._read()[1])

    def now(self) -> datetime:
        """The time as the store's clock has it."""
        return datetime.now(UTC) + timedelta(seconds=self._read()[2])

    def _read(self) -> tuple[float, float, float]:
        until, lost, offset = _FORM.unpack(self._shared[: _FORM.size])
        return until, lost, offset

    def _write(self, *values: float) -> None:
        self._shared[: _FORM.size] = _FORM.pack(*values)


def shift_clocks(weather: Weather) -> None:
    """Let this process see the jumps of the clock, as it would if the machine's had jumped. Its monotonic clock never does."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain moment, whatever asks
            return weather.now().astimezone(tz) if tz else weather.now().astimezone().replace(tzinfo=None)

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("orchestration_service", "context_client") and vars(module).get("datetime") is datetime:
            vars(module)["datetime"] = Shifted
    vars(time)["time"] = lambda: weather.now().timestamp()
