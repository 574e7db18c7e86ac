"""PgBouncer in transaction mode: Debian's package, downloaded and unpacked into the user's cache, not installed."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres_server import USER, Server, free_port

PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=refold
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
server_login_retry = 1
"""


def unpacked() -> Path:
    """The folder of the packages; downloaded when it is not there."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refold-tests"
    folder = home / "pgbouncer"
    if not folder.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as place:
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=place, check=True, stderr=subprocess.DEVNULL)
            for package in Path(place).glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), f"{place}/all"], check=True)
            Path(place, "all").rename(folder)
    return folder


@contextmanager
def pgbouncer(server: Server) -> Iterator[int]:
    """Its port. As root it runs as another user, from a copy that this user may read."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        subprocess.run(["cp", "-r", f"{unpacked()}/usr", place], check=True)
        port, users, settings = free_port(), Path(place, "users.txt"), Path(place, "settings.ini")
        users.write_text('"refold" ""\n')
        settings.write_text(SETTINGS.format(server=server.port, port=port, users=users))
        libraries = ":".join(map(str, Path(place).glob("usr/lib/*-linux-gnu")))
        process = subprocess.Popen(
            [f"{place}/usr/sbin/pgbouncer", "-q", str(settings)],
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            user=USER if os.geteuid() == 0 else None,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield port
        finally:
            process.terminate()
            process.wait(30)
