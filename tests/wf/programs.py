"""Runs `.wf` programs with made-up answers, and notes what they do: calls, gates, passes, runs, items."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold.core.commands import child_id, command_id
from refold.core.facts import Bypassed, ItemsIssued, Routed, StepIssued, Took
from refold.core.outcomes import SECOND
from refold.core.read.gates import open_gates
from refold.core.read.items import LoopSeen
from refold.core.read.loaded import Loaded, key_of
from refold.core.state import TERMINAL, FanOut
from refold.errors import InvalidValue, RefoldError, ToolFailed
from refold.playbooks.playbook import Playbook
from refold.playbooks.problems import InvalidPlaybook
from refold.queries.reading import RunReader, with_values
from refold.testing import engine
from refold.testing.bench.bench import Bench
from refold.testing.bench.fakes import Called
from refold.tool_api import Fault
from refold.wiring.playbook_files import playbook

NAMED = re.compile(r"workflow\s+([A-Za-z_][A-Za-z0-9_-]*)")
SCHEMA = re.compile(r'output\s*=\s*"?([A-Za-z_][A-Za-z0-9_-]*)')
OVER = re.compile(r'over\s*=\s*"?([A-Za-z_][A-Za-z0-9_-]*)')
LONG = "40000h"


class Program(Struct, frozen=True, kw_only=True):
    """A workflow in `.wf`, the others that it can call, and the answers that it gets."""

    text: str
    others: Sequence[str] = ()
    schemas: Mapping[str, Any] = {}
    inputs: Mapping[str, Any] = {}
    agents: Mapping[str, list[Any]] = {}
    scripts: Mapping[str, list[Any]] = {}
    gates: Mapping[str, list[Any]] = {}
    items: Mapping[str, list[Any]] = {}
    bindings: Mapping[str, Any] = {}  # further sections of the file of bindings
    files: Mapping[str, str] = {}  # further files of the project


class Done(Struct):
    """What a program did, in the words of the vectors."""

    status: str = ""
    kind: str = ""
    why: str = ""
    calls: list[Any] = []
    gates: list[list[str]] = []
    passes: list[list[Any]] = []
    runs: list[list[str]] = []
    skipped: list[str] = []
    items: dict[str, dict[str, str]] = {}
    env: dict[str, str] = {}
    run: str = ""
    result: Any = None
    names: list[str] = []
    asked: list[dict[str, Any]] = []  # what agents were given
    results: dict[str, Any] = {}


def lay_out(program: Program, folder: Path, agents: Mapping[str, Any] | None = None) -> Path:
    """Write the files of a project, and return that of the workflow."""
    (folder / ".conductor" / "schemas").mkdir(parents=True)
    empty: dict[str, Any] = {name: {"fields": {}} for name in SCHEMA.findall(program.text)}
    for name, schema in {**empty, **program.schemas}.items():
        (folder / ".conductor" / "schemas" / f"{name}.yaml").write_text(json.dumps(schema))
    for other in program.others:
        (folder / f"{NAMED.search(other)[1]}.wf").write_text(other)  # type: ignore[index]
    items = {
        name: {
            "source": {"kind": "list", "items": list(each)},
            "id": "{{ item.id }}",
            "after": "{{ item.after | default([]) }}",
        }
        for name, each in {**dict.fromkeys(OVER.findall(program.text), ()), **program.items}.items()
    }
    bound = agents or {"*": {"kind": "shell", "command": ["true"]}}
    further = {**program.bindings, "items": {**items, **program.bindings.get("items", {})}}
    (folder / "refold-bindings.yaml").write_text(json.dumps({"agents": bound, **further}))
    for path, text in program.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    found = NAMED.search(program.text)
    file = folder / f"{found[1] if found else 'w'}.wf"
    file.write_text(program.text)
    return file


def read(program: Program, folder: Path) -> Playbook:
    """Raise InvalidPlaybook with the problems of the program."""
    return playbook(lay_out(program, folder))


def problems(program: Program, folder: Path) -> list[tuple[str, int, int]]:
    """Return the code and the place of each error."""
    try:
        read(program, folder)
    except InvalidPlaybook as error:
        return [(each.code, *each.place) for each in error.problems if each.severity == "error"]
    return []


def warnings(program: Program, folder: Path) -> list[tuple[str, int, int]]:
    try:
        found: Sequence[Any] = read(program, folder).warnings
    except InvalidPlaybook as error:
        found = error.problems
    return [(each.code, *each.place) for each in found if each.severity == "warning"]


def run(program: Program, folder: Path) -> Done:
    """Run a program to its end."""
    file, done = lay_out(program, folder), Done()
    with engine() as bench:
        player = Player(program, bench, done)
        bench.fake("agent", player.agent)
        bench.fake("shell", player.script)
        try:
            started = bench.start(str(file), **program.inputs)
        except InvalidValue as refused:
            done.status, done.names = "refused", [str(refused)]
            return done
        player.decide_gates()
        try:
            done.result = started.result(LONG)
        except RefoldError as why:
            done.why = str(why)
        done.status = started.status
        error = started.state().error
        done.kind = error.fault.kind if error is not None and error.fault is not None else ""
        player.read_logs(started.id)
    return done


class Player:
    """Gives the made-up answers, and notes what was called."""

    def __init__(self, program: Program, bench: Bench, done: Done) -> None:
        self.program, self.bench, self.done = program, bench, done
        self.made: dict[str, int] = {}
        self.gates: dict[str, int] = {}
        self.calls: list[tuple[str, str, str]] = []  # run, step/visit, name

    async def agent(self, called: Called) -> Any:
        await asyncio.sleep(1)  # so that all calls of a block begin before the first of them ends
        name = called.config["agent"]
        self.done.asked.append(dict(called.config))
        return self._answer(called, name, self.program.agents.get(name, [{}]))

    def script(self, called: Called) -> Any:
        command = called.config["command"][2]
        name = command.split()[0].rsplit("/", 1)[-1].partition(".")[0]
        own = {key: value for key, value in called.config["env"].items() if not key.startswith("CONDUCTOR_")}
        self.done.run, self.done.env = command, own
        return self._answer(called, name, self.program.scripts.get(name, [{}]))

    def _answer(self, called: Called, name: str, answers: list[Any]) -> Any:
        self.calls.append((called.run, f"{called.step}/{called.visit}", name))
        number = self.made[name] = self.made.get(name, 0) + 1
        answer = answers[min(number, len(answers)) - 1] if answers else {}
        if "fail" in answer:
            raise ToolFailed(Fault("failed", answer["fail"]))
        if "text" in answer:
            return answer["text"]
        output = answer.get("output")
        own = {key: answer[key] for key in ("markers", "context") if key in answer}
        return {**own, **(output if isinstance(output, dict) else {}), **answer.get("exports", {})}

    def decide_gates(self) -> None:
        """Let time pass until all runs have ended, and decide the gates that wait."""
        views = self.bench.store.views
        for _ in range(10_000):
            rows = [row.run for row in views.runs(limit=100).rows if row.status not in TERMINAL]
            if not rows:
                return
            waiting = [(run, gate) for run in rows for gate in _open_gates(views, run)]
            if not waiting:
                self.bench.advance(1)
                continue
            run, (name, deadline) = waiting[0]
            kind = name.partition("@")[0]
            number = self.gates[kind] = self.gates.get(kind, 0) + 1
            decisions = self.program.gates.get(kind, ["approve"])
            decision = decisions[min(number, len(decisions)) - 1]
            option, feedback = next(iter(decision.items())) if isinstance(decision, dict) else (decision, None)
            self.done.gates.append([kind, option])
            if option == "timeout":
                self.bench.advance((deadline - self.bench.store.now()) / SECOND)
            else:
                self.bench.do(self.bench.engine.decide(run, name, option, by="ann", feedback=feedback))

    def read_logs(self, run: str) -> None:
        read_logs(self.bench.store, run, self.calls, self.done)


def _open_gates(views: Any, run: str) -> list[tuple[str, int]]:
    """Return the gates at which a run waits, with their deadlines."""
    graph, state = RunReader(views, run).read()
    return [(gate.step, gate.deadline or 0) for gate in open_gates(graph, state)]


def read_logs(store: Any, root: str, calls: Sequence[tuple[str, str, str]], done: Done) -> None:
    """Read what the logs say about calls, passes, runs, items and skipped steps."""
    branches: dict[tuple[str, str], str] = {}
    for run, command in tree_of(store, root):
        graph, state = RunReader(store.views, run).read()
        for step in graph.plan.steps:
            if step.name.endswith(".fork"):
                branches.update({(run, arc.to): f"{run} {step.name}" for arc in step.arcs})
        _read_log(store.facts(run), graph, run, done, branches)
        done.items.update(_items_of(store, run, graph, state))
        if run != root and not command.startswith("always/"):
            done.runs.append([graph.plan.name, state.life])
    group = ""
    for run, command, agent in calls:
        branch, _, visit = command.rpartition("/")
        block = branches.get((run, branch.removesuffix(".on_fail")), "")
        same = block and group.startswith(f"{block} ") and (branch.endswith(".on_fail") or group == f"{block} {visit}")
        if same:
            done.calls[-1] = sorted([*done.calls[-1], agent])
        else:
            done.calls.append([agent] if block else agent)
            group = f"{block} {visit}" if block else ""


def tree_of(store: Any, root: str) -> list[tuple[str, str]]:
    """Return a run and all runs below it in the order of their beginnings, with the commands that started them."""
    found, todo = [], [(root, "")]
    while todo:
        run, command = todo.pop(0)
        found.append((run, command))
        below = []
        for _, _, fact in store.facts(run):
            if isinstance(fact, StepIssued) and fact.child:
                below.append((fact.child, command_id(fact.step, fact.visit)))
            elif isinstance(fact, ItemsIssued):
                items = fact.items or range(fact.first, fact.first + fact.count)
                commands = [command_id(fact.step, fact.visit, item) for item in items]
                below += [(child_id(run, each), each) for each in commands]
        todo = [each for each in below if store.summary(each[0]) is not None] + todo
    return found


def _read_log(records: Any, graph: Any, run: str, done: Done, branches: Mapping[tuple[str, str], str]) -> None:
    counts: dict[str, int] = {}
    for _, _, fact in records:
        if isinstance(fact, StepIssued) and fact.step.startswith("quality_gate"):
            done.gates.append(["quality_gate", "ok" if fact.input["passed"] else "below"])
        for move in fact.moves if isinstance(fact, Routed) else ():
            if isinstance(move, Bypassed) and (run, move.step) in branches:
                done.skipped.append(move.step.partition("@")[0])
            if isinstance(move, Took):
                _note_took(move, graph, done, counts)


def _note_took(move: Took, graph: Any, done: Done, counts: dict[str, int]) -> None:
    step = graph.step(graph.index[move.step])
    name, _, part = move.step.rpartition(".")
    if part == "no_source":
        done.gates.append(["quality_gate", "no source"])
    for position in move.arcs:
        arc = step.arcs[position]
        leaves_nothing = [key for key in arc.set if key.startswith("result:")] or "empty" in str(arc.set)
        if arc.on == "failure" and leaves_nothing and not any(".failed." in key for key in arc.set):
            done.skipped.append(move.step.partition("@")[0])
    if part not in ("pass", "check") or not name.startswith(("while_", "do_")):
        return
    passes = f"{name}.passes"
    counts[name] = move.sets.get(passes, counts.get(name, 0))
    goes_on = passes in move.sets or (part == "check" and move.arcs == (0,))
    if not goes_on:
        check = graph.step(graph.index[f"{name}.check"])
        done.passes.append([next(arc.when for arc in check.arcs if arc.when is not None), counts[name]])
        counts[name] = 0


def _items_of(store: Any, run: str, graph: Any, state: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for s, step in enumerate(state.steps):
        if step.fan is None or graph.step(s).loop is None:
            continue
        loop = LoopSeen(graph.name(s), state, step.fan, is_running=False)
        keys = with_values(store.views, run, partial(_keys_of, step.fan))
        found[loop.step] = {key: loop.status(item) for item, key in enumerate(keys)}
    return found


def _keys_of(fan: FanOut, loaded: Loaded) -> list[str]:
    return [key_of(fan, loaded, number) for number in range(fan.count)]
