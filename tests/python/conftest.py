"""What several files of these tests ask for."""

import pytest
from msgspec import structs

from tests.python import house


@pytest.fixture(params=[house.SHORT.parked_bodies, 0], ids=["parked", "starts over"])
def parked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with bodies that are parked while they wait, and once with bodies that start over."""
    monkeypatch.setattr(house, "SHORT", structs.replace(house.SHORT, parked_bodies=request.param))
