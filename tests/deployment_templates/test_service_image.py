"""The service as a container: closed in, answering, refusing what it cannot do, and handing its turns over at the end."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.deployment_templates.service_image import build_service_image, run_words, service_container, start_container
from tests.images.building import ROOT, NoEngine, engine_call, find_engine
from tests.journeys.replicas import INSTANCE, KEY
from tests.journeys.test_takeover import check, working
from workflow_schemas.sources import sources_digest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # the first one to ask builds the image

GIVEN = {
    "CLAUDE_CODE_INSTANCE_ID": INSTANCE,
    "CLAUDE_CODE_API_KEY": KEY,
    "CLAUDE_CODE_CONTEXT_URL": "http://context.example",
    "CLAUDE_CODE_CONTEXT_API_KEY": KEY,
}
ASK = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"
HEALTH = ("python3", "-P", "/opt/claude-code/src/deployment_templates/service/health.py")


@pytest.fixture(scope="module")
def engine() -> str:
    try:
        return find_engine()
    except NoEngine as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def image(engine: str) -> str:
    return build_service_image()


@pytest.fixture(scope="module")
def container(engine: str, image: str) -> Iterator[str]:
    with service_container(engine, image, GIVEN) as name:
        end = time.monotonic() + 60
        while engine_call(engine, "exec", name, *HEALTH).returncode != 0:
            assert time.monotonic() < end, engine_call(engine, "logs", name).stderr
            time.sleep(0.1)
        yield name


def inside(engine: str, container: str, *words: str) -> str:
    return engine_call(engine, "exec", container, *words).stdout


@pytest.mark.parametrize(
    ("variables", "named"),
    [({}, ["CLAUDE_CODE_INSTANCE_ID", "CLAUDE_CODE_API_KEY"]), ({**GIVEN, "CLAUDE_CODE_CONTEXT_URL": ""}, ["CLAUDE_CODE_CONTEXT_URL"])],
    ids=["nothing", "half"],
)
def test_without_its_configuration_it_says_what_is_missing(engine: str, image: str, variables: dict[str, str], named: list[str]) -> None:
    given = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
    done = engine_call(engine, "run", "--rm", *run_words(network="none"), *given, image)
    assert done.returncode == 1
    assert all(name in done.stderr for name in named), done.stderr
    assert "Traceback" not in done.stderr


def test_its_routes_answer_and_tell_what_it_is(engine: str, container: str, image: str) -> None:
    status = json.loads(inside(engine, container, "python3", "-c", ASK, "http://127.0.0.1:8000/status"))
    labels = json.loads(engine_call(engine, "image", "inspect", "--format", "{{json .Config.Labels}}", image).stdout)
    assert status["version"] == labels["org.opencontainers.image.version"]
    assert labels["org.foundationallm.claude-code.source-digest"] == sources_digest(ROOT)
    assert json.loads(inside(engine, container, "python3", "-c", ASK, "http://127.0.0.1:8081/ready")) == {"stage": "serving"}
    assert "claude_code_turns_running 0" in inside(engine, container, "python3", "-c", ASK, "http://127.0.0.1:8081/metrics")


def test_it_has_no_power_and_no_tools(engine: str, container: str) -> None:
    """No root, no capability, no place to write but its own, no compiler and no installer."""
    found = dict(line.split(":\t", 1) for line in inside(engine, container, "cat", "/proc/self/status").splitlines() if ":\t" in line)
    assert found["Uid"].split()[1] == "10001"
    assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == 0
    for place in ("/opt/claude-code", "/etc", "/usr/local"):
        assert engine_call(engine, "exec", container, "touch", f"{place}/x").returncode == 1
    for tool in ("cc", "gcc", "make", "pip", "pip3", "git", "curl", "bwrap", "node"):
        assert engine_call(engine, "exec", container, "sh", "-c", f"command -v {tool}").returncode != 0, tool
    assert engine_call(engine, "exec", container, "python3", "-c", "import pip").returncode == 1


def test_no_file_gives_its_owners_rights_and_none_is_a_secret(engine: str, image: str) -> None:
    """Looked for as root, who sees every folder."""
    words = ("--rm", "--network", "none", "--user", "0", "--entrypoint", "find", image, "/", "-xdev", "-type", "f")
    names = ("(", "-perm", "/6000", "-o", "-name", ".env*", "-o", "-name", "*.key", "-o", "-name", "id_rsa*", ")")
    assert engine_call(engine, "run", *words, *names).stdout == ""


async def test_told_to_end_it_hands_its_turn_over_in_time(engine: str, image: str, tmp_path: Path) -> None:
    """The other replica goes on at once, though the lease would have gone on for an hour."""
    start = partial(start_container, engine, image)
    with anyio.fail_after(200):
        async with working(tmp_path, lease=3600, first=start) as (replicas, model, operation):
            with anyio.fail_after(60):
                await replicas.services[0].stop()
            assert replicas.services[0].running.returncode == 0
            assert await replicas.callers[1].start(replicas.body) == operation
            check(replicas, model, await replicas.finished(operation))
