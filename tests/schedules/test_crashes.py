"""Real processes that serve schedules are killed at every commit: each planned time is one run, and none is missed
unnoticed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from refold.core.outcomes import SECOND
from refold.core.times import stamp
from refold.ports import Views
from refold.runtime.keys import run_of_key
from refold.runtime.schedule_changes import find_schedule, last_times, pause_schedule
from refold.schedules.documents import TimeRecord, key_of_time
from refold.stores.open import open_views
from refold.wiring import open_intake
from tests.schedules.house import add, runs

ROOT = Path(__file__).parents[2]
PROCESSES = 5
COMMITS = 12  # a firing and its run have fewer


def wall() -> int:
    return time.time_ns() // 1000


class Server:
    """A process that is started again when it has died, to die at the next commit."""

    def __init__(self, db: Path, first: int) -> None:
        self.db, self.deaths, self.number = db, 0, first
        self.process = self.begin()

    def begin(self) -> "subprocess.Popen[bytes]":
        moment = ("before", "after")[self.number % 2]
        commit = 1 + self.number // 2 % COMMITS
        self.number += 1
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.schedules.serve", str(self.db), str(commit), moment, "0"]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def look(self) -> None:
        code = self.process.poll()
        if code is not None:
            assert self.process.stderr is not None
            said = self.process.stderr.read().decode()
            assert code == -signal.SIGKILL, said
            self.process.stderr.close()
            self.deaths += 1
            self.process = self.begin()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def one_for_each_time(views: Views) -> list[TimeRecord]:
    """Check that history and runs agree, and return the history, the oldest time first."""
    times = sorted(last_times(views, find_schedule(views, "often"), 1000), key=lambda each: each.planned)
    found = runs(views)
    assert Counter(each.run for each in found).most_common(1)[0][1] == 1
    started = [each for each in times if each.state == "started"]
    assert sorted(each.run for each in started) == sorted(each.run for each in found)
    for each in started:
        assert each.run == run_of_key(key_of_time("often", stamp(each.planned)))
    at = times[0].planned
    for each in times:
        assert each.planned == at, "a time is not in the history"
        at = (each.until or each.planned) + SECOND
    return times


@pytest.mark.timeout(280)
def test_five_processes_that_die_at_every_commit_start_one_run_for_each_time(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    with open_intake(db) as (_, store):
        add(store, overlap="allow", catch_up="all", most=1000)
    servers = [Server(db, 5 * n) for n in range(PROCESSES)]
    try:
        with closing(open_views(db, wall)) as views:
            deadline = time.monotonic() + 240
            while len(runs(views)) < 25 or sum(each.deaths for each in servers) < 2 * COMMITS:
                assert time.monotonic() < deadline, (
                    f"{len(runs(views))} runs, {[each.deaths for each in servers]} deaths"
                )
                for each in servers:
                    each.look()
                time.sleep(0.05)
    finally:
        for each in servers:
            each.end()
    with open_intake(db) as (_, store):
        pause_schedule(store, "often")
        times = one_for_each_time(store.views)
    assert {each.state for each in times} == {"started"}, "all is caught up"


def serve_for(db: Path, shift: int, enough: int) -> None:
    """Serve with a clock that is wrong, until there are so many runs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.schedules.serve", str(db), "0", "before", str(shift)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        with closing(open_views(db, wall)) as views:
            for _ in range(2400):
                if len(runs(views)) >= enough:
                    return
                time.sleep(0.05)
            raise AssertionError(f"{len(runs(views))} runs, not {enough}")
    finally:
        process.kill()
        process.wait()


def test_a_clock_that_is_set_back_by_an_hour_starts_no_time_again_and_the_times_go_on(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    with open_intake(db) as (_, store):
        add(store, overlap="allow", catch_up="all", most=1000)
    serve_for(db, 0, 3)
    with open_intake(db) as (_, store):
        before = len(runs(store.views))
        last = max(each.planned for each in last_times(store.views, find_schedule(store.views, "often")))
    serve_for(db, -3600, before + 3)
    with open_intake(db) as (_, store):
        times = one_for_each_time(store.views)
    assert times[-1].planned > last
