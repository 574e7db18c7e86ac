"""Programs that run under supervisors, as the engine sees them.

A supervisor process starts a program and, when the program ends, kills everything the program has started. The script
that these processes run is `supervisor_process.py`.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

from refold.core.outcomes import Fault
from refold.executors.limits import Limits, environment

SUPERVISOR_SCRIPT = os.path.join(os.path.dirname(__file__), "supervisor_process.py")  # a script, and not imported here
HEAD = 4  # bytes of a length
CHUNK = 1 << 12
REPORT = re.compile(rb"ended (?P<code>-?\d{1,3})|failed (?P<number>\d{1,4}) (?P<what>program|folder)")
KILL_LIMIT = 10.0  # seconds after the grace; the system may delay the end of a killed process for so long
KILLED_BY = {
    "SIGKILL": "by SIGKILL, perhaps because the machine ran out of memory",
    "SIGXCPU": "by SIGXCPU: it has used up its {cpu} seconds of processor time, the setting `tool_cpu`",
}


class ProgramStart(Struct, frozen=True, kw_only=True):
    """A program to start. It gets exactly this environment; files are given by the number they have in the program."""

    argv: Sequence[str]
    env: Mapping[str, str]
    files: Mapping[int, int]
    cwd: str | None = None
    cpu: int = 0  # seconds of processor time; 0: no limit

    def encoded(self) -> bytes:
        """Raise ValueError for arguments or variables that the system cannot pass to a program."""
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
        if any(b"\0" in field for field in fields):
            raise ValueError("embedded null byte")
        return _encode(*fields)


def _encode(*fields: bytes) -> bytes:
    data = b"\0".join(fields)
    return len(data).to_bytes(HEAD, "big") + data


class SupervisedProgram:
    """A program and everything it starts.

    `over` is done when no process of it is left. Its result is the exit code, or the negative number of a signal, or
    None if its supervisor is dead, so that nothing is known about its end. It raises OSError if the program could not
    be started.
    """

    def __init__(self, start: ProgramStart, supervisor: "SupervisorSocket") -> None:
        self.start = start
        self.over: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._supervisor = supervisor

    def stop(self, grace: float) -> None:
        """Ask all its processes to end; those left after the grace are killed."""
        if not self.over.done():
            self._supervisor.send(_encode(b"stop", str(grace).encode()))

    async def stopped(self, grace: float) -> None:
        """Return when no process of it is left, or when not even killing helps."""
        self.stop(grace)
        await asyncio.wait([self.over], timeout=grace + KILL_LIMIT)


class SupervisorSocket:
    """The socket to a supervisor, which runs one program at a time."""

    def __init__(self, supervisors: "Supervisors", connection: socket.socket) -> None:
        self._supervisors, self._connection = supervisors, connection
        self._program: SupervisedProgram | None = None
        self._received = b""
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)

    def start(self, start: ProgramStart, order: bytes) -> SupervisedProgram:
        self._program = program = SupervisedProgram(start, self)
        try:
            sent = socket.send_fds(self._connection, [order], list(start.files.values()))
        except OSError:  # the supervisor is dead; `close` reports that to the program
            self.close()
        else:
            self.send(order[sent:])
        return program

    def send(self, data: bytes) -> None:
        self._unsent += data
        self._write()

    def close(self) -> None:
        """The supervisor ends its program, and then itself."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection.fileno())
            self._loop.remove_writer(self._connection.fileno())
            self._connection.close()
            self._supervisors.remove(self)
            self._end(None)

    def _write(self) -> None:
        if self._connection.fileno() < 0:
            return
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._connection.fileno(), self._write)
            return
        except OSError:  # the supervisor is dead
            self.close()
            return
        self._loop.remove_writer(self._connection.fileno())

    def _read(self) -> None:
        try:
            data = self._connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # treated like the end of the stream
        if not data:
            self.close()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:  # the program has ended, so its supervisor is free for another
            report = REPORT.fullmatch(line)
            if report is None or self._program is None:
                self.close()  # not written by a supervisor; closing the socket ends the program too
                return
            self._supervisors.free(self)
            if report["code"] is not None:
                self._end(int(report["code"]))
            else:
                self._end(None, int(report["number"]), report["what"].decode())

    def _end(self, code: int | None, number: int = 0, what: str = "") -> None:
        program, self._program = self._program, None
        if program is None or program.over.done():
            return
        if what:
            name = program.start.argv[0] if what == "program" else program.start.cwd
            program.over.set_exception(OSError(number, os.strerror(number), name))
        else:
            program.over.set_result(code)


def _wait(launcher: "subprocess.Popen[bytes]") -> None:
    try:
        launcher.wait(KILL_LIMIT)
    except subprocess.TimeoutExpired:
        launcher.kill()  # it waits for a process that the system does not end
        launcher.wait()


class Supervisors:
    """The supervisors, one for each program that runs at the same time, and the launcher process that forks them.

    No process is started before the first program. When this process dies, for whatever reason, all programs are
    killed.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits if limits is not None else Limits()
        self._idle: list[SupervisorSocket] = []
        self._sockets: set[SupervisorSocket] = set()
        self._control: socket.socket | None = None
        self._launchers: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        """The process id of the launcher; 0 before the first program."""
        return self._launchers[-1].pid if self._launchers else 0

    def start(self, start: ProgramStart) -> SupervisedProgram:
        """Raise ValueError for what cannot be passed to a program; every other error is raised by `over`."""
        order = start.encoded()
        supervisor = self._idle.pop() if self._idle else self._launch_supervisor()
        return supervisor.start(start, order)

    async def close(self) -> None:
        """Return when no process of any program is left."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for supervisor in list(self._sockets):
            supervisor.close()
        launchers, self._launchers = self._launchers, []
        for launcher in launchers:
            await asyncio.to_thread(_wait, launcher)

    def free(self, supervisor: SupervisorSocket) -> None:
        self._idle.append(supervisor)

    def remove(self, supervisor: SupervisorSocket) -> None:
        self._sockets.discard(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)

    def _launch_supervisor(self) -> SupervisorSocket:
        ours, theirs = socket.socketpair()
        try:
            self._send_to_launcher(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        supervisor = SupervisorSocket(self, ours)
        self._sockets.add(supervisor)
        return supervisor

    def _send_to_launcher(self, descriptor: int) -> None:
        """A socket that no launcher accepts is closed, which the engine sees at its own end."""
        for _ in range(2):
            if self._control is None:
                self._control = self._start_launcher()
            try:
                socket.send_fds(self._control, [b"."], [descriptor])
                return
            except OSError:  # the launcher was killed
                self._control.close()
                self._control = None

    def _start_launcher(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", SUPERVISOR_SCRIPT, str(theirs.fileno()), *self.limits.arguments()]
        try:
            launcher = subprocess.Popen(
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
        self._launchers.append(launcher)
        return ours


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def fault_of_death(code: int | None, last_output: str, limits: Limits) -> Fault:
    """The fault of a process that ended before its step did; `code` is as in `SupervisedProgram.over`."""
    if code is None:
        why = "the process was killed with its supervisor"
        return Fault("process_died", why, code="SIGKILL", traceback=last_output)
    if code < 0:
        name = signal_name(-code)
        how = KILLED_BY.get(name, f"by {name}").format(cpu=limits.cpu)
        return Fault("process_died", f"the process was killed {how}", code=name, traceback=last_output)
    why = f"the process ended with exit code {code} before the step did"
    return Fault("process_died", why, code=code, traceback=last_output)
