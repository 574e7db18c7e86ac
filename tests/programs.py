"""Programs for the referee and the engine: random graphs and block programs, from Hypothesis or from a seed."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.referee import FAILING_TRIES, Shape, Workflow, nth

T = TypeVar("T")
Ends = list[tuple[str, dict[str, Any]]]  # arcs that do not know their target yet

NAMES = "abcdefghijklmnopqrstuvwxyz"
ROOMY = 12  # a visit limit that a loop of this size does not reach by itself


@st.composite
def programs(draw: st.DrawFn) -> Workflow:
    """Any program; it shrinks towards few plain steps."""
    return Maker(lambda n: draw(st.integers(0, n - 1))).program()


def random_program(seed: int) -> Workflow:
    """The same kind of program, always the same one for a seed."""
    return Maker(random.Random(seed).randrange).program()


class Blocks:
    """Block programs. A block returns its first step and the arcs that lead out of it.

    Every choice comes from one source of numbers below n, for which zero is the simplest.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below
        self.steps: dict[str, Any] = {}

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def passes(self) -> list[bool]:
        """True a few times, then false for good."""
        return [True] * self.pick([1, 1, 2, 0, 3]) + [False]

    def truths(self) -> list[bool]:
        return [self.pick([True, True, False]) for _ in range(self.pick([1, 2, 3]))]

    def step(self, **written: Any) -> str:
        name = NAMES[len(self.steps) % len(NAMES)] * (1 + len(self.steps) // len(NAMES))
        self.steps[name] = written | {"arcs": []}
        return name

    def arc(self, source: str, target: str, **written: Any) -> None:
        self.steps[source]["arcs"].append({"to": target, **written})

    def join_ends(self, ends: Ends, target: str) -> None:
        for source, written in ends:
            self.arc(source, target, **written)

    def block(self, depth: int) -> tuple[str, Ends]:
        simple = [self.plain, self.listed, self.listed, self.tried, self.rescued, self.by_arc, self.bypassed]
        nested = [self.row, self.choice, self.fork, self.while_loop, self.do_while, self.broken, self.noted]
        special = [self.middle, self.middle, self.spun, self.spun, self.nest, self.noted]
        if depth and len(self.steps) < 8:
            return self.pick([*simple, *nested, *special, *special])(depth - 1)
        return self.pick(simple)(0)

    def plain(self, _depth: int) -> tuple[str, Ends]:
        name = self.step()
        return name, [(name, {})]

    def row(self, depth: int) -> tuple[str, Ends]:
        first, ends = self.block(depth)
        for _ in range(self.pick([1, 2])):
            following, later = self.block(depth)
            self.join_ends(ends, following)
            ends = later
        return first, ends

    def listed(self, _depth: int) -> tuple[str, Ends]:
        name = self.step(loop=self.loop())
        if self.chance(50):
            self.steps[name]["retry"] = self.retry()
        if -1 in self.steps[name]["loop"]["items"] and self.chance(80):
            return name, [(name, {"on": "both"})]
        return name, [(name, {})]

    def loop(self) -> dict[str, Any]:
        items = [self.pick([0, 0, "ok", 0, 1, -1]) for _ in range(self.pick([2, 3, 0, 1, 4, 0]))]
        manner: dict[str, Any] = self.pick(
            [{"window": 2}, {"sequential": True}, {"window": 1}, {"sequential": True}, {}]
        )
        return {"items": items, **manner}

    def retry(self) -> dict[str, Any]:
        retry = {"attempts": self.pick([2, 3])}
        return retry | ({"delay": self.pick([1, 2, 3])} if self.chance(60) else {})

    def tried(self, _depth: int) -> tuple[str, Ends]:
        name = self.step(retry=self.retry(), outcome=[self.pick([1, 2, "ok", 1, "fail"])])
        return name, [(name, {"on": "both"} if self.chance(60) else {})]

    def rescued(self, _depth: int) -> tuple[str, Ends]:
        name, rescue = self.step(outcome=self.pick([["fail"], ["ok", "fail"]])), self.step()
        self.arc(name, rescue, on="failure")
        return name, [(name, {}), (rescue, {})]

    def by_arc(self, depth: int) -> tuple[str, Ends]:
        """Retry by arc: a failure leads back."""
        name = self.step(outcome=self.pick([["fail", "ok"], ["fail", "fail", "ok"], ["fail"]]))
        before = name if not depth or self.chance(50) else self.step()
        if before != name:
            self.arc(before, name)
        self.arc(name, before, on=self.pick(["failure", "failure", "both"]), when=self.passes())
        return before, [(name, {"on": "both"})]

    def bypassed(self, _depth: int) -> tuple[str, Ends]:
        chain = [self.step(guard=self.pick([[False], [True, False], [False, True]])) for _ in range(self.pick([2, 3]))]
        for source, target in pairwise(chain):
            self.arc(source, target)
        return chain[0], [(chain[-1], {})]

    def choice(self, depth: int) -> tuple[str, Ends]:
        name, ends = self.step(), list[tuple[str, dict[str, Any]]]()
        for when in ({"when": self.truths()}, {}):
            first, more = self.block(depth)
            self.arc(name, first, **when)
            ends += more
        return name, ends

    def fork(self, depth: int) -> tuple[str, Ends]:
        name, ends = self.step(mode="inclusive"), list[tuple[str, dict[str, Any]]]()
        for _ in range(self.pick([2, 3, 2])):
            first, more = self.block(depth)
            self.steps[first].setdefault("duration", [self.pick([1, 3, 6])])
            self.arc(name, first, **({"when": self.truths()} if self.chance(15) else {}))
            ends += more
        join = self.step(join=self.join())
        self.join_ends(ends, join)
        return name, [(join, {})]

    def join(self) -> Any:
        return self.pick(
            ["all", "any", "race", {"at_least": 2}, "any", "race", {"at_least": 2}, {"at_least": 3}, {"at_least": 2}]
        )

    def while_loop(self, depth: int) -> tuple[str, Ends]:
        head = self.step()
        first, ends = self.block(depth)
        self.arc(head, first, when=self.passes())
        self.join_ends(ends, head)
        return head, [(head, {})]

    def do_while(self, depth: int) -> tuple[str, Ends]:
        first, ends = self.block(depth)
        test = self.step()
        self.join_ends(ends, test)
        self.arc(test, first, when=self.passes())
        return first, [(test, {})]

    def spun(self, depth: int) -> tuple[str, Ends]:
        """A loop around a fork."""
        first, ends = self.fork(depth)
        self.arc(ends[0][0], first, when=self.passes())
        return first, ends

    def nest(self, depth: int) -> tuple[str, Ends]:
        """A loop in a loop."""
        first, ends = self.pick([self.do_while, self.while_loop, self.spun])(depth)
        test = self.step()
        self.join_ends(ends, test)
        self.arc(test, first, when=self.passes())
        return first, [(test, {})]

    def broken(self, depth: int) -> tuple[str, Ends]:
        """A loop with a second exit in its middle."""
        first, ends = self.do_while(depth)
        middle = self.step(mode=self.pick(["exclusive", "inclusive"]))
        self.arc(middle, first)
        return middle, [*ends, (middle, {"when": self.truths()})]

    def middle(self, _depth: int) -> tuple[str, Ends]:
        """A loop that is entered at its head, behind it, or both."""
        fork, head = self.step(mode=self.pick(["exclusive", "inclusive", "inclusive"])), self.step()
        slow, inside = self.step(duration=[self.pick([1, 2, 3, 6])]), self.step(join=self.join())
        self.arc(fork, head, when=self.truths())
        self.arc(fork, slow)
        self.arc(head, inside)
        self.arc(slow, inside)
        self.arc(inside, head, when=self.passes())
        return fork, [(inside, {})]

    def noted(self, depth: int) -> tuple[str, Ends]:
        """A loop with a step behind it that runs in each pass."""
        first, ends = self.block(depth)
        test, note = self.step(mode=self.pick(["inclusive", "inclusive", "exclusive"])), self.step()
        self.join_ends(ends, test)
        self.arc(test, first, when=self.passes())
        self.arc(test, note, each_pass=True)
        return first, [(self.pick([test, note]), {})]


class Maker(Blocks):
    """A whole program: blocks or a random graph, then mishaps, then what makes it end."""

    def program(self) -> Workflow:
        entry = self.graph() if self.chance(35) else self.blocks()
        self.spoil()
        for _ in range(self.pick([0, 0, 0, 0, 0, 0, 1, 2])):
            self.orphan()
        workflow: Workflow = {"entry": entry, "steps": self.steps}
        if self.chance(50):
            workflow["on_failure"] = self.pick(["cancel", "cancel", "drain"])
        self.bound(Shape(workflow))
        self.fit_joins(Shape(workflow))
        names = list(self.steps)
        if self.chance(30):
            names = [names.pop(self.below(len(names))) for _ in list(names)]
        workflow["steps"] = {name: self.tidy(self.steps[name]) for name in names}
        return workflow

    def blocks(self) -> str:
        first, ends = self.block(2)
        while len(self.steps) < 9 and self.chance(80):
            following, later = self.block(2)
            self.join_ends(ends, following)
            ends = later
        if ends and self.chance(60):
            self.join_ends(ends, self.step())
        return first

    def graph(self) -> str:
        names = [self.step() for _ in range(2 + self.below(8))]
        for place, name in enumerate(names):
            self.steps[name] |= {"mode": self.pick(["exclusive", "inclusive"]), "join": self.join()}
            if place and self.chance(85):
                self.random_arc(self.pick(names[:place]), name)
            for _ in range(self.pick([1, 0, 2])):
                self.random_arc(name, self.pick(names[place + 1 :][:3] or names if self.chance(60) else names))
            self.decorate(name)
        return names[0]

    def random_arc(self, source: str, target: str) -> None:
        written: dict[str, Any] = {"when": self.truths()} if self.chance(35) else {}
        written |= {"each_pass": True} if self.chance(10) else {}
        written |= {"on": self.pick(["failure", "both"])} if self.chance(30) else {}
        self.arc(source, target, **written)

    def decorate(self, name: str) -> None:
        step = self.steps[name]
        if self.chance(12):
            step["guard"] = [self.pick([False, True]) for _ in range(2)]
        if self.chance(15):
            step["outcome"] = [self.pick(["ok", "fail", 1]) for _ in range(2)]
        if self.chance(12):
            step["retry"] = self.retry()
        if self.chance(10):
            step["loop"] = self.loop()

    def spoil(self) -> None:
        """Mishaps that no block plans for."""
        steps = list(self.steps.values())
        for step in steps:
            if self.chance(30):
                step["duration"] = [self.pick([1, 2, 3, 5]) for _ in range(self.pick([1, 2]))]
        if self.chance(14):
            self.pick(steps)["outcome"] = self.pick([["fail"], ["fail"], ["ok", "fail"]])
        raising = [["error"], ["error"], [True, "error"]]
        if self.chance(24):
            self.catch(self.pick(steps), guard=self.pick(raising))
        if self.chance(28):
            step = self.pick([step for step in steps if step["arcs"]] or steps)
            for arc in step["arcs"][: 1 + self.below(2)]:
                arc["when"] = self.pick(raising)
            self.catch(step)

    def catch(self, step: dict[str, Any], **written: Any) -> None:
        step |= written
        if self.chance(60):
            step["arcs"].append({"to": self.pick(list(self.steps)), "on": self.pick(["failure", "both"])})

    def orphan(self) -> None:
        """A step that nothing leads to, unless an orphan does."""
        target = self.pick(list(self.steps))
        self.arc(self.step(), target)

    def bound(self, shape: Shape) -> None:
        """No loop goes round for ever: its back arcs stop being taken, or its head has a visit limit."""
        for source, n in sorted(shape.back):
            arc = self.steps[source]["arcs"][n]
            head = self.steps[arc["to"]]
            if nth(arc.get("when", [True]), ROOMY) is True:
                if self.chance(40):
                    arc["when"] = [*arc.get("when", []), *self.passes()]
                else:
                    head.setdefault("visit_limit", self.pick([ROOMY, ROOMY, 5, 3]))
            elif self.chance(7):
                head.setdefault("visit_limit", self.pick([1, 2]))

    def fit_joins(self, shape: Shape) -> None:
        """No join asks for more sources than it has."""
        for name, step in self.steps.items():
            sources = len({source for source, _ in shape.into[name]})
            if isinstance(step.get("join"), dict):
                step["join"] = {"at_least": min(step["join"]["at_least"], sources)} if sources else "all"

    def tidy(self, step: dict[str, Any]) -> dict[str, Any]:
        """Leave out what is the default anyway."""
        plain = {"mode": "exclusive", "join": "all", "arcs": []}
        return {key: value for key, value in sorted(step.items(), reverse=True) if plain.get(key) != value}


class View:
    """A program and what came of it, as the features ask about them."""

    def __init__(self, workflow: Workflow, result: dict[str, Any]) -> None:
        self.steps = workflow["steps"]
        self.policy = workflow.get("on_failure", "drain")
        self.shape = Shape(workflow)
        self.bodies, self.ways = self.shape.bodies, [(arc[0], self.shape.target[arc]) for arc in self.shape.forward]
        self.result = result
        self.visits: dict[str, int] = result["visits"]
        self.ran = {name for name in self.visits if self.visits[name]}
        failures = [result["error"], *result["also_failed"]] if result["error"] else []
        self.unhandled = {(failure["step"], failure["visit"]) for failure in failures}
        self.failed = {(row[0], row[1]) for row in result["started"] if row[4] == "fail"}

    def joins(self, kind: str) -> set[str]:
        """Steps that were entered through such a join of several sources."""
        kinds = {name: self.steps[name].get("join", "all") for name in self.ran}
        several = {name for name in kinds if len({source for source, target in self.ways if target == name}) > 1}
        return {name for name in several if kinds[name] == kind or (kind == "at_least" and kind in kinds[name])}

    def loops(self) -> list[dict[str, Any]]:
        """The list loops that ran."""
        return [self.steps[row[0]]["loop"] for row in self.result["started"] if "loop" in self.steps[row[0]]]

    def guard(self, name: str, visit: int) -> Any:
        return nth(self.steps[name].get("guard", [True]), visit)

    def outcomes(self, name: str, visit: int) -> list[Any]:
        """Of each item, or of the one that a plain step is."""
        step = self.steps[name]
        return step["loop"]["items"] if "loop" in step else [nth(step.get("outcome", ["ok"]), visit)]

    def item_fails(self, name: str, visit: int) -> bool:
        attempts = self.steps[name].get("retry", {}).get("attempts", 1)
        fails = [FAILING_TRIES.get(outcome, outcome) for outcome in self.outcomes(name, visit)]
        return self.guard(name, visit) is True and any(number >= attempts for number in fails)

    def tried_again(self) -> bool:
        rows = [row for row in self.result["started"] if "retry" in self.steps[row[0]] and row[4] != "cancelled"]
        return any(outcome not in ("ok", 0) for row in rows for outcome in self.outcomes(row[0], row[1]))

    def condition_raised(self) -> bool:
        """A visit failed although its work was done."""
        done = [(name, n) for name, n in self.failed if self.guard(name, n) is True and not self.item_fails(name, n)]
        conditions = [nth(arc.get("when", [True]), n) for name, n in done for arc in self.steps[name].get("arcs", [])]
        return "error" in conditions

    def nested(self) -> bool:
        """A loop inside a loop went round."""
        again = {head for head in self.bodies if self.visits[head] > 1}
        return any(again & body - {outer} for outer, body in self.bodies.items())

    def entered_beside_head(self) -> bool:
        ran = [(source, target) for source, target in self.ways if {source, target} <= self.ran]
        return any(s not in body and t in body - {head} for s, t in ran for head, body in self.bodies.items())

    def failed_back(self) -> bool:
        """A handled failure had an arc back."""
        handled = self.failed - self.unhandled
        arcs = [
            (self.steps[name]["arcs"][n], visit) for name, visit in handled for s, n in self.shape.back if s == name
        ]
        return any(arc.get("on") in ("failure", "both") and nth(arc.get("when", [True]), n) is True for arc, n in arcs)

    def bypass_chain(self) -> bool:
        bypassed = {name for name, _ in self.result["bypassed"]}
        return any({source, target} <= bypassed for source, target in self.ways)

    def each_pass(self) -> bool:
        """A step that ran is part of a loop only because of such an arc."""
        without = {
            name: step | {"arcs": [arc | {"each_pass": False} for arc in step.get("arcs", [])]}
            for name, step in self.steps.items()
        }
        bodies = Shape({"entry": next(iter(self.shape.below)), "steps": without}).bodies
        return any((self.bodies[head] - bodies[head]) & self.ran for head in bodies)


FEATURES: dict[str, Callable[[View], bool]] = {
    "branch": lambda view: any(len(view.shape.arcs[name]) > 1 for name in view.ran),
    "join_all": lambda view: bool(view.joins("all")),
    "join_any": lambda view: bool(view.joins("any")),
    "join_at_least": lambda view: bool(view.joins("at_least")),
    "race": lambda view: bool(view.joins("race")),
    "nested_loop": View.nested,
    "entry_into_loop": View.entered_beside_head,
    "any_in_loop": lambda view: any(view.joins("any") & body for body in view.bodies.values()),
    "error_back_arc": View.failed_back,
    "bypass_chain": View.bypass_chain,
    "list_loop": lambda view: any(loop["items"] for loop in view.loops()),
    "sequential_loop": lambda view: any(loop["items"] and loop.get("sequential") for loop in view.loops()),
    "empty_loop": lambda view: any(not loop["items"] for loop in view.loops()),
    "failing_item": lambda view: any(
        "loop" in view.steps[name] and view.item_fails(name, n) for name, n in view.failed
    ),
    "retry": View.tried_again,
    "handled_failure": lambda view: bool(view.failed - view.unhandled),
    "unhandled_failure": lambda view: bool(view.failed & view.unhandled),
    "condition_error": View.condition_raised,
    "guard_error": lambda view: any(view.guard(name, visit) == "error" for name, visit in view.failed),
    "each_pass": View.each_pass,
    "unreachable": lambda view: set(view.shape.below) != set(view.steps),
    "visit_limit": lambda view: view.result["error"] is not None and view.result["error"]["why"] == "visit limit",
    "cancel_policy": lambda view: view.policy == "cancel" and view.result["status"] == "failed",
}


def features(workflow: Workflow, result: dict[str, Any]) -> set[str]:
    """What the program has and its run came to."""
    view = View(workflow, result)
    return {name for name, found in FEATURES.items() if found(view)}
