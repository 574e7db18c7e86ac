"""A server is killed again and again under a live run: every reader has every fact once, in order."""

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx2
import pytest
from msgspec import json

from tests.cli.program import PROGRAM, environment, refold
from tests.server.conftest import NS

PLAY = """\
apiVersion: refold/v1
kind: Playbook
metadata: {{name: long}}
workflow:
  - step: each
    loop: {{in: "{{{{ range(ITEMS) | list }}}}", iterator: n}}
    tool: {{kind: python, code: "import time; time.sleep(0.005)"}}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Reader(threading.Thread):
    """Reads the exact log of a run, and goes on after the last fact that it has whenever its connection ends."""

    def __init__(self, address: str, token: str, run: str) -> None:
        super().__init__(daemon=True)
        self.address, self.token, self.run_id = address, token, run
        self.seen: list[int] = []
        self.kinds: list[str] = []
        self.connections = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                self._read()
            except (httpx2.HTTPError, OSError):
                time.sleep(0.02)  # the server is gone; it comes back

    def _read(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        if self.seen:
            headers["last-event-id"] = str(self.seen[-1])
        timeout = httpx2.Timeout(30, connect=5)
        address = f"{self.address}{NS}/runs/{self.run_id}/stream"
        with httpx2.stream("GET", address, headers=headers, timeout=timeout, trust_env=False) as answer:
            if answer.status_code != 200:
                return
            self.connections += 1
            event = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "fact":
                    fact = json.decode(value)
                    self.seen.append(fact["number"])
                    self.kinds.append(fact["type"])
                    if fact["type"] == "run_ended":
                        self.is_over.set()
                        return


class KilledServer:
    """`refold serve` in a process of its own, always on the same port."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*PROGRAM, "serve", "--port", str(self.port), "--quiet"]
        env = environment(XDG_CONFIG_HOME=str(self.folder))
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)
        log.close()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


def killed_under_readers(folder: Path, items: int, kills: int, readers: int) -> None:
    (folder / "long.yaml").write_text(PLAY.format().replace("ITEMS", str(items)))
    run = refold(folder, "run", "long.yaml", "--detach", "-o", "json", "--quiet").data["id"]
    token = refold(folder, "token", "create", "reader", "--role", "operator").out.strip()
    server = KilledServer(folder, free_port())
    found = [Reader(f"http://127.0.0.1:{server.port}", token, run) for _ in range(readers)]
    server.start()
    try:
        for each in found:
            each.start()
        end = time.monotonic() + 60 + items * 0.2 + kills * 20
        for number in range(1, kills + 1):
            goal = 2 * items * number // (kills + 1)
            while min(len(each.seen) for each in found) < goal and not any(each.is_over.is_set() for each in found):
                assert time.monotonic() < end, [len(each.seen) for each in found]
                time.sleep(0.005)
            server.kill()
            server.start()
        for each in found:
            assert each.is_over.wait(max(end - time.monotonic(), 1)), (len(each.seen), server.folder)
    finally:
        server.kill()
    log = json.decode(refold(folder, "runs", "history", run, "-o", "json").out)
    for each in found:
        assert each.seen == [fact["number"] for fact in log]
        assert each.kinds == [fact["type"] for fact in log]
        assert each.connections > kills // 2  # it was really cut off
    assert len(log) > items
    assert os.path.exists(folder / "refold.db")


def test_readers_have_every_fact_once_although_the_server_is_killed(tmp_path: Path) -> None:
    killed_under_readers(tmp_path, items=40, kills=3, readers=2)


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_readers_of_ten_thousand_facts_survive_a_hundred_kills(tmp_path: Path) -> None:
    killed_under_readers(tmp_path, items=5000, kills=100, readers=3)
