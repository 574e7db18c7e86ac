"""What the pure core costs: runs of growing size, driven turn by turn, with a clock that runs only inside the core."""

import gc
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from random import Random
from time import thread_time  # counts only while this thread runs, so that a busy machine matters less
from typing import Any

from msgspec import Struct

from refold.core import codec
from refold.core.commands import Command
from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.expressions import Missing, TemplateScope, Values
from refold.core.facts import Fact, ItemsSettled, RunStarted, StepSettled
from refold.core.fold.apply import Record, fold
from refold.core.graph import Graph, analyse
from refold.core.outcomes import SECOND, Failed, Fault, Report, Succeeded
from refold.core.plan import Arc, Loop, Plan, Retry, Step
from refold.core.read.summary import summarize
from refold.core.state import TERMINAL, RunState
from refold.stores.memory import MemoryStore, StoredFact

SIZES = (1_000, 10_000, 100_000)
REPEATS = 3
EXPONENT = 1.1  # at most
FOLD_RATE = 0.4  # at least, of the rate of reading and decoding
NOON = 1_700_000_000 * SECOND
WORKER = "worker-7f3a@host-12"
RARELY = 20  # every so many steps of a random graph fail once


class Visits(Values):
    """The smallest language that can end a loop: a number as a condition holds for the visits below it."""

    def truth(self, template: Any, view: TemplateScope) -> bool:
        return template if isinstance(template, bool) else bool(view["visit"] < template)


class Workload(Struct, frozen=True):
    name: str
    plan: Callable[[int], Plan]
    about: str
    per_step: bool = False  # the work is in the steps; there are few facts, whatever the size


class Drive:
    """One run of the core, as a turn of the runtime drives it: say, decide, take the orders, the timers, the summary.

    Outcomes come one per turn, which is the dearest way; a real mailbox gathers many.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.state = RunState(run="r")
        self.log: list[Fact] = []
        self.waiting: deque[str] = deque()
        self.commands: dict[str, Command] = {}
        self.blobs: dict[str, Any] = {}  # held to be cached by the runtime
        self.turns = 0
        self.spent = 0.0  # seconds inside the core

    def run(self) -> None:
        self.turn([RunStarted(plan="p")])
        while self.waiting:
            command = self.commands.pop(self.waiting.popleft(), None)
            if command is not None:
                self.turn([outcome_of(command, self.graph)])
        assert self.state.life in TERMINAL, self.state.life

    def turn(self, facts: Sequence[Fact]) -> None:
        self.turns += 1
        begun = thread_time()
        d = Decision(self.graph, self.state, NOON + self.turns, Visits(), lambda: 0.5)
        d.loaded.blobs.update(self.blobs)
        for fact in facts:
            d.record_fact(fact)
        orders = self._decide(d)
        d.timers()
        summarize(self.graph, self.state)
        self.spent += thread_time() - begun
        self.log.extend(d.facts)
        for blob, data in d.blobs.items():
            self.blobs[blob] = codec.unbox(data)
        for command, order in orders.items():
            self.commands.pop(command, None)
            if isinstance(order, Command):
                self.commands[command] = order
                self.waiting.append(command)

    def _decide(self, d: Decision) -> dict[str, Any]:
        while True:
            try:
                decide(d)
                return d.commands()
            except Missing as missing:
                d.loaded.facts.update((seq, self.log[seq - 1]) for seq in missing.facts)


def outcome_of(command: Command, graph: Graph) -> Fact:
    fails = graph.step(graph.index[command.step]).retry.attempts > command.attempt
    outcome = Failed(Fault("error", "not yet")) if fails else Succeeded({"rows": 17, "ok": True})
    report = Report(
        command.attempt, outcome, command.item, WORKER, claimed_at=NOON + 250, started_at=NOON + 500, losses=0
    )
    if command.item is None:
        return StepSettled(command.step, command.visit, report)
    return ItemsSettled(command.step, command.visit, (report,))


def to(name: str, **more: Any) -> Arc:
    return Arc(to=name, **more)


def chain(n: int) -> Plan:
    names = [f"s{i}" for i in range(n)]
    arcs = [(to(name),) for name in names[1:]] + [()]
    return Plan(name="chain", steps=tuple(Step(name=name, arcs=out) for name, out in zip(names, arcs, strict=True)))


def random_dag(n: int) -> Plan:
    """One to four arcs per step to the 50 that follow, mixed joins and modes, conditions, a few failing tries."""
    random = Random(n)
    sources: list[set[int]] = [set() for _ in range(n)]
    arcs: list[list[Arc]] = [[] for _ in range(n)]

    def lead(source: int, target: int) -> None:
        sources[target].add(source)
        arcs[source].append(to(f"s{target}", when=random.choice((None, None, None, True, True, False))))

    for i in range(n):
        if i:
            lead(random.randrange(max(0, i - 50), i), i)
        for _ in range(random.choice((1, 1, 2, 3)) if i + 1 < n else 0):
            lead(i, random.randrange(i + 1, min(n, i + 51)))
    steps = [
        Step(
            name=f"s{i}",
            mode="inclusive" if random.random() < 0.8 else "exclusive",
            join=random.choice(("all", "all", "all", "any", "race", min(2, len(sources[i])) or 1)),
            retry=Retry(attempts=2 if i % RARELY == 0 else 1),
            arcs=tuple(arcs[i]),
        )
        for i in range(n)
    ]
    return Plan(name="dag", steps=tuple(steps))


def list_loop(n: int) -> Plan:
    return Plan(name="list", steps=(Step(name="each", loop=Loop(items=list(range(n)), max_in_flight=64)),))


def arc_loop(n: int) -> Plan:
    """Two steps round and round; the second decides by its visit."""
    work = Step(name="work", arcs=(to("test"),), visit_limit=n)
    test = Step(name="test", arcs=(to("work", when=n),), visit_limit=n)
    return Plan(name="loop", steps=(work, test))


def wide_fork(n: int) -> Plan:
    branches = [Step(name=f"s{i}", arcs=(to("join"),)) for i in range(n)]
    fork = Step(name="fork", mode="inclusive", arcs=tuple(to(step.name) for step in branches))
    return Plan(name="fork", steps=(fork, *branches, Step(name="join")))


def dead_path(n: int) -> Plan:
    """A choice, a short way and a long way that is not taken: all its skips fall into one turn."""
    short = Step(name="choose", arcs=(to("end"), to("s0")))
    names = [*(f"s{i}" for i in range(n)), "end"]
    long = [Step(name=name, arcs=(to(after),)) for name, after in pairwise(names)]
    return Plan(name="dead path", steps=(short, *long, Step(name="end")))


def context(n: int) -> Plan:
    """A chain in which every step writes a key of its own."""
    plan = chain(n)
    steps = tuple(Step(name=step.name, arcs=step.arcs, set={f"ctx.k{i}": i}) for i, step in enumerate(plan.steps))
    return Plan(name="context", steps=steps)


def races(n: int) -> Plan:
    """Two run, the first wins, again and again."""
    steps: list[Step] = []
    for i in range(n // 3):
        race, left, right = f"race{i}", f"left{i}", f"right{i}"
        steps.append(Step(name=race, join="race", mode="inclusive", arcs=(to(left), to(right))))
        steps += [Step(name=name, arcs=(to(f"race{i + 1}"),)) for name in (left, right)]
    return Plan(name="races", steps=(*steps, Step(name=f"race{n // 3}", join="race")))


WORKLOADS = (
    Workload("chain", chain, "n steps in a row"),
    Workload("random DAG", random_dag, "n steps, few arcs each, mixed joins"),
    Workload("list loop", list_loop, "n items, window 64"),
    Workload("arc loop", arc_loop, "n passes over two steps"),
    Workload("wide fork", wide_fork, "n branches and their join"),
    Workload("dead path", dead_path, "n steps skipped in one turn", per_step=True),
    Workload("context", context, "n steps, each with a key of its own"),
    Workload("races", races, "n steps, every third a race"),
)


class Cost(Struct, frozen=True):
    """The least seconds over the repeats, and how many facts (or steps) they were spent on."""

    workload: str
    size: int
    units: int
    seconds: float
    analysis: float  # of the plan, once per plan and not per run

    @property
    def micros(self) -> float:
        return self.seconds / self.units * 1e6


def measure(workload: Workload, sizes: Sequence[int], repeats: int = REPEATS) -> list[Cost]:
    """Every size once, then again: whatever else the machine does comes and goes, and the least of each remains."""
    rounds = [[measure_once(workload, size) for size in sizes] for _ in range(repeats)]
    return [
        Cost(workload.name, size, costs[0].units, *(min(times) for times in zip(*map(_times, costs), strict=True)))
        for size, costs in zip(sizes, zip(*rounds, strict=True), strict=True)
    ]


def _times(cost: Cost) -> tuple[float, float]:
    return cost.seconds, cost.analysis


def measure_once(workload: Workload, size: int) -> Cost:
    plan = workload.plan(size)
    quiet_heap()
    begun = thread_time()
    graph = analyse(plan)
    analysis = thread_time() - begun
    drive = Drive(graph)
    drive.run()
    return Cost(workload.name, size, size if workload.per_step else drive.state.seq, drive.spent, analysis)


def quiet_heap() -> None:
    """The collector stays on, for it is part of the cost, but starts without what others left behind."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """The slope of the straight line through the logarithms, by least squares: 1 means that cost grows with work."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    x0, y0 = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    slope: float = sum((x - x0) * (y - y0) for x, y in logs) / sum((x - x0) ** 2 for x, _ in logs)
    return slope


def long_run(n: int) -> Plan:
    """About n facts: 40 % of a loop of two steps with a condition, 40 % of a chain of 20 steps, 20 % of items."""
    limits: dict[str, Any] = {"visit_limit": n}
    passes, rounds, items = n * 4 // 10 // 5, n * 4 // 10 // 41, n * 2 // 10 // 2
    fetch = {"url": "https://api.example.org/v1/orders", "page": 17, "limit": 100}
    hops = [Step(name=f"hop{i}", input=fetch, arcs=(to(f"hop{i + 1}"),), **limits) for i in range(19)]
    steps = (
        Step(name="work", input=fetch, arcs=(to("test"),), **limits),
        Step(name="test", arcs=(to("work", when=passes), to("hop0")), **limits),
        *hops,
        Step(name="hop19", arcs=(to("hop0", when=rounds), to("each")), **limits),
        Step(name="each", loop=Loop(items=list(range(items)), max_in_flight=64)),
    )
    return Plan(name="long run", steps=steps)


class FoldCost(Struct, frozen=True):
    """Seconds to read and decode rows, and to read, decode and fold them."""

    rows: str
    facts: int
    size: float  # bytes per row
    read: float
    fold: float

    @property
    def rate(self) -> float:
        return self.read / self.fold


def measure_cold_fold(n: int = 1_000_000, repeats: int = REPEATS) -> list[FoldCost]:
    """The same rows twice: as the store hands them to a cold run, all at once, and bare, one by one."""
    graph = analyse(long_run(n))
    drive = Drive(graph)
    drive.run()
    store = MemoryStore(lambda: NOON)
    store.logs["r"] = [StoredFact(NOON + i, codec.encode_fact(fact), None) for i, fact in enumerate(drive.log)]
    del drive
    entries = store.logs["r"]
    size = sum(len(entry.data) for entry in entries) / len(entries)
    ways: dict[str, Callable[[], Iterable[Record]]] = {
        "from the store": lambda: store.facts("r"),
        "one by one": lambda: one_by_one(entries),
    }
    costs = []
    for name, read in ways.items():
        reading = min(timed(read, lambda records: deque(records, maxlen=0)) for _ in range(repeats))
        folding = min(timed(read, lambda records: fold(graph, records, RunState(run="r"))) for _ in range(repeats))
        costs.append(FoldCost(name, len(entries), size, reading, folding))
    return costs


def one_by_one(entries: Iterable[StoredFact]) -> Iterator[Record]:
    for number, entry in enumerate(entries, 1):
        yield number, entry.at, codec.decode_fact(entry.data)


def timed(read: Callable[[], Iterable[Record]], use: Callable[[Iterable[Record]], object]) -> float:
    quiet_heap()
    begun = thread_time()
    use(read())
    return thread_time() - begun
