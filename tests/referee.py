"""The referee: a tiny interpreter of workflows, written from the routing rules alone ([7] is rule 7)."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

Workflow = dict[str, Any]
Arc = tuple[str, int]  # the step it comes from, and its place there
Try = tuple[int, int, int, int]  # item, number, begins, ends; it is waited for until it begins

FAILING_TRIES = {"ok": 0, "fail": inf, -1: inf}  # any other number stands for itself


class Shape:
    """What is known before the run: back arcs, loop bodies, and which loop holds which arc [1-3]."""

    def __init__(self, workflow: Workflow) -> None:
        self.steps: dict[str, Any] = workflow["steps"]
        written = {(name, n): arc for name, step in self.steps.items() for n, arc in enumerate(step.get("arcs", []))}
        self.target: dict[Arc, str] = {arc: written[arc]["to"] for arc in written}
        self.arcs = {name: [arc for arc in written if arc[0] == name] for name in self.steps}
        self.back: set[Arc] = set()
        self.below: dict[str, set[str]] = {}  # of every reachable step, what was first met while the walk was in it
        self._walk(workflow["entry"], [])
        self.forward = [arc for arc in written if arc[0] in self.below and arc not in self.back]
        self.into = {name: [arc for arc in self.forward if self.target[arc] == name] for name in self.steps}
        self.bodies = self._find_bodies([arc for arc in self.forward if written[arc].get("each_pass")])
        self.holder = {arc: left[-1] for arc in self.forward if (left := self._left(arc, self.bodies))}

    def _walk(self, step: str, path: list[str]) -> None:
        for above in path:
            self.below[above].add(step)
        self.below[step] = set()
        for arc in self.arcs[step]:
            if self.target[arc] in (*path, step):
                self.back.add(arc)
            elif self.target[arc] not in self.below:
                self._walk(self.target[arc], [*path, step])

    def _find_bodies(self, each_pass: list[Arc]) -> dict[str, set[str]]:
        """The body of each loop by its head; the target of an each_pass arc is led back to the loop that it leaves."""
        ways = {(source, target) for (source, _), target in self.target.items()}
        heads = [step for step in self.steps if any(self.target[arc] == step for arc in self.back)]
        while True:
            bodies = {head: {head} for head in heads}
            for head, body in bodies.items():
                while more := {source for source, target in ways if target in body} & self.below[head] - body:
                    body |= more
            led_back = {(self.target[arc], left[0]) for arc in each_pass if (left := self._left(arc, bodies))}
            new = {(step, head) for step, head in led_back - ways if step in self.below[head]}
            if not new:
                return bodies
            ways |= new

    def _left(self, arc: Arc, bodies: dict[str, set[str]]) -> list[str]:
        """The heads of the loops that the arc leaves, innermost first."""
        by_size = sorted(bodies, key=lambda head: len(bodies[head]))
        return [head for head in by_size if arc[0] in bodies[head] and self.target[arc] not in bodies[head]]

    def feeders(self, race: str) -> set[str]:
        """Steps all of whose forward paths lead into the race."""
        found: set[str] = set()
        ahead = {step: {self.target[arc] for arc in self.arcs[step] if arc in self.forward} for step in self.below}
        while more := {step for step, targets in ahead.items() if targets and targets <= found | {race}} - found:
            found |= more
        return found


@dataclass
class Visit:
    """A visit: the items ahead, the tries that run or are waited for, and what became of the others."""

    step: str
    number: int
    start: int
    fails: list[float]  # per item, how many of its tries fail
    ahead: list[int]
    tries: list[Try] = field(default_factory=list)
    again: list[tuple[int, int]] = field(default_factory=list)  # failed tries that may be followed by another
    failed: bool = False
    cut: bool = False  # something was withdrawn because the run is ending


class Run:
    """A run from its start to its end. `trace` tells what happened, in order, for the tests."""

    def __init__(self, workflow: Workflow) -> None:
        self.shape = Shape(workflow)
        self.steps = self.shape.steps
        self.cancels = workflow.get("on_failure") == "cancel"
        self.now, self.ending = 0, False
        self.failures: list[dict[str, Any]] = []  # once there is one, the run is ending(failed)
        self.state = {step: "pending" if step in self.shape.below else "settled" for step in self.steps}
        self.mark = dict.fromkeys(self.shape.forward, "unresolved")
        self.looked: set[str] = set()  # steps into which an arc was resolved in this pass
        self.ever: set[Arc] = set()  # held arcs that were taken
        self.again: set[str] = set()  # heads to which a back arc was taken in this pass
        self.over: list[str] = []  # heads of loops whose pass is over, in the order in which that happened
        self.finished: set[str] = set()
        self.heads: set[str] = set()  # heads of passes that begin
        self.open: dict[str, Visit] = {}  # in file order
        self.visits = dict.fromkeys(self.steps, 0)
        self.skipped = set(self.steps) - set(self.shape.below)  # [5]
        self.result: dict[str, Any] = {"status": "completed", "error": None, "also_failed": [], "visits": self.visits}
        self.result |= {"skipped": [], "bypassed": [], "started": [], "result": None}
        self.trace: list[tuple[Any, ...]] = []
        self.heads.add(workflow["entry"])
        self.deal()
        while self.open:
            self.ending = bool(self.failures)
            self.now = min(ends for visit in self.open.values() for *_, ends in visit.tries)
            for visit in list(self.open.values()):
                self.fold(visit)
            self.deal()
        assert self.failures or set(self.state.values()) == {"settled"}, "unreached"  # [19]

    def fold(self, visit: Visit) -> None:
        """Take in the tries that end now; whether one is tried again is known when all else is dealt with."""
        retry = self.steps[visit.step].get("retry", {})
        ended, visit.tries = [t for t in visit.tries if t[3] == self.now], [t for t in visit.tries if t[3] != self.now]
        failed = [each[:2] for each in ended if each[1] <= visit.fails[each[0]]]
        limit = 0 if self.ending else retry.get("attempts", 1)
        visit.again += [(item, number + 1) for item, number in failed if number < limit]
        visit.failed = visit.failed or any(number >= limit for _, number in failed)
        if ended:
            self.proceed(visit)

    def begin(self, visit: Visit, item: int, number: int, at: int) -> None:
        visit.tries.append((item, number, at, at + nth(self.steps[visit.step].get("duration", [1]), visit.number)))

    def proceed(self, visit: Visit) -> None:
        """Fill the window; a visit with nothing in flight is at its end."""
        loop = self.steps[visit.step].get("loop", {})
        window = 1 if loop.get("sequential") else loop.get("window", len(visit.fails))
        while visit.ahead and len(visit.tries) + len(visit.again) < window and not self.failures:
            self.begin(visit, visit.ahead.pop(0), 1, self.now)
        if not visit.tries and not visit.again:
            self.conclude(visit, "fail" if visit.failed else "cancelled" if visit.cut or visit.ahead else "ok")

    def conclude(self, visit: Visit, outcome: str) -> None:
        """A visit ends: choose its arcs and settle the step, or fail the run [7, 8]."""
        self.open.pop(visit.step, None)
        taken = self.choose(visit, "success") if outcome in ("ok", "bypassed") else []
        if taken is None or outcome == "fail":
            outcome, taken = "fail", self.choose(visit, "failure")
        row = [visit.step, visit.number, visit.start, self.now, outcome]
        self.result["bypassed" if outcome == "bypassed" else "started"].append(
            row[:2] if outcome == "bypassed" else row
        )
        if outcome == "ok":
            name, items = f"{visit.step}.{visit.number}", range(len(visit.fails))
            self.result["result"] = [f"{name}.{n}" for n in items] if "loop" in self.steps[visit.step] else name
        if outcome == "fail" and not taken:
            self.failures.append({"step": visit.step, "visit": visit.number, "why": "unhandled failure"})
        else:
            self.settle(visit.step, taken or [])

    def choose(self, visit: Visit, outcome: str) -> list[Arc] | None:
        """The arcs taken after this outcome; None if a condition raised."""
        taken = []
        for arc, written in zip(self.shape.arcs[visit.step], self.steps[visit.step].get("arcs", []), strict=True):
            if written.get("on", "success") not in (outcome, "both"):
                continue
            holds = nth(written.get("when", [True]), visit.number)
            if holds == "error":
                return None
            taken += [arc] if holds else []
            if holds and self.steps[visit.step].get("mode") != "inclusive":
                break
        return taken

    def settle(self, step: str, taken: list[Arc]) -> None:
        """The step is done in this pass, and each of its arcs is decided [8]."""
        self.state[step] = "settled"
        self.heads.discard(step)
        self.trace.append(("settle", step, tuple(taken)))
        self.again |= {self.shape.target[arc] for arc in taken if arc in self.shape.back}
        self.ever |= {arc for arc in taken if arc in self.shape.holder}
        for arc in self.shape.arcs[step]:
            if arc not in self.shape.back and arc not in self.shape.holder:
                self.resolve(arc, arc in taken)
        self.find_over()

    def resolve(self, arc: Arc, taken: bool) -> None:
        pending = self.state[self.shape.target[arc]] == "pending"
        self.mark[arc] = "dead" if not taken else "taken" if pending else "spent"  # [9]
        self.looked.add(self.shape.target[arc])
        self.trace.append((self.mark[arc], arc))

    def find_over(self) -> None:
        """Note the loops of which every step is settled and every inner loop is finished [14]."""
        for head, body in self.shape.bodies.items():
            unfinished = (body & self.shape.bodies.keys()) - self.finished
            if unfinished == {head} and head not in self.over and all(self.state[step] == "settled" for step in body):
                self.over.append(head)

    def deal(self) -> None:
        """Loops that are over first, else the ready step that is first in the file [13]; none while ending [18]."""
        while not self.failures:
            ready = next((step for step in self.steps if self.judge(step)), None)
            if self.over:
                self.advance(self.over.pop(0))
            elif ready is None and not self.catch_up():
                return
            elif ready is not None and self.judge(ready) == "enter":
                self.enter(ready)
            elif ready is not None:
                self.trace.append(("skip", ready))
                self.skipped.add(ready)
                self.settle(ready, [])  # [12]
        self.wind_up()

    def catch_up(self) -> bool:
        """Nothing can be entered: visits without any item end, failed tries are followed by another."""
        waiting = [visit for visit in self.open.values() if visit.again or not visit.fails]
        for visit in waiting:
            if not visit.fails:
                self.conclude(visit, "ok")
            for item, number in visit.again:
                self.begin(visit, item, number, self.now + self.steps[visit.step]["retry"].get("delay", 0))
            visit.again = []
        return bool(waiting)

    def wind_up(self) -> None:
        """No try is followed by another; what did not begin before this tick is withdrawn, or all of it [18]."""
        for visit in list(self.open.values()):
            visit.failed = visit.failed or bool(visit.again)
            running = [each for each in visit.tries if each[2] < self.now and not self.cancels]
            visit.cut = visit.cut or len(running) < len(visit.tries) or not visit.fails
            visit.tries, visit.again = running, []
            self.proceed(visit)

    def judge(self, step: str) -> str | None:
        """Ask the join whether the step may be entered or skipped [10]."""
        if step in self.heads or self.state[step] != "pending" or step not in self.looked:
            return "enter" if step in self.heads else None
        taken = {arc[0] for arc in self.shape.into[step] if self.mark[arc] == "taken"}
        unresolved = {arc[0] for arc in self.shape.into[step] if self.mark[arc] == "unresolved"}
        join = self.steps[step].get("join", "all")
        needed = join["at_least"] if isinstance(join, dict) else 1
        if join == "all" and unresolved:
            return None
        return "enter" if len(taken) >= needed else "skip" if len(taken | unresolved) < needed else None

    def enter(self, step: str) -> None:
        self.heads.discard(step)
        written, number = self.steps[step], self.visits[step] + 1
        if number > written.get("visit_limit", 10_000):
            return self.failures.append({"step": step, "visit": number, "why": "visit limit"})  # [17]
        self.trace.append(("enter", step, number))
        self.visits[step], self.state[step] = number, "open"
        self.mark |= {arc: "spent" for arc in self.shape.into[step] if self.mark[arc] == "taken"}
        if written.get("join") == "race":
            self.withdraw(self.shape.feeders(step))
        items = written["loop"]["items"] if "loop" in written else [nth(written.get("outcome", ["ok"]), number)]
        fails = [FAILING_TRIES.get(item, item) for item in items]
        visit = Visit(step, number, self.now, fails, ahead=list(range(len(fails))))
        guard = nth(written.get("guard", [True]), number)
        if guard == "error" or not guard:
            return self.conclude(visit, "fail" if guard else "bypassed")  # [11]
        self.open = {name: self.open.get(name, visit) for name in self.steps if name in (*self.open, step)}
        return self.proceed(visit) if fails else None

    def withdraw(self, feeders: set[str]) -> None:
        """A race is entered: what could only lead into it settles as cancelled."""
        for step in [step for step in self.steps if step in feeders and self.state[step] != "settled"]:
            self.trace.append(("withdraw", step))
            self.conclude(self.open[step], "cancelled") if step in self.open else self.settle(step, [])

    def advance(self, head: str) -> None:
        """A pass is over: the loop is finished, or the next one begins [15, 16]."""
        body = self.shape.bodies[head]
        self.trace.append(("pass" if head in self.again else "finish", head))
        if head not in self.again:
            self.finished.add(head)
            for arc in [arc for arc, holder in self.shape.holder.items() if holder == head]:
                self.resolve(arc, arc in self.ever)
            return self.find_over()
        self.state |= dict.fromkeys(body, "pending")
        self.looked, self.again, self.finished = self.looked - body, self.again - body, self.finished - body
        arriving = [arc for arc in self.shape.forward if self.shape.target[arc] in body]
        self.mark |= {arc: "dead" for arc in arriving if self.mark[arc] != "unresolved"}
        self.mark |= {arc: "unresolved" for arc in arriving if arc[0] in body}
        self.ever -= {arc for arc in arriving if arc[0] in body}
        return self.heads.add(head)


def nth(values: list[Any], visit: int) -> Any:
    """The value of this visit; the last one repeats."""
    return values[min(visit, len(values)) - 1]


def run(workflow: Workflow) -> dict[str, Any]:
    """Run the workflow to its end and tell what came of it."""
    done = Run(workflow)
    done.result["skipped"] = [step for step in done.steps if step in done.skipped and not done.visits[step]]
    done.result["started"].sort(key=lambda row: (row[2], list(done.steps).index(row[0]), row[1]))
    failed = {"status": "failed", "error": None, "also_failed": done.failures[1:], "result": None}
    return done.result | failed | {"error": done.failures[0]} if done.failures else done.result
