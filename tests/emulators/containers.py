"""The emulators as containers, through `testcontainers`.

They run where a container engine answers and has the image already, or can pull it. Elsewhere the tests are skipped and say
which of the two is missing. Unlike the child processes these are Microsoft's own builds, so they also hold the corrections
in `cosmosdb_server.js` against what Cosmos DB does.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which

from tests.emulators.installation import EmulatorsMissing
from tests.emulators.servers import AZURITE_ACCOUNT, Emulator

AZURITE_IMAGE = "mcr.microsoft.com/azure-storage/azurite:3.35.0"
COSMOS_IMAGE = "mcr.microsoft.com/cosmosdb/linux/azure-cosmos-emulator:vnext-preview"
COSMOS_CONTAINER_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The key every emulator of Microsoft's takes; published, and no secret."""
PULL_SECONDS = 300


@contextmanager
def azurite_container() -> Iterator[Emulator]:
    """Run Azurite in a container.

    Raises:
        EmulatorsMissing: No engine answers, or it cannot get the image.
    """
    with _container(AZURITE_IMAGE, 10000, "azurite-blob --blobHost 0.0.0.0 --skipApiVersionCheck", "listens on") as url:
        yield Emulator(f"{url}/{AZURITE_ACCOUNT}")


@contextmanager
def cosmos_container() -> Iterator[Emulator]:
    """Run Microsoft's emulator in a container; its key is `COSMOS_CONTAINER_KEY`."""
    with _container(COSMOS_IMAGE, 8081, "--protocol http", "Gateway=OK") as url:
        yield Emulator(url)


@contextmanager
def _container(image: str, port: int, command: str, ready: str) -> Iterator[str]:
    _demand_image(image)
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    strategy = LogMessageWaitStrategy(ready).with_startup_timeout(120)
    with DockerContainer(image).with_exposed_ports(port).with_command(command).waiting_for(strategy) as container:
        yield f"http://127.0.0.1:{container.get_exposed_port(port)}"


def _demand_image(image: str) -> None:
    if which("docker") is None or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        raise EmulatorsMissing("no container engine answers `docker info`")
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0:
        return
    try:
        pulled = subprocess.run(["docker", "pull", "-q", image], capture_output=True, text=True, timeout=PULL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise EmulatorsMissing(f"the image {image} could not be pulled within {PULL_SECONDS} seconds") from error
    if pulled.returncode != 0:
        raise EmulatorsMissing(f"the image {image} is not here and cannot be pulled: {pulled.stderr.strip()[-200:]}")
