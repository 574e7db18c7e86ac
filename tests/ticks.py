"""Drives the pure core through a workflow of the vectors' format, tick by tick, as the referee does."""

from typing import Any

from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.expressions import Missing
from refold.core.facts import (
    Bypassed,
    Dropped,
    Entered,
    Fact,
    FanOutEntered,
    ItemsSettled,
    Move,
    Routed,
    RunEnding,
    RunStarted,
    Skipped,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.fold.apply import Record
from refold.core.graph import Graph, analyse
from refold.core.outcomes import SECOND, Failed, Fault, Report, Succeeded
from refold.core.plan import Arc, Call, Loop, Plan, Retry, Step
from refold.core.state import TERMINAL, OpenCommand, RunState
from refold.testing.core import Scripted


def plan_of(workflow: dict[str, Any], tool: str = "noop") -> Plan:
    return Plan(
        name="program",
        entry=workflow["entry"],
        on_failure=workflow.get("on_failure", "drain"),
        steps=tuple(_step(name, step, tool) for name, step in workflow["steps"].items()),
    )


def _step(name: str, step: dict[str, Any], tool: str) -> Step:
    join = step.get("join", "all")
    loop, retry = step.get("loop"), step.get("retry", {})
    return Step(
        name=name,
        work=Call(tool=tool, settings={} if tool == "noop" else step),
        mode=step.get("mode", "exclusive"),
        join=join["at_least"] if isinstance(join, dict) else join,
        when=_script(step.get("guard")),
        visit_limit=step.get("visit_limit", 10_000),
        retry=Retry(attempts=retry.get("attempts", 1), delay=float(retry.get("delay", 0))),
        loop=None
        if loop is None
        else Loop(items=loop["items"], max_in_flight=loop.get("window", 16), sequential=loop.get("sequential", False)),
        arcs=tuple(
            Arc(
                to=arc["to"],
                on=arc.get("on", "success"),
                when=_script(arc.get("when")),
                each_pass=arc.get("each_pass", False),
            )
            for arc in step.get("arcs", ())
        ),
    )


def _script(values: list[Any] | None) -> Any:
    return None if values is None else {"script": values}


def pick(values: list[Any], visit: int) -> Any:
    return values[min(visit, len(values)) - 1]


class Ticks:
    """One run of the core; every open command whose time has come is held to be running."""

    def __init__(self, workflow: dict[str, Any]) -> None:
        self.workflow = workflow
        self.graph: Graph = analyse(plan_of(workflow))
        self.state = RunState(run="r")
        self.log: list[Record] = []
        self.tick = 0
        self.ends: dict[tuple[str, int], int] = {}  # command and attempt -> tick
        self.starts: dict[tuple[str, int], int] = {}
        self.visits: dict[tuple[str, int], list[Any]] = {}
        self.left: dict[tuple[str, int], int] = {}  # tries or items that have not succeeded
        self.failed: set[tuple[str, int]] = set()  # visits whose last report was a failure
        self.bypassed: list[list[Any]] = []
        self.skipped = {name for s, name in enumerate(workflow["steps"]) if not self.graph.reached[s]}
        self.turns = 0
        self.turn([RunStarted(plan="p")])

    def run(self) -> dict[str, Any]:
        while self.state.life not in TERMINAL:
            due = min(self.ends.values(), default=None)
            assert due is not None, f"stuck: {self.state}"
            self.tick = due
            self.turn(self.outcomes())
        return self.result()

    def outcomes(self) -> list[Fact]:
        facts: list[Fact] = []
        now = sorted((key for key, end in self.ends.items() if end == self.tick), key=self._order)
        items: dict[tuple[str, int], list[Report]] = {}
        for command, attempt in now:
            del self.ends[command, attempt]
            opened = self.state.open.get(command)
            if opened is None or opened.attempt != attempt:
                continue
            name = self.graph.name(opened.step)
            report = self._report(name, opened)
            if opened.item is None:
                facts.append(StepSettled(name, opened.visit, report))
            else:
                if (name, opened.visit) not in items:
                    facts.append(ItemsSettled(name, opened.visit, ()))
                items.setdefault((name, opened.visit), []).append(report)
        return [
            ItemsSettled(fact.step, fact.visit, tuple(items[fact.step, fact.visit]))
            if isinstance(fact, ItemsSettled)
            else fact
            for fact in facts
        ]

    def _order(self, key: tuple[str, int]) -> tuple[int, int]:
        name, _, item = (*key[0].split("/"), "0")[:3]
        return self.graph.index[name], int(item)

    def _report(self, name: str, opened: OpenCommand) -> Report:
        step = self.workflow["steps"][name]
        if opened.item is not None:
            fails = step["loop"]["items"][opened.item]
            value = f"{name}.{opened.visit}.{opened.item}"
        else:
            fails = pick(step.get("outcome", ["ok"]), opened.visit)
            value = f"{name}.{opened.visit}"
        times = {"ok": 0, "fail": -1}.get(fails, fails)
        bad = times == -1 or opened.attempt <= times
        outcome = Failed(Fault("error", "scripted")) if bad else Succeeded(value)
        return Report(opened.attempt, outcome, item=opened.item)

    def turn(self, facts: list[Fact]) -> None:
        self.turns += 1
        first = self.state.seq + 1
        d = Decision(self.graph, self.state, self.tick * SECOND, Scripted(), lambda: 0.5)
        d.claimed = lambda: frozenset(command for (command, _), start in self.starts.items() if start < self.tick)
        for fact in facts:
            d.record_fact(fact)
        while True:
            try:
                decide(d)
                break
            except Missing as missing:
                for seq in missing.facts:
                    d.loaded.facts[seq] = self.log[seq - 1][2]
        self.log.extend((first + i, d.now, fact) for i, fact in enumerate(d.facts))
        assert self.state.seq == len(self.log)
        self._watch(d.facts)
        self._schedule()

    def _schedule(self) -> None:
        open_now = {(command, opened.attempt): opened for command, opened in self.state.open.items()}
        self.ends = {key: end for key, end in self.ends.items() if key in open_now}
        self.starts = {key: start for key, start in self.starts.items() if key in open_now}
        for key, opened in open_now.items():
            if key not in self.ends:
                step = self.workflow["steps"][self.graph.name(opened.step)]
                start = self.starts[key] = max(self.tick, opened.not_before // SECOND)
                self.ends[key] = start + pick(step.get("duration", [1]), opened.visit)

    def _watch(self, facts: list[Fact]) -> None:
        for fact in facts:
            match fact:
                case StepIssued(attempt=1):
                    self._begin(fact.step, fact.visit, 1)
                case FanOutEntered():
                    self._begin(fact.step, fact.visit, fact.count)
                case StepSettled():
                    self._watch_reports(fact.step, fact.visit, (fact.report,))
                case ItemsSettled():
                    self._watch_reports(fact.step, fact.visit, fact.reports)
                case Routed():
                    self._watch_moves(fact.moves)
                case RunEnding():
                    self._withdraw(fact.withdrawn)

    def _withdraw(self, commands: tuple[str, ...]) -> None:
        for name, visit, *item in (command.split("/") for command in commands):
            if not item:
                self._end(name, int(visit), "cancelled")

    def _begin(self, name: str, visit: int, count: int) -> None:
        self.visits.setdefault((name, visit), [self.tick, None, None])
        self._count(name, visit, count)

    def _watch_reports(self, name: str, visit: int, reports: tuple[Report, ...]) -> None:
        good = sum(isinstance(report.outcome, Succeeded) for report in reports)
        if good < len(reports):
            self.failed.add((name, visit))
        self._count(name, visit, self.left[name, visit] - good)

    def _count(self, name: str, visit: int, left: int) -> None:
        """A visit all of whose items succeeded is over."""
        self.left[name, visit] = left
        if left == 0:
            self.failed.discard((name, visit))
            self._end(name, visit, "ok")

    def _watch_moves(self, moves: tuple[Move, ...]) -> None:
        for move in moves:
            match move:
                case Entered():
                    self.visits.setdefault((move.step, move.visit), [self.tick, None, None])
                case Took():
                    self._watch_took(move.step, move.visit, move.fault is not None)
                case Dropped():
                    self._drop(move.steps)
                case Skipped():
                    self.skipped.update(move.steps)
                case Bypassed():
                    self.bypassed.append([move.step, move.visit])

    def _drop(self, names: tuple[str, ...]) -> None:
        for name, visit in self.visits:
            if name in names:
                self._end(name, visit, "cancelled")

    def _watch_took(self, name: str, visit: int, faulty: bool) -> None:
        if faulty:
            self.visits.setdefault((name, visit), [self.tick, None, None])
            self.bypassed = [row for row in self.bypassed if row != [name, visit]]
            self._end(name, visit, "fail", over=True)
        elif (name, visit) in self.visits:
            self._end(name, visit, "fail" if (name, visit) in self.failed else "ok")

    def _end(self, name: str, visit: int, word: str, over: bool = False) -> None:
        times = self.visits[name, visit]
        if times[1] is None or over:
            times[1:] = [self.tick, word]

    def result(self) -> dict[str, Any]:
        names = list(self.workflow["steps"])
        steps = {name: self.state.steps[s] for s, name in enumerate(names)}
        error = self.state.error
        started = [[name, visit, *times] for (name, visit), times in self.visits.items()]
        return {
            "status": self.state.life,
            "error": None if error is None else {"step": error.step, "visit": error.visit, "why": error.why},
            "also_failed": [
                {"step": each.step, "visit": each.visit, "why": each.why} for each in self.state.also_failed
            ],
            "visits": {name: step.visits for name, step in steps.items()},
            "skipped": [name for name, step in steps.items() if name in self.skipped and step.visits == 0],
            "bypassed": self.bypassed,
            "started": sorted(started, key=lambda row: (row[2], names.index(row[0]), row[1])),
            "result": self.state.result,
        }


def run_core(workflow: dict[str, Any]) -> dict[str, Any]:
    return Ticks(workflow).run()
