"""A run is moved under its lock, in one commit; whoever has it in memory learns it, and who works on it is told."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from refold.core.expressions import Values
from refold.core.facts import RunMigrated
from refold.core.graph import prepare
from refold.core.outcomes import SECOND, Instant, Sent, Succeeded
from refold.core.plan import BODY, Arc, Call, Collect, EventType, Input, Plan, Step, canonical, plan_hash
from refold.errors import CannotMigrate, Conflict, LeaseLost, NotFound
from refold.ports import Abilities, Done, Lease
from refold.queries.workers import abilities
from refold.runtime.mail import Mail, Migrate, Note, Pause, Settle, Start
from refold.runtime.rebuild import rebuild
from refold.runtime.turn import Delivery, TurnResult, Turns
from refold.stores.memory import MemoryStore
from refold.stores.sqlite.store import SqliteStore

NOON: Instant = 1_800_000_000_000_000
BOTH = ("StartEvent", "Done")
CODE = Plan(
    name="code",
    steps=(
        Step(name="work", work=Call(tool=BODY), accepts=("StartEvent",)),
        Step(name="join", work=Call(tool=BODY), accepts=("Done",), collect=Collect(n=2, timeout=60.0)),
    ),
    events=tuple(EventType(name=name) for name in (*BOTH, "StopEvent")),
)
LATER = structs.replace(CODE, timeout=90.0)
FILE = Plan(name="file", steps=(Step(name="a", arcs=(Arc(to="b"),)), Step(name="b")))
LONGER = structs.replace(FILE, steps=(FILE.steps[0], Step(name="b", arcs=(Arc(to="c"),)), Step(name="c")))


def turns_on(store: MemoryStore | SqliteStore, ids: list[int]) -> Turns:
    def new_id() -> str:
        ids.append(len(ids))
        return f"turn{len(ids)}"

    return Turns(store, Values(), lambda: 0.5, new_id)


class House:
    def __init__(self, store: MemoryStore | SqliteStore) -> None:
        ids: list[int] = []
        self.store = store
        self.turns, self.others = turns_on(store, ids), turns_on(store, ids)

    def send(self, mail: Mail, turns: Turns | None = None) -> TurnResult:
        post = Delivery("r", mail)
        turned = (turns or self.turns).commit([post])
        if post.error is not None:
            raise post.error
        return turned

    def start(self, plan: Plan) -> None:
        self.send(Start(prepare(plan)))

    def move(self, plan: Plan, turns: Turns | None = None) -> TurnResult:
        hash = plan_hash(plan)
        self.store.put_plan(hash, canonical(plan))
        return self.send(Migrate(hash, (turns or self.turns).graph(hash), "ann"), turns)

    def claim(self, *tools: str) -> Lease:
        with self.store.turn(()) as turn:
            [lease] = turn.claim(Abilities("w", tools=frozenset(tools) if tools else None), 30.0, 1)
        return lease


@pytest.fixture(params=["memory", "sqlite"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    if request.param == "memory":
        return House(MemoryStore(lambda: NOON))
    store = SqliteStore(tmp_path / "refold.db", lambda: NOON)
    request.addfinalizer(store.close)
    return House(store)


def tool(plan: Plan) -> str:
    return f"{BODY}:{plan_hash(plan)}"


def test_code_is_issued_anew_for_who_has_the_new_one_and_its_holder_is_told(house: House) -> None:
    house.start(CODE)
    lease = house.claim(tool(CODE))
    assert house.move(LATER).withdrawn == [("r", "work/1")]
    with pytest.raises(LeaseLost):
        house.send(Settle(lease, Done(Succeeded())))
    with pytest.raises(LeaseLost):
        house.send(Note(lease, "k", Succeeded()))
    again = house.claim(tool(LATER))
    assert (again.command.id, again.command.attempt, again.plan) == ("work/1", 1, plan_hash(LATER))
    assert again.losses == 0


def test_a_tool_that_is_at_work_finishes_as_it_was_begun(house: House) -> None:
    house.start(FILE)
    lease = house.claim()
    assert house.move(LONGER).withdrawn == []
    house.send(Settle(lease, Done(Succeeded(1))))
    for name in ("b", "c"):
        lease = house.claim()
        assert lease.command.step == name
        house.send(Settle(lease, Done(Succeeded(2))))
    summary = house.store.summary("r")
    assert summary is not None
    assert (summary.status, summary.plan) == ("completed", plan_hash(LONGER))


def test_whoever_has_the_run_in_memory_learns_that_it_was_moved(house: House) -> None:
    house.start(FILE)
    assert house.others.look("r").graph.plan == FILE
    house.move(LONGER)
    seen = house.others.look("r")
    assert (seen.graph.plan, seen.state.plan) == (LONGER, plan_hash(LONGER))
    assert seen.state == house.turns.look("r").state
    house.send(Pause("ann"), house.others)
    with pytest.raises(Conflict, match="already"):
        house.move(LONGER, house.others)


def test_the_move_is_one_fact(house: House) -> None:
    house.start(FILE)
    before = len(house.store.facts("r"))
    house.move(LONGER)
    assert [fact for _, _, fact in house.store.facts("r", before)] == [RunMigrated(plan_hash(LONGER), "ann")]


def test_inputs_that_the_new_plan_needs_must_be_there(house: House) -> None:
    house.start(FILE)
    with pytest.raises(CannotMigrate, match="input `x`: `file` needs it"):
        house.move(structs.replace(FILE, inputs=(Input(name="x", required=True),)))
    with pytest.raises(NotFound):
        house.turns.graph("nothing")
    assert not [fact for _, _, fact in house.store.facts("r") if isinstance(fact, RunMigrated)]


def test_a_new_limit_of_the_run_is_a_timer_and_one_that_is_gone_is_none(house: House) -> None:
    house.start(FILE)
    house.move(structs.replace(LONGER, timeout=5.0))
    assert house.store.due(10)[1] == NOON + 5 * SECOND
    house.move(LONGER)
    assert house.store.due(10)[1] is None


def test_the_time_of_a_gathering_goes_on_after_a_rebuild(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "refold.db", lambda: NOON)
    house = House(store)
    rest = Step(name="rest", work=Call(tool=BODY), accepts=("StartEvent",))  # goes on meanwhile
    house.start(structs.replace(CODE, steps=(*CODE.steps, rest)))
    house.send(Settle(house.claim(), Done(Succeeded(), events=(Sent("Done", {}),))))
    assert store.due(10)[1] == NOON + 60 * SECOND
    assert rebuild(store, Values()) == {"r": None}
    assert store.due(10)[1] == NOON + 60 * SECOND
    store.close()


def test_a_worker_says_what_it_can_take_when_it_claims_and_before(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "refold.db", lambda: NOON)
    house = House(store)
    assert abilities(store.views) == {}
    store.enrol(Abilities("early", tools=frozenset({"http"})))
    store.enrol(Abilities("any"))
    house.start(FILE)
    house.claim("noop", "shell")
    said = {worker: can.tools for worker, can in abilities(store.views).items()}
    assert said == {"early": {"http"}, "any": None, "w": {"noop", "shell"}}
    changed = Abilities("early", queues=None, tools=frozenset({"http", "sql"}))
    store.enrol(changed)
    assert abilities(store.views)["early"] == changed
    assert abilities(store.views)["any"].queues == ("default",)
    assert store.views.plans(plan_hash(FILE)[:5]) == [plan_hash(FILE)]
    assert store.views.plans("no such") == []
    store.close()


def test_a_row_of_before_says_nothing_of_what_its_worker_can_take(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "refold.db", lambda: NOON)
    store.enrol(Abilities("w", tools=frozenset({"http"})))
    forget: Callable[[], object] = partial(store.file.db.execute, "update workers set tools = null")
    forget()
    assert abilities(store.views)["w"].tools is None
    store.close()
