"""What every provider of sandboxes must keep, as checks that need nothing but its port."""

import uuid

from context_client.embedded.provider import SandboxProvider
from context_client.size import MEBIBYTE, SandboxSize

ASKED = SandboxSize(cpus=0.5, memory_bytes=300 * MEBIBYTE, processes=100, disk_bytes=300 * MEBIBYTE)
OTHER = SandboxSize(cpus=1.0, memory_bytes=400 * MEBIBYTE, processes=200, disk_bytes=400 * MEBIBYTE)


async def check_sizes(provider: SandboxProvider) -> SandboxSize | None:
    """Look whether a size is kept or not spoken of: never another one in silence, and never another one while a sandbox lives.

    Args:
        provider: Starts one sandbox for this.

    Returns:
        What its sandboxes are held to, of what is asked.

    Raises:
        AssertionError: It does not keep that.
    """
    session_id, upn = f"code-{uuid.uuid4()}", "conformance@example.test"
    first = await provider.endpoint(session_id=session_id, upn=upn, size=ASKED)
    if first.size is not None:
        for name, value in first.size.model_dump(exclude_none=True).items():
            assert value == getattr(ASKED, name), f"{name} is {value!r} where {getattr(ASKED, name)!r} was asked for"
    for size in (OTHER, None):
        again = await provider.endpoint(session_id=session_id, upn=upn, size=size)
        assert again.size == first.size, f"a sandbox that lives has become {again.size!r}"
    return first.size
