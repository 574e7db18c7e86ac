"""A newcomer's first hour, for real: a fresh clone, the README's two commands, its playbook, a kill -9; then day two:
a worker that is killed, a schedule, filters, and a redrive with --follow."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"{what} ...", flush=True)
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def run(folder: Path, *command: str) -> str:
    """As in a new shell: nothing of this environment is on its path."""
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if ".venv" not in each)
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("VIRTUAL_ENV", "PYTHON", "REFOLD"))}
    done = subprocess.run(command, cwd=folder, env={**kept, "PATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def typed_from_the_readme(readme: str, folder: Path) -> str:
    found = re.search(r"```yaml\n# (\S+)\n(.*?)```", readme, re.S)
    assert found is not None
    (folder / found[1]).write_text(found[2])
    return found[1]


HEAD = "apiVersion: refold/v1\nkind: Playbook\n"
SLOW = (
    HEAD
    + """metadata: {name: slow, labels: {team: night}}
workflow:
  - step: work
    tool: {kind: shell, script: "echo x >> began; until test -e go; do sleep 0.1; done; echo x >> ended"}
"""
)
PAGES = (
    HEAD
    + """metadata: {name: pages}
workflow:
  - step: fetch
    loop: {in: [1, 2, 3], iterator: page, tolerate: 50%}
    tool: {kind: shell, args: ["{{ page }}"], script: "test $1 != 2 || test -e mended; echo $1"}
    next: count
  - step: count
    tool: {kind: noop, result: "{{ fetch.stats.success }} pages"}
"""
)
SCHEDULE = """apiVersion: refold/v1
kind: Schedule
metadata: {name: tick}
workflow: report.yaml
every: 1s
overlap: allow
"""
REPORT = HEAD + "metadata: {name: report}\nworkflow:\n  - {step: one, tool: {kind: noop, result: done}}\n"


def until(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"it did not happen: {what}")
        time.sleep(0.2)


def listed(desk: Path, program: str, *filters: str) -> list[str]:
    rows = json.loads(run(desk, program, "runs", "list", "-o", "json", *filters))
    return [row["name"] for row in rows]


@contextmanager
def worker(desk: Path, program: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([program, "worker", "--quiet"], cwd=desk, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def a_worker_is_killed(desk: Path, program: str) -> None:
    (desk / "slow.yaml").write_text(SLOW)
    run(desk, program, "run", "slow.yaml", "--name", "slow", "--detach")
    with worker(desk, program) as first:
        until((desk / "began").exists, "the worker begins the step")
        first.kill()
        first.wait()
    (desk / "go").touch()
    with worker(desk, program):
        until(lambda: listed(desk, program, "--name", "slow", "--status", "completed"), "another worker takes it over")
    assert (desk / "ended").read_text() == "x\n"


def a_schedule_starts_runs(desk: Path, program: str) -> None:
    (desk / "report.yaml").write_text(REPORT)
    (desk / "tick.yaml").write_text(SCHEDULE)
    run(desk, program, "schedules", "create", "tick.yaml")
    ticks = ("--label", "schedule=tick", "--status", "completed")
    with worker(desk, program):
        until(lambda: len(listed(desk, program, *ticks)) >= 2, "the schedule starts two runs")
    run(desk, program, "schedules", "delete", "tick")


def runs_are_found(desk: Path, program: str) -> None:
    assert listed(desk, program, "--workflow", "slow") == listed(desk, program, "--label", "team=night") == ["slow"]
    assert "slow" not in listed(desk, program, "--workflow", "report")
    assert listed(desk, program, "--status", "failed") == []


def items_are_redriven(desk: Path, program: str) -> None:
    (desk / "pages.yaml").write_text(PAGES)
    assert run(desk, program, "run", "pages.yaml", "--name", "pages").strip() == "2 pages"
    (desk / "mended").touch()
    run(desk, program, "dlq", "redrive", "--all", "--follow")
    run(desk, program, "worker", "--until-idle", "--quiet")
    assert json.loads(run(desk, program, "runs", "show", "pages", "-o", "json"))["result"] == "3 pages"


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        clone, desk = Path(place) / "refold", Path(place) / "desk"
        desk.mkdir()
        with timed("git clone"):
            run(Path(place), "git", "clone", "-q", str(ROOT), str(clone))
        with timed("make demo"):
            assert "0 were read again" in run(clone, "make", "demo")
        if "--without-tests" not in sys.argv:
            with timed("make test"):
                assert " passed" in run(clone, "make", "test")
        refold = str(clone / ".venv" / "bin" / "refold")
        with timed("a playbook from the README, killed and resumed"):
            name = typed_from_the_readme((clone / "README.md").read_text(), desk)
            engine = subprocess.Popen([refold, "run", name, "--name", "hi"], cwd=desk, stderr=subprocess.DEVNULL)
            time.sleep(2.5)
            engine.kill()
            engine.wait()
            assert run(desk, refold, "runs", "resume", "hi").strip() == "3 people greeted"
            history = run(desk, refold, "runs", "history", "hi")
            assert [history.count(f"item {n} succeeded") for n in range(3)] == [1, 1, 1]
        for what in (a_worker_is_killed, a_schedule_starts_runs, runs_are_found, items_are_redriven):
            with timed(what.__name__.replace("_", " ")):
                what(desk, refold)
    print("a newcomer would be content")


if __name__ == "__main__":
    main()
