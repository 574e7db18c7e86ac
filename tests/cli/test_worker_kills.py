"""Sixty runs over three workers of which one after the other is killed: nothing is lost, and nothing is done twice."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refold.core.facts import StepSettled
from refold.core.outcomes import Succeeded
from refold.playbooks.playbook import read
from refold.stores.open import open_views
from refold.tools.catalog import CATALOG
from refold.wiring import open_intake
from tests.cli.program import HEAD, PROGRAM, environment, until

RUNS, EVERY = 60, 0.7
STEPS = """  - step: first
    tool: {kind: shell, command: [sh, -c, 'sleep 0.5; echo $0', "{{ run.name }}"]}
    next: second
  - step: second
    tool: {kind: shell, command: [sh, -c, 'sleep 0.5; echo $0', "{{ first.stdout }}"]}
"""


@contextmanager
def workers(folder: Path, count: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Workers whose leases last for ten minutes, so that nothing is taken over only because a lease has expired."""
    running = [start(folder) for _ in range(count)]
    try:
        yield running
    finally:
        for each in running:
            each.kill()
            each.wait()


def start(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*PROGRAM, "worker", "--quiet", "--slots", "4"],
        cwd=folder,
        env=environment(REFOLD_LEASE_FOR="600"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_sixty_runs_over_three_workers_of_which_one_is_killed_again_and_again(tmp_path: Path) -> None:
    plan = read(HEAD + STEPS, str(tmp_path / "play.yaml"), CATALOG).plan
    file = tmp_path / "refold.db"
    with open_intake(file) as (intake, _):
        for n in range(RUNS):
            intake.start(plan, {}, f"{n:032x}", name=f"run{n}", folder=str(tmp_path))
    views = open_views(file, lambda: time.time_ns() // 1000)
    rows = [f"{n:032x}" for n in range(RUNS)]

    def over() -> int:
        return sum((row := views.summary(run)) is not None and row.status == "completed" for run in rows)

    kills = 0
    try:
        with workers(tmp_path, 3) as running:
            until(lambda: over() > 0, 120.0)
            last = time.monotonic()
            while over() < RUNS:
                if time.monotonic() - last > EVERY and kills < 8:
                    victim = running[kills % 3]
                    os.kill(victim.pid, signal.SIGKILL)
                    victim.wait()
                    running[kills % 3], kills, last = start(tmp_path), kills + 1, time.monotonic()
                time.sleep(0.05)
        for run in rows:
            settled = [fact for _, _, fact in views.facts(run) if isinstance(fact, StepSettled)]
            succeeded = [fact.step for fact in settled if isinstance(fact.report.outcome, Succeeded)]
            assert succeeded == ["first", "second"] and len(settled) == 2, run
    finally:
        views.close()
    assert kills > 0
