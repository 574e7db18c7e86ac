"""Functions that the tests of tools call as entries."""

import asyncio

number = 17


def double(number: int, factor: int = 2) -> int:
    return factor * number


async def double_later(number: int, factor: int = 2) -> int:
    await asyncio.sleep(0)
    return factor * number
