"""What the tests of the NoETL dialect share: a house in which files are played, and a site on the loopback address."""

from collections.abc import Iterator

import pytest

from tests.noetl.house import House
from tests.tools.conftest import postgres as postgres
from tests.tools.web import Site, served


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    opened = House()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def site() -> Iterator[tuple[Site, str]]:
    """A site whose answers the test writes, and its address."""
    site = Site()
    with served(site) as address:
        yield site, address
