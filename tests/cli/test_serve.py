"""`refold serve` and `refold token` as people use them: the first start, a kill, a taken port, addresses of others."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.cli.program import noop, playbook, refold, started

NS = "/api/v1/ns/default"


class Served(NamedTuple):
    address: str
    token: str
    process: "subprocess.Popen[str]"
    greeting: str

    def get(self, path: str, token: str | None = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token or self.token}"}
        return httpx2.get(f"{self.address}{path}", headers=headers, trust_env=False, timeout=60)

    def post(self, path: str, body: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx2.post(f"{self.address}{path}", json=body, headers=headers, trust_env=False, timeout=60)


@contextmanager
def serving(folder: Path, *more: str, token: str = "") -> Iterator[Served]:
    home = {"XDG_CONFIG_HOME": str(folder / "config")}
    with started(folder, "serve", "--port", "0", *more, **home) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while "serves" not in lines[-1] and "shows" not in lines[-1]:
            assert lines[-1], "".join(lines)
            lines.append(process.stderr.readline())
        address = re.findall(r"http://\S+", lines[-1])[0]
        if not token:
            lines += [process.stderr.readline(), process.stderr.readline()]
            token = lines[-2].split()[-1]
        yield Served(address, token, process, "".join(lines))


def ended(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def test_the_first_start_makes_a_token_and_says_how_to_sign_in(tmp_path: Path) -> None:
    playbook(tmp_path, noop("a", result="5"))
    with serving(tmp_path, "--playbooks", ".") as served:
        assert re.search(r"http://127\.0\.0\.1:\d+/#ticket=[\w-]{43}\n", served.greeting)
        [kept] = (tmp_path / "config" / "refold" / "tokens").iterdir()
        assert (kept.read_text().strip(), kept.stat().st_mode & 0o777) == (served.token, 0o600)
        run = served.post(f"{NS}/runs", {"workflow": "play"}).json()["id"]
        while served.get(f"{NS}/runs/{run}?after=0&wait=5").json()["status"] != "completed":
            pass
        assert served.get(f"{NS}/runs/{run}/result").json() == {"value": 5}
        assert ended(served.process) == 0
    with serving(tmp_path, token=served.token) as again:
        assert again.get(f"{NS}/runs/{run}").json()["status"] == "completed"
        assert served.token not in again.greeting


def test_a_run_that_was_started_over_http_survives_a_kill_of_the_server(tmp_path: Path) -> None:
    playbook(
        tmp_path,
        noop("a", then="b", result="1"),
        "step: b\ntool: {kind: gate, prompt: go on?}\nnext: c",
        noop("c", result="2"),
    )
    with serving(tmp_path, "--playbooks", ".") as served:
        run = served.post(f"{NS}/runs", {"workflow": "play"}).json()["id"]
        while (shown := served.get(f"{NS}/runs/{run}?after=0&wait=5").json())["status"] != "waiting":
            pass
        served.process.kill()
        served.process.wait(60)
    with serving(tmp_path, "--playbooks", ".", token=served.token) as again:
        assert again.get(f"{NS}/runs/{run}").json()["head"] == shown["head"]
        decided = again.post(f"{NS}/runs/{run}/gates/b/1", {"option": "approve"})
        assert decided.status_code == 200, decided.text
        while (shown := again.get(f"{NS}/runs/{run}?after={shown['head']}&wait=5").json())["status"] != "completed":
            pass
        facts = again.get(f"{NS}/runs/{run}/facts").json()["items"]
        assert [each["number"] for each in facts] == list(range(1, shown["head"] + 1))


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = refold(tmp_path, "serve", "--port", port, XDG_CONFIG_HOME=str(tmp_path))
    assert (done.code, f"port {port} of 127.0.0.1 cannot be used" in done.err, "--port" in done.err) == (5, True, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--host", "0.0.0.0", "--public-address", "http://x.test"), "use https"),
        (("--public-address", "x.test"), "begins with https://"),
    ],
)
def test_an_address_for_others_must_be_safe(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = refold(tmp_path, "serve", *options)
    assert (done.code, words in done.err) == (2, True), done.err
    assert not (tmp_path / "refold.db").exists()


def test_a_server_that_only_reads_starts_nothing_and_writes_nothing(tmp_path: Path) -> None:
    playbook(tmp_path, noop("a", result="5"))
    assert refold(tmp_path, "run", "play.yaml", "--name", "once").code == 0
    before = (tmp_path / "refold.db").read_bytes()
    with serving(tmp_path, "--read-only", "--playbooks", ".") as served:
        [row] = served.get(f"{NS}/runs").json()["items"]
        assert (row["name"], served.get(f"{NS}/runs/{row['id']}/result").json()) == ("once", {"value": 5})
        refused = served.post(f"{NS}/runs", {"workflow": "play"})
        assert (refused.status_code, refused.json()["code"]) == (403, "read_only")
        assert served.get("/readyz").status_code == 200
        assert ended(served.process) == 0
    assert (tmp_path / "refold.db").read_bytes() == before


def test_a_server_that_is_stopped_says_goodbye_on_its_streams(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        headers = {"authorization": f"Bearer {served.token}"}
        address = f"{served.address}{NS}/stream?topics=overview"
        with httpx2.stream("GET", address, headers=headers, trust_env=False, timeout=60) as answer:
            lines = answer.iter_lines()
            while "hello" not in next(lines):
                pass
            served.process.send_signal(signal.SIGTERM)
            assert "event: bye" in list(lines)
        assert served.process.wait(60) == 0
        assert served.process.stderr is not None
        left = served.process.stderr.read()
    assert ("Traceback" in left, "stopped" in left) == (False, True), left


def test_check_says_what_would_be_served(tmp_path: Path) -> None:
    done = refold(tmp_path, "serve", "--check", "--db", "x.db", REFOLD_SLOTS="3")
    assert (done.code, "x.db" in done.out, "3 slots" in done.out) == (0, True, True)
    assert not (tmp_path / "x.db").exists()


def test_tokens_are_made_listed_and_revoked_while_a_server_runs(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        made = refold(tmp_path, "token", "create", "ci", "--role", "viewer", "--expires", "30d", "-o", "json").data
        assert served.get("/api/v1/me", made["token"]).json()["name"] == "ci"
        listed = refold(tmp_path, "token", "list")
        assert ("ci" in listed.out, made["token"].split("_", 2)[2] in listed.out) == (True, False)
        link = refold(tmp_path, "token", "link", "--server", served.address).out.strip()
        answer = httpx2.post(
            f"{served.address}/api/v1/sign-in", json={"ticket": link.partition("ticket=")[2]}, trust_env=False
        )
        assert answer.json() == {"name": "admin", "role": "admin"}
        assert refold(tmp_path, "token", "revoke", made["id"]).code == 0
        assert served.get("/api/v1/me", made["token"]).status_code == 401
    assert refold(tmp_path, "token", "revoke", "nothing").code == 3
    assert refold(tmp_path, "token", "create", "x", "--role", "king").code == 2
    assert json.loads(refold(tmp_path, "token", "list", "-o", "json").out)[0]["name"] == "admin"


def test_administrators_see_the_store_and_the_settings_with_their_origin_and_no_password(tmp_path: Path) -> None:
    playbook(tmp_path, noop("a", result="5"))
    (tmp_path / "refold.toml").write_text('slots = 7\nserver = "https://ann:hunter2@refold.example.org"\n')
    with serving(tmp_path, "--db", "other.db") as served:
        found = served.get(f"{NS}/server").json()
        assert (found["store"]["kind"], found["store"]["address"]) == ("a file of SQLite", "other.db")
        assert found["store"]["bytes"] >= (tmp_path / "other.db").stat().st_size > 0
        assert (found["store"]["is_writable"], found["store"]["damage"], found["steers"]) == (True, [], True)
        origins = {each["name"]: (each["value"], each["origin"]) for each in found["settings"]}
        assert origins["db"] == ("other.db", "the command line")
        assert origins["slots"][0] == 7 and origins["slots"][1].endswith("refold.toml:1")
        assert origins["server"][0] == "https://…@refold.example.org"
        assert origins["lease_for"] == (2.0, "REFOLD_LEASE_FOR")
        assert origins["depth_limit"] == (100, "default")
        assert "hunter2" not in served.get(f"{NS}/server").text
        other = served.post(f"{NS}/tokens", {"name": "eve", "role": "operator", "expires": "1d"}).json()["token"]
        assert served.get(f"{NS}/server", other).status_code == 403
        assert ended(served.process) == 0
