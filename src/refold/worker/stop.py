"""Ctrl-C, SIGTERM and a closed terminal: the first signal lets steps finish or hands them back, the second kills."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from refold.errors import Stopped

T = TypeVar("T")
HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # the terminal was closed
SIGNALS = dict.fromkeys((signal.SIGINT, signal.SIGTERM, HANGUP))
LAST_MOMENT = 0.1  # seconds to learn that the last step has ended the run


async def in_foreground(
    work: Coroutine[Any, Any, T],
    stop: Callable[[float], Awaitable[object]],
    *,
    grace: float,
    resume: str,
    say: Callable[[str], object],
) -> T:
    """Return the result of the work. Raises Stopped if a signal came first and the work did not end within the grace.

    `stop` takes nothing new, and hands back what is not finished within the seconds it gets; `resume` is the command
    that goes on with the work. The run is not paused: whoever serves the store may go on with it at once. The second
    signal ends this process without any cleanup, even if its event loop is blocked; processes it has started for steps
    end with it.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[int] = loop.create_future()
    working = loop.create_task(work)
    with _signals(asked, resume):
        try:
            first: set[asyncio.Future[Any]] = {working, asked}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                say(f"stopping: steps may finish within {grace:g} s, then they are handed back; once more kills them")
                await stop(grace)
                await asyncio.wait({working}, timeout=LAST_MOMENT)
            if working.done():
                return working.result()
        finally:
            working.cancel()
    say(_to_go_on(resume))
    raise Stopped(asked.result())


@contextmanager
def _signals(asked: "asyncio.Future[int]", resume: str) -> Iterator[None]:
    """Use signal handlers of Python and not those of the event loop, which are not called while it is blocked."""
    loop, seen = asyncio.get_running_loop(), list[int]()

    def on_signal(number: int, _: object) -> None:
        if number == HANGUP and number in seen:
            return  # the system and the shell may both send it
        if seen:
            with suppress(OSError):  # the terminal may be closed
                line = "\n" if os.isatty(2) else ""  # below the progress that is drawn there
                os.write(2, f"{line}killed\n{_to_go_on(resume)}\n".encode())
            os._exit(128 + number)
        seen.append(number)
        loop.call_soon_threadsafe(asked.set_result, number)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup does
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _to_go_on(resume: str) -> str:
    return f"to go on: {resume}"
