"""Rules of zones: those of the pinned package, wherever the tests run."""

import zoneinfo
from collections.abc import Iterator

import pytest

from refold.time_zones import zone_of


@pytest.fixture(autouse=True)
def pinned_zones() -> Iterator[None]:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    zone_of.cache_clear()
    yield
    zoneinfo.reset_tzpath(to=before)
    zoneinfo.ZoneInfo.clear_cache()
    zone_of.cache_clear()
