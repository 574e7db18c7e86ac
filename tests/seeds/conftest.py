"""The stage as a fixture: set up before each seed test, looked over and closed after it."""

from collections.abc import Iterator

import pytest

from tests.seeds.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()
