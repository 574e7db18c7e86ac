"""Gates and timers of real engines on a file: who is first, restarts, clocks that jump, and many at once."""

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from refold import open_engine
from refold.core.expressions import Values
from refold.core.facts import ChildEnded, GateDecided, StepIssued, StepSettled
from refold.core.outcomes import SECOND, Failed, Instant
from refold.core.plan import Poll
from refold.doorbells.local import LocalDoorbell
from refold.errors import Conflict, InvalidValue, NotFound, RunFailed
from refold.plan import Arc, Call, Child, Gate, Plan, Step, Wait
from refold.runtime.engine import Engine
from refold.runtime.turn_thread import InCaller
from refold.settings import Settings
from refold.stores.sqlite.store import SqliteStore
from refold.wiring import World, assemble

ASK = Plan(name="ask", steps=(Step(name="ask", work=Gate(prompt="well?"), arcs=(Arc(to="go"),)), Step(name="go")))
QUICK = Settings(sweep_every=0.05, poll=0.05)

DECIDE = """
import sys
from refold.errors import Conflict
from refold.runtime.mail import DecideGate
from refold.wiring import open_intake

file, by, *runs = sys.argv[1:]
with open_intake(file) as (intake, _):
    print("ready", flush=True)
    sys.stdin.readline()
    for run in runs:
        try:
            intake.send(run, DecideGate("ask", "approve", by))
            print(by)
        except Conflict as error:
            print(error)
"""


class Skewed:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.skew = 0.0

    def now(self) -> Instant:
        return time.time_ns() // 1000 + round(self.skew * SECOND)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@asynccontextmanager
async def skewed(file: Path, clock: Skewed) -> AsyncIterator[Engine]:
    store = SqliteStore(file, clock.now)
    world = World(clock, LocalDoorbell(), InCaller(), random.random, lambda: uuid.uuid4().hex)
    process = assemble(store, world, Values(), {}, QUICK, "worker-1")
    serving = asyncio.create_task(process.serve())
    try:
        yield process.engine
    finally:
        await process.stop()
        serving.cancel()
        await asyncio.wait([serving])
        store.close()


async def facts(engine: Engine, run: str, kind: type[Any]) -> list[Any]:
    return [fact for _, _, fact in await engine.history(run) if isinstance(fact, kind)]


async def test_of_two_processes_that_decide_at_once_one_wins_and_the_other_is_told_who(tmp_path: Path) -> None:
    file = tmp_path / "refold.db"
    async with open_engine(db=file) as engine:
        runs = [(await engine.start(ASK)).id for _ in range(30)]
    people = [
        subprocess.Popen(
            [sys.executable, "-c", DECIDE, str(file), by, *runs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        for by in ("ann", "bob")
    ]
    assert [person.stdout.readline() for person in people if person.stdout] == ["ready\n"] * 2
    for person in people:
        assert person.stdin is not None
        person.stdin.write("go\n")
        person.stdin.flush()
    told = [person.communicate(timeout=60)[0].splitlines() for person in people]
    assert [person.returncode for person in people] == [0, 0] and [len(each) for each in told] == [30, 30]
    async with open_engine(db=file, settings=QUICK) as engine:
        for number, run in enumerate(runs):
            [decided] = await facts(engine, run, GateDecided)
            said = [each[number] for each in told]
            assert said.count(decided.by) == 1
            other = next(each for each in said if each != decided.by)
            assert other.startswith(f"gate 'ask' (visit 1) was decided by {decided.by} at 2")
            await engine.result(run)


async def test_of_two_who_decide_in_one_turn_the_second_is_told_who(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(ASK)).id
        both = (engine.decide(run, "ask", "approve", by=by) for by in ("ann", "bob"))
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert first is None and isinstance(second, Conflict)
        assert "was decided by ann at 2" in str(second)


async def test_a_decision_after_the_end_of_the_run_is_told_who_was_first(tmp_path: Path) -> None:
    plan = Plan(name="last", steps=(Step(name="ask", work=Gate()),))
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(plan)).id
        await engine.decide(run, "ask", "approve", by="ann")
        assert (await engine.result(run))["by"] == "ann"
        with pytest.raises(Conflict, match=r"was decided by ann at 2.*: approve"):
            await engine.decide(run, "ask", "reject", by="bob")
        with pytest.raises(NotFound):
            await engine.decide(run, "nobody", "approve")
        cancelled = (await engine.start(plan)).id
        await engine.cancel(cancelled)
        with pytest.raises(Conflict, match=f"run {cancelled} is cancelled"):
            await engine.decide(cancelled, "ask", "approve")


async def test_a_decision_is_for_one_visit(tmp_path: Path) -> None:
    again = Plan(name="again", steps=(Step(name="ask", work=Gate(), arcs=(Arc(to="ask", when=True),)),))
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(again)).id
        await engine.decide(run, "ask", "approve", by="ann", visit=1)
        with pytest.raises(Conflict, match=r"\(visit 1\) was decided by ann"):
            await engine.decide(run, "ask", "approve", by="bob", visit=1)
        await engine.decide(run, "ask", "approve", by="bob")
        assert [fact.visit for fact in await facts(engine, run, GateDecided)] == [1, 2]


FORM = {
    "type": "object",
    "properties": {"amount": {"type": "number", "minimum": 0}},
    "required": ["amount"],
    "additionalProperties": False,
}


async def test_an_answer_that_does_not_fit_the_form_is_sent_back_and_decides_nothing(tmp_path: Path) -> None:
    plan = Plan(name="form", steps=(Step(name="ask", work=Gate(form=FORM)),))
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(plan)).id
        wrong = {"required": None, "minimum": {"amount": -1}, "unexpected": {"amount": 1, "x": 2}, "object": "much"}
        for why, feedback in wrong.items():
            with pytest.raises(InvalidValue, match=why):
                await engine.decide(run, "ask", "approve", feedback=feedback)
        assert await facts(engine, run, GateDecided) == []
        await engine.decide(run, "ask", "approve", feedback={"amount": 5})
        assert (await engine.result(run))["feedback"] == {"amount": 5}
        other = (await engine.start(plan)).id
        await engine.decide(other, "ask", "reject", feedback="never")
        with pytest.raises(RunFailed, match="never"):
            await engine.result(other)


class Schemas(BaseHTTPRequestHandler):
    """Gives a schema to everybody who asks."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


async def test_no_part_of_a_form_is_fetched(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Schemas) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        form = {"$ref": f"http://127.0.0.1:{server.server_port}/schema"}
        plan = Plan(name="form", steps=(Step(name="ask", work=Gate(form=form)),))
        async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
            run = (await engine.start(plan)).id
            with pytest.raises(InvalidValue, match="not a JSON Schema that can be used"):
                await engine.decide(run, "ask", "approve", feedback={})
        server.shutdown()
    assert Schemas.asked == []


async def test_a_form_that_is_none_is_named(tmp_path: Path) -> None:
    plan = Plan(name="form", steps=(Step(name="ask", work=Gate(form={"type": "objekt"})),))
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(plan)).id
        with pytest.raises(InvalidValue, match="not a JSON Schema that can be used"):
            await engine.decide(run, "ask", "approve", feedback={})


async def test_each_person_counts_once(tmp_path: Path) -> None:
    plan = Plan(name="two", steps=(Step(name="ask", work=Gate(min_approvals=2)),))
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(plan)).id
        with pytest.raises(InvalidValue, match="say who decides"):
            await engine.decide(run, "ask", "approve")
        await engine.decide(run, "ask", "approve", by="ann")
        with pytest.raises(Conflict, match="ann has decided at gate 'ask' already"):
            await engine.decide(run, "ask", "approve", by="ann")
        await engine.decide(run, "ask", "approve", by="bob")
        assert [each["by"] for each in (await engine.result(run))["approvals"]] == ["ann", "bob"]


async def test_a_deadline_survives_a_restart_and_is_not_prolonged_by_it(tmp_path: Path) -> None:
    file, clock = tmp_path / "refold.db", Skewed()
    plan = Plan(name="late", steps=(Step(name="ask", work=Gate(timeout=3600.0)),))
    async with skewed(file, clock) as engine:
        run = (await engine.start(plan)).id
        [asked] = await facts(engine, run, StepIssued)
    clock.skew = 3000.0
    async with skewed(file, clock) as engine:
        ending = asyncio.create_task(engine.wait(run))
        await asyncio.sleep(0.2)
        assert not ending.done()
        clock.skew = 3600.0  # no more than ten minutes after the restart
        assert (await asyncio.wait_for(ending, 60)).status == "failed"
        with pytest.raises(RunFailed, match="nobody decided within 3600 s"):
            await engine.result(run)
        [(at, settled)] = [(at, fact) for _, at, fact in await engine.history(run) if isinstance(fact, StepSettled)]
    assert asked.until <= at < asked.until + 60 * SECOND
    assert isinstance(settled.report.outcome, Failed) and settled.report.outcome.fault.kind == "timeout"


async def test_a_child_that_takes_too_long_is_cancelled_and_its_parent_fails_by_the_timeout(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "refold.db", settings=QUICK) as engine:
        child = await engine.register(Plan(name="child", steps=(Step(name="nap", work=Wait(seconds=3600)),)))
        parent = Plan(name="parent", steps=(Step(name="sub", work=Child(plan=child), timeout=0.2),))
        run = (await engine.start(parent)).id
        with pytest.raises(RunFailed, match=r"no result after 0\.2 s"):
            await asyncio.wait_for(engine.result(run), 60)
        assert len(await facts(engine, run, ChildEnded)) == 1
        [told] = [row for row in await engine.runs() if row.parent == run]
        assert told.status == "cancelled"


@pytest.mark.parametrize("stays", [True, False], ids=["awake", "asleep"])
async def test_a_clock_that_jumps_past_a_due_time_fires_it_once(tmp_path: Path, stays: bool) -> None:
    clock, file = Skewed(), tmp_path / "refold.db"
    plan = Plan(name="nap", steps=(Step(name="nap", work=Wait(seconds=1800)),))
    async with skewed(file, clock) as engine:
        run = (await engine.start(plan)).id
        if stays:
            clock.skew = 3600.0
            await asyncio.wait_for(engine.result(run), 60)
    clock.skew = 3600.0
    async with skewed(file, clock) as engine:
        assert await asyncio.wait_for(engine.result(run), 60) == {"by": "timer", "value": None}
        clock.skew = 0.0
        await asyncio.sleep(0.2)
        clock.skew = 7200.0
        await asyncio.sleep(0.2)
        assert len(await facts(engine, run, StepSettled)) == 1


async def test_a_clock_that_is_set_back_makes_a_timer_late_and_loses_none(tmp_path: Path) -> None:
    clock, file = Skewed(), tmp_path / "refold.db"
    plan = Plan(name="nap", steps=(Step(name="nap", work=Wait(seconds=60)),))
    async with skewed(file, clock) as engine:
        run = (await engine.start(plan)).id
        [issued] = await facts(engine, run, StepIssued)
        clock.skew = -3600.0
        await asyncio.sleep(0.5)
        assert await facts(engine, run, StepSettled) == []
        later = (await engine.start(plan)).id
        clock.skew = 60.0
        for each in (run, later):
            await asyncio.wait_for(engine.result(each), 60)
        times = [at for _, at, _ in await engine.history(run)]
        assert times == sorted(times) and times[-1] >= issued.until
        assert len(await facts(engine, run, StepSettled)) == 1


async def test_a_thousand_timers_that_are_due_at_once_fire_within_a_second_in_order(tmp_path: Path) -> None:
    """A second of the processor, for others use this machine too."""
    order: list[str] = []
    clock = Skewed()
    async with skewed(tmp_path / "refold.db", clock) as engine:
        tell = engine.ends.ended
        engine.ends.ended = lambda snapshot: (order.append(snapshot.state.run), tell(snapshot))[1]  # type: ignore[method-assign, func-returns-value]
        base = clock.now() + 3600 * SECOND
        dues = random.Random(7).sample(range(1000), 1000)
        plans = [Plan(name="nap", steps=(Step(name="nap", work=Wait(until=base + due)),)) for due in dues]
        runs = [handle.id for handle in await asyncio.gather(*map(engine.start, plans))]
        began, clock.skew = time.process_time(), 3600.0
        await asyncio.gather(*map(engine.wait, runs))
        assert time.process_time() - began < 1.0
    assert order == [run for _, run in sorted(zip(dues, runs, strict=True))]


async def test_a_poll_holds_no_worker_between_its_looks(tmp_path: Path) -> None:
    seen: list[float] = []
    statuses: set[str] = set()

    async def look(call: Any) -> int:
        seen.append(time.monotonic())
        return len(seen)

    class Third(Values):
        def truth(self, template: Any, view: Any) -> bool:
            return bool(view["output"]["data"] >= 3 and "waiting" in statuses)

    poll = Step(name="poll", work=Call(tool="look"), poll=Poll(until="third", every=0.3))
    async with open_engine({"look": look}, evaluate=Third(), db=tmp_path / "refold.db", settings=QUICK) as engine:
        run = (await engine.start(Plan(name="poll", steps=(poll,)))).id
        async with asyncio.timeout(60):
            while "waiting" not in statuses:
                statuses.add((await engine.show(run)).status)
                await asyncio.sleep(0.01)
        assert await asyncio.wait_for(engine.result(run), 60) == len(seen) >= 3
    assert all(later - earlier >= 0.29 for earlier, later in pairwise(seen))


MANY = """
import asyncio, sys
from refold import open_engine
from refold.plan import Gate, Plan, Step, Wait

ask = Plan(name="ask", steps=(Step(name="ask", work=Gate(prompt="well?", timeout=3600.0)),))
nap = Plan(name="nap", steps=(Step(name="nap", work=Wait(seconds=3600)),))

async def main():
    async with open_engine(db=sys.argv[1]) as engine:
        for _ in range(100):
            await asyncio.gather(*(engine.start((ask, nap)[n % 2]) for n in range(100)))
        await asyncio.sleep(1.5)
        with open("/proc/self/statm") as told:
            used = int(told.read().split()[1]) * 4096 / 1e6
        free = engine.mailroom.worker().offer().slots
        status = {row.status for row in await engine.runs(limit=20000)}
        print(used, free, *status)

asyncio.run(main())
"""


def test_ten_thousand_runs_that_wait_take_no_worker_and_little_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path / "refold.db")],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    used, free, *status = done.stdout.split()
    assert float(used) < 60 and int(free) == Settings().slots and status == ["waiting"]
