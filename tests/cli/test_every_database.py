"""The same scenarios with a file and with a server: killed, resumed, cancelled, asked, fanned out, in Python."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Done, noop, playbook, refold, shell, started, until
from tests.contracts.stores import postgres_url

GATE = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: after"


class Place:
    """A folder with a database of one kind."""

    def __init__(self, folder: Path, db: str) -> None:
        self.folder, self.db = folder, db

    def run(self, *arguments: str) -> Done:
        return refold(self.folder, *arguments, REFOLD_DB=self.db)

    def good(self, *arguments: str) -> Done:
        done = self.run(*arguments)
        assert done.code == 0, done
        return done

    def statuses(self) -> dict[str, str]:
        return {run["name"]: run["status"] for run in self.good("runs", "list", "-o", "json").data}

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path, "refold.db" if request.param == "file" else postgres_url(tmp_path))


def test_a_run_whose_process_was_killed_is_resumed_and_what_completed_ran_once(place: Place) -> None:
    file = playbook(
        place.folder,
        shell("one", "echo x >> one", "two"),
        shell("two", "echo x >> two; test -e go || sleep 600", "three"),
        shell("three", "echo x >> three"),
    )
    with started(place.folder, "run", file, "--name", "r", REFOLD_DB=place.db) as process:
        until(lambda: place.lines("two"))
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (place.folder / "go").touch()
    place.good("runs", "resume", "r")
    assert place.statuses() == {"r": "completed"}
    assert [len(place.lines(name)) for name in ("one", "two", "three")] == [1, 2, 1]
    place.good("db", "check")


def test_a_run_is_cancelled_while_a_worker_executes_it(place: Place) -> None:
    file = playbook(place.folder, shell("slow", "echo $$ >> began; sleep 600"))
    place.good("run", file, "--detach", "--name", "r")
    with started(place.folder, "worker", REFOLD_DB=place.db) as worker:
        until(lambda: place.lines("began"))
        place.good("runs", "cancel", "r", "--reason", "enough")
        until(lambda: place.statuses() == {"r": "cancelled"})
        (pid,) = place.lines("began")
        until(lambda: not Path(f"/proc/{pid}").exists())
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        assert worker.returncode == 0


def test_a_gate_is_decided_elsewhere_and_a_worker_continues(place: Place) -> None:
    file = playbook(place.folder, noop("first", "ask"), GATE, shell("after", "echo x >> after"))
    place.good("run", file, "--detach", "--name", "r")
    with started(place.folder, "worker", REFOLD_DB=place.db) as worker:
        until(lambda: place.statuses() == {"r": "waiting"})
        (gate,) = place.good("gates", "list", "-o", "json").data
        assert gate["prompt"] == "ok?"
        place.good("gates", "approve", "r")
        until(lambda: place.statuses() == {"r": "completed"})
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert place.lines("after") == ["x"]


def test_a_fan_out_is_shared_by_two_workers_and_each_item_runs_once(place: Place) -> None:
    step = "step: each\nloop: {in: '{{ range(40) | list }}', iterator: n, max_in_flight: 8}\n"
    file = playbook(place.folder, step + "tool:\n  kind: shell\n  script: echo $N >> done\n  env: {N: '{{ n }}'}")
    place.good("run", file, "--detach", "--name", "r")
    with (
        started(place.folder, "worker", REFOLD_DB=place.db) as one,
        started(place.folder, "worker", REFOLD_DB=place.db) as two,
    ):
        until(lambda: place.statuses() == {"r": "completed"})
        for worker in (one, two):
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=60)
    assert sorted(map(int, place.lines("done"))) == list(range(40))


def test_the_durable_calls_of_a_python_workflow_are_made_once_each(place: Place) -> None:
    (place.folder / "flows.py").write_text(
        "import refold\nfrom refold import Context\n\n\n"
        "async def add(a: int, b: int) -> int:\n    with open('added', 'a') as file:\n        print(a, b, file=file)\n"
        "    return a + b\n\n\n"
        "@refold.flow\nasync def sum_up(ctx: Context, count: int) -> int:\n    total = 0\n    for n in range(count):\n"
        "        total = await ctx.call(add, total, n)\n    await ctx.sleep(0.05)\n    return total\n"
    )
    done = place.run("run", "flows:sum_up", "-i", "count=5", "-o", "json", "--name", "r")
    assert done.code == 0, done
    assert done.data["result"] == 10
    assert len(place.lines("added")) == 5


def test_pause_signal_and_retry_reach_a_run_on_any_database(place: Place) -> None:
    wait = "step: w\ntool: {kind: wait, signal: go}\nnext: try"
    file = playbook(place.folder, wait, shell("try", "test -e ok"))
    place.good("run", file, "--detach", "--name", "r")
    place.good("worker", "--until-idle")
    place.good("runs", "pause", "r")
    assert place.statuses() == {"r": "paused"}
    place.good("runs", "resume", "r", "--detach")
    place.good("runs", "signal", "r", "go")
    place.good("worker", "--until-idle")
    assert place.statuses() == {"r": "failed"}
    (place.folder / "ok").touch()
    assert place.run("runs", "retry", "r").code == 0
    assert place.statuses() == {"r": "completed"}
    assert place.good("runs", "history", "r", "-o", "json").data
