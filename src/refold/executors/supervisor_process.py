"""The processes that start tools: a supervisor, which makes wardens, and wardens, each for one program at a time.

All of them are child subreapers: a process whose parent is dead becomes a child of the nearest of them, whatever group,
session or environment it has given itself. So a warden ends a program for good by killing until it has no child left,
and the supervisor does the same for a warden that was killed. That the engine is gone is the end of a socket to them.
No program inherits any of these sockets: all that a step could say there would be believed.

Run as a script by `wards.py`: only the standard library is imported, and little of it, so that it starts fast.
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
FILES = 8  # that an order may bring along
ROUNDS = 100  # of stopping, each of what the one before has not found; with one that finds nothing, all are stopped
REAP_EVERY = 5.0  # seconds; what a program has orphaned and then died waits so long to be taken away
LOOK_EVERY = 0.01  # seconds between two looks where nobody tells of an end
SCAN_AFTER, SCAN_EVERY = 0.02, 1.0  # seconds until all that is left is looked for again: first, and at most
PROC = os.path.isdir("/proc/self")
RESERVED = 10  # numbers of files that are for programs
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)  # its work ends when the engine's does
DEFAULT = (*IGNORED, signal.SIGCHLD, signal.SIGXFSZ)
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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold secrets
    for limit in limits:
        name, _, most = limit.partition("=")
        _limit(0, LIMITS[name], int(most))
    while os.open(os.devnull, os.O_RDONLY) < RESERVED:
        pass
    with socket.socket(fileno=descriptor) as control:
        control.set_inheritable(False)
        Supervisor(control).run()


def _prctl(what: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, 1, 0, 0, 0)


def _limit(pid: int, which: int, most: int) -> None:
    """Soft and hard at once, but never above what holds already."""
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if pid == 0:
        resource.setrlimit(which, (most, most))
    elif hasattr(resource, "prlimit"):
        with suppress(ProcessLookupError):  # it has ended
            resource.prlimit(pid, which, (most, most))


class Supervisor:
    """Makes a warden for each line that it is sent; ends when nobody can send any more, after its wardens."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self._wardens: set[int] = set()
        self._deaths = Deaths()

    def run(self) -> None:
        ready = select.poll()
        ready.register(self.control, select.POLLIN)
        ready.register(self._deaths.file, select.POLLIN)
        hiring = True
        while hiring or self._wardens:
            found = {file for file, _ in ready.poll()}
            if self._deaths.file in found:
                self._deaths.forget()
                if self._reap():
                    kill_all(self._strays, self._any_stray)
            if hiring and self.control.fileno() in found:
                hiring = self._hire()
                if not hiring:
                    ready.unregister(self.control)

    def _hire(self) -> bool:
        data, files = _receive(self.control)
        for descriptor in files:
            with suppress(OSError):  # no more processes: whoever holds the other end learns of it by its end
                if (pid := os.fork()) == 0:
                    self._become_a_warden(descriptor, files)
                self._wardens.add(pid)
        for descriptor in files:
            os.close(descriptor)
        return bool(data)

    def _become_a_warden(self, descriptor: int, files: Sequence[int]) -> None:
        """It holds one line and no other, so that the end of a warden is the end of its line."""
        code = 1
        try:
            self.control.close()
            self._deaths.close()
            for each in files:
                if each != descriptor:
                    os.close(each)
            _prctl(PR_SET_CHILD_SUBREAPER)
            with socket.socket(fileno=descriptor) as line:
                Warden(line).run()
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> bool:
        """Whether a warden was killed, and has left its program to the supervisor."""
        killed = False
        with suppress(ChildProcessError):  # there are no more
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._wardens:
                    self._wardens.discard(ended[0])
                    killed = killed or ended[1] != 0
        return killed

    def _strays(self) -> set[int]:
        """What is a child of the supervisor and no warden."""
        return descendants(os.getpid(), self._wardens)

    def _any_stray(self) -> bool:
        """The short list of its own children is enough to see that some are left; that none is, takes a whole look."""
        self._reap()
        return not self._wardens.issuperset(own_children()) or bool(self._strays())


class Deaths:
    """A file that can be read when a child has ended."""

    def __init__(self) -> None:
        self.file, self._write = os.pipe()
        for each in (self.file, self._write):
            os.set_blocking(each, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def forget(self) -> None:
        with suppress(BlockingIOError):  # all was read
            while os.read(self.file, CHUNK):
                pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self.file, self._write):
            os.close(each)


class Gone(Exception):
    """The engine has closed the line, or is dead."""


class Warden:
    """Starts what it is told to, one after the other, and says how each has ended when nothing is left of it."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._kept = bytearray()
        self._files: list[int] = []
        self._main = 0
        self._code: int | None = None
        self._ready = select.poll()
        self._ready.register(line, select.POLLIN)

    def run(self) -> None:
        try:
            while True:
                if (order := self._next()) is None:
                    self._receive()
                elif order[0] == b"start":  # and not a `stop` that came too late
                    self._run_one(order)
        except Gone:
            if self._reap():
                kill_all(self._mine, self._reap)
        except (BrokenPipeError, ConnectionResetError):
            pass  # nobody wants to hear how it ended

    def _run_one(self, order: Sequence[bytes]) -> None:
        self._code = None
        try:
            self._main = self._start(order)
        except OSError as error:
            what = "folder" if error.filename is not None else "program"
            self.line.sendall(f"failed {error.errno or 0} {what}\n".encode())
            return
        finally:
            for each in self._files:
                os.close(each)
            self._files.clear()
        self._watch()
        self.line.sendall(f"ended {self._code}\n".encode())

    def _start(self, order: Sequence[bytes]) -> int:
        """In a session of its own, so that a Ctrl-C at the terminal is for the engine alone."""
        _, cwd, targets, cpu, count, *rest = order
        argv, env = rest[: int(count)], dict(each.split(b"=", 1) for each in rest[int(count) :])
        numbers = [int(each) for each in targets.split(b",") if each]
        actions: list[tuple[object, ...]] = [
            (os.POSIX_SPAWN_DUP2, *each) for each in zip(self._files, numbers, strict=True)
        ]
        for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
            if number not in numbers:  # it never gets that of the warden, which is the engine's
                actions.append((os.POSIX_SPAWN_OPEN, number, os.devnull, mode, 0))
        os.chdir(cwd)
        try:
            program = found(argv[0], env)
            pid = os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=DEFAULT)
        except OSError as error:
            raise OSError(error.errno, "") from None  # without a name: it is not the folder
        finally:
            os.chdir("/")
        if int(cpu):
            _limit(pid, resource.RLIMIT_CPU, int(cpu))
        return pid

    def _watch(self) -> None:
        """Until nothing is left of it. What outlives the program is killed; if it is told to stop, after a grace."""
        until: float | None = None
        with _death_of(self._main, self._ready) as told:
            while self._reap():
                until = self._obey(until)
                now = time.monotonic()
                if self._is_over(until, now):
                    kill_all(self._mine, self._reap)
                    return
                patience = REAP_EVERY if told and self._code is None else LOOK_EVERY
                wait = patience if until is None else min(patience, until - now)
                if self._code is not None and told:
                    self._ready.unregister(told.pop())
                if any(file == self.line.fileno() for file, _ in self._ready.poll(1000 * wait + 1)):
                    self._receive()

    def _is_over(self, until: float | None, now: float) -> bool:
        """What is left has had its time: until then if it was told to stop, and else as long as the program."""
        return self._code is not None if until is None else until <= now

    def _obey(self, until: float | None) -> float | None:
        """Passes on what it is told, and says by when all must have ended: the latest order counts."""
        while (order := self._next()) is not None:
            if order[0] == b"stop":
                for pid in self._mine() if float(order[1]) else ():  # without a grace nobody has time to clean up
                    send(pid, signal.SIGTERM)
                until = time.monotonic() + float(order[1])
        return until

    def _reap(self) -> bool:
        """Whether any child is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._main:
                    self._code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return False  # there are no more
        return True

    def _mine(self) -> set[int]:
        """Where nobody knows whose child a process is, the group of the program."""
        return descendants(os.getpid()) if PROC else {-self._main}

    def _receive(self) -> None:
        data, files = _receive(self.line)
        if not data:
            raise Gone
        self._files += files
        self._kept += data

    def _next(self) -> list[bytes] | None:
        end = HEAD + int.from_bytes(self._kept[:HEAD], "big")
        if len(self._kept) < max(end, HEAD):
            return None
        order = bytes(self._kept[HEAD:end]).split(b"\0")
        del self._kept[:end]
        return order


@contextmanager
def _death_of(pid: int, ready: select.poll) -> Iterator[list[int]]:
    """A file among those that are waited for, which can be read when the process has ended; none on some systems."""
    if not hasattr(os, "pidfd_open"):
        yield []
        return
    file = os.pidfd_open(pid)
    told = [file]
    ready.register(file, select.POLLIN)
    try:
        yield told
    finally:
        for each in told:
            ready.unregister(each)
        os.close(file)


def found(program: bytes, env: Mapping[bytes, bytes]) -> bytes:
    """Where a program is, by the PATH that it gets itself. Raises OSError."""
    if b"/" in program:
        return program
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = os.path.join(folder, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, "")


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    """What was said, and the files that came along; no program inherits them.

    `socket.recv_fds` does not pass its flags on in Python 3.11, so the files that it gives are inherited by all.
    """
    room = array.array("i")
    try:
        data, told, *_ = line.recvmsg(
            CHUNK, socket.CMSG_LEN(FILES * room.itemsize), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        )
    except ConnectionResetError:
        return b"", []  # the end of the line
    for level, kind, packed in told:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            room.frombytes(packed[: len(packed) - len(packed) % room.itemsize])
    for each in room:
        os.set_inheritable(each, False)  # where the system does not know the flag
    return data, list(room)


def kill_all(find: Callable[[], set[int]], any_left: Callable[[], bool]) -> None:
    """Until nothing is left. First all are stopped, so that those still to be killed do not make new ones.

    What is stopped and killed makes no new ones and needs no second look, but for one that was overlooked: so the
    number of looks hardly grows with the number of processes, each of which makes a look longer.
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
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or its number belongs to somebody else
        os.kill(pid, number)


def descendants(pid: int, without: Set[int] = frozenset()) -> set[int]:
    """All below this process, as far as it is known who their parents are."""
    below: dict[int, list[int]] = {}
    for each, parent in _parents():
        below.setdefault(parent, []).append(each)
    known, look = set[int](), [pid]
    while look:
        children = [each for each in below.get(look.pop(), ()) if each not in without]
        known.update(children)
        look += children
    return known


def own_children() -> set[int]:
    """Those of this process, of which the system may leave out some while others end."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return {int(each) for each in file.read().split()}
    except OSError:
        return set()  # a kernel without such a list


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc") if PROC else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # it may have ended just now
                yield int(name), int(file.read().rpartition(b")")[2].split()[1])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
