"""Steps in this process: async functions on the event loop, others in threads.

A thread cannot be stopped. When its step is cancelled or runs out of time, that is reported and the function goes on
unheard until it returns; a step that must really end runs in a process of its own. Nor does a thread help against C
code that keeps the interpreter's lock: it stops the heartbeat as well.
"""

from asyncio import CancelledError
from functools import partial
from typing import Any

from refold.core.faults import fault_from_exception
from refold.errors import ToolFailed
from refold.executors.logged import listen, said_to
from refold.executors.resolve import resolve
from refold.executors.threads import Threads
from refold.ports import Say


class Inline:
    """What bodies print goes where this process prints; `say` hears what they log."""

    def __init__(self, threads: int = 16) -> None:
        self._threads = Threads(threads)

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        function = resolve(call)
        heard = said_to.set(say) if say is not None else None
        if heard is not None:
            listen()
        try:
            if function.is_async:
                return await function(input)
            return await self._threads.run(partial(function, input))
        except (Exception, CancelledError):
            raise
        except BaseException as error:  # such as `sys.exit`: ends the step and not the worker
            raise ToolFailed(fault_from_exception(error)) from None
        finally:
            if heard is not None:
                said_to.reset(heard)

    async def close(self) -> None:
        self._threads.close()
