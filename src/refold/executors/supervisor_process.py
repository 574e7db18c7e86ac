"""The processes that start tools: a launcher, and the supervisors that it forks, each for one program at a time.

All of them are child subreapers: a process whose parent is dead becomes a child of the nearest of them, whatever group,
session or environment it has given itself. So a supervisor ends a program completely by killing until it has no child
left, and the launcher does the same for a supervisor that was killed. They notice that the engine is gone by the end of
a socket. No program inherits any of these sockets, because everything that is written there is believed.

Run as a script by `supervised.py`: only the standard library is imported, and little of it, so that it starts fast.
"""

import array
import ctypes
import errno
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress

PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
HEAD = 4  # bytes of a length
CHUNK = 1 << 16
FILES = 8  # that may come with an order
ROUNDS = 100  # of stopping processes: each stops those that are new since the one before, until there are no new ones
REAP_EVERY = 5.0  # seconds; orphans of a program that have died are reaped after this time
LOOK_EVERY = 0.01  # seconds between two checks where the system does not report the end of a process
SCAN_AFTER, SCAN_EVERY = 0.02, 1.0  # seconds until the next search for processes that are left: first, and at most
PROC = os.path.isdir("/proc/self")
RESERVED = 10  # file numbers that are kept free for programs
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)  # these processes end when the engine does
DEFAULT_SIGNALS = (*IGNORED, signal.SIGCHLD, signal.SIGXFSZ)
LIMITS: Mapping[str, int] = {
    "memory": resource.RLIMIT_DATA,
    "address_space": resource.RLIMIT_AS,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}


def main(descriptor: int, limits: Sequence[str]) -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    _prctl(PR_SET_NO_NEW_PRIVS)
    _prctl(PR_SET_CHILD_SUBREAPER)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would contain secrets
    for limit in limits:
        name, _, most = limit.partition("=")
        _limit(0, LIMITS[name], int(most))
    while os.open(os.devnull, os.O_RDONLY) < RESERVED:
        pass
    with socket.socket(fileno=descriptor) as control:
        control.set_inheritable(False)
        Launcher(control).run()


def _prctl(what: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, 1, 0, 0, 0)


def _limit(pid: int, which: int, most: int) -> None:
    """Set the soft and the hard limit, but never above the present hard limit."""
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if pid == 0:
        resource.setrlimit(which, (most, most))
    elif hasattr(resource, "prlimit"):
        with suppress(ProcessLookupError):  # it has ended
            resource.prlimit(pid, which, (most, most))


class Launcher:
    """Forks a supervisor for each socket that it receives; ends when the engine is gone and all supervisors are."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self._supervisors: set[int] = set()
        self._deaths = Deaths()

    def run(self) -> None:
        ready = select.poll()
        ready.register(self.control, select.POLLIN)
        ready.register(self._deaths.file, select.POLLIN)
        is_engine_there = True
        while is_engine_there or self._supervisors:
            readable = {file for file, _ in ready.poll()}
            if self._deaths.file in readable:
                self._deaths.clear()
                if self._reap():
                    kill_all(self._strays, self._any_stray)
            if is_engine_there and self.control.fileno() in readable:
                is_engine_there = self._launch()
                if not is_engine_there:
                    ready.unregister(self.control)

    def _launch(self) -> bool:
        data, files = _receive(self.control)
        for descriptor in files:
            with suppress(OSError):  # no more processes are possible: the engine sees that the socket is closed
                if (pid := os.fork()) == 0:
                    self._become_a_supervisor(descriptor, files)
                self._supervisors.add(pid)
        for descriptor in files:
            os.close(descriptor)
        return bool(data)

    def _become_a_supervisor(self, descriptor: int, files: Sequence[int]) -> None:
        """It keeps one socket and no other, so that a dead supervisor is seen as the end of its socket."""
        code = 1
        try:
            self.control.close()
            self._deaths.close()
            for file in files:
                if file != descriptor:
                    os.close(file)
            _prctl(PR_SET_CHILD_SUBREAPER)
            with socket.socket(fileno=descriptor) as connection:
                Supervisor(connection).run()
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> bool:
        """Return whether a supervisor was killed, so that its program is now a child of the launcher."""
        killed = False
        with suppress(ChildProcessError):  # there are no more children
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._supervisors:
                    self._supervisors.discard(ended[0])
                    killed = killed or ended[1] != 0
        return killed

    def _strays(self) -> set[int]:
        """The processes below the launcher that are not below a supervisor."""
        return descendants(os.getpid(), self._supervisors)

    def _any_stray(self) -> bool:
        """The short list of its own children shows that some are left; only a full search shows that none is."""
        self._reap()
        return not self._supervisors.issuperset(own_children()) or bool(self._strays())


class Deaths:
    """Has a file that becomes readable when a child has ended."""

    def __init__(self) -> None:
        self.file, self._write = os.pipe()
        for file in (self.file, self._write):
            os.set_blocking(file, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def clear(self) -> None:
        with suppress(BlockingIOError):  # everything has been read
            while os.read(self.file, CHUNK):
                pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file in (self.file, self._write):
            os.close(file)


class Gone(Exception):
    """The engine has closed the socket, or is dead."""


class Supervisor:
    """Starts one program after the other, and reports how each has ended when no process of it is left."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = bytearray()
        self._files: list[int] = []
        self._main = 0
        self._code: int | None = None
        self._ready = select.poll()
        self._ready.register(connection, select.POLLIN)

    def run(self) -> None:
        try:
            while True:
                if (order := self._next()) is None:
                    self._receive()
                elif order[0] == b"start":  # a `stop` here has come too late
                    self._run_one(order)
        except Gone:
            if self._reap():
                kill_all(self._mine, self._reap)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the engine does not want to know how it ended

    def _run_one(self, order: Sequence[bytes]) -> None:
        self._code = None
        try:
            self._main = self._start(order)
        except OSError as error:
            what = "folder" if error.filename is not None else "program"
            self.connection.sendall(f"failed {error.errno or 0} {what}\n".encode())
            return
        finally:
            for file in self._files:
                os.close(file)
            self._files.clear()
        self._watch()
        self.connection.sendall(f"ended {self._code}\n".encode())

    def _start(self, order: Sequence[bytes]) -> int:
        """In a session of its own, so that a Ctrl-C at the terminal is for the engine alone."""
        _, cwd, targets, cpu, count, *words = order
        argv, env = words[: int(count)], dict(word.split(b"=", 1) for word in words[int(count) :])
        numbers = [int(target) for target in targets.split(b",") if target]
        actions: list[tuple[object, ...]] = [
            (os.POSIX_SPAWN_DUP2, *pair) for pair in zip(self._files, numbers, strict=True)
        ]
        for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
            if number not in numbers:  # never that of the supervisor, which belongs to the engine
                actions.append((os.POSIX_SPAWN_OPEN, number, os.devnull, mode, 0))
        os.chdir(cwd)
        try:
            program = find_program(argv[0], env)
            pid = os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=DEFAULT_SIGNALS)
        except OSError as error:
            raise OSError(error.errno, "") from None  # without a file name: the folder is not the cause
        finally:
            os.chdir("/")
        if int(cpu):
            _limit(pid, resource.RLIMIT_CPU, int(cpu))
        return pid

    def _watch(self) -> None:
        """Return when no process is left. What outlives the program, or the grace after a `stop`, is killed."""
        until: float | None = None
        with _death_of(self._main, self._ready) as death:
            while self._reap():
                until = self._obey(until)
                now = time.monotonic()
                if self._is_over(until, now):
                    kill_all(self._mine, self._reap)
                    return
                patience = REAP_EVERY if death and self._code is None else LOOK_EVERY
                wait = patience if until is None else min(patience, until - now)
                if self._code is not None and death:
                    self._ready.unregister(death.pop())
                if any(file == self.connection.fileno() for file, _ in self._ready.poll(1000 * wait + 1)):
                    self._receive()

    def _is_over(self, until: float | None, now: float) -> bool:
        """Return whether what is left must be killed now: at the end of the grace, or when the program has ended."""
        return self._code is not None if until is None else until <= now

    def _obey(self, until: float | None) -> float | None:
        """Carry out `stop` orders, and return when everything must have ended; the latest order counts."""
        while (order := self._next()) is not None:
            if order[0] == b"stop":
                for pid in self._mine() if float(order[1]) else ():  # without a grace there is no time to clean up
                    send(pid, signal.SIGTERM)
                until = time.monotonic() + float(order[1])
        return until

    def _reap(self) -> bool:
        """Return whether any child is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._main:
                    self._code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return False  # there are no more children
        return True

    def _mine(self) -> set[int]:
        """All processes below this one; where the system does not tell parents, the process group of the program."""
        return descendants(os.getpid()) if PROC else {-self._main}

    def _receive(self) -> None:
        data, files = _receive(self.connection)
        if not data:
            raise Gone
        self._files += files
        self._received += data

    def _next(self) -> list[bytes] | None:
        end = HEAD + int.from_bytes(self._received[:HEAD], "big")
        if len(self._received) < max(end, HEAD):
            return None
        order = bytes(self._received[HEAD:end]).split(b"\0")
        del self._received[:end]
        return order


@contextmanager
def _death_of(pid: int, ready: select.poll) -> Iterator[list[int]]:
    """Register a file that becomes readable when the process has ended; some systems have no such file."""
    if not hasattr(os, "pidfd_open"):
        yield []
        return
    file = os.pidfd_open(pid)
    registered = [file]
    ready.register(file, select.POLLIN)
    try:
        yield registered
    finally:
        for entry in registered:
            ready.unregister(entry)
        os.close(file)


def find_program(program: bytes, env: Mapping[bytes, bytes]) -> bytes:
    """The path of a program, by the PATH of its own environment. Raises OSError."""
    if b"/" in program:
        return program
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = os.path.join(folder, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, "")


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """The data, and the files that came with it; no program inherits them.

    `socket.recv_fds` ignores its flags in Python 3.11, so every program would inherit the files that it returns.
    """
    room = array.array("i")
    try:
        data, ancillary, *_ = connection.recvmsg(
            CHUNK, socket.CMSG_LEN(FILES * room.itemsize), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        )
    except ConnectionResetError:
        return b"", []  # the end of the socket
    for level, kind, packed in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            room.frombytes(packed[: len(packed) - len(packed) % room.itemsize])
    for file in room:
        os.set_inheritable(file, False)  # where the system does not know the flag
    return data, list(room)


def kill_all(find: Callable[[], set[int]], any_left: Callable[[], bool]) -> None:
    """Kill until no process is left. First all are stopped, so that those not yet killed do not start new ones.

    A stopped process starts no new ones, so a second search is needed only for those that were overlooked. The number
    of searches therefore hardly grows with the number of processes; the time of each search does.
    """
    stopped: set[int] = set()
    for _ in range(ROUNDS):
        new = find() - stopped
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
        if not new:
            break
    pause, again, looked_at = 0.0005, SCAN_AFTER, -SCAN_EVERY
    while any_left():
        if time.monotonic() - looked_at >= again:
            for pid in find():
                send(pid, signal.SIGKILL)
            again, looked_at = min(2 * again, SCAN_EVERY), time.monotonic()
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or its number now belongs to another user
        os.kill(pid, number)


def descendants(pid: int, without: Set[int] = frozenset()) -> set[int]:
    """All processes below this one, as far as the system tells their parents."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents():
        below.setdefault(parent, []).append(child)
    result, unseen = set[int](), [pid]
    while unseen:
        children = [child for child in below.get(unseen.pop(), ()) if child not in without]
        result.update(children)
        unseen += children
    return result


def own_children() -> set[int]:
    """The children of this process; the system may leave out some of them while others end."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return {int(word) for word in file.read().split()}
    except OSError:
        return set()  # a kernel without such a list


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc") if PROC else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # it may just have ended
                yield int(name), int(file.read().rpartition(b")")[2].split()[1])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
