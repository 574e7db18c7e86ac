"""What runs in a warm interpreter process: one order after the other, from a socket, until there are no more.

Started as `python -m refold.executors.child SOCKET PARENT`. The functions it calls are trusted code.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
from importlib import import_module
from typing import Any, NoReturn

from refold.core.codec import check_value
from refold.core.facts import Fault
from refold.core.faults import fault_of
from refold.errors import InvalidValue
from refold.executors.resolve import resolve
from refold.executors.wire import Answer, Bye, Frames, Hello, Order, Raised, Ready, Returned, frame, to_child

PR_SET_PDEATHSIG = 1
CHUNK = 1 << 16


def main(descriptor: int, parent: int) -> None:
    _die_with(parent)
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _stop)
    me = os.getpid()
    with socket.socket(fileno=descriptor) as line:
        line.set_inheritable(False)
        for message in _messages(line):
            match message:
                case Hello():
                    _prepare(message)
                    line.sendall(frame(Ready()))
                case Order():
                    answer = _carry_out(message)
                    if os.getpid() != me:
                        os._exit(0)  # the body has forked, and this is what came back here of its copy
                    _flush()
                    line.sendall(answer)
                case Bye():
                    return


def _messages(line: socket.socket) -> Any:
    frames = Frames()
    while data := line.recv(CHUNK):
        for each in frames.cut(data):
            yield to_child.decode(each)


def _die_with(parent: int) -> None:
    """The kernel kills this process when the thread that started it ends, be it by SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before it could be watched


class _Stopped(SystemExit):
    """The parent wants this process to end; cleanup code of the body runs, as long as the grace lasts."""


def _stop(number: int, _: object) -> NoReturn:
    raise _Stopped(128 + number)


def _prepare(hello: Hello) -> None:
    sys.path[:] = hello.path
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    for module in hello.preload:
        with contextlib.suppress(Exception):  # the order that needs it will say what is wrong
            import_module(module)


def _carry_out(order: Order) -> bytes:
    try:
        result = _call(order)
        check_value(result, "result")
        answer: Answer = Returned(order.number, result)
    except _Stopped:
        raise
    except InvalidValue as error:
        answer = Raised(order.number, Fault("invalid_value", str(error), retryable=False))
    except BaseException as error:  # `sys.exit` too ends the step and not the process
        answer = Raised(order.number, fault_of(error))
    try:
        return frame(answer)
    except Exception as error:
        return frame(Raised(order.number, Fault("invalid_value", f"result: {error}", retryable=False)))


def _call(order: Order) -> Any:
    function = resolve(order.call)
    if function.is_async:
        return resolve("asyncio:run")(function(order.input))  # by name: to load asyncio takes half of a start
    return function(order.input)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the body may have closed or replaced it
            stream.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
