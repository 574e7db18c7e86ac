"""Every contract test runs once per store of the table."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.ports import Store
from tests.contracts.stores import STORES, FakeClock, opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with opened(kind, tmp_path / "store", clock) as store:
        yield store


@pytest.fixture
def twin(kind: str, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """Another store of the same kind, for what would have been."""
    with opened(kind, tmp_path / "twin", clock) as store:
        yield store
