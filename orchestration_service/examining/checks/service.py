"""The service and those who call it: is it ours, of this version, with the right time, and known to the Orchestration API."""

from collections.abc import Iterator, Sequence

from deployment_templates.resources.models import SERVICE_ENDPOINT
from orchestration_service.examining.facts import Answer, Facts, known
from orchestration_service.examining.finding import Finding, Kind
from orchestration_service.remarks import ALONE, NO_DRAIN, STORE_AWAY, UNKNOWN_SETTINGS

MOST_SKEW_SECONDS = 120.0
"""Differences of clocks that tokens and leases stand."""

NOT_READY = Kind(
    "service-not-ready",
    "service",
    "The service does not answer as it should.",
    "The platform answers its users that the agent is not available.",
    "Look into the log of the service: a wrong or missing setting stops it with the name of the key. kubectl logs "
    "deployment/claude-code-api",
)
STRANGER = Kind(
    "service-stranger",
    "service",
    "Something else answers at the address of the service.",
    "The platform sends work, and the key, to something that is not the service.",
    "Correct service.url in {profile} (it is {address}), or the route of the ingress that leads there.",
)
INSTANCE = Kind(
    "service-instance",
    "service",
    "The service serves another instance of the platform.",
    "It refuses every request with 403, before it looks at the key.",
    "Let the service read FoundationaLLM:Instance:Id from the platform's App Configuration (FOUNDATIONALLM_APP_CONFIGURATION_URI), or "
    "set "
    "CLAUDE_CODE_INSTANCE_ID to {instance}, and restart it.",
)
VERSION = Kind(
    "service-version",
    "service",
    "The service is of another version than this checkout.",
    "Templates, images and this examination belong to one version; what one of them writes the other may not read.",
    "Run this from a checkout of the service's version, or upgrade the service to {version}; then: {apply}",
)
CLOCK = Kind(
    "clock-skew",
    "service",
    "The clocks of the service and of this machine differ.",
    "Tokens are refused as expired or not yet valid, and replicas take each other's turns over too early.",
    "Synchronise the clocks of the service's nodes, and of this machine (timedatectl set-ntp true).",
)
IDENTITY = Kind(
    "identity-too-big",
    "service",
    "A user of many groups is refused on the way to the service.",
    "X-USER-IDENTITY names all groups of a user: those with many cannot use the agent, all others can.",
    "Let 64 KiB of request headers through in whatever is between the Orchestration API and {address} (nginx: "
    "large_client_header_buffers 4 "
    "64k), and do not lower CLAUDE_CODE_MAX_HEADER_BYTES.",
)
REPLICAS = Kind(
    "replicas-without-store",
    "service",
    "There are several replicas, and each keeps its turns for itself.",
    "The platform polls through a load balancer: another replica than the one that took a turn says that there is none.",
    "Give all replicas one store (CLAUDE_CODE_COSMOS_ENDPOINT and CLAUDE_CODE_BLOB_ENDPOINT), or run one replica.",
)
STORE_UNREACHABLE = Kind(
    "service-store-away",
    "service",
    "The service cannot read App Configuration any more.",
    "It goes on with what it read before: a key that is changed does not arrive, and its next start fails.",
    "Let the service reach the store (network, firewall, private endpoint), and its identity have the role 'App Configuration Data "
    "Reader' there "
    "and 'Key Vault Secrets User' on the vault; its log names the error. kubectl logs deployment/claude-code-api",
)
IGNORED = Kind(
    "settings-ignored",
    "service",
    "App Configuration has settings of the service that it does not know.",
    "A setting with a slip of the pen has no effect, and the default holds instead.",
    "The log of the service's start names them, as does ./dev config show: correct or delete these keys below "
    "FoundationaLLM:APIEndpoints:ClaudeCode:Configuration.",
)
DRAIN = Kind(
    "no-drain",
    "service",
    "A replica ends at once when it is told to.",
    "Load balancers send requests for some seconds to a replica that has gone: each upgrade loses completions.",
    "Set CLAUDE_CODE_DRAIN_SECONDS to 10 (Helm: shutdown.drainSeconds), and the grace period of the pod to at least 50 seconds more.",
)
NOT_RESTARTED = Kind(
    "orchestration-not-restarted",
    "service",
    "The Orchestration API does not know the service.",
    "It lists external orchestrators once, when it starts: until its next start it says that ClaudeCode is not available.",
    "Restart it: kubectl rollout restart deployment/orchestration-api, or az containerapp revision restart. If that does not help, "
    "look into its "
    "log: a failure of that list is only told there.",
)
KINDS: Sequence[Kind] = (
    NOT_READY,
    STRANGER,
    INSTANCE,
    VERSION,
    CLOCK,
    IDENTITY,
    REPLICAS,
    STORE_UNREACHABLE,
    IGNORED,
    DRAIN,
    NOT_RESTARTED,
)


def answers(facts: Facts) -> Iterator[Finding]:
    """It is there, is ours, and serves this instance."""
    address, status = facts.service.address, known(facts.service.status)
    names = {**facts.commands, "address": address}
    if status.status != 200:
        yield NOT_READY.seen(f"{address}/status answers with status {status.status}.", **names)
        return
    if (status.content or {}).get("name") != SERVICE_ENDPOINT:
        yield STRANGER.seen(f"{address}/status is not what the service says of itself.", **names)
        return
    if known(facts.service.instance).status == 403:
        yield INSTANCE.seen(f"The service does not serve the instance {facts.profile.instance_id!r}.", **names)


def version(facts: Facts) -> Iterator[Finding]:
    """It is of the same version as the templates."""
    said = _own_words(known(facts.service.status), "version")
    if said and said != facts.own_version:
        found = f"The service has the version {said!r}, this checkout {facts.own_version!r}."
        yield VERSION.seen(found, **facts.commands, version=facts.own_version)


def clock(facts: Facts) -> Iterator[Finding]:
    """It has the same time as we."""
    ahead = known(facts.service.status).ahead_seconds
    if ahead is not None and abs(ahead) > MOST_SKEW_SECONDS:
        told = "ahead of" if ahead > 0 else "behind"
        yield CLOCK.seen(f"The clock of the service is {abs(ahead):.0f} seconds {told} the one here.")


def identities(facts: Facts) -> Iterator[Finding]:
    """A user of many groups is let in as well as one of few."""
    small, big = facts.service.with_key, facts.service.with_big_identity
    if small is None or big is None or known(small).status not in (200, 404):
        return
    if known(big).status != known(small).status:
        yield IDENTITY.seen(f"An identity of some 31 KB is answered with status {known(big).status}.", address=facts.service.address)


def replicas(facts: Facts) -> Iterator[Finding]:
    """Every replica knows every turn."""
    said = known(facts.service.replicas)
    names = {str(one.get("instance_name")) for one in said if one.get("instance_name")}
    if len(names) > 1 and any(ALONE in str(one.get("message") or "") for one in said):
        yield REPLICAS.seen(f"The replicas {', '.join(sorted(names))} answered, and say that each keeps its turns for itself.")


def remarks(facts: Facts) -> Iterator[Finding]:
    """No replica has anything to complain about."""
    said = known(facts.service.replicas)
    for kind, sentence in ((STORE_UNREACHABLE, STORE_AWAY), (IGNORED, UNKNOWN_SETTINGS), (DRAIN, NO_DRAIN)):
        names = {str(one.get("instance_name")) for one in said if sentence in str(one.get("message") or "")}
        if names:
            yield kind.seen(f"{', '.join(sorted(names))} says: {sentence}")


def known_to_platform(facts: Facts) -> Iterator[Finding]:
    """The Orchestration API lists it."""
    services = (known(facts.orchestration).content or {}).get("subordinate_services") or ()
    names = [str(one.get("name")) for one in services if isinstance(one, dict)]
    if SERVICE_ENDPOINT not in names:
        yield NOT_RESTARTED.seen(f"The Orchestration API knows {', '.join(names) or 'nobody'}.")


def _own_words(answer: Answer, name: str) -> str:
    content = answer.content or {}
    return str(content.get(name) or "") if content.get("name") == SERVICE_ENDPOINT else ""
