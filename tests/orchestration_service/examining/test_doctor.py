"""Each misconfiguration of an installation is found, alone, with the way to put it right."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deployment_templates.profile import Profile, Sandbox
from deployment_templates.resources.configuration import CUSTOM_CONTAINERS
from orchestration_service.cli.doctor import doctor
from orchestration_service.cli.main import main
from orchestration_service.examining.catalogue import CHECKS, KINDS, findings_part
from orchestration_service.examining.sources import Asked, Sources
from orchestration_service.remarks import OWN_SANDBOXES, STORE_AWAY
from tests.emulators.servers import Emulator
from tests.orchestration_service.deploying.standins.world import ANTHROPIC_KEY
from tests.orchestration_service.examining.installation import Installation, open_installation
from tests.orchestration_service.examining.misconfigurations import ENDPOINT, FAULTS, MODEL_KEY, Seed, setting
from tests.orchestration_service.examining.surroundings import POOL_ID
from tests.orchestration_service.serving import KEY
from workflow_schemas.tables import renewed

DOCUMENT = Path(__file__).parents[3] / "docs" / "doctor.md"
IN_CLEAR = "sk-ant-left-in-the-clear"

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the first test may have to install the emulator


@pytest.fixture(scope="module")
async def whole(blob_emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("platform")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "store.crt"))
        async with open_installation(blob_emulator, folder) as made:
            yield made


@pytest.fixture
async def there(whole: Installation) -> AsyncIterator[Installation]:
    """The installation, healthy again afterwards."""
    yield whole
    await whole.heal()


Command = Callable[..., Awaitable[int]]


@pytest.fixture
def west(tmp_path: Path) -> Path:
    """Where the profile is."""
    return tmp_path / "west.json"


@pytest.fixture
def command(there: Installation, west: Path) -> Command:
    """The command, with the profile of the installation in a file."""
    content = there.profile.model_dump(mode="json", exclude_unset=True)
    content["platform"]["storage_url"] = str(there.profile.platform.storage_url).removesuffix("/devstoreaccount1")
    west.write_text(json.dumps(content))

    @asynccontextmanager
    async def sources(_: Profile) -> AsyncIterator[Sources]:
        yield there.sources

    async def run(**chosen: Any) -> int:
        await there.remember()
        return await doctor(west, lambda: there.asked, sources=sources, **chosen)

    return run


async def test_nothing_is_wrong_with_a_healthy_installation(
    there: Installation, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await there.examine() == []
    assert await command() == 0
    assert capsys.readouterr().out == f"Nothing is wrong: {len(CHECKS)} checks.\n"


@pytest.mark.parametrize(("code", "words", "seed"), FAULTS, ids=[f"{code}-{place}" for place, (code, _, _) in enumerate(FAULTS)])
async def test_one_fault_is_one_finding_with_its_fix(there: Installation, code: str, words: str, seed: Seed) -> None:
    await seed(there)
    found = await there.examine()
    assert [finding.kind.code for finding in found] == [code], "\n".join(f"{one.kind.code}: {one.found}" for one in found)
    assert words in found[0].fix


async def test_faults_are_told_with_why_and_fix_and_without_secrets(
    there: Installation, command: Command, west: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there.world.stores.set(MODEL_KEY, IN_CLEAR)
    await setting(ENDPOINT, "category", value="Orchestration")(there)
    there.asked = Asked()
    assert [await command(), await command(as_json=True)] == [1, 1]
    text, document = capsys.readouterr().out.split("2 to put right, 2 not examined.\n")
    for words in ("Keys\n", "  entry-in-clear: ", "  endpoint-category: The category is 'Orchestration'.", "    Why: ", "    Fix: "):
        assert words in text
    shown = re.findall(r"^```text\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    assert " ".join(shown.split()) in " ".join(text.split()).replace(str(west), "west.toml")
    told = json.loads(document)
    assert (told["checks"], told["faults"]) == (len(CHECKS), 2)
    assert [one["code"] for one in told["findings"]] == ["entry-in-clear", "endpoint-category", "not-examined", "not-examined"]
    assert all("--pool-id" in one["fix"] for one in told["findings"][2:])
    assert not [secret for secret in (KEY, ANTHROPIC_KEY, IN_CLEAR) if secret in text + document]


async def test_what_cannot_be_seen_is_said_and_is_not_taken_for_well(there: Installation, command: Command) -> None:
    """One place after the other is out of reach: each is told once, whatever depends on it, and nothing else is."""
    there.asked = Asked(service_url="http://127.0.0.1:9", pool_id=POOL_ID.replace("west", "east"))
    there.world.api.forbidden = "/FoundationaLLM.Agent/"
    there.around.orchestration_status, there.around.pool_status = 500, 403
    found = await there.examine()
    assert {finding.kind.code for finding in found} == {"not-examined"}
    told = "\n".join(f"{finding.found} {finding.fix}" for finding in found)
    for words in (
        "The service at 'http://127.0.0.1:9'",
        "--service-url",
        "list of FoundationaLLM.Agent/workflows",
        "az login",
        "A sandbox in",
    ):
        assert words in told
    assert len(found) == len({finding.found for finding in found}) == 6
    assert await command() == 2


async def test_one_thing_that_cannot_be_seen_does_not_hide_another(there: Installation) -> None:
    there.world.api.forbidden = "roleAssignments"
    there.world.stores.set(MODEL_KEY, "in clear", "")
    found = await there.examine()
    assert [finding.kind.code for finding in found] == ["entry-in-clear", "not-examined"]


async def test_pools_are_not_judged_where_the_service_has_sandboxes_of_its_own(there: Installation) -> None:
    there.profile = there.profile.model_copy(update={"sandbox": Sandbox()})
    there.entry(CUSTOM_CONTAINERS, None)
    assert [finding.kind.code for finding in await there.examine()] == ["pool-missing"]
    there.around.told = {"message": OWN_SANDBOXES}
    assert await there.examine() == []


async def test_what_others_wrote_cannot_play_with_the_terminal(there: Installation) -> None:
    there.around.told = {"message": STORE_AWAY, "instance_name": "\x1b[2J" + "x" * 9000}
    (finding,) = await there.examine()
    assert finding.found.isprintable()
    assert len(finding.found) < 2100


async def test_the_key_is_shown_to_the_service_alone(there: Installation) -> None:
    there.around.told = {"name": "somebody else"}
    there.around.seen.clear()
    await there.examine()
    assert KEY not in "".join(there.around.seen)


async def test_another_installations_profile_is_refused(command: Command, there: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    there.entry("FoundationaLLM:Instance:Id", "another")
    assert await command() == 2
    assert "belongs to the instance 'another'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ([], "cannot be read"),
        (["--service-url", "127.0.0.1:8000"], "give scheme and host only"),
        (["--pool-id", "claudecodesessions"], "give the pool's resource id"),
    ],
    ids=["profile", "address", "pool"],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str], words: str
) -> None:
    assert main(["doctor", "--profile", str(tmp_path / "none.toml"), *option]) == 2
    assert words in capsys.readouterr().err


def test_every_kind_of_finding_has_a_fault_and_a_place_in_the_document() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert renewed(document, findings_part()) == document, "run: ./dev schemas --docs docs"
    codes = [kind.code for kind in KINDS]
    assert len(codes) == len(set(codes))
    assert {code for code, _, _ in FAULTS} == set(codes) - {"not-examined"}


@pytest.mark.faults
@pytest.mark.parametrize(("code", "words", "seed"), FAULTS, ids=[f"{code}-{place}" for place, (code, _, _) in enumerate(FAULTS)])
async def test_a_fix_that_is_a_command_is_one(there: Installation, code: str, words: str, seed: Seed) -> None:
    """Carried out, it leaves nothing to be found; whatever else it says is for people."""
    await seed(there)
    (finding,) = await there.examine()
    if not re.search(r"(?<!then: )\./dev deploy apply", finding.fix):
        pytest.skip("no command of ours, or one that comes after something else")
    there.world.profile = there.profile
    await there.world.apply(overwrite="--overwrite" in finding.fix)
    assert [f"{one.kind.code}: {one.found}" for one in await there.examine()] == []
