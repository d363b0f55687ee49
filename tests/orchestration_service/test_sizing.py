"""What the user is told about the size of a sandbox."""

import re

import pytest

from context_client import SandboxSize
from orchestration_service.sizing import size_remarks

MIB = 2**20
WANTED = SandboxSize(cpus=0.5, memory_bytes=512 * MIB)


@pytest.mark.parametrize(
    ("wanted", "granted", "words"),
    [
        pytest.param(None, None, [], id="nothing-asked"),
        pytest.param(None, WANTED, [], id="nothing-asked-but-sized"),
        pytest.param(WANTED, SandboxSize(cpus=0.5, memory_bytes=512 * MIB, processes=9), [], id="as-asked"),
        pytest.param(
            WANTED,
            None,
            [r"a session pool, decides its size.*0.5 CPU, 512 MiB of memory.*no effect \('sandbox_cpu', 'sandbox_memory'\)"],
            id="elsewhere",
        ),
        pytest.param(WANTED, SandboxSize(memory_bytes=512 * MIB), ["cannot be held to 0.5 CPU,"], id="unheld"),
        pytest.param(WANTED, SandboxSize(cpus=0.5, memory_bytes=MIB), ["started with 1 MiB of memory and keeps.*now: 512 MiB"], id="kept"),
        pytest.param(WANTED, SandboxSize(memory_bytes=MIB), ["held to 0.5 CPU", "started with 1 MiB"], id="both"),
    ],
)
def test_a_sandbox_that_is_not_as_asked_is_told(wanted: SandboxSize | None, granted: SandboxSize | None, words: list[str]) -> None:
    remarks = size_remarks(wanted, granted)
    assert len(remarks) == len(words)
    assert [remark for remark, pattern in zip(remarks, words, strict=True) if not re.search(pattern, remark)] == []
