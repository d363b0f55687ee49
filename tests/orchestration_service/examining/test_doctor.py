"""Each misconfiguration of an installation is found, alone, with the way to put it right."""

from collections.abc import AsyncIterator

import pytest

from tests.emulators.servers import Emulator
from tests.orchestration_service.examining.installation import Installation, open_installation
from tests.orchestration_service.examining.misconfigurations import FAULTS, Seed

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


async def test_nothing_is_wrong_with_a_healthy_installation(there: Installation) -> None:
    assert await there.examine() == []


@pytest.mark.parametrize(("code", "words", "seed"), FAULTS, ids=[f"{code}-{place}" for place, (code, _, _) in enumerate(FAULTS)])
async def test_one_fault_is_one_finding_with_its_fix(there: Installation, code: str, words: str, seed: Seed) -> None:
    await seed(there)
    found = await there.examine()
    assert [finding.kind.code for finding in found] == [code], "\n".join(f"{one.kind.code}: {one.found}" for one in found)
    assert words in found[0].fix
