"""A loop that is cancelled while what it waits for arrives ends: it does not take the cancellation for the arrival."""

import asyncio

import pytest

from refold.core.outcomes import Instant
from refold.runtime.background import Timers

HOUR = Instant(3_600_000_000)


class Still:
    """A clock that stands still, and a doorbell that nobody hears."""

    def now(self) -> Instant:
        return Instant(0)

    def ring(self) -> None:
        pass


@pytest.mark.parametrize("turns", range(8))
async def test_timers_end_when_they_are_cancelled_in_any_turn_after_a_timer_was_set(turns: int) -> None:
    still = Still()
    timers = Timers(still, lambda run: None, still)  # type: ignore[arg-type]
    timers.set(HOUR, "later")
    running = asyncio.create_task(timers.run())
    await asyncio.sleep(0.01)
    timers.set(Instant(HOUR - 1), "sooner")
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=10)
    running.cancel()
    assert done == {running}, "the cancellation was lost"
