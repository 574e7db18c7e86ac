"""A Ray cluster of two nodes, each with an address of its own on loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "ray")
HEAD, SECOND = "127.0.0.2", "127.0.0.3"
ROOT = str(Path(__file__).parents[2])


class TestCluster:
    """The second node has the resource `special` and the label `zone: b`; it can be killed and started again."""

    __test__ = False

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind((HEAD, 0))
            self.port = int(probe.getsockname()[1])
        self.folder = folder
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"{HEAD}:{self.port}"

    def start(self, ip: str) -> None:
        own = ["--head", f"--port={self.port}", "--include-dashboard=false"]
        if ip != HEAD:
            own = [f"--address={self.address}", '--resources={"special":2}', "--labels", "zone=b"]
        argv = [PROGRAM, "start", "--block", f"--node-ip-address={ip}", "--num-cpus=1", "--disable-usage-stats"]
        env = {
            **os.environ,
            "RAY_TMPDIR": self.folder,
            "PYTHONPATH": f"{ROOT}/src:{ROOT}",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        argv += ["--object-store-memory=80000000", *own]
        log = open(f"{self.folder}/{ip}.log", "ab")  # noqa: SIM115 - the node has it
        with log:
            self.nodes[ip] = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)

    def wait_for_head(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((HEAD, self.port), 1):
                return
            time.sleep(0.1)
        raise AssertionError(Path(f"{self.folder}/{HEAD}.log").read_text())

    def kill(self, ip: str) -> None:
        node = self.nodes.pop(ip)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)
        node.wait(30)
        for pid in _processes_of(ip, self.port):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes_of(ip: str, port: int) -> Iterator[int]:
    """Processes of a node that are in sessions of their own; all of them name the node and the port of the head."""
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (each / "cmdline").read_bytes().decode(errors="replace")
            if "ray" in words and f"{HEAD}:{port}" in words and ip in words.replace(f"{HEAD}:{port}", ""):
                yield int(each.name)


@contextlib.contextmanager
def ray_cluster() -> Iterator[TestCluster]:
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        cluster = TestCluster(folder)
        try:
            cluster.start(HEAD)
            cluster.wait_for_head()
            cluster.start(SECOND)
            yield cluster
        finally:
            for ip in [SECOND, HEAD]:
                if ip in cluster.nodes:
                    cluster.kill(ip)
