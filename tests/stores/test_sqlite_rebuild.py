"""Only the log is the truth: everything else can be thrown away and made again, and no former holder is believed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.core.graph import prepare
from refold.core.outcomes import SECOND, Awaited, Failed, Fault, Outcome, Parked, Succeeded, Suspended
from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait, canonical, plan_hash
from refold.core.state import COMPLETED, TERMINAL
from refold.errors import Corrupt, LeaseLost
from refold.ports import Abilities, Done, Lease
from refold.runtime.mail import Cancel, DecideGate, Look, Mail, Pause, Resume, Settle, Signal, Start
from refold.runtime.rebuild import rebuild
from refold.runtime.turn import Delivery, Turns
from refold.stores.sqlite.store import SqliteStore
from refold.testing.core import Scripted
from tests.contracts.stores import FakeClock, claim_one, commit, note
from tests.programs import random_program
from tests.stores.sqlite_files import ask, opened
from tests.ticks import plan_of

CHILD = Plan(name="child", steps=(Step(name="c", work=Call(tool="noop"), input={"path": ["n"]}),), defaults={"n": 1})
LARGE = Plan(
    name="large",
    steps=(
        Step(
            name="fan",
            loop=Loop(items=[f"{n} " + "x" * 20_000 for n in range(8)], max_in_flight=3),
            input={"of": {"path": ["item"]}},
        ),
    ),
)
CAN = Abilities("w", queues=("default", "wide"))


def everything() -> Plan:
    return Plan(
        name="everything",
        timeout=500.0,
        steps=(
            Step(
                name="first",
                mode="inclusive",
                retry=Retry(attempts=3, delay=20.0),
                arcs=(Arc(to="fan"), Arc(to="wait"), Arc(to="gate")),
            ),
            Step(
                name="fan",
                loop=Loop(items=[{"n": n, "text": "x" * 10} for n in range(20)], max_in_flight=5),
                input={"of": {"path": ["item", "n"]}},
                retry=Retry(attempts=2, delay=5.0),
                priority=2,
                queue="wide",
                arcs=(Arc(to="last"),),
            ),
            Step(name="wait", work=Wait(seconds=50, signal="go"), arcs=(Arc(to="last"),)),
            Step(name="gate", work=Gate(timeout=80.0, on_timeout="continue"), arcs=(Arc(to="child"),)),
            Step(name="child", work=Child(plan=plan_hash(CHILD)), arcs=(Arc(to="last"),)),
            Step(name="last", timeout=30.0),
        ),
    )


class Story:
    """Runs that get anywhere between their start and their end, by chance."""

    def __init__(self, store: SqliteStore, clock: FakeClock, seed: int) -> None:
        self.store, self.clock, self.chance = store, clock, random.Random(seed)
        self.turns = Turns(store, Scripted(), self.chance.random, lambda: f"{self.chance.getrandbits(64):x}")
        self.held: list[Lease] = []
        store.put_plan(plan_hash(CHILD), canonical(CHILD))

    def send(self, run: str, mail: Mail) -> Exception | None:
        post = Delivery(run, mail)
        self.turns.commit([post])
        return post.error

    def start(self, run: str, plan: Plan) -> None:
        assert self.send(run, Start(prepare(plan))) is None

    def go_on(self, moves: int) -> None:
        for _ in range(moves):
            self.chance.choice([self.claim, self.claim, self.claim, self.settle, self.settle, self.wait, self.tell])()
            for run in self.store.due(100)[0]:
                self.send(run, Look())

    def claim(self) -> None:
        with self.store.turn([]) as turn:
            self.held += turn.claim(CAN, 30.0, 2)

    def settle(self) -> None:
        if self.held:
            lease = self.held.pop(self.chance.randrange(len(self.held)))
            self.send(lease.run, Settle(lease, Done(self.outcome(lease))))

    def outcome(self, lease: Lease) -> Outcome:
        outcomes: list[Callable[[], Outcome]] = [
            lambda: Succeeded({"of": lease.command.id}),
            lambda: Succeeded("y" * 70_000),
            lambda: Failed(Fault("error", "by chance")),
            lambda: Parked(until=self.clock.at + 9 * SECOND, progress=[1]),
            lambda: Parked(signal="go", reason="waits"),
            lambda: Suspended((Awaited("call", until=self.clock.at + 9 * SECOND), Awaited("news", signal="go"))),
        ]
        return self.chance.choices(outcomes, [12, 1, 2, 1, 1, 1])[0]()

    def wait(self) -> None:
        self.clock.forward(self.chance.choice([0.001, 1.0, 6.0]))

    def tell(self) -> None:
        run = self.chance.choice([row.run for row in self.store.views.runs().rows])
        mail: list[Mail] = [Signal("go"), DecideGate("gate", "approve"), Pause(), Resume(), Resume(), Cancel("why")]
        self.send(run, self.chance.choices(mail, [4, 4, 2, 2, 2, 0.3])[0])


def projections(folder: Path) -> dict[str, Any]:
    """All that the logs must give again. A lease is not a fact, and a held command has no row to be claimed by."""
    commands = "select run, id, queue, priority, tool, not_before, plan, data from commands where state <> 'held'"
    return {
        "runs": ask(folder, "select run, head, status, created_at, summary, seal from runs order by run"),
        "commands": sorted(ask(folder, commands)),
        "timers": ask(folder, "select * from timers order by run, key"),
    }


def status(store: SqliteStore, run: str) -> str:
    row = store.summary(run)
    assert row is not None
    return row.status


PLANS: dict[str, Callable[[int], Plan]] = {
    "everything": lambda seed: everything(),
    "large values": lambda seed: LARGE,
    "random": lambda seed: plan_of(random_program(seed)),
}


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("seed", range(12))
def test_a_rebuild_gives_the_projections_there_were(tmp_path: Path, kind: str, seed: int) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        story = Story(store, clock, seed)
        for n in range(3):
            story.start(f"r{n}", PLANS[kind](seed * 3 + n))
            story.go_on(seed * 4)
        store.put_snapshot("r1", b"old")
        before = projections(tmp_path)
        logs = ask(tmp_path, "select * from facts")
        assert set(rebuild(store, Scripted()).values()) == {None}
        assert projections(tmp_path) == before
        assert store.snapshot("r1") is None
        assert ask(tmp_path, "select * from facts") == logs


@pytest.mark.parametrize("seed", range(6))
def test_runs_end_after_a_rebuild_as_if_nothing_had_been(tmp_path: Path, seed: int) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        story = Story(store, clock, seed)
        story.start("r", everything())
        story.go_on(40)
        rebuild(store, Scripted())
        story.turns.known.clear()
        left = 600
        while left and status(store, "r") not in TERMINAL:
            story.send("r", Resume())
            story.go_on(10)
            left -= 1
        assert left


def test_late_reports_of_former_holders_are_refused_after_a_rebuild(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        story = Story(store, clock, 1)
        story.start("r", Plan(name="p", steps=(Step(name="a"), Step(name="b"))))
        late = []
        for _ in range(4):
            late.append(claim_one(store))
            assert store.hand_back(late[-1])
        late.append(claim_one(store))
        rebuild(store, Scripted())
        again = claim_one(store)
        assert again.generation > max(lease.generation for lease in late)
        for lease in late:
            assert isinstance(story.send("r", Settle(lease, Done(Succeeded(1)))), LeaseLost)
            assert store.hand_back(lease) is False
            assert store.publish(lease, ["late"]) is False
        assert story.send("r", Settle(again, Done(Succeeded(2)))) is None


def test_a_command_that_was_held_comes_back_above_its_former_generations(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        story = Story(store, clock, 1)
        story.start("r", Plan(name="p", steps=(Step(name="a"),)))
        lost = claim_one(store)
        clock.forward(31)
        store.expire(5)
        parked = claim_one(store)
        assert story.send("r", Settle(parked, Done(Parked(signal="go")))) is None
        for _ in range(2):
            rebuild(store, Scripted())
        assert story.send("r", Signal("go")) is None
        again = claim_one(store)
        assert again.generation > parked.generation > lost.generation
        assert isinstance(story.send("r", Settle(lost, Done(Succeeded(1)))), LeaseLost)
        assert story.send("r", Settle(again, Done(Succeeded(2)))) is None
        assert status(store, "r") == COMPLETED


def test_the_stories_leave_something_to_make_again(tmp_path: Path) -> None:
    """Guards the tests above: open commands of all states, timers, and runs of several statuses."""
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        for seed in range(12):
            story = Story(store, clock, seed)
            story.start(f"r{seed}", everything())
            story.go_on(seed * 4)
    states = dict(ask(tmp_path, "select state, count(*) from commands group by state"))
    assert states.keys() == {"waiting", "later", "leased", "held"}
    assert len(ask(tmp_path, "select distinct status from runs")) >= 3
    assert len(ask(tmp_path, "select * from timers")) >= 10


def test_lost_tables_are_made_again(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        story = Story(store, clock, 3)
        story.start("r", everything())
        story.go_on(30)
        before = projections(tmp_path)
    for table in ("runs", "commands", "timers", "snapshots"):
        ask(tmp_path, f"delete from {table}")
    with opened(tmp_path, clock) as store:
        with pytest.raises(Corrupt, match="`refold db rebuild`"):
            store.summary("r")
        rebuild(store, Scripted())
        assert projections(tmp_path) == before


def test_a_log_that_cannot_be_read_is_told_and_keeps_no_other_from_its_row(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        commit(store, "odd", note("no start"))
        Story(store, clock, 1).start("good", CHILD)
        told = rebuild(store, Scripted())
        assert told["good"] is None and isinstance(told["odd"], Corrupt)
        assert [row.run for row in store.views.runs().rows] == ["good"]


def test_a_rebuild_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        story = Story(store, clock, 1)
        story.start("r", everything())
        before = projections(tmp_path)

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("refold.runtime.rebuild.projected", stop)
        with pytest.raises(KeyboardInterrupt):
            rebuild(store, Scripted())
        assert projections(tmp_path) == before
        assert claim_one(store).generation == 1


def test_dead_letters_are_made_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        story = Story(store, FakeClock(), 1)
        plan = Plan(name="bad", steps=(Step(name="a", loop=Loop(items=[1, 2])),))
        assert story.send("run", Start(prepare(plan))) is None
        for lease in [claim_one(store), claim_one(store)]:
            bad = Done(Failed(Fault("error", f"no row {lease.command.item}")))
            assert story.send("run", Settle(lease, bad)) is None
        before = store.views.dead()
        assert [(each.count, each.items) for each in before] == [(2, (0, 1))]
        store.file.write("update dead set fingerprint = 'spoilt'", [()])
        stray = "insert into dead (run, n, fingerprint, at, data, seal) values ('gone', 0, 'f', 1, x'', 1)"
        store.file.write(stray, [()])
        with pytest.raises(Corrupt):
            store.views.dead()
        assert rebuild(store, Scripted()) == {"run": None}
        assert store.views.dead() == before
