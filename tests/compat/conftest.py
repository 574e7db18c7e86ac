"""The stage as a fixture: made before each test of these folders, checked and closed after it."""

from collections.abc import Iterator

import pytest

from tests.compat.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()
