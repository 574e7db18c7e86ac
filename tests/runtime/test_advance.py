"""Where turns are taken: on the caller's thread while they are short, one at a time, else on a thread of their own."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest

from refold.runtime import turn_thread
from refold.runtime.turn_thread import TURNS_ON_THREAD, TurnThread


@pytest.fixture
async def advancing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TurnThread]:
    """Past its first turn; a machine that stands still for a moment makes no turn long."""
    monkeypatch.setattr(turn_thread, "SHORT", 60.0)
    advancing = TurnThread()
    await advancing(lambda: None)
    yield advancing
    advancing.close()


def where() -> str:
    return threading.current_thread().name


def is_here(name: str) -> bool:
    return name == threading.current_thread().name


async def test_the_first_turn_may_create_a_file_and_is_on_the_thread() -> None:
    advancing = TurnThread()
    assert not is_here(await advancing(where))
    advancing.close()


async def test_short_turns_are_on_the_thread_of_the_caller(advancing: TurnThread) -> None:
    assert [is_here(await advancing(where)) for _ in range(3)] == [True] * 3
    assert advancing.here(where) == (True, where())


async def test_after_a_long_turn_the_next_ten_are_on_the_other_thread(
    advancing: TurnThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_thread, "SHORT", 0.0)
    assert is_here(await advancing(where))
    monkeypatch.setattr(turn_thread, "SHORT", 60.0)
    assert advancing.here(where) == (False, None)
    assert [is_here(await advancing(where)) for _ in range(TURNS_ON_THREAD + 1)] == [False] * TURNS_ON_THREAD + [True]


async def test_a_turn_that_is_long_on_the_other_thread_keeps_the_next_ones_there(
    advancing: TurnThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_thread, "SHORT", 0.0)
    await advancing(where)
    await advancing(where)
    monkeypatch.setattr(turn_thread, "SHORT", 60.0)
    assert [is_here(await advancing(where)) for _ in range(TURNS_ON_THREAD)] == [False] * TURNS_ON_THREAD


async def test_a_turn_that_fails_fails_its_caller_and_no_other(advancing: TurnThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await advancing(lambda: 1 // 0)
    assert is_here(await advancing(where))


async def test_of_two_threads_that_ask_at_once_each_has_its_turn_alone(advancing: TurnThread) -> None:
    inside, most, done = 0, 0, 0

    def turn() -> None:
        nonlocal inside, most, done
        inside += 1
        most = max(most, inside)
        time.sleep(0.001)
        inside -= 1
        done += 1

    async def ask() -> None:
        for _ in range(50):
            await advancing(turn)

    other = threading.Thread(target=lambda: asyncio.run(ask()))
    other.start()
    await ask()
    await asyncio.to_thread(other.join)
    assert (most, done) == (1, 100)


async def test_whoever_comes_while_a_turn_is_under_way_does_not_wait_on_his_own_thread(advancing: TurnThread) -> None:
    began, go_on = threading.Event(), threading.Event()

    def long() -> str:
        began.set()
        go_on.wait(60)
        return where()

    other = threading.Thread(target=lambda: advancing.here(long))
    other.start()
    assert await asyncio.to_thread(began.wait, 60)
    assert advancing.here(where) == (False, None)
    asking = asyncio.create_task(advancing(where))
    await asyncio.sleep(0.01)
    assert not asking.done()
    go_on.set()
    assert not is_here(await asking)
    other.join()
