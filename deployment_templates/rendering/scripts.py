"""Lines to paste into the platform's deployment scripts. Our own words; the scripts themselves are the platform's and are not shipped.

Both of its renderers treat a value as more than text: one takes `$` as a group of a regular expression, the other expands `$` and
backticks as a program (contract: portals and deployment, trap 30). So the pasted lines look at every value before anything is rendered.
"""

from collections.abc import Mapping, Sequence

from deployment_templates.profile import Sandbox
from deployment_templates.rendering.source import Source
from deployment_templates.rendering.tokens import Token, used

_CHECK = (
    "foreach ($name in {names}) {{",
    "    $value = [Environment]::GetEnvironmentVariable($name)",
    '    if ([string]::IsNullOrWhiteSpace($value)) {{ throw "Set the variable $name first, as docs/templates.md says." }}',
    '    if ($value -match \'[$`"\\\\]\') {{ throw "The value of $name has a character that the renderer would change." }}',
    "}}",
)


def generate_config_additions(source: Source, files: Mapping[str, str]) -> str:
    """Return the lines for `deploy/standard/azd-hooks/utility/Generate-Config.ps1`."""
    given, made = _asked(source, files)
    lines = [
        "# For deploy/standard/azd-hooks/utility/Generate-Config.ps1.",
        "",
        "# 1. Below the other lines that fill $tokens:",
        *_checked([token.upper for token in given]),
        *(f"$tokens.{token.camel} = $env:{token.upper} # {token.meaning}" for token in given),
        *(f"$tokens.{token.camel} = $(New-Guid).Guid" for token in made),
        "",
        "# 2. Below the other PopulateTemplate lines for resources:",
    ]
    for path in sorted(files):
        if path.endswith(".template.json"):
            folders = path.removesuffix(".template.json").replace("/", ",")
            lines.append(f'PopulateTemplate $tokens "..,{folders}.template.json" "..,..,common,{folders}.json"')
    return "\n".join(lines) + "\n"


def postprovision_additions(source: Source, files: Mapping[str, str]) -> str:
    """Return the lines for `deploy/quick-start/azd-hooks/postprovision.ps1`."""
    given, made = _asked(source, files)
    lines = [
        "# For deploy/quick-start/azd-hooks/postprovision.ps1.",
        "",
        "# 1. Before the first template is rendered:",
        *_checked([token.upper for token in given]),
        *(f"# $env:{token.upper}: {token.meaning}" for token in given),
        *(f"$env:{token.upper} = $(New-Guid).Guid" for token in made),
        "",
        "# 2. In the table $configurations; templates of FoundationaLLM.Configuration are found without an entry:",
    ]
    for path in sorted(files):
        if path.endswith(".template.json") and "FoundationaLLM.Configuration" not in path:
            name = path.rpartition("/")[2].removesuffix(".template.json")
            target = path.removesuffix(".template.json")
            lines += [
                f'    "{name}" = @{{',
                f"        template = './{path}'",
                f"        render   = '../common/{target}.json'",
                "    }",
            ]
    return "\n".join(lines) + "\n"


def package_call(source: Source, files: Mapping[str, str], secrets: Sequence[str]) -> str:
    """Return the lines that send the package with the module `FoundationaLLM.Core`."""
    given, _ = _asked(source, {path: text for path, text in files.items() if path.startswith("artifacts/")})
    seeded, _ = _asked(source, {path: text for path, text in files.items() if path.startswith("blobs/")})
    names = [token.parameter for token in given]
    lines = [
        "# For a script beside deploy/internal/FoundationaLLM.Deployment.Internal/private/02-agents/scripts/agents.ps1.",
        f"# Before: seed blobs/ (placeholders: {', '.join(token.parameter for token in seeded)}), merge its index, reset the cache.",
        "# Secrets come from the key vault and must be letters, digits and hyphens: the module changes others.",
        *_checked([*names, *secrets]),
        *(f"# {token.parameter}: {token.meaning}" for token in given),
        "Deploy-FoundationaLLMPackage -PackageRoot $packagePath -Parameters @{",
        *(f"    {name} = $env:{name}" for name in (*names, *secrets)),
        "}",
        "# Afterwards: change the values in shared/, and restart the Orchestration API.",
    ]
    return "\n".join(lines) + "\n"


def session_pool(sandbox: Sandbox) -> str:
    """Return the command that makes the session pool where pools are made by hand; the other way is the Bicep template."""
    lines = [
        f"# The session pool for the slot {sandbox.slot}, in a Container Apps environment with workload profiles.",
        "# $claudeCodeImage is what ./dev image builds, in a registry the pool can read. There is no network in it, by design.",
        "az containerapp sessionpool create --name $claudeCodePool `",
        "    --resource-group $claudeCodeResourceGroup --environment $claudeCodeEnvironment --location $claudeCodeLocation `",
        "    --container-type CustomContainer --image $claudeCodeImage --target-port 80 --network-status EgressDisabled `",
        f"    --cpu {sandbox.cpu:g} --memory {sandbox.memory_gib:g}Gi --cooldown-period {sandbox.cooldown_seconds} `",
        f"    --max-sessions {sandbox.max_sessions} --ready-sessions {sandbox.ready_sessions}",
    ]
    return "\n".join(lines) + "\n"


def _asked(source: Source, files: Mapping[str, str]) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """Return the tokens that the platform's scripts do not fill: those somebody has to give, and those that are made."""
    tokens = [token for token in used(source.tokens, source.generation, files) if source.generation not in token.known_to]
    return tuple(token for token in tokens if not token.is_made), tuple(token for token in tokens if token.is_made)


def _checked(names: Sequence[str]) -> list[str]:
    listed = ", ".join(f"'{name}'" for name in names)
    return [line.format(names=listed) for line in _CHECK]
