"""The storage emulators, for the stores that live in Azure."""

from tests.emulators.fixtures import blob_emulator as blob_emulator
from tests.emulators.fixtures import blob_in_container as blob_in_container
from tests.emulators.fixtures import cosmos_emulator as cosmos_emulator
from tests.emulators.fixtures import cosmos_in_container as cosmos_in_container
from tests.emulators.fixtures import database_name as database_name
