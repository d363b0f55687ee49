"""The same emulators as containers, through `testcontainers`: another kernel namespace, another host name, a mapped port.

They run wherever a container engine answers; the image is made on the spot, see `image.py`.
"""

import gc
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from tests.emulators.image import SERVER, image
from tests.emulators.installation import EmulatorsMissing
from tests.emulators.servers import AZURITE_ACCOUNT, Emulator

ANSWER_SECONDS = 5
START_SECONDS = 30
AZURITE = "node_modules/azurite/dist/src/blob/main.js --blobHost 0.0.0.0 --location /tmp --skipApiVersionCheck --disableTelemetry"


@contextmanager
def emulator_image() -> Iterator[str]:
    """Make the image; it is removed at the end of the block.

    Raises:
        EmulatorsMissing: No engine answers, or the image cannot be made.
    """
    from testcontainers.core.docker_client import DockerClient

    silence = _silence()
    if silence is not None:
        raise EmulatorsMissing(f"no container engine answers ({silence})")
    with closing(DockerClient().client) as engine, image(engine.api) as name:
        yield name


def _silence() -> str | None:
    """Why no engine answers; None when one does."""
    from docker.errors import DockerException  # type: ignore[import-untyped]  # comes with testcontainers
    from testcontainers.core.docker_client import DockerClient

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the client forgets the socket of an attempt that failed
        try:
            with closing(DockerClient(timeout=ANSWER_SECONDS).client) as engine:
                engine.ping()
            reason = None
        except DockerException as error:
            reason = str(error)
        gc.collect()
    return reason


@contextmanager
def azurite_container(image_name: str) -> Iterator[Emulator]:
    """Run Azurite's blob service in a container."""
    with _container(image_name, 10000, AZURITE) as url:
        yield Emulator(f"{url}/{AZURITE_ACCOUNT}")


@contextmanager
def cosmos_container(image_name: str) -> Iterator[Emulator]:
    """Run the document server in a container."""
    with _container(image_name, 8081, f"{SERVER} . 8081 0.0.0.0") as url:
        yield Emulator(url)


@contextmanager
def _container(image_name: str, port: int, command: str) -> Iterator[str]:
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    testcontainers_config.ryuk_disabled = True  # its image would come from a registry; our containers end with the block
    ready = LogMessageWaitStrategy(r"listen(?:ing at|s on) http").with_startup_timeout(START_SECONDS).with_poll_interval(0.2)
    made = DockerContainer(image_name).with_exposed_ports(port).with_command(f"/usr/bin/node {command}").waiting_for(ready)
    with ExitStack() as stack:
        try:
            container = stack.enter_context(made)
        except DockerException as error:  # no container runs here; one that runs and fails is another error, and no reason to skip
            raise EmulatorsMissing(f"the container engine cannot run a container ({error})") from error
        yield _address(int(container.get_exposed_port(port)))


def _address(port: int) -> str:
    """Where a mapped port is. It has to be on this machine: the stores take no unencrypted account elsewhere."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise EmulatorsMissing("the container engine maps ports to another machine, where the stores demand https") from error
    return f"http://127.0.0.1:{port}"
