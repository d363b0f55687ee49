"""Fixtures of the journeys."""

import pytest

from tests.journeys.places import Places


@pytest.fixture(scope="session")
def places() -> Places:
    return Places()
