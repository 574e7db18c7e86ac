"""Loops with random orders, failures, windows and policies: the core and a plain referee agree at every turn."""

import ast
import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from refold.core.facts import Fact, ItemsCancelled, ItemsReopened, PageAsked, PageCame, RunReopened
from refold.core.outcomes import Failed, Fault, Report, Succeeded
from refold.core.plan import Call, Loop, Plan, Retry, Source, Step
from refold.core.read.items import STATES
from refold.core.state import ITEM_STOPPED
from refold.ports import ToolCall
from refold.testing.core import Given, Scripted, Then, failed, started, succeeded
from tests.compat.stage import Stage
from tests.item_referee import Referee, Rules

CASES, CHUNK = 1_000, 100
FIRST = int(os.environ.get("REFOLD_FIRST_SEED", 0))
NAMES = STATES | {ITEM_STOPPED: "stopped"}
KEY, AFTER = {"path": ["item", "id"]}, {"path": ["item", "needs"]}
BOUNDS: list[dict[str, Any]] = [
    {},
    {},
    {"tolerate": 2},
    {"tolerate": "25%"},
    {"min_success": "50%"},
    {"min_success": 3, "tolerate": 1},
]

Item = tuple[str, list[str]]  # its key, and the keys of those that it waits for


class Case:
    """Items, who waits for whom, and which tries go wrong."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        count = chance.choice([0, 1, 2, 4, 7, 11])
        self.ordered = chance.random() < 0.7
        names = [f"k{number}" for number in range(count)]
        dense = chance.choice([0.1, 0.3, 0.6])
        rank = chance.sample(range(count), count)  # a blocker may stand behind those that wait for it
        self.items: list[Item] = []
        for one in range(count):
            needs = [names[two] for two in range(count) if rank[two] < rank[one] and chance.random() < dense]
            self.items.append((names[one], needs if self.ordered else []))
        self._spoil(names)
        policy = chance.choice(["all", "all", "all", "stop", "halt", "ignore"])
        bound: dict[str, Any] = {}
        if policy == "all":
            bound = chance.choice(
                [
                    {},
                    {},
                    {"tolerate": 2},
                    {"tolerate": "25%"},
                    {"min_success": "50%"},
                    {"min_success": 3, "tolerate": 1},
                ]
            )
        self.rules = Rules(
            policy, chance.choice([1, 2, 3, 16]), chance.choice([1, 1, 2]), ordered=self.ordered, **bound
        )
        self.rules = replace(self.rules, drops=self.ordered and chance.random() < 0.3)
        self.likely = chance.choice([0.0, 0.1, 0.3, 0.8])  # that a try fails
        self.streamed = chance.random() < 0.4
        self.meddles = chance.random() < 0.3  # somebody cancels items and runs some again

    def _spoil(self, names: list[str]) -> None:
        """Now and then a circle, a key that nobody has, or one that two have."""
        if self.ordered and names and self.chance.random() < 0.15:
            one = self.chance.randrange(len(names))
            self.items[one][1].append(self.chance.choice([*names, "nobody"]))
        if names and self.chance.random() < 0.1:
            self.items.append((self.chance.choice(names), []))

    def loop(self) -> Loop:
        rules, listed = self.rules, [{"id": key, "needs": needs} for key, needs in self.items]
        over: dict[str, Any] = {"items": listed}
        if self.streamed:
            over = {"source": Source(kind="list", page=3, retry=Retry())}
        return Loop(
            **over,
            max_in_flight=rules.window,
            on_item_error=rules.policy,  # type: ignore[arg-type]
            key=KEY,
            after=AFTER if rules.ordered else None,
            on_cycle="drop" if rules.drops else "fail",
            tolerate=rules.tolerate,
            min_success=rules.min_success,
        )

    def plan(self, **more: Any) -> Plan:
        step = Step(name="a", loop=self.loop(), retry=Retry(attempts=self.rules.tries), **more)
        return Plan(name="case", steps=(step,))


class Match:
    """The core and the referee are told the same, and must say the same."""

    def __init__(self, seed: int) -> None:
        self.case = case = Case(seed)
        self.seed, self.chance = seed, case.chance
        self.referee = Referee(case.rules)
        self.run = Given(case.plan(), evaluate=Scripted())
        self.visit, self.page, self.taken = 1, 0, 0
        self.tried: dict[int, int] = {}  # which try of an item is under way
        self.seen: Counter[str] = Counter()
        if not case.streamed:
            self.referee.learn(case.items, last=True)
        self.compare(self.run.when(started(self.run.plan)))

    @property
    def statuses(self) -> list[str]:
        fan = self.run.state.steps[0].fan
        assert fan is not None
        return [NAMES[life] for life in fan.status]

    def compare(self, then: Then) -> None:
        begun = self.referee.settle()
        for fact in then.facts:
            if isinstance(fact, PageAsked):
                self.page, self.referee.asked = fact.page, True
        self.tried |= {item: 1 for item in begun}
        issued = [each for each in then.commands if each.item is not None and each.attempt == 1]
        assert {each.item for each in issued} == begun, self.seed
        assert self.statuses == self.referee.status, self.seed
        assert self.statuses.count("running") <= self.case.rules.window
        ended = {"completed": "completed", "failed": "failed"}.get(then.state.life, "")
        assert ended == self.referee.verdict(), (self.seed, self.statuses, then.state.error)

    def play(self) -> None:
        for again in (True, True, False):
            while not self.referee.verdict():
                self.compare(self.run.when(*self.something()))
            if not again or self.referee.verdict() == "completed" or self.referee.refused():
                break
            self.go_on()
        assert self.run.replayed() == self.run.state
        self.seen[self.referee.verdict()] += 1

    def something(self) -> list[Fact]:
        """Some of what can happen now."""
        running = [item for item, status in enumerate(self.referee.status) if status == "running"]
        meddled = self.meddle() if self.case.meddles and self.chance.random() < 0.3 else []
        if meddled:
            return meddled
        if self.referee.asked and (not running or self.chance.random() < 0.5):
            return [self.bring_page()]
        some = self.chance.sample(running, self.chance.randint(1, min(3, len(running))))
        return [self.report(item) for item in some]

    def report(self, item: int) -> Fact:
        well = self.chance.random() >= self.case.likely
        self.referee.report(item, well)
        attempt = self.tried[item]
        self.tried[item] += 1
        told: dict[str, Any] = {"visit": self.visit, "item": item, "attempt": attempt}
        return succeeded("a", item, **told) if well else failed("a", **told)

    def bring_page(self) -> Fact:
        if self.chance.random() < 0.05:
            self.referee.lose_source()
            return PageCame("a", self.visit, self.page, Report(1, Failed(Fault("connection"))))
        some = self.case.items[self.taken : self.taken + self.chance.randint(0, 4)]
        self.taken += len(some)
        last = self.taken >= len(self.case.items)
        self.referee.learn(some, last)
        listed = [{"id": key, "needs": needs} for key, needs in some]
        page = {"items": listed, "cursor": None if last else self.taken}
        return PageCame("a", self.visit, self.page, Report(1, Succeeded(page)))

    def meddle(self) -> list[Fact]:
        status = self.referee.status
        running = status.count("running")
        over = [item for item, each in enumerate(status) if each in ("failed", "cancelled")]
        if over and (running or self.referee.asked) and self.chance.random() < 0.5:
            chosen = self.choose(over)
            self.referee.run_again(list(chosen))
            return [ItemsReopened("a", self.visit, chosen)]
        still = [item for item, each in enumerate(status) if each in ("running", "waiting")]
        if not still:
            return []
        chosen = tuple(sorted(self.chance.sample(still, self.chance.randint(1, min(2, len(still))))))
        for item in chosen:
            self.referee.cancel(item)
        self.seen["cancelled"] += len(chosen)
        return [ItemsCancelled("a", self.visit, chosen)]

    def choose(self, items: list[int]) -> tuple[int, ...]:
        """Some of these; all that failed, if nothing is begun while one of them stays so."""
        chosen = set(self.chance.sample(items, self.chance.randint(1, len(items))))
        if self.case.rules.policy in ("stop", "halt"):
            chosen |= {item for item in items if self.referee.status[item] == "failed"}
        return tuple(sorted(chosen))

    def go_on(self) -> None:
        """The run failed; it goes on with all that was not done, or with what somebody chose."""
        self.seen["gone on"] += 1
        open_ones = [item for item, each in enumerate(self.referee.status) if each not in ("completed", "skipped")]
        chosen: tuple[int, ...] = ()
        if open_ones and self.chance.random() < 0.5:
            chosen = self.choose(open_ones)
        self.visit += 1
        self.case.likely /= 3
        self.referee.run_again(list(chosen or open_ones))
        self.referee.broken = False
        self.compare(self.run.when(RunReopened(again=("a",), items={"a": chosen} if chosen else {})))


def play(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        match = Match(seed)
        match.play()
        seen += match.seen
        seen.update(match.referee.status)
    return seen


MET = ("completed", "failed", "skipped", "cancelled", "waiting", "gone on")
"""What the cases must have met, to be worth anything."""


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_the_core_and_a_referee_agree_over_random_orders_and_failures(first: int) -> None:
    seen = play(range(first, first + CHUNK))
    assert min(seen[each] for each in MET) > 5, seen


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_the_core_and_a_referee_agree_over_many_more() -> None:
    seen = play(range(FIRST, FIRST + 30_000))
    print(seen)
    assert min(seen[each] for each in MET) > 1000, seen


def test_the_referee_of_items_knows_nothing_of_the_engine_and_is_short() -> None:
    text = (Path(__file__).parent / "item_referee.py").read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {node.module for node in imports if isinstance(node, ast.ImportFrom)} == {"dataclasses", "math"}
    assert not [node for node in imports if isinstance(node, ast.Import)]
    assert len(text.splitlines()) < 200


class Staged:
    """A case on a real engine, with a worker that takes its time; what was begun and done, in order."""

    def __init__(self, seed: int) -> None:
        self.case = Case(seed)
        self.case.streamed = False
        self.fails = {key: [self.case.chance.random() < self.case.likely for _ in "12"] for key, _ in self.case.items}
        self.told: list[tuple[str, str]] = []
        self.running = self.most = 0
        self.stage = Stage(seed)
        self.stage.tools["try"] = self.tool
        naps = {key: self.case.chance.choice([0.0, 0.1, 1.0]) for key, _ in self.case.items}
        self.naps = naps

    async def tool(self, call: ToolCall) -> str:
        key: str = call.input["id"]
        self.running += 1
        self.most = max(self.most, self.running)
        self.told.append(("began", key))
        await asyncio.sleep(self.naps[key])
        self.running -= 1
        if self.fails[key][call.command.attempt - 1]:
            raise ValueError("as it was to be")
        self.told.append(("done", key))
        return key

    def end(self) -> list[str]:
        """The states of its items; the run must have ended as the referee says."""
        shown = self.stage.run(self.case.plan(work=Call(tool="try"), input={"path": ["item"]}))
        fan = shown.state.steps[0].fan
        assert fan is not None
        statuses = [NAMES[life] for life in fan.status]
        referee = Referee(self.case.rules)
        referee.learn(self.case.items, last=True)
        begun = referee.settle()
        while begun or not referee.verdict():
            item = referee.status.index("running")
            referee.report(item, not self.fails[referee.keys[item]][referee.tried[item]])
            begun = referee.settle()
        if self.case.rules.policy in ("all", "ignore"):  # what is over first decides what else is begun
            assert (shown.status, statuses) == (referee.verdict(), referee.status)
        self.stage.close()
        return statuses


@pytest.mark.parametrize("seed", range(40))
def test_an_engine_and_a_referee_agree_and_none_begins_before_those_it_waits_for(seed: int) -> None:
    staged = Staged(seed)
    staged.end()
    referee = Referee(staged.case.rules)
    referee.learn(staged.case.items, last=True)
    done: set[str] = set()
    for what, key in staged.told:
        needed = {referee.keys[other] for other in referee.blockers(referee.keys.index(key))}
        assert what == "done" or needed <= done, key
        done |= {key} if what == "done" else set()
    assert staged.most <= staged.case.rules.window
    assert all(times == 1 for (what, _), times in Counter(staged.told).items() if what == "done")
