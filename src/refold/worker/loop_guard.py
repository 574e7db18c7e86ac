"""Keeps what a body does to the process away from it: `loop.stop()`, and exceptions that would end the interpreter."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

IN_A_BODY: ContextVar[bool] = ContextVar("refold_in_a_body", default=False)
"""Inherited by all that a body begins: its tasks, its callbacks and its threads."""

WHY = "a step must not stop the event loop: it belongs to the process, and other steps run on it"


@asynccontextmanager
async def guarded_loop() -> AsyncIterator[None]:
    """While it lasts, `stop` of the running event loop raises RuntimeError for bodies, and does its work for others.

    Without this, a body that stops the loop would end the process, and the next process would do the same.
    """
    loop = asyncio.get_running_loop()
    stop = loop.stop

    def stop_unless_in_a_body() -> None:
        if IN_A_BODY.get():
            raise RuntimeError(WHY)
        stop()

    try:
        loop.stop = stop_unless_in_a_body  # type: ignore[method-assign]
    except AttributeError:  # a loop that is not written in Python
        yield
        return
    try:
        yield
    finally:
        if vars(loop).get("stop") is stop_unless_in_a_body:
            del loop.stop


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt may come from the keyboard; where something else handles SIGINT, a body raised it."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    raised_by_asyncio = frame is not None and frame.tb_frame.f_code.co_name == "_on_sigint"
    return raised_by_asyncio or signal.getsignal(signal.SIGINT) is signal.default_int_handler
