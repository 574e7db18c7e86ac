"""Programs under guard, as the engine sees them: started by wardens, and gone with all they started when they end."""

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

from refold.executors.limits import Limits, environment

WARDEN = os.path.join(os.path.dirname(__file__), "supervisor_process.py")  # a script, and not imported here
HEAD = 4  # bytes of a length
CHUNK = 1 << 12
SAID = re.compile(rb"ended (?P<code>-?\d{1,3})|failed (?P<number>\d{1,4}) (?P<what>program|folder)")
STUCK = 10.0  # seconds after the grace in which even a killed process may be held up by the system


class Start(Struct, frozen=True, kw_only=True):
    """A program, with all that it gets: its environment is this and nothing else; files are by their number in it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    files: Mapping[int, int]
    cwd: str | None = None
    cpu: int = 0  # seconds of a processor; 0: any

    def told(self) -> bytes:
        """Raises ValueError for what no program can get."""
        if bad := next((name for name in self.env if "=" in name or not name), None):
            raise ValueError(f"illegal environment variable name {bad!r}")
        fields = [
            b"start",
            os.fsencode(os.path.abspath(self.cwd or ".")),
            ",".join(map(str, self.files)).encode(),
            str(self.cpu).encode(),
            str(len(self.argv)).encode(),
            *map(os.fsencode, self.argv),
            *(os.fsencode(f"{name}={value}") for name, value in self.env.items()),
        ]
        if any(b"\0" in each for each in fields):
            raise ValueError("embedded null byte")
        return _told(*fields)


def _told(*fields: bytes) -> bytes:
    data = b"\0".join(fields)
    return len(data).to_bytes(HEAD, "big") + data


class Ward:
    """A program and all it starts. `over` comes when nothing of it is left: its exit code, or minus a signal.

    It raises OSError if the program could not be started. None: its warden is dead, and nobody knows how it ended.
    """

    def __init__(self, start: Start, line: "Line") -> None:
        self.start = start
        self.over: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._line = line

    def stop(self, grace: float) -> None:
        """All of it is asked to end, and what is left after the grace is killed."""
        if not self.over.done():
            self._line.tell(_told(b"stop", str(grace).encode()))

    async def stopped(self, grace: float) -> None:
        """Returns when nothing of it is left, or when even killing does not help."""
        self.stop(grace)
        await asyncio.wait([self.over], timeout=grace + STUCK)


class Line:
    """The socket to a warden, which has one ward at a time."""

    def __init__(self, wardens: "Wardens", line: socket.socket) -> None:
        self._wardens, self._socket = wardens, line
        self._ward: Ward | None = None
        self._kept = b""
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line.fileno(), self._read)

    def start(self, start: Start, order: bytes) -> Ward:
        self._ward = ward = Ward(start, self)
        try:
            sent = socket.send_fds(self._socket, [order], list(start.files.values()))
        except OSError:  # the warden is gone; its ward learns of it
            self.close()
        else:
            self.tell(order[sent:])
        return ward

    def tell(self, data: bytes) -> None:
        self._unsent += data
        self._write()

    def close(self) -> None:
        """The warden ends, and what it watches over."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._wardens.lost(self)
            self._end(None)

    def _write(self) -> None:
        if self._socket.fileno() < 0:
            return
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._socket.fileno(), self._write)
            return
        except OSError:  # as above
            self.close()
            return
        self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # the end
        if not data:
            self.close()
            return
        *words, self._kept = (self._kept + data).split(b"\n")
        for word in words:  # the last of a program: the warden is free for another
            said = SAID.fullmatch(word)
            if said is None or self._ward is None:
                self.close()  # whoever speaks there is no warden, and what it watches over ends with the line
                return
            self._wardens.free(self)
            if said["code"] is not None:
                self._end(int(said["code"]))
            else:
                self._end(None, int(said["number"]), said["what"].decode())

    def _end(self, code: int | None, number: int = 0, what: str = "") -> None:
        ward, self._ward = self._ward, None
        if ward is None or ward.over.done():
            return
        if what:
            name = ward.start.argv[0] if what == "program" else ward.start.cwd
            ward.over.set_exception(OSError(number, os.strerror(number), name))
        else:
            ward.over.set_result(code)


def _wait(supervisor: "subprocess.Popen[bytes]") -> None:
    try:
        supervisor.wait(STUCK)
    except subprocess.TimeoutExpired:
        supervisor.kill()  # it waits for what the system does not let go
        supervisor.wait()


class Wardens:
    """The supervisor and its wardens, of which there are as many as programs run at once.

    Nothing is started before the first program. When this process dies, however it does, all programs are killed.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits if limits is not None else Limits()
        self._idle: list[Line] = []
        self._lines: set[Line] = set()
        self._control: socket.socket | None = None
        self._supervisors: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self._supervisors[-1].pid if self._supervisors else 0

    def start(self, start: Start) -> Ward:
        """Raises ValueError for what no program can get; what else is wrong with it is told when it is over."""
        order = start.told()
        line = self._idle.pop() if self._idle else self._hire()
        return line.start(start, order)

    async def close(self) -> None:
        """Returns when nothing is left of all that was started."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for line in list(self._lines):
            line.close()
        supervisors, self._supervisors = self._supervisors, []
        for each in supervisors:
            await asyncio.to_thread(_wait, each)

    def free(self, line: Line) -> None:
        self._idle.append(line)

    def lost(self, line: Line) -> None:
        self._lines.discard(line)
        if line in self._idle:
            self._idle.remove(line)

    def _hire(self) -> Line:
        ours, theirs = socket.socketpair()
        try:
            self._send(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        line = Line(self, ours)
        self._lines.add(line)
        return line

    def _send(self, descriptor: int) -> None:
        """What is not taken is closed, and its other end tells so."""
        for _ in range(2):
            if self._control is None:
                self._control = self._supervise()
            try:
                socket.send_fds(self._control, [b"."], [descriptor])
                return
            except OSError:  # somebody has killed it
                self._control.close()
                self._control = None

    def _supervise(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", WARDEN, str(theirs.fileno()), *self.limits.told()]
        try:
            supervisor = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment(os.environ),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._supervisors.append(supervisor)
        return ours
