"""Drives a generated program to its end in the pure core, one report at a time, in an order drawn from a seed."""

import random
from typing import Any

from msgspec import structs

from refold.core.expressions import TemplateScope
from refold.core.facts import CancelAsked, Fact, RunReopened, RunStarted
from refold.core.fold.reopen import reopening
from refold.core.plan import Plan, Step
from refold.core.state import TERMINAL
from refold.testing.core import Given, Scripted, Then, failed, succeeded
from tests.programs import random_program
from tests.referee import run as referee
from tests.ticks import pick, plan_of


class Shifted(Scripted):
    """Scripts count visits; those that a retry has added do not count."""

    def __init__(self) -> None:
        self.added: dict[str, int] = {}

    def value(self, template: Any, view: TemplateScope) -> Any:
        match template:
            case {"script": [*values], "of": str(name)}:
                return self._checked(pick(values, view["visit"] - self.added.get(name, 0)))
            case _:
                return super().value(template, view)


def _of(template: Any, name: str) -> Any:
    return template if template is None else {**template, "of": name}


def _marked(step: Step) -> Step:
    arcs = tuple(structs.replace(arc, when=_of(arc.when, step.name)) for arc in step.arcs)
    return structs.replace(step, when=_of(step.when, step.name), arcs=arcs, visit_limit=10_000)


def _settled_in_any_order(workflow: dict[str, Any]) -> bool:
    return all(step.get("join", "all") == "all" for step in workflow["steps"].values())


def workflows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Programs that complete, whatever the order in which their steps end."""
    found: list[dict[str, Any]] = []
    seed = first
    while len(found) < count:
        workflow = random_program(seed)
        if _settled_in_any_order(workflow) and referee(workflow)["status"] == "completed":
            found.append(workflow)
        seed += 1
    return found


class Driven:
    """A run of a program; `turns` counts the reports it has taken."""

    def __init__(self, workflow: dict[str, Any], seed: int = 0, **plan: Any) -> None:
        self.workflow, self.chance = workflow, random.Random(seed)
        self.scripts = Shifted()
        made = plan_of(workflow)
        steps = (*map(_marked, made.steps), *plan.pop("steps", ()))
        self.plan: Plan = structs.replace(made, steps=steps, **plan)
        self.run = Given(self.plan, evaluate=self.scripts)
        self.last: Then = self.run.when(RunStarted("p"))
        self.turns = 0

    def go_on(self, turns: int = 10_000) -> bool:
        """So many reports, or until the run is over; says whether it is."""
        for _ in range(turns):
            if self.run.state.life in TERMINAL:
                return True
            self.take(self.next_report())
        return self.run.state.life in TERMINAL

    def take(self, *facts: Fact) -> Then:
        self.turns += 1
        self.last = self.run.when(*facts)
        return self.last

    def next_report(self) -> Fact:
        command = self.chance.choice([key for key, opened in self.run.state.open.items() if not opened.held])
        opened = self.run.state.open[command]
        name = self.run.graph.name(opened.step)
        step = self.workflow["steps"].get(name, {})
        if opened.item is not None:
            fails = step["loop"]["items"][opened.item]
        else:
            fails = pick(step.get("outcome", ["ok"]), opened.visit - self.scripts.added.get(name, 0))
        times = {"ok": 0, "fail": -1}.get(fails, fails)
        if times == -1 or opened.attempt <= times:
            return failed(name, "scripted", opened.visit, opened.attempt, opened.item)
        return succeeded(name, f"{name}.{opened.visit}", opened.visit, opened.attempt, opened.item)

    def cancel(self) -> Then:
        return self.take(CancelAsked())

    def reopen(self, step: str = "") -> RunReopened:
        fact = reopening(self.run.graph, self.run.state, step)
        for name in fact.again:
            self.scripts.added[name] = self.scripts.added.get(name, 0) + 1
        self.take(fact)
        return fact

    def ended(self) -> tuple[str, dict[str, int]]:
        """Its status, and the visits of each step, but for those that a retry has added."""
        visits = {
            name: self.run.state.steps[self.run.graph.index[name]].visits - self.scripts.added.get(name, 0)
            for name in self.workflow["steps"]
        }
        return self.run.state.life, visits


def expected(workflow: dict[str, Any]) -> tuple[str, dict[str, int]]:
    told = referee(workflow)
    return told["status"], {name: told["visits"].get(name, 0) for name in workflow["steps"]}
