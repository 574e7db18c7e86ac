"""What follows from the routing rules, as properties of the core: read from its log, over many generated graphs."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from refold.core.facts import (
    Bypassed,
    Dropped,
    Entered,
    Fact,
    FanOutEntered,
    ItemsSettled,
    LoopLeft,
    Move,
    PassBegan,
    Routed,
    RunEnding,
    Skipped,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.outcomes import Succeeded
from tests.programs import random_program
from tests.referee import Arc, Shape, Workflow, nth
from tests.ticks import Ticks

SOME = 300
MANY = int(os.environ.get("REFOLD_PROOF_GRAPHS", "5000"))
FIRST = int(os.environ.get("REFOLD_FIRST_SEED", "1000"))

Event = tuple[str, str, Any]  # what happened, to which step or loop, and how


@pytest.fixture(
    params=[
        pytest.param(range(SOME), id=f"{SOME} graphs"),
        pytest.param(
            range(FIRST, FIRST + MANY), id=f"{MANY} graphs", marks=[pytest.mark.proof, pytest.mark.timeout(600)]
        ),
    ]
)
def seeds(request: pytest.FixtureRequest) -> range:
    numbers: range = request.param
    return numbers


class Story:
    """What a log tells, told in the words of the rules: enter, skip, settle, withdraw, pass, finish."""

    def __init__(self, workflow: Workflow, seed: int) -> None:
        self.steps, self.seed = workflow["steps"], seed
        self.shape = Shape(workflow)
        self.events: list[Event] = []
        self._entered: set[tuple[str, int]] = set()
        self._left: dict[str, int] = {}  # items that have not succeeded
        ticks = Ticks(workflow)
        self.failed = ticks.run()["status"] == "failed"
        for _, _, fact in ticks.log:
            self._read(fact)

    def join(self, name: str) -> Any:
        return self.steps[name].get("join", "all")

    def _read(self, fact: Fact) -> None:
        match fact:
            case StepIssued(step=step, visit=visit, attempt=1):
                self._enter(step, visit)
            case FanOutEntered(step=step, visit=visit, count=count):
                self._enter(step, visit)
                self._succeed(step, count, 0)
            case StepSettled(step=step, report=report) if isinstance(report.outcome, Succeeded):
                self._succeed(step, 1, 1)
            case ItemsSettled(step=step, reports=reports):
                good = sum(isinstance(report.outcome, Succeeded) for report in reports)
                self._succeed(step, self._left[step], good)
            case Routed(moves=moves):
                for move in moves:
                    self._move(move)
            case RunEnding(withdrawn=withdrawn):
                self.events += [("withdraw", command.split("/")[0], None) for command in withdrawn if _plain(command)]
            case _:
                pass

    def _move(self, move: Move) -> None:
        match move:
            case Entered(step=step, visit=visit):
                self._enter(step, visit)
            case Bypassed(step=step, visit=visit):
                self._enter(step, visit)
                self._settle_plainly(step)
            case Took(step=step, arcs=arcs):
                self.events.append(("settle", step, [(step, n) for n in arcs]))
            case Skipped(steps=names):
                self.events += [("skip", name, None) for name in names]
            case Dropped(steps=names):
                self.events += [("withdraw", name, None) for name in names]
            case PassBegan(head=head):
                self.events.append(("pass", head, None))
            case LoopLeft(head=head):
                self.events.append(("finish", head, None))

    def _enter(self, step: str, visit: int) -> None:
        if (step, visit) not in self._entered:
            self._entered.add((step, visit))
            self.events.append(("enter", step, visit))

    def _succeed(self, step: str, left: int, good: int) -> None:
        self._left[step] = left - good
        if left == good:
            self._settle_plainly(step)

    def _settle_plainly(self, step: str) -> None:
        """A visit that went well settles without a word if no condition has to be asked."""
        arcs = [
            (arc, (step, n))
            for n, arc in enumerate(self.steps[step].get("arcs", ()))
            if arc.get("on", "success") != "failure"
        ]
        heard = arcs if self.steps[step].get("mode") == "inclusive" else arcs[:1]
        if all("when" not in arc for arc, _ in heard):
            self.events.append(("settle", step, [arc for _, arc in heard]))


def _plain(command: str) -> bool:
    return command.count("/") == 1


def stories(seeds: range) -> Iterator[Story]:
    for seed in seeds:
        yield Story(random_program(seed), seed)


def test_a_step_is_entered_or_skipped_at_most_once_per_pass_and_has_at_most_one_open_visit(seeds: range) -> None:
    passes = 0
    for story in stories(seeds):
        dealt_with: set[str] = set()
        opened: set[str] = set()
        visits: Counter[str] = Counter()
        for what, name, how in story.events:
            if what in ("enter", "skip"):
                assert name not in dealt_with | opened, story.seed
                dealt_with.add(name)
            if what == "enter":
                visits[name] += 1
                assert how == visits[name], story.seed
                opened.add(name)
            elif what in ("settle", "withdraw"):
                dealt_with.add(name)
                opened.discard(name)
            elif what == "pass":
                passes += 1
                assert not opened & story.shape.bodies[name], story.seed
                dealt_with -= story.shape.bodies[name]
    assert passes > len(seeds) / 2


def test_a_loops_exit_runs_at_most_once_per_traversal_and_never_before_the_loop_is_finished(seeds: range) -> None:
    exits = 0
    for story in stories(seeds):
        shape = story.shape
        finished: set[str] = set()
        dealt_with: set[str] = set()
        goes_round: set[str] = set()  # heads whose next visit comes from their own loop
        for what, name, _ in story.events:
            if what == "finish":
                finished.add(name)
            elif what == "pass":
                body = shape.bodies[name]
                finished -= body
                dealt_with -= body
                goes_round.add(name)
            elif what in ("enter", "skip") and name in goes_round:
                goes_round.remove(name)
            elif what in ("enter", "skip"):
                assert name not in dealt_with, story.seed
                dealt_with.add(name)
                holders = {shape.holder.get(arc) for arc in shape.into[name]}
                if len(holders) == 1 or story.join(name) == "all":
                    assert holders - {None} <= finished, story.seed
                exits += bool(holders - {None})
    assert exits > len(seeds) / 4


@dataclass
class Arrivals:
    """Follows the taken arcs to their targets, held ones when their loop is finished."""

    story: Story
    pending: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)  # targets that must be entered
    sources: dict[str, set[str]] = field(default_factory=dict)  # per pending target
    ever: set[Arc] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    absorbed: int = 0

    def follow(self) -> None:
        self.pending = set(self.story.shape.below)
        for what, name, how in self.story.events:
            if what == "pass":
                self.begin_pass(name)
            elif what == "finish":
                for arc in [arc for arc in self.ever if self.story.shape.holder[arc] == name]:
                    self.arrive(arc)
            else:
                self.deal(what, name)
            for arc in how if what == "settle" else ():
                if arc in self.story.shape.holder:
                    self.ever.add(arc)
                elif arc not in self.story.shape.back:
                    self.arrive(arc)
        assert not self.awaited or self.story.failed, self.story.seed

    def deal(self, what: str, name: str) -> None:
        assert what != "skip" or name not in self.awaited, self.story.seed
        self.pending.discard(name)
        self.withdrawn |= {name} if what == "withdraw" else set()
        if what in ("enter", "withdraw"):
            self.awaited.discard(name)

    def arrive(self, arc: Arc) -> None:
        target = self.story.shape.target[arc]
        join = self.story.join(target)
        if target in self.pending:
            sources = self.sources.setdefault(target, set())
            sources.add(arc[0])
            needed = join["at_least"] if isinstance(join, dict) else 1
            self.awaited |= {target} if len(sources) >= needed else set()
        else:
            self.absorbed += 1
            assert join != "all" or target in self.withdrawn, self.story.seed

    def begin_pass(self, head: str) -> None:
        body, target = self.story.shape.bodies[head], self.story.shape.target
        assert not self.awaited & body, self.story.seed
        self.pending |= body
        self.ever = {arc for arc in self.ever if not {arc[0], target[arc]} <= body}
        self.sources = {name: sources for name, sources in self.sources.items() if name not in body}
        self.withdrawn -= body


def test_every_taken_arc_is_followed_by_an_entry_of_its_target_unless_any_or_at_least_absorbed_it(
    seeds: range,
) -> None:
    absorbed = 0
    for story in stories(seeds):
        arrivals = Arrivals(story)
        arrivals.follow()
        absorbed += arrivals.absorbed
    assert absorbed > len(seeds) / 10


def test_every_taken_back_arc_is_followed_by_a_new_pass(seeds: range) -> None:
    back = 0
    for story in stories(seeds):
        due: set[str] = set()
        for what, name, how in story.events:
            if what == "settle":
                due |= {story.shape.target[arc] for arc in how if arc in story.shape.back}
            elif what == "pass":
                back += 1
                assert name in due, story.seed
                due.remove(name)
            elif what == "finish":
                assert name not in due, story.seed
        assert not due or story.failed, story.seed
    assert back > len(seeds) / 2


def test_if_only_exclusive_arcs_are_used_the_run_is_the_walk_of_a_state_machine(seeds: range) -> None:
    longest = 0
    for seed in seeds:
        workflow = random_program(seed)
        for step in workflow["steps"].values():
            for key in ("mode", "join", "loop", "retry"):
                step.pop(key, None)
        walked = list(walk(workflow))
        assert [(name, visit) for what, name, visit in Story(workflow, seed).events if what == "enter"] == walked, seed
        longest = max(longest, len(walked))
    assert longest > 20


def walk(workflow: Workflow) -> Iterator[tuple[str, int]]:
    """One step after the other, each chosen by the one before: nothing is joined, nothing runs beside anything."""
    visits: Counter[str] = Counter()
    name: str | None = workflow["entry"]
    while name is not None and visits[name] < workflow["steps"][name].get("visit_limit", 10_000):
        visits[name] += 1
        yield name, visits[name]
        name = following(workflow["steps"][name], visits[name])


def following(step: dict[str, Any], visit: int) -> str | None:
    guard, outcome = nth(step.get("guard", [True]), visit), nth(step.get("outcome", ["ok"]), visit)
    went_well = guard is False or (guard is True and outcome in ("ok", 0))
    for word in ("success", "failure") if went_well else ("failure",):
        heard = [arc for arc in step.get("arcs", ()) if arc.get("on", "success") in (word, "both")]
        for arc in heard:
            holds = nth(arc.get("when", [True]), visit)
            if holds == "error":
                break  # a raised condition is a failure, asked once
            if holds:
                return str(arc["to"])
        else:
            return None
    return None


INNER = {"step": 0, "retry": 0, "retry by arc": 0, "sequence": 2, "choice": 2, "fork": 3}
INNER |= {"do-while": 1, "while": 1, "break": 2}  # how many blocks each kind of block has in it


@dataclass
class Block:
    """A piece of a block program: what it is, its own steps by role, the truths it asks for, the blocks in it."""

    kind: str
    steps: list[str] = field(default_factory=list)
    truths: list[bool] = field(default_factory=lambda: [False])  # one per visit of the step that asks
    inner: list["Block"] = field(default_factory=list)
    fails: int = 0


class Author:
    """Writes a random block program and compiles it to a graph; an end is a step whose last arc leads on."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steps: dict[str, Any] = {}

    def program(self) -> tuple[Workflow, Block]:
        block = Block("sequence", inner=[self.block(3), self.block(2), self.block(0)])
        first, _ = self.compile(block)
        return {"entry": first, "steps": self.steps}, block

    def step(self, **written: Any) -> str:
        name = f"s{len(self.steps)}"
        self.steps[name] = {"duration": [self.random.randint(1, 4)], "arcs": [], **written}
        return name

    def truths(self) -> list[bool]:
        return [self.random.random() < 0.6 for _ in range(self.random.randint(1, 4))] + [False]

    def block(self, depth: int) -> Block:
        kind = self.random.choice([kind for kind in INNER if depth > 0 or not INNER[kind]])
        inner = [self.block(depth - 1) for _ in range(INNER[kind])]
        fails = self.random.randint(0, 2)
        match kind:
            case "retry":
                policy = {"attempts": 3, "delay": self.random.randint(0, 2)}
                return Block(kind, [self.step(outcome=[fails], retry=policy)], fails=fails)
            case "retry by arc":
                return Block(kind, [self.step(outcome=["fail"] * fails + ["ok"])], fails=fails)
            case "fork":
                return Block(kind, [self.step(mode="inclusive"), self.step()], inner=inner)
            case "sequence":
                return Block(kind, inner=inner)
            case "break":
                return Block(kind, [self.step(), self.step()], self.truths(), inner)
            case _:
                return Block(kind, [self.step()], self.truths(), inner)

    def lead(self, sources: list[str], target: str, **written: Any) -> None:
        for source in sources:
            self.steps[source]["arcs"].append({"to": target, **written})

    def compile(self, block: Block) -> tuple[str, list[str]]:
        """The first step, and the ends."""
        own, inner = block.steps, [self.compile(each) for each in block.inner]
        match block.kind:
            case "sequence":
                for (_, ends), (following, _) in pairwise(inner):
                    self.lead(ends, following)
                return inner[0][0], inner[-1][1]
            case "choice":
                self.lead(own, inner[0][0], when=block.truths)
                self.lead(own, inner[1][0])
                return own[0], inner[0][1] + inner[1][1]
            case "fork":
                for first, ends in inner:
                    self.lead(own[:1], first)
                    self.lead(ends, own[1])
                return own[0], own[1:]
            case "retry by arc":
                self.lead(own, own[0], on="failure")
        return self.compile_loop(block, inner) if inner else (own[0], own)

    def compile_loop(self, block: Block, inner: list[tuple[str, list[str]]]) -> tuple[str, list[str]]:
        own, (first, ends) = block.steps, inner[0]
        self.lead(own[:1], first, when=block.truths)
        if block.kind == "break":  # the second step asks whether to go on or to leave
            self.lead(ends, own[1])
            self.lead(own[1:], inner[1][0], when=block.truths)
            ends = inner[1][1]
        self.lead(ends, own[0])
        return first if block.kind == "do-while" else own[0], own


class Performer:
    """Performs a block program directly, as any language would, and notes when each visit began and ended."""

    def __init__(self, steps: dict[str, Any]) -> None:
        self.steps = steps
        self.visits: Counter[str] = Counter()
        self.rows: list[list[Any]] = []

    def visit(self, name: str, now: int, word: str = "ok", took: int | None = None) -> int:
        self.visits[name] += 1
        end = now + (self.steps[name]["duration"][0] if took is None else took)
        self.rows.append([name, self.visits[name], now, end, word])
        return end

    def holds(self, block: Block, step: str) -> bool:
        return bool(nth(block.truths, self.visits[step]))

    def perform(self, block: Block, now: int) -> int:
        """The moment at which the block is done."""
        own, inner = block.steps, block.inner
        match block.kind:
            case "sequence":
                for each in inner:
                    now = self.perform(each, now)
                return now
            case "choice":
                now = self.visit(own[0], now)
                return self.perform(inner[0 if self.holds(block, own[0]) else 1], now)
            case "fork":
                now = self.visit(own[0], now)
                return self.visit(own[1], max(self.perform(each, now) for each in inner))
            case "do-while" | "while" | "break":
                return self.go_round(block, now)
            case _:
                return self.try_again(block, now)

    def try_again(self, block: Block, now: int) -> int:
        """By policy in one visit, by arc in several; a plain step fails never."""
        name = block.steps[0]
        if block.kind == "retry":
            each, delay = self.steps[name]["duration"][0], self.steps[name]["retry"]["delay"]
            return self.visit(name, now, took=each + block.fails * (delay + each))
        while block.kind == "retry by arc" and self.visits[name] < block.fails:
            now = self.visit(name, now, "fail")
        return self.visit(name, now)

    def go_round(self, block: Block, now: int) -> int:
        asks = block.steps[0]
        if block.kind == "do-while":
            now = self.perform(block.inner[0], now)
        now = self.visit(asks, now)
        while self.holds(block, asks):
            now = self.perform(block.inner[0], now)
            if block.kind == "break":
                now = self.visit(block.steps[1], now)
                if not self.holds(block, block.steps[1]):
                    break
                now = self.perform(block.inner[1], now)
            now = self.visit(asks, now)
        return now


def test_blocks_run_as_the_block_program_would(seeds: range) -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds:
        workflow, block = Author(seed).program()
        result = Ticks(workflow).run()
        performer = Performer(workflow["steps"])
        performer.perform(block, 0)
        assert result["status"] == "completed", seed
        assert sorted(result["started"]) == sorted(performer.rows), seed
        kinds.update(kinds_in(block))
    assert set(kinds) == set(INNER) and min(kinds.values()) > len(seeds) / 4


def kinds_in(block: Block) -> set[str]:
    return {block.kind}.union(*map(kinds_in, block.inner))
