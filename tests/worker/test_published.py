"""What a body shows: what could not be shown is not a secret."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from refold.core.outcomes import Outcome
from refold.errors import LeaseLost
from refold.ports import Memory
from refold.python.body_call import EventPublisher


class Gone:
    async def recall(self) -> Memory:
        return Memory()

    async def recorded_before(self) -> Mapping[str, Outcome]:
        return {}

    async def record(self, key: str, outcome: Outcome) -> None:
        return None

    async def publish(self, lines: Sequence[Any]) -> None:
        raise LeaseLost("another holder has it")


async def test_what_could_not_be_shown_long_ago_is_told_when_all_should_be_there() -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    published = EventPublisher(Gone(), 0)
    await published.put({"text": "a"})
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(LeaseLost):
        await published.flush()
    del published
    assert told == []
