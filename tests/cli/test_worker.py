"""`refold worker`: serves every run of a database, alone or next to others; and commands that execute only a while."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from refold.cli.commands import execute
from refold.plan import Gate, Plan, Step
from refold.queries.idle import moving_run
from refold.wiring import open_process
from tests.cli.program import noop, playbook, refold, shell, started, until

GATE = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: after"


def statuses(folder: Path) -> dict[str, str]:
    return {run["name"]: run["status"] for run in refold(folder, "runs", "list", "-o", "json").data}


def lines(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []


def detached(folder: Path, file: str, *names: str, key: str = "--name") -> None:
    for name in names:
        assert refold(folder, "run", file, "--detach", key, name).code == 0


def test_a_worker_executes_detached_runs_until_sigterm_and_ends_with_0(tmp_path: Path) -> None:
    detached(tmp_path, playbook(tmp_path, shell("one", "echo x >> ran")), "a", "b")
    with started(tmp_path, "worker") as worker:
        until(lambda: set(statuses(tmp_path).values()) == {"completed"})
        detached(tmp_path, "play.yaml", "later")
        until(lambda: statuses(tmp_path)["later"] == "completed")
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=60)
        assert worker.returncode == 0
    assert len(lines(tmp_path, "ran")) == 3
    assert "serves every queue of refold.db: 2 open runs" in err
    assert "stopped" in err


def test_a_worker_that_has_executed_nothing_yet_is_known_to_other_processes(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    assert refold(tmp_path, "run", file, "-q").code == 0
    with started(tmp_path, "worker") as worker:
        err = worker.stderr
        assert err is not None
        until(lambda: " serves every queue " in err.readline())
        assert "it will be executed by worker-" in refold(tmp_path, "run", file, "--detach").err
        worker.kill()


def test_a_worker_that_is_stopped_hands_its_step_back_and_another_executes_it(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("slow", "echo x >> began; test -e go || sleep 600"))
    detached(tmp_path, file, "r")
    with started(tmp_path, "worker") as worker:
        until(lambda: lines(tmp_path, "began"))
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    assert statuses(tmp_path) == {"r": "queued"}
    (tmp_path / "go").touch()
    assert refold(tmp_path, "worker", "--until-idle").code == 0
    assert statuses(tmp_path) == {"r": "completed"}
    assert len(lines(tmp_path, "began")) == 2


def test_a_second_signal_kills_a_worker(tmp_path: Path) -> None:
    detached(tmp_path, playbook(tmp_path, shell("slow", "echo x >> began; sleep 600")), "r")
    with started(tmp_path, "worker", REFOLD_STOP_GRACE="600") as worker:
        until(lambda: lines(tmp_path, "began"))
        worker.send_signal(signal.SIGTERM)
        assert worker.stderr is not None
        while "stopping" not in worker.stderr.readline():
            pass
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_worker_until_idle_ends_when_only_people_and_signals_are_left(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("first", "echo x >> ran", "ask"), GATE, noop("after"))
    wait = playbook(tmp_path, "step: w\ntool: {kind: wait, signal: go}", name="wait.yaml")
    detached(tmp_path, file, "asks")
    detached(tmp_path, wait, "waits")
    assert refold(tmp_path, "worker", "--until-idle").code == 0
    assert statuses(tmp_path) == {"asks": "waiting", "waits": "waiting"}
    assert lines(tmp_path, "ran") == ["x"]
    assert refold(tmp_path, "gates", "approve", "asks").code == 0
    assert refold(tmp_path, "worker", "--until-idle").code == 0
    assert statuses(tmp_path)["asks"] == "completed"


def test_a_worker_until_idle_waits_for_the_next_try_and_for_children(tmp_path: Path) -> None:
    flaky = shell("try", "echo x >> tries; test $(wc -l < tries) -ge 3", more="retry: {attempts: 3, delay: 0.5}")
    playbook(tmp_path, flaky, name="child.yaml")
    parent = playbook(tmp_path, "step: sub\ntool: {kind: playbook, path: child.yaml}\nnext: end", noop("end"))
    detached(tmp_path, parent, "p")
    assert refold(tmp_path, "worker", "--until-idle").code == 0
    assert statuses(tmp_path)["p"] == "completed"
    assert len(lines(tmp_path, "tries")) == 3


def test_a_worker_until_idle_leaves_what_it_cannot_execute(tmp_path: Path) -> None:
    detached(tmp_path, playbook(tmp_path, noop("one") + "\nqueue: gpu"), "elsewhere")
    assert refold(tmp_path, "worker", "--until-idle", "--queue", "cpu").code == 0
    assert statuses(tmp_path) == {"elsewhere": "queued"}
    assert refold(tmp_path, "worker", "--until-idle", "--queue", "cpu", "--queue", "gpu").code == 0
    assert statuses(tmp_path) == {"elsewhere": "completed"}


def test_a_worker_runs_at_most_as_many_commands_as_it_has_slots(tmp_path: Path) -> None:
    script = "mkdir only || touch together; sleep 0.1; rmdir only"
    detached(tmp_path, playbook(tmp_path, shell("one", script)), "a", "b", "c")
    assert refold(tmp_path, "worker", "--until-idle", "--slots", "1").code == 0
    assert set(statuses(tmp_path).values()) == {"completed"}
    assert not (tmp_path / "together").exists()
    assert refold(tmp_path, "worker", "--slots", "0").code == 2


PYTHON = """
import refold

@refold.flow
async def hello(ctx, who="nobody"):
    return f"hello {who}"
"""


def test_a_worker_executes_python_workflows_whose_code_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PYTHON)
    assert refold(tmp_path, "run", "shop:hello", "-i", "who=Ada", "--detach", "--name", "py").code == 0
    assert refold(tmp_path, "worker", "--until-idle").code == 0
    assert statuses(tmp_path) == {"py": "queued"}  # its code is not imported because a database names it
    assert refold(tmp_path, "worker", "--until-idle", "--code", "shop:hello").code == 0
    assert refold(tmp_path, "runs", "show", "py", "-o", "json").data["result"] == "hello Ada"
    unknown = refold(tmp_path, "worker", "--code", "shop:helo")
    assert unknown.code == 3
    assert "hello" in unknown.err


def test_the_commands_of_a_killed_worker_are_taken_over_by_another(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "echo $$ >> began; test -e go || sleep 600; echo x >> ended"))
    detached(tmp_path, file, "r")
    with started(tmp_path, "worker", REFOLD_LEASE_FOR="600") as first, started(tmp_path, "worker") as second:
        until(lambda: lines(tmp_path, "began"))
        row = refold(tmp_path, "runs", "why", "r", "-o", "json").data["reasons"][0]
        holder = first if row["worker"] in worker_names(first) else second
        (tmp_path / "go").touch()
        os.kill(holder.pid, signal.SIGKILL)
        until(lambda: statuses(tmp_path)["r"] == "completed")
    assert lines(tmp_path, "ended") == ["x"]


def worker_names(process: object) -> str:
    """The first lines that a worker prints: they name it."""
    text = ""
    while "serves" not in text:
        text += process.stderr.readline()  # type: ignore[attr-defined]
    return text


def test_resume_all_executes_every_run_that_can_continue_and_leaves_paused_ones(tmp_path: Path) -> None:
    detached(tmp_path, playbook(tmp_path, shell("one", "echo x >> ran")), "a", "b", "held")
    assert refold(tmp_path, "runs", "pause", "held").code == 0
    done = refold(tmp_path, "runs", "resume", "--all")
    assert done.code == 0
    assert "1 paused run stays paused: refold runs resume RUN" in done.err
    assert statuses(tmp_path) == {"a": "completed", "b": "completed", "held": "paused"}
    assert refold(tmp_path, "runs", "resume", "a", "--all").code == 2


def test_resume_detach_lifts_a_pause_and_executes_nothing(tmp_path: Path) -> None:
    detached(tmp_path, playbook(tmp_path, shell("one", "echo x >> ran")), "r")
    assert refold(tmp_path, "runs", "pause", "r").code == 0
    done = refold(tmp_path, "runs", "resume", "r", "--detach")
    assert done.code == 0
    assert "none is running" in done.err
    assert statuses(tmp_path) == {"r": "queued"}
    assert not lines(tmp_path, "ran")


@pytest.mark.parametrize("command", ["run", "resume"])
def test_until_waiting_leaves_a_run_that_only_a_person_can_continue(tmp_path: Path, command: str) -> None:
    file = playbook(tmp_path, shell("first", "echo x >> ran", "ask"), GATE, noop("after"))
    if command == "run":
        done = refold(tmp_path, "run", file, "--until-waiting", "--name", "r")
    else:
        detached(tmp_path, file, "r")
        done = refold(tmp_path, "runs", "resume", "r", "--until-waiting")
    assert done.code == 0, done.err
    assert "run r is left: ask waits for a decision" in done.err
    assert done.err.endswith(
        "run r is left: ask waits for a decision: ok?\n"
        "to decide: refold gates approve r, or reject\n"
        "to continue: refold runs resume r\n"
    )
    assert (statuses(tmp_path), lines(tmp_path, "ran")) == ({"r": "waiting"}, ["x"])
    seen = refold(tmp_path, "runs", "resume", "r", "--until-waiting", "-o", "json")
    assert (seen.code, seen.data["status"]) == (0, "waiting")


def test_only_a_run_that_failed_or_was_cancelled_can_be_reopened(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("a")), "--name", "good").code == 0
    assert refold(tmp_path, "run", playbook(tmp_path, shell("a", "exit 3")), "--name", "bad").code == 1
    assert "run good is completed, and nothing of it is left" in refold(tmp_path, "runs", "resume", "good").err
    assert "run bad is failed: `refold runs retry` reopens it" in refold(tmp_path, "runs", "resume", "bad").err


def test_a_list_without_rows_says_so(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("a"))).code == 0
    assert refold(tmp_path, "runs", "list", "--workflow", "other").err == "no run matches\n"
    assert refold(tmp_path, "runs", "list", "--workflow", "other", "-o", "json").err == ""


def test_a_run_that_is_paused_by_a_person_ends_refold_run_with_exit_code_6(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: w\ntool: {kind: wait, signal: go}")
    with started(tmp_path, "run", file, "--name", "r") as run:
        until(lambda: (tmp_path / "refold.db").exists() and statuses(tmp_path).get("r") == "waiting")
        assert refold(tmp_path, "runs", "pause", "r").code == 0
        _, err = run.communicate(timeout=60)
        assert run.returncode == 6
    assert "run r is paused by ann" in err
    assert "to continue: refold runs resume r" in err


def test_a_step_that_is_running_when_its_run_is_paused_finishes_before_refold_run_leaves(tmp_path: Path) -> None:
    file = playbook(
        tmp_path, shell("slow", "echo x >> began; until test -e go; do sleep 0.05; done", "last"), noop("last")
    )
    with started(tmp_path, "run", file, "--name", "r") as run:
        until(lambda: lines(tmp_path, "began"))
        assert refold(tmp_path, "runs", "pause", "r").code == 0
        with pytest.raises(subprocess.TimeoutExpired):  # long enough for several looks
            run.wait(2)
        (tmp_path / "go").touch()
        assert run.wait(60) == 6
    steps = refold(tmp_path, "runs", "show", "r", "-o", "json").data["steps"]
    assert (steps["slow"]["status"], lines(tmp_path, "began")) == ("completed", ["x"])


async def test_a_run_that_starts_while_a_worker_looks_whether_it_is_idle_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(name="p", steps=(Step(name="ask", work=Gate()),))
    async with open_process(db=tmp_path / "refold.db") as process:
        loop = asyncio.get_running_loop()

        def moving(*looked_at: Any) -> Any:
            found = moving_run(*looked_at)
            asyncio.run_coroutine_threadsafe(process.engine.start(plan), loop).result()
            return found

        assert await execute.is_idle(process)
        with monkeypatch.context() as patched:
            patched.setattr(execute, "moving_run", moving)
            assert not await execute.is_idle(process)
        while not await execute.is_idle(process):  # the gate is reached
            await asyncio.sleep(0.01)
