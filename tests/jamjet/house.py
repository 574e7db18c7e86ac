"""Runs a JamJet file with made-up work, and says what came of it in the words of the vectors."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from refold.core.facts import (
    Bypassed,
    Entered,
    Fact,
    GateDecided,
    ItemsSettled,
    Routed,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.fold.waits import due_at
from refold.core.outcomes import Fault, Succeeded
from refold.core.pipeline import Task
from refold.core.plan import Wait
from refold.core.read.gates import open_gates
from refold.core.state import SKIPPED, TERMINAL
from refold.errors import ToolFailed
from refold.playbooks.bindings import Bindings
from refold.playbooks.playbook import Playbook, read
from refold.ports import Done
from refold.queries.reading import RunReader
from refold.testing.bench.bench import Bench
from refold.testing.bench.fakes import Called
from refold.testing.bench.run import Run
from refold.tools.catalog import installed_tools

LLM = Task(name="llm", kind="llm", keys={"base_url": "http://127.0.0.1:9/v1"})
NOOP = Task(name="tool", kind="noop")
ALL = Bindings(
    models={"*": LLM},
    tools={"*": NOOP},
    agents={"*": NOOP},
    servers={"*": {"endpoint": "http://127.0.0.1:9/mcp"}},
    remote_agents={"*": NOOP},
)
CLASSES: dict[str, str] = {"io_error": "connection", "connection_reset": "connection"}
MOST = 1000  # things that happen to one run


def read_text(text: str, bindings: Bindings = ALL, **more: Any) -> Playbook:
    return read(text, "flow.yaml", installed_tools(), bindings=lambda: bindings, **more)


class Played:
    """A run that has come to its end."""

    def __init__(self, bench: Bench, run: Run, tries: Mapping[str, int], gates: Sequence[list[str]]) -> None:
        self.run, self.tries, self.gates = run, tries, list(gates)
        self.graph, self.state = RunReader(bench.store.views, run.id).read()
        self.story = run.story()
        self._result = run.result() if run.status == "completed" else None
        self.facts = [fact for _, _, fact in bench.store.facts(run.id)]

    @property
    def status(self) -> str:
        return self.run.status

    @property
    def visits(self) -> list[Any]:
        return visits_of(self.facts)

    @property
    def skipped(self) -> list[str]:
        steps = [(name, self.state.steps[s]) for name, s in self.graph.index.items()]
        never = [name for name, step in steps if step.life == SKIPPED and not step.visits]
        arcs = [arc for step in self.graph.plan.steps for arc in step.arcs]
        late = {arc.to for arc in arcs if arc.on == "timeout" or arc.when == {"$timer": True}}
        led = {arc.to for arc in arcs if arc.on != "timeout" and arc.when != {"$timer": True}}
        return sorted(name for name in never if name != "__limit_exceeded__" and name not in late - led)

    @property
    def error(self) -> list[str] | None:
        error = self.state.error
        if error is None:
            return None
        return [error.step, error.fault.kind if error.fault is not None else error.why]

    @property
    def result(self) -> Any:
        return self._result


def visits_of(facts: Sequence[Fact]) -> list[Any]:
    """The nodes in the order in which they were entered; those that were entered at once as a list by name."""
    groups: list[list[str]] = []
    entered: set[tuple[str, int]] = set()
    fresh = True

    def enter(name: str, visit: int) -> None:
        nonlocal fresh
        if (name, visit) in entered:
            return
        entered.add((name, visit))
        if fresh:
            groups.append([])
        groups[-1].append(name)
        fresh = False

    for fact in facts:
        for each in fact.moves if isinstance(fact, Routed) else (fact,):
            if isinstance(each, Entered | StepIssued):
                enter(each.step, each.visit)
            elif isinstance(each, Bypassed):
                enter(each.step, each.visit)
                fresh = True
            elif isinstance(each, Took | StepSettled | ItemsSettled | GateDecided):
                fresh = True
    return [group[0] if len(group) == 1 else sorted(group) for group in groups]


class _Work:
    """What a node gives: one answer for each try, the last one repeats."""

    def __init__(self, answers: Sequence[Any], is_model: bool) -> None:
        self.answers, self.is_model, self.tries = answers, is_model, 0

    def __call__(self, called: Called) -> Any:
        answer: Any = "ok" if self.is_model else {}
        if self.answers:
            answer = self.answers[min(self.tries, len(self.answers) - 1)]
        self.tries += 1
        if isinstance(answer, dict) and set(answer) == {"fail"}:
            kind = CLASSES.get(str(answer["fail"]), str(answer["fail"]))
            raise ToolFailed(Fault(kind, f"made up: {kind}"))
        if not self.is_model:
            return answer
        whole = answer if isinstance(answer, dict) and "content" in answer else {"content": answer}
        usage = {name: whole[name] for name in ("usd",) if name in whole} | dict(whole.get("usage", {}))
        content = whole["content"]
        result = {"content": content if isinstance(content, str) else json.dumps(content)}
        result |= {name: whole[name] for name in ("finish_reason", "tool_calls") if name in whole}
        return Done(Succeeded(result), usage=usage)


def play(playbook: Playbook, state: Mapping[str, Any], given: Mapping[str, Any]) -> Played:
    """Run it to its end: gates are decided as the case says, signals come, or time passes."""
    bench = Bench(seed=1)
    try:
        answers = given.get("answers", {})
        works = {}
        for step in (step for each in (playbook, *playbook.children) for step in each.plan.steps):
            info = step.patch["$patch"] if isinstance(step.patch, dict) else {}
            works[step.name] = _Work(answers.get(step.name, ()), info.get("node") == "model")
            bench.fake(step.name, works[step.name])
        run = bench.start(playbook, **state)
        gates: list[list[str]] = []
        for _ in range(MOST):
            if run.status in TERMINAL:
                break
            _happen(bench, run, given, gates)
        assert run.status in TERMINAL, run.story()
        return Played(bench, run, {name: work.tries for name, work in works.items()}, gates)
    finally:
        bench.close()


def _happen(bench: Bench, run: Run, given: Mapping[str, Any], gates: list[list[str]]) -> None:
    graph, state = RunReader(bench.store.views, run.id).read()
    for gate in open_gates(graph, state):
        decisions = given.get("gates", {}).get(gate.step, [])
        decision = decisions[min(gate.visit, len(decisions)) - 1] if decisions else "approve"
        gates.append([gate.step, decision])
        if decision == "timeout":
            bench.advance((gate.deadline or 0) / 1e6 - bench.now.timestamp() + 0.001)
        else:
            run.decide(gate.step, decision, by="ann")
        return
    for opened in state.open.values():
        work = graph.step(opened.step).work
        if isinstance(work, Wait) and opened.signal:
            name = graph.name(opened.step)
            events = given.get("waits", {}).get(name, [])
            event = events[min(opened.visit, len(events)) - 1] if events else "timeout"
            if isinstance(event, dict) and "event" in event:
                run.signal(opened.signal, event["event"])
                return
    due = [each for opened in state.open.values() for each in (due_at(opened), opened.not_before or None) if each]
    later = [each / 1e6 - bench.now.timestamp() for each in due]
    bench.advance(min((each for each in later if each > 0), default=1.0) + 0.001)
