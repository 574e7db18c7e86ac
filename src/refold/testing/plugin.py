"""The pytest fixture `refold_engine`: a bench for each test that asks for one. Nothing is loaded for others."""

from collections.abc import Iterator
from typing import Any

import pytest

from refold import testing


@pytest.fixture
def refold_engine() -> Iterator[Any]:
    """A `refold.testing.Bench`: an engine in memory, with virtual time and tools that can be faked."""
    with testing.engine() as bench:
        yield bench
