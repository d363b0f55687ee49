"""What a workflow asks for and a turn does not get, in words that name the property. Pure.

What is granted is never weaker than asked: a wall may be stronger, a limit narrower, and there is no network instead of some.
"""

from workflow_schemas.properties import WorkflowProperties
from workflow_schemas.walls import WallLevel, is_weaker


def not_granted(properties: WorkflowProperties, longest_seconds: float, demanded: WallLevel | None) -> tuple[str, ...]:
    """Return one sentence for each setting that asks for more, or for less protection, than is granted.

    Args:
        properties: The settings in force.
        longest_seconds: The longest turn of the installation.
        demanded: The weakest wall the installation allows; None for any.
    """
    return (*_time(properties, longest_seconds), *_wall(properties, demanded), *_network(properties), *_repositories(properties))


def _time(properties: WorkflowProperties, longest_seconds: float) -> list[str]:
    asked = properties.sandbox_timeout_seconds
    if longest_seconds >= asked or "sandbox_timeout_seconds" not in properties.model_fields_set:
        return []
    return [
        f"The workflow property 'sandbox_timeout_seconds' is {asked}, and the turn had to end after {longest_seconds:.0f} s: "
        "the installation allows no more."
    ]


def _wall(properties: WorkflowProperties, demanded: WallLevel | None) -> list[str]:
    asked = properties.minimum_wall
    if asked is None or not is_weaker(asked, demanded):
        return []
    return [f"The workflow property 'minimum_wall' is {asked!r}; the installation demands {demanded!r}, and that is in force."]


def _network(properties: WorkflowProperties) -> list[str]:
    profile = properties.sandbox_profile
    if profile == "restricted":
        return []
    also = " and 'egress_policy'" if properties.egress_policy.mode != "off" else ""
    return [
        f"The workflow property 'sandbox_profile' ({profile!r}){also} had no effect: only 'restricted' is available, and this turn ran "
        "without network."
    ]


def _repositories(properties: WorkflowProperties) -> list[str]:
    remarks = []
    if (mode := properties.github_integration_mode) != "none":
        remarks.append(
            f"The workflow property 'github_integration_mode' ({mode!r}) had no effect: pull requests cannot be opened; attach the "
            "repository as an archive and take the patch."
        )
    if properties.allowed_repo_patterns:
        remarks.append(
            "The workflow property 'allowed_repo_patterns' had no effect: repositories cannot be cloned; attach the repository as an "
            "archive."
        )
    return remarks
