"""What runs in a warm interpreter process: one order after the other, from a socket, until there are no more.

Started by a warden as `python -m refold.executors.interpreter_main SOCKET`. The functions it calls are trusted code.
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
from refold.executors.resolve import resolve
from refold.executors.wire import Answer, Bye, Frames, Hello, Order, Raised, Ready, Returned, frame, to_child

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CHUNK = 1 << 16
MOST = 256 << 20  # bytes of an answer


def main(descriptor: int) -> None:
    _adopt_orphans()
    _end_with_the_warden()
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _stop)
    me, cpu, seal = os.getpid(), 0, b""
    with socket.socket(fileno=descriptor) as line:
        line.set_inheritable(False)
        os.register_at_fork(after_in_child=lambda: _leave(line))
        for message in _messages(line):
            match message:
                case Hello():
                    cpu, seal = message.cpu, message.seal
                    _prepare(message)
                    line.sendall(frame(Ready(), seal))
                case Order():
                    if cpu:
                        _limit_cpu(cpu)
                    answer = _carry_out(message, seal)
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


def _adopt_orphans() -> None:
    """What a body starts stays below this process, and so it is known whether anything of it is left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_the_warden() -> None:
    """A supervisor ends what has lost its warden; this is for when both have been killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _any_left() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False  # there are no more
    return True


def _leave(line: socket.socket) -> None:
    """In what a body forks: it has no line to the engine, and ends like any program when it is asked to. The way of an
    interpreter, through all that it has loaded, would take a crowd of copies longer than any grace."""
    line.close()
    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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


def _limit_cpu(seconds: int) -> None:
    """From now on; what earlier orders have used does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


def _carry_out(order: Order, seal: bytes) -> bytes:
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
            why = f"{len(data) >> 20} MiB are more than the {MOST >> 20} MiB that a step can give"
            raise ValueError(f"{why}: write them to a file, and give its path")
        return data
    except Exception as error:
        fault = Fault("invalid_value", f"result: {error}", retryable=False)
        return frame(Raised(order.number, fault, answer.left), seal)


def _explained(fault: Fault) -> Fault:
    """An error that says nothing of itself: who runs into a limit should know which."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if fault.type != "MemoryError" or fault.message or most == resource.RLIM_INFINITY:
        return fault
    why = f"the step may use {most >> 20} MiB of memory (the setting `tool_memory`), and needed more"
    return structs.replace(fault, message=why)


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
    main(int(sys.argv[1]))
