"""Same log, same state, whatever hash seed and time zone; the world is not asked, and looking changes nothing."""

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.core import codec
from refold.core.commands import child_id
from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.expressions import CannotEvaluate, Missing
from refold.core.facts import (
    CancelAsked,
    ChildEnded,
    Fact,
    GateDecided,
    ItemsSettled,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    SignalReceived,
    StepSettled,
)
from refold.core.fold.apply import Record, fold
from refold.core.graph import analyse
from refold.core.outcomes import (
    SECOND,
    AddTo,
    AppendTo,
    Cancelled,
    DeleteKey,
    Failed,
    Fault,
    Parked,
    Report,
    SetKey,
    Succeeded,
)
from refold.core.plan import Arc, Child, Gate, Loop, Plan, Retry, Step, Wait, canonical
from refold.core.read.loaded import Loaded
from refold.core.read.summary import shown_steps, status_of, summarize
from refold.core.read.template_scope import RunScope
from refold.core.read.why import briefly
from refold.core.state import RunState
from refold.testing.core import Scripted
from tests.programs import random_program
from tests.ticks import Ticks, plan_of

ROOT = Path(__file__).parents[1]
CORE = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src/refold/core").glob("*.py")}

HASH_SEEDS = ("0", "1", "2", "3", "1000", "65535", "123456789", "4294967295")
ZONES = ("UTC", "IST-5:30", "NST3:30NDT,M3.2.0,M11.1.0")
LOGS = 200

CHILD = """
import builtins, contextlib, datetime, hashlib, os, random, secrets, socket, sys, time, uuid
from unittest import mock

import msgspec

from refold.core import codec
from refold.core.fold.apply import fold
from refold.core.graph import analyse
from refold.core.plan import plan_hash, read_plan
from refold.core.state import RunState
from refold.core.read.summary import shown_steps, summarize
from refold.core.read.why import briefly
from tests.ticks import Ticks

WORLD = {
    time: ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime"),
    random: ("random", "randint", "choice", "shuffle", "getrandbits", "Random", "SystemRandom"),
    uuid: ("uuid1", "uuid4"),
    os: ("urandom", "getenv", "getpid", "environ", "listdir"),
    secrets: ("token_hex", "token_bytes"),
    datetime: ("datetime", "date"),
    socket: ("socket",),
    builtins: ("open", "input", "print", "id"),
}

def refuse(*_args, **_named):
    raise RuntimeError("the core asked the world")

def fold_all(logs):
    told = hashlib.sha256()
    for plan, _, rows in logs:
        plan = read_plan(plan)
        graph = analyse(plan)
        state = fold(graph, [(seq, at, codec.decode_fact(row)) for seq, at, row in rows], RunState(run="r"))
        shown = [summarize(graph, state), briefly(graph, state), shown_steps(graph, state)]
        told.update(plan_hash(plan).encode() + codec.encode_snapshot(state) + msgspec.json.encode(shown))
    return told.hexdigest()

def decide_all(logs):
    told = hashlib.sha256()
    for _, workflow, _ in logs:
        ticks = Ticks(workflow)
        ticks.run()
        told.update(b"".join(codec.encode_fact(fact) for _, _, fact in ticks.log))
    return told.hexdigest()

with open(sys.argv[1], "rb") as file:
    logs = msgspec.msgpack.decode(file.read())
digests = []
for zone in sys.argv[2:]:
    os.environ["TZ"] = zone
    time.tzset()
    with contextlib.ExitStack() as patched:
        for module, names in WORLD.items():
            for name in names:
                patched.enter_context(mock.patch.object(module, name, refuse))
        digests.append(fold_all(logs))
print(*digests, decide_all(logs[:100]))
"""


def test_the_same_log_gives_the_same_state_under_8_hash_seeds_and_3_time_zones(tmp_path: Path) -> None:
    corpus = tmp_path / "logs"
    corpus.write_bytes(msgspec.msgpack.encode([*generated_logs(), written_log()]))
    command = [sys.executable, "-c", CHILD, str(corpus), *ZONES]
    children = [
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in HASH_SEEDS
    ]
    told = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0] * len(HASH_SEEDS)
    assert {len(digests) for digests in told} == {len(ZONES) + 1}
    assert len({state for *states, _ in told for state in states}) == 1
    assert len({decisions for *_, decisions in told}) == 1, "the same programs were decided differently"


def generated_logs() -> Iterator[tuple[bytes, Any, Any]]:
    for seed in range(LOGS):
        workflow = random_program(seed)
        ticks = Ticks(workflow)
        ticks.run()
        yield canonical(plan_of(workflow)), workflow, _rows(ticks.log)


def _rows(log: list[Record]) -> list[tuple[int, int, bytes]]:
    return [(seq, at, codec.encode_fact(fact)) for seq, at, fact in log]


ERRAND = Plan(
    name="errand",
    defaults={"z": 1, "a": [1, 2, 3]},
    timeout=3600.0,
    budget={"usd": 9, "tokens": 4},
    steps=(
        Step(
            name="try",
            retry=Retry(attempts=3, delay=2.0, backoff="exponential", jitter=0.5),
            set={"ctx.sum": {"path": ["n"]}, "iter.also": {"path": ["input", "z"]}},
            arcs=(Arc(to="many", set={"step.last": {"path": ["output", "data", "n"]}}),),
        ),
        Step(
            name="many",
            loop=Loop(items={"path": ["a"]}, max_in_flight=2),
            input={"one": {"path": ["item"]}, "n": {"path": ["ctx", "n"]}, "sum": {"path": ["sum"]}},
            retry=Retry(attempts=2),
            arcs=(Arc(to="hear"),),
        ),
        Step(name="hear", work=Wait(signal="go", seconds=60), arcs=(Arc(to="ask"),)),
        Step(name="ask", work=Gate(prompt="well?", timeout=60.0), arcs=(Arc(to="sub"),)),
        Step(name="sub", work=Child(plan="p"), input={"path": ["steps", "try"]}),
        Step(name="last"),
    ),
    always=("last",),
)

BROKEN = Failed(Fault("error", "not yet", data={"y": 1, "b": 2}))
WRITES = (SetKey("k", [1]), AddTo("n", 2), AppendTo("k", {"d": 4, "c": 3}), SetKey("gone"), DeleteKey("gone"))

HAPPENINGS: tuple[tuple[Fact, ...], ...] = (
    (RunStarted(plan="p", input={"q": 1, "b": 2}),),
    (StepSettled("try", 1, Report(1, BROKEN, usage={"tokens": 3.5, "calls": 1})),),
    (RunPaused(by="ann"), SignalReceived("early", 1)),
    (RunResumed(),),
    (StepSettled("try", 1, Report(2, Parked(until=5 * SECOND, progress={"page": 2}))),),
    (StepSettled("try", 1, Report(2, Succeeded({"n": 7}), writes=WRITES, usage={"calls": 1, "tokens": 1})),),
    (RunResumed(by="ann", budget={"tokens": 50}),),
    (ItemsSettled("many", 1, (Report(1, Succeeded("two"), item=1, writes=(AppendTo("seen", 1),)),)),),
    (ItemsSettled("many", 1, (Report(1, BROKEN, item=0), Report(1, Succeeded("three"), item=2))),),
    (ItemsSettled("many", 1, (Report(2, Succeeded("one"), item=0, writes=(AppendTo("seen", 0),)),)),),
    (SignalReceived("go", {"x": 1, "e": 2}),),
    (GateDecided("ask", 1, "approve", by="ann", feedback="fine"),),
    (CancelAsked("enough", "ann"),),
    (ChildEnded(child_id("r", "sub/1"), "sub/1", Cancelled(), usage={"tokens": 1.25}),),
    (StepSettled("last", 1, Report(1, Succeeded())),),
    (RunReopened(("sub",), (), "ann"),),
    (ChildEnded(child_id("r", "sub/2"), "sub/2", Succeeded("done"), usage={"tokens": 2.25}),),
    (StepSettled("last", 2, Report(1, Succeeded())),),
)


def written_log() -> tuple[bytes, None, list[tuple[int, int, bytes]]]:
    """What generated programs do not have: context, usage, signals, gates, children, a pause, recorded chance."""
    graph, state = analyse(ERRAND), RunState(run="r")
    log: list[Record] = []
    for turn, facts in enumerate(HAPPENINGS, 1):
        d = Decision(graph, state, turn * SECOND, Scripted(), lambda: 0.25)
        for fact in facts:
            d.record_fact(fact)
        decide_with(d, log)
        log += [(number, d.now, fact) for number, fact in enumerate(d.facts, len(log) + 1)]
    assert state.life == "completed"
    return canonical(ERRAND), None, _rows(log)


def decide_with(d: Decision, log: list[Record]) -> None:
    while True:
        try:
            return decide(d)
        except Missing as missing:
            d.loaded.facts.update((seq, log[seq - 1][2]) for seq in missing.facts)


class Onlooker(Ticks):
    """Looks at everything after each turn, and decides once more: the state must not notice."""

    looks = 0

    def turn(self, facts: list[Fact]) -> None:
        super().turn(facts)
        before = _hash(self.state)
        self.look()
        assert _hash(self.state) == before, "looking changed the state"
        d = Decision(self.graph, self.state, self.state.at, Scripted(), lambda: 0.5)
        decide_with(d, self.log)
        assert (d.facts, d.commands(), d.letters) == ([], {}, []), "there was something left to decide"
        assert _hash(self.state) == before, "deciding without news changed the state"

    def look(self) -> None:
        self.looks += 1
        summarize(self.graph, self.state)
        status_of(self.graph, self.state, self.state.at)
        briefly(self.graph, self.state)
        shown_steps(self.graph, self.state)
        codec.encode_snapshot(self.state)
        loaded = Loaded(facts={seq: fact for seq, _, fact in self.log})
        for known in (loaded, Loaded()):
            view = RunScope(self.graph, self.state, known, {"visit": 1})
            for name in ("visit", "input", "workload", "ctx", "run", "nobody", *self.graph.index):
                try:
                    view[name]
                except (CannotEvaluate, Missing):
                    continue
        assert isinstance(dict(RunScope(self.graph, self.state, loaded, {})["steps"]), dict)


def _hash(state: RunState) -> str:
    return hashlib.sha256(codec.encode_snapshot(state)).hexdigest()


def test_deciding_without_news_and_showing_are_pure_reads() -> None:
    looks = 0
    for seed in range(150):
        onlooker = Onlooker(random_program(seed))
        onlooker.run()
        looks += onlooker.looks
    assert looks > 1000


def test_folding_reads_its_facts_and_leaves_them_as_they_are() -> None:
    for plan, _, rows in (*generated_logs(), written_log()):
        records = [(seq, at, codec.decode_fact(row)) for seq, at, row in rows]
        fold(analyse(msgspec.json.decode(plan, type=Plan)), records, RunState(run="r"))
        assert _rows(records) == rows


MAY_IMPORT = {
    "bisect",
    "collections",
    "collections.abc",
    "contextlib",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "operator",
    "re",
    "typing",
}
EXCUSED = {  # what is only used on what they are given: an exception, and a moment
    ("faults", "traceback"),
    ("times", "datetime"),
}
WORLDLY = {"open", "print", "input", "eval", "exec", "compile", "__import__", "breakpoint", "globals", "vars"}
UNSTEADY = {"id", "hash"}  # differ from process to process


def test_the_core_imports_nothing_that_could_reach_the_world() -> None:
    imported = {
        (name, module)
        for name, tree in CORE.items()
        for node in ast.walk(tree)
        for module in _modules(node)
        if not module.startswith(("refold.core", "refold.errors")) and module not in MAY_IMPORT
    }
    assert imported <= EXCUSED


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "."] if isinstance(node, ast.ImportFrom) else []


def test_the_core_calls_no_clock_no_chance_no_environment_and_no_file() -> None:
    called = {
        (name, node.lineno, node.func.id)
        for name, tree in CORE.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORLDLY | UNSTEADY
    }
    assert called == set()


SETS = ("set", "frozenset")
COMBINE = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
ORDER_FREE = {"set", "frozenset", "len", "any", "all", "sorted", "min", "max", "sum", "bool", "isinstance"}


class Sets:
    """Finds where the order of a set could leak: hash seeds change it from process to process."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self.trees = trees
        nodes = [node for tree in trees.values() for node in ast.walk(tree)]
        fields = [node for owner in nodes if isinstance(owner, ast.ClassDef) for node in owner.body]
        self.known = {
            _name(each.target) for each in fields if isinstance(each, ast.AnnAssign) and _is_set_type(each.annotation)
        }
        self.known |= {node.name for node in nodes if isinstance(node, ast.FunctionDef) and _is_set_type(node.returns)}
        self.local: set[str] = set()  # names of sets in the function at hand

    def leaks(self) -> list[str]:
        return [f"{name}:{line}" for name, tree in self.trees.items() for line in sorted(set(self._lines(tree)))]

    def _lines(self, tree: ast.Module) -> Iterator[int]:
        for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
            nodes = list(_inside(scope))
            self.local = set(self._names(nodes))
            free = {id(arg) for node in nodes if _ignores_order(node) for arg in _operands(node)}
            for node in nodes:
                if id(node) not in free and any(self.is_set(each) for each in _ordered(node)):
                    yield getattr(node, "lineno", 0)

    def _names(self, nodes: list[ast.AST]) -> Iterator[str]:
        for node in nodes:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if _is_set_type(kind):
                    yield name
                case ast.arg(arg=name, annotation=kind) if _is_set_type(kind):
                    yield name
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.is_set(value):
                    yield name

    def is_set(self, node: ast.AST | None) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=func):
                return _name(func) in (*SETS, "union", "difference", "intersection") or _name(func) in self.known
            case ast.BinOp(op=op, left=left, right=right):
                return isinstance(op, COMBINE) and (self.is_set(left) or self.is_set(right))
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
            case ast.Name(id=name):
                return name in self.local
            case ast.Attribute(attr=name):
                return name in self.known
            case _:
                return False


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything of this function or module that is not in a function of its own."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef):
            yield from _inside(node)


def _ignores_order(node: ast.AST) -> bool:
    """Whoever is given a set here does not ask for its order; sorting by a key leaves ties as they came."""
    if isinstance(node, ast.Call):
        keyed = any(keyword.arg == "key" for keyword in node.keywords)
        return _name(node.func) in (*SETS, *ORDER_FREE) and (not keyed or _breaks_ties(node))
    return False


def _breaks_ties(node: ast.Call) -> bool:
    """The key holds the element itself, so no two are equal."""
    keys = [keyword.value for keyword in node.keywords if keyword.arg == "key"]
    return all(
        isinstance(key, ast.Lambda)
        and isinstance(key.body, ast.Tuple)
        and any(_name(part) == key.args.args[0].arg for part in key.body.elts)
        for key in keys
    )


def _operands(node: ast.AST) -> list[ast.AST]:
    return [node, *node.args] if isinstance(node, ast.Call) else []


def _ordered(node: ast.AST) -> list[ast.AST]:
    """What this node walks through in order."""
    match node:
        case ast.For(iter=walked) | ast.Starred(value=walked) | ast.YieldFrom(value=walked):
            return [walked]
        case ast.ListComp(generators=parts) | ast.GeneratorExp(generators=parts) | ast.DictComp(generators=parts):
            return [part.iter for part in parts]
        case ast.Call(args=args):
            return list(args) if _name(node.func) in CONSUMERS else []
        case _:
            return []


CONSUMERS = {"tuple", "list", "enumerate", "zip", "map", "filter", "iter", "next", "reversed", "join", "fromkeys"}
CONSUMERS |= {"sorted", "min", "max", "extend", "dict", "heapify"}


def _name(node: ast.AST | None) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_set_type(node: ast.AST | None) -> bool:
    return _name(node.value if isinstance(node, ast.Subscript) else node) in SETS


def test_no_order_of_a_set_reaches_facts_or_state() -> None:
    assert Sets(CORE).leaks() == []


@pytest.mark.parametrize(
    "leak",
    [
        "for x in {1, 2}: say(x)",
        "for x in set(names): say(x)",
        "y = tuple({x for x in names})",
        "y = [*{x for x in names}]",
        "y = [f(x) for x in set(names) - known]",
        "y = {x: 1 for x in frozenset(names)}",
        "y = ', '.join(set(names))",
        "y = sorted(set(names), key=len)",
        "known = set()\ny = tuple(known)",
        "known: set[str] = make()\nfor x in known: say(x)",
        "def places() -> set[int]: ...\ny = list(fanout.places())",
    ],
)
def test_the_look_at_sets_finds_a_leak(leak: str) -> None:
    assert Sets({"some": ast.parse(leak)}).leaks() != []


@pytest.mark.parametrize(
    "code",
    [
        "for x in sorted({1, 2}): say(x)",
        "y = tuple(sorted(set(names)))",
        "y = sorted(set(names), key=lambda name: (len(name), name))",
        "y = {f(x) for x in set(names)}",
        "y = any(x in names for x in set(others))",
        "y = len({1, 2}), 1 in {1, 2}",
        "for x in names: say(x)",
    ],
)
def test_the_look_at_sets_lets_pass_what_does_not_leak(code: str) -> None:
    assert Sets({"some": ast.parse(code)}).leaks() == []
