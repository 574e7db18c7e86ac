"""The program of a warm interpreter process: it carries out one order after the other, which come from a socket.

A supervisor starts it as `python -m refold.executors.interpreter_main SOCKET`. The functions it calls are trusted
code.
"""

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
from importlib import import_module
from typing import Any, NoReturn

from msgspec import structs

from refold.core.codec import check_value
from refold.core.faults import fault_from_exception
from refold.core.outcomes import Fault
from refold.errors import InvalidValue
from refold.executors.functions import resolve
from refold.executors.wire import Answer, Bye, CallOrder, Frames, Hello, Raised, Ready, Returned, frame, to_child

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CHUNK = 1 << 16
MOST = 256 << 20  # bytes of an answer


def main(descriptor: int) -> None:
    _adopt_orphans()
    _end_with_the_supervisor()
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _stop)
    me, cpu, seal = os.getpid(), 0, b""
    with socket.socket(fileno=descriptor) as connection:
        connection.set_inheritable(False)
        os.register_at_fork(after_in_child=lambda: _leave(connection))
        for message in _messages(connection):
            match message:
                case Hello():
                    cpu, seal = message.cpu, message.seal
                    _prepare(message)
                    connection.sendall(frame(Ready(), seal))
                case CallOrder():
                    if cpu:
                        _limit_cpu(cpu)
                    answer = _carry_out(message, seal)
                    if os.getpid() != me:
                        os._exit(0)  # the body has forked, and this is its copy
                    _flush()
                    connection.sendall(answer)
                case Bye():
                    return


def _messages(connection: socket.socket) -> Any:
    frames = Frames()
    while data := connection.recv(CHUNK):
        for message in frames.cut(data):
            yield to_child.decode(message)


def _adopt_orphans() -> None:
    """Processes that a body starts stay below this process, so it is known whether any of them is left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_the_supervisor() -> None:
    """The launcher kills programs whose supervisor is dead; this is for the case that both were killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _any_left() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False  # there are no more children
    return True


def _leave(connection: socket.socket) -> None:
    """Called in a process that a body forks: it gets no connection to the engine, and SIGTERM ends it immediately.

    Many forked copies that each shut down a whole interpreter would take longer than any grace.
    """
    connection.close()
    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Stopped(SystemExit):
    """The supervisor wants this process to end; cleanup code of the body runs until the grace is over."""


def _stop(number: int, _: object) -> NoReturn:
    raise _Stopped(128 + number)


def _prepare(hello: Hello) -> None:
    sys.path[:] = hello.path
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    for module in hello.preload:
        with contextlib.suppress(Exception):  # the order that needs it will report what is wrong
            import_module(module)


def _limit_cpu(seconds: int) -> None:
    """Limit the time from now on; what earlier orders have used does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


def _carry_out(order: CallOrder, seal: bytes) -> bytes:
    try:
        result = _call(order)
        check_value(result, "result")
        answer: Answer = Returned(order.number, result, _any_left())
    except _Stopped:
        raise
    except InvalidValue as error:
        answer = Raised(order.number, Fault("invalid_value", str(error), retryable=False), _any_left())
    except BaseException as error:  # `sys.exit` too ends the step and not the process
        answer = Raised(order.number, _explained(fault_from_exception(error)), _any_left())
    try:
        data = frame(answer, seal)
        if len(data) > MOST:
            why = f"{len(data) >> 20} MiB are more than the {MOST >> 20} MiB that a step can return"
            raise ValueError(f"{why}: write the data to a file and return its path")
        return data
    except Exception as error:
        fault = Fault("invalid_value", f"result: {error}", retryable=False)
        return frame(Raised(order.number, fault, answer.left), seal)


def _explained(fault: Fault) -> Fault:
    """Add to a MemoryError, which has no message of its own, which limit was exceeded."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if fault.type != "MemoryError" or fault.message or most == resource.RLIM_INFINITY:
        return fault
    why = f"the step may use {most >> 20} MiB of memory (the setting `tool_memory`), and needed more"
    return structs.replace(fault, message=why)


def _call(order: CallOrder) -> Any:
    function = resolve(order.call)
    if function.is_async:
        return resolve("asyncio:run")(function(order.input))  # by name: importing asyncio doubles the start-up time
    return function(order.input)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the body may have closed or replaced it
            stream.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
