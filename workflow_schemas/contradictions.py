"""Settings that are sound one by one and do not go together. Each is named with both names, and with what holds. Pure.

Only what an administrator has set is held against each other: a default gives way in silence.
"""

from collections.abc import Callable, Sequence

from workflow_schemas.properties import WorkflowProperties

_ENOUGH_MEMORY = 512 * 1024**2
_MEMORY_UNITS = (("Gi", 1024**3), ("Mi", 1024**2))


def contradictions(properties: WorkflowProperties) -> tuple[str, ...]:
    """Return one sentence for each pair of settings that do not go together, of those that were set."""
    return tuple(sentence for rule in _RULES if (sentence := rule(properties)))


def _commands_longer_than_the_turn(properties: WorkflowProperties) -> str:
    command, turn = properties.command_timeout_seconds, properties.sandbox_timeout_seconds
    if "command_timeout_seconds" not in properties.model_fields_set or command <= turn:
        return ""
    return (
        f"The workflow properties 'command_timeout_seconds' ({command}) and 'sandbox_timeout_seconds' ({turn}) contradict each other: "
        f"a command may not last longer than its turn, so commands were stopped after {turn} s."
    )


def _commands_without_a_shell(properties: WorkflowProperties) -> str:
    if "command_timeout_seconds" not in properties.model_fields_set or "Bash" in properties.allowed_tools:
        return ""
    return (
        "The workflow properties 'command_timeout_seconds' and 'allowed_tools' contradict each other: without 'Bash' among the tools there "
        "are no shell commands to limit."
    )


def _destinations_without_egress(properties: WorkflowProperties) -> str:
    policy = properties.egress_policy
    listed = [f"'egress_policy.{name}'" for name in ("domains", "cidrs") if getattr(policy, name)]
    if policy.mode != "off" or not listed:
        return ""
    return (
        f"The workflow properties 'egress_policy.mode' ('off') and {' and '.join(listed)} contradict each other: nothing was reachable. "
        "Empty the list, or set the mode to 'allowlist'."
    )


def _egress_without_destinations(properties: WorkflowProperties) -> str:
    policy = properties.egress_policy
    if policy.mode != "allowlist" or policy.domains or policy.cidrs:
        return ""
    return (
        "The workflow property 'egress_policy.mode' is 'allowlist', but 'egress_policy.domains' and 'egress_policy.cidrs' are empty: "
        "nothing is allowed."
    )


def _egress_of_a_restricted_sandbox(properties: WorkflowProperties) -> str:
    if properties.sandbox_profile != "restricted" or properties.egress_policy.mode != "allowlist":
        return ""
    return (
        "The workflow properties 'sandbox_profile' ('restricted') and 'egress_policy.mode' ('allowlist') contradict each other: "
        "the stricter one holds, and this turn ran without network."
    )


def _internet_without_egress(properties: WorkflowProperties) -> str:
    if (
        properties.sandbox_profile != "internet-enabled"
        or "egress_policy" not in properties.model_fields_set
        or properties.egress_policy.mode != "off"
    ):
        return ""
    return (
        "The workflow properties 'sandbox_profile' ('internet-enabled') and 'egress_policy.mode' ('off') contradict each other: "
        "the stricter one holds."
    )


def _nothing_kept_for_the_user(properties: WorkflowProperties) -> str:
    if properties.workspace_persistence_mode != "none" or properties.workspace_storage_scope != "user":
        return ""
    return (
        "The workflow properties 'workspace_persistence_mode' ('none') and 'workspace_storage_scope' ('user') contradict each other: "
        "nothing is kept, so there is nothing to go on with in new conversations."
    )


def _repositories_without_github(properties: WorkflowProperties) -> str:
    if (
        not properties.allowed_repo_patterns
        or properties.github_integration_mode != "none"
        or "github_integration_mode" not in properties.model_fields_set
    ):
        return ""
    return (
        "The workflow properties 'github_integration_mode' ('none') and 'allowed_repo_patterns' contradict each other: "
        "no repository can be pushed to."
    )


def _memory_below_need(properties: WorkflowProperties) -> str:
    text = properties.sandbox_memory or ""
    amounts = [float(text.removesuffix(unit)) * size for unit, size in _MEMORY_UNITS if text.endswith(unit)]
    if not amounts or amounts[0] >= _ENOUGH_MEMORY:
        return ""
    return (
        f"The workflow property 'sandbox_memory' is {text!r}, less than the 512Mi with which the sandbox's image is known to work: "
        "a turn may end for want of memory."
    )


_RULES: Sequence[Callable[[WorkflowProperties], str]] = (
    _commands_longer_than_the_turn,
    _commands_without_a_shell,
    _destinations_without_egress,
    _egress_without_destinations,
    _egress_of_a_restricted_sandbox,
    _internet_without_egress,
    _nothing_kept_for_the_user,
    _repositories_without_github,
    _memory_below_need,
)
