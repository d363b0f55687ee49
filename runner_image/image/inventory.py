"""Lists what an image holds, as a CycloneDX document: distribution packages, Python packages, the agent's CLI and our sources.

Run inside the image: `python3 -m runner_image.image.inventory`. It needs nothing but the standard library and `dpkg-query`, and the same
image gives the same document: it bears neither a time nor a random number.
"""

import hashlib
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner_image.places import agent_cli
from runner_image.server.version import ServerVersion, read_version

Component = dict[str, Any]


def main() -> None:
    """Print the document."""
    json.dump(document(), sys.stdout, indent=1)


def document() -> Component:
    """Return the CycloneDX document of the system this runs in."""
    version = read_version()
    components = [*_distribution_packages(), *_python_packages(), *_agent_cli(version)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _ourselves(version)},
        "components": sorted(components, key=lambda component: str(component["bom-ref"])),
    }


def _ourselves(version: ServerVersion) -> Component:
    name = f"claude-code-runner ({version.image})" if version.image else "claude-code-runner"
    properties = [{"name": "claude-code:source-digest", "value": version.source_digest}]
    return {"type": "container", "bom-ref": "image", "name": name, "version": version.version, "properties": properties}


def _distribution_packages() -> Iterator[Component]:
    system = platform.freedesktop_os_release()
    shown = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", shown], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        status, name, version, architecture, source = line.split("\t")
        if status == "installed":
            where = f"arch={architecture}&distro={system['ID']}-{system.get('VERSION_ID', '')}"
            purl = f"pkg:deb/{system['ID']}/{quote(name)}@{quote(version)}?{where}"
            properties = [{"name": "dpkg:source", "value": source}]
            yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "properties": properties}


def _python_packages() -> Iterator[Component]:
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        purl = f"pkg:pypi/{name}@{quote(distribution.version)}"
        if purl in seen or distribution.read_text("INSTALLER") is None:
            continue  # what the distribution installed is among its packages
        seen.add(purl)
        found: Component = {"type": "library", "bom-ref": purl, "name": name, "version": distribution.version, "purl": purl}
        if "License-Expression" in distribution.metadata:
            found["licenses"] = [{"expression": distribution.metadata["License-Expression"]}]
        yield found


def _agent_cli(version: ServerVersion) -> Iterator[Component]:
    """The CLI is a program of its own inside the SDK's wheel."""
    path = agent_cli()
    if not path.is_file():
        return
    told = re.search(r'"([^"]+)"', Path(path.parents[1], "_cli_version.py").read_text(encoding="utf-8").rpartition("=")[2])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    found: Component = {"type": "application", "bom-ref": "claude-code-cli", "name": "claude-code", "version": told[1] if told else ""}
    found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    found["properties"] = [{"name": "claude-code:from", "value": f"claude-agent-sdk {version.agent_sdk}"}]
    yield found


if __name__ == "__main__":
    main()
