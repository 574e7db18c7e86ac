"""A NATS server of the tests, from a wheel, on loopback."""

import contextlib
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PROGRAM = Path(sysconfig.get_path("scripts")) / "nats-server"


class NatsServer:
    """Can be killed and started again, on the same port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        argv = [str(PROGRAM), "--addr", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(30)


@contextlib.contextmanager
def nats_server() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    try:
        yield server
    finally:
        server.kill()
