"""What workers cost at rest, and how long people and queues wait: `python -m bench.day_two [--only PART]`.

Parts: `rest` (a worker that has nothing to do), `schedules` (10,000 schedules that are not due), `lists` (lists of runs
out of 100,000, by each filter), `begin` (from a queued command to the first line of its body in another process) and
`takeover` (of the command of a worker that is killed).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
from msgspec import structs

from bench.raw_apsw import measure as measure_raw
from refold.core.facts import RunEnded
from refold.core.graph import prepare
from refold.core.outcomes import SECOND
from refold.core.plan import Call, Fail, Plan, Step, Wait, canonical, plan_hash
from refold.playbooks.playbook import read
from refold.ports import RunFilter, Store
from refold.queries.runs import part_of_runs
from refold.runtime.mail import Start
from refold.runtime.turn import Delivery
from refold.schedules.documents import SCHEDULE, Rules, Schedule, Target, encoded
from refold.schedules.times import When
from refold.stores.open import open_views
from refold.tools.catalog import CATALOG
from refold.wiring import open_intake

REST = 0.005  # of a core: what a worker costs at rest, at most
LIST = 0.050  # seconds: a list of runs by any filter, at most
TAKEOVER = 2.0  # seconds from the kill of a worker to the begin of its command in another one, at most
BEGIN = 5.0  # raw commits: from a queued command to the begin of its body in another process, at most (median)
RUNS, SCHEDULES, SAMPLES = 100_000, 10_000, 60


@contextmanager
def worker(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`refold worker` in a process of its own."""
    command = [sys.executable, "-m", "refold.cli", "worker", "--quiet", "--db", str(folder / "refold.db")]
    process = subprocess.Popen(command, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of those that it has started and waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def at_rest(folder: Path, seconds: float) -> tuple[float, int]:
    """The share of a core that a worker uses when it has nothing to do, and how many commits it makes meanwhile."""
    with worker(folder) as process:
        db = apsw.Connection(str(folder / "refold.db"))
        time.sleep(5)  # it starts, and looks at what there is
        before, used = commits(db), cpu_seconds(process.pid)
        time.sleep(seconds)
        share, written = (cpu_seconds(process.pid) - used) / seconds, commits(db) - before
        db.close()
    return share, written


def commits(db: apsw.Connection) -> int:
    """A number that grows with each commit of another connection."""
    return int(db.pragma("data_version"))


def add_schedules(store: Store, count: int) -> None:
    """Schedules that are due tomorrow."""
    plan = Plan(name="report", steps=(Step(name="only", work=Call("noop")),))
    store.put_plan(plan_hash(plan), canonical(plan))
    tomorrow = store.now() + 86_400 * SECOND
    target = Target(workflow="report.yaml", plan=plan_hash(plan), name=plan.name, input={})
    first = Schedule(id="s", target=target, when=When(every=86_400), rules=Rules(), planned=tomorrow, begins=tomorrow)
    with store.turn([]) as turn:
        for n in range(count):
            each = structs.replace(first, id=f"s{n}")
            turn.put_document(SCHEDULE, each.id, encoded(each), 0, tomorrow)


PLANS = (
    Plan(name="waits", steps=(Step(name="w", work=Wait(signal="go")),)),
    Plan(name="fails", steps=(Step(name="f", work=Fail("disk", "the disk is full")),)),
    Plan(name="queued", steps=(Step(name="q", work=Call("noop")),)),
)


def add_runs(folder: Path, count: int) -> None:
    """Runs of three workflows, one in a hundred with a label, and with keys and names."""
    prepared = [prepare(plan) for plan in PLANS]
    with open_intake(folder / "refold.db") as (intake, _):
        for first in range(0, count, 500):
            posts = []
            for n in range(first, min(first + 500, count)):
                labels = {"team": "night" if n % 100 == 0 else "day", "shard": str(n % 1000)}
                start = Start(prepared[n % 3], {}, f"name{n % 5000}", f"key{n}", labels=labels)
                posts.append(Delivery(f"{n:032x}", start))
            intake.turns.commit(posts)


def filters(middle: int) -> dict[str, RunFilter]:
    return {
        "none": RunFilter(parent=""),
        "workflow": RunFilter(workflow="fails", parent=""),
        "workflow that there is not": RunFilter(workflow="gone", parent=""),
        "name": RunFilter(name="name17", parent=""),
        "key": RunFilter(key="key4711", parent=""),
        "status": RunFilter(status="failed", parent=""),
        "status of no run": RunFilter(status="cancelled", parent=""),
        "label": RunFilter(labels=(("team", "night"),), parent=""),
        "rare label": RunFilter(labels=(("shard", "7"),), parent=""),
        "status and workflow": RunFilter(status="running", workflow="waits", parent=""),
        "status and workflow that exclude each other": RunFilter(status="failed", workflow="waits", parent=""),
        "since": RunFilter(since=middle, parent=""),
        "until": RunFilter(until=middle, parent=""),
        "parent": RunFilter(parent=f"{7:032x}"),
        "error": RunFilter(error="disk", parent=""),
        "error of no run": RunFilter(error="network", parent=""),
        "error of no run, with workflow and label": RunFilter(
            workflow="waits", labels=(("team", "day"),), error="network", parent=""
        ),
    }


def timed_lists(folder: Path, rounds: int) -> dict[str, float]:
    """The median of the processor time of a list of 20 runs by each filter, as `refold runs list` asks for it."""
    views = open_views(folder / "refold.db", lambda: time.time_ns() // 1000)
    try:
        newest, oldest = views.runs(RunFilter(), limit=1).rows[0], views.summary(f"{0:032x}")
        assert oldest is not None
        found = {}
        for name, wanted in filters((newest.created_at + oldest.created_at) // 2).items():
            times = []
            for _ in range(rounds):
                began = time.process_time()  # all of it is work of this process; others may have the processors
                part_of_runs(views, wanted, 20)
                times.append(time.process_time() - began)
            found[name] = statistics.median(times)
        return found
    finally:
        views.close()


BODY = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: begin}
workflow:
  - step: body
    tool: {kind: python, isolation: inline, code: "import time; result = time.monotonic_ns()"}
"""


def timed_begins(folder: Path, samples: int) -> list[float]:
    """Seconds from a command that this process has queued to the first line of its body in an idle worker."""
    plan = read(BODY, "begin.yaml", CATALOG).plan
    found = []
    with open_intake(folder / "refold.db") as (intake, store), worker(folder):
        for n in range(samples):
            time.sleep(0.3 if n else 5)  # the worker is idle
            run = f"{n:032x}"
            intake.start(plan, {}, run)
            queued = time.monotonic_ns()
            while (row := store.views.summary(run)) is None or row.status != "completed":
                time.sleep(0.1)
            [ended] = [fact for _, _, fact in store.views.facts(run) if isinstance(fact, RunEnded)]
            found.append((int(ended.result) - queued) / 1e9)
    return found


SLOW = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: slow}
workflow:
  - step: body
    tool: {kind: shell, script: "echo $PPID >> began; test -e go || sleep 600"}
"""


def timed_takeover(folder: Path) -> float:
    """Seconds from the kill of a worker, whose lease lasts for 30 more, to the begin of its command in another one."""
    began = folder / "began"

    def begun(count: int) -> None:
        while not began.exists() or len(began.read_text().splitlines()) < count:
            time.sleep(0.005)

    with open_intake(folder / "refold.db") as (intake, _):
        intake.start(read(SLOW, str(folder / "slow.yaml"), CATALOG).plan, {}, f"{0:032x}", folder=str(folder))
    with worker(folder) as first:
        begun(1)
        with worker(folder):
            time.sleep(4)  # it has started, and has nothing to do
            first.kill()
            killed = time.monotonic()
            begun(2)
            return time.monotonic() - killed


def part(name: str, only: str) -> bool:
    return only in ("", name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.day_two", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", choices=["", "rest", "schedules", "lists", "begin", "takeover"])
    parser.add_argument("--quick", action="store_true", help="small sizes; too little to judge by")
    options = parser.parse_args()
    seconds, small = (5.0, 100) if options.quick else (30.0, 1)
    missed: list[str] = []

    def judge(what: str, value: float, limit: float, shown: Callable[[float], str]) -> None:
        print(f"{what:<58} {shown(value):>10}   goal {shown(limit)}")
        if value > limit:
            missed.append(what)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if part("rest", options.only):
            with open_intake(folder / "refold.db"):
                pass
            share, written = at_rest(folder, seconds)
            judge("a worker at rest, of a core", share, REST, "{:.2%}".format)
            judge("commits while it holds nothing", written, 0, "{:g}".format)
        if part("schedules", options.only):
            with open_intake(folder / "refold.db") as (_, store):
                add_schedules(store, SCHEDULES // small)
            share, written = at_rest(folder, seconds)
            judge(f"a worker with {SCHEDULES // small:,} schedules, of a core", share, REST, "{:.2%}".format)
            judge("commits while none is due", written, 0, "{:g}".format)
    with tempfile.TemporaryDirectory() as name:
        if part("lists", options.only):
            add_runs(Path(name), RUNS // small)
            for filter_name, took in timed_lists(Path(name), 5).items():
                judge(
                    f"runs list out of {RUNS // small:,}: {filter_name}", took * 1000, LIST * 1000, "{:.2f} ms".format
                )
    with tempfile.TemporaryDirectory() as name:
        if part("begin", options.only):
            begins = timed_begins(Path(name), SAMPLES if small == 1 else 5)
            raw = measure_raw(300, 1, "full", name)["commit_ms"] / 1000
            middle = statistics.median(begins)
            print(f"a raw commit: {raw * 1000:.2f} ms; from queue to body, p50: {middle * 1000:.1f} ms")
            judge("from queue to body, p50, in raw commits", middle / raw, BEGIN, "{:.1f}".format)
    for _ in range((5 if small == 1 else 1) if part("takeover", options.only) else 0):
        with tempfile.TemporaryDirectory() as name:
            judge(
                "from the kill of a worker to the begin elsewhere",
                timed_takeover(Path(name)),
                TAKEOVER,
                "{:.2f} s".format,
            )
    if missed:
        print("missed:", "; ".join(missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
