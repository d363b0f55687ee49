"""The whole of it: ask, then judge."""

from collections.abc import Sequence

from deployment_templates.profile import Profile
from orchestration_service.examining.finding import Finding
from orchestration_service.examining.gathering import gather
from orchestration_service.examining.judging import judge
from orchestration_service.examining.sources import Asked, Sources


async def examine(sources: Sources, profile: Profile, asked: Asked, *, profile_path: str = "PROFILE") -> Sequence[Finding]:
    """Return what is wrong with an installation; nothing is changed.

    Args:
        sources: Whom to ask.
        profile: What should be.
        asked: What the operator says beside the profile.
        profile_path: File the profile is in, for the commands that put things right.

    Raises:
        WrongInstance: The profile and the places belong to two installations.
    """
    return judge(await gather(sources, profile, asked, profile_path=profile_path))
