"""What the tests of sources share: the tool of a worker, and a PostgreSQL server."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.sources.pulls import Sources, opened
from tests.tools.conftest import postgres

__all__ = ["postgres", "sources"]


@pytest_asyncio.fixture
async def sources() -> AsyncIterator[Sources]:
    async with opened() as found:
        yield found
