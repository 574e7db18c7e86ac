"""Keeps what a body does to the process away from it: `loop.stop()`, and exceptions that would end the interpreter."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from opcode import opmap

IN_A_BODY: ContextVar[bool] = ContextVar("refold_in_a_body", default=False)
"""Inherited by all that a body begins: its tasks, its callbacks and its threads."""

RAISE = opmap["RAISE_VARARGS"]
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
    """Whether a KeyboardInterrupt comes from the keyboard. One that a `raise` of the body has made does not."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return True
    code = last.tb_frame.f_code
    return code.co_name == "_on_sigint" or code.co_code[last.tb_lasti] != RAISE
