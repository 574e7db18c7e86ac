"""Whatever comes in, in any order: the state is what the log says, nothing breaks, and every run ends."""

import random
from collections.abc import Callable

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from refold.core.facts import (
    CallSettled,
    CancelAsked,
    ChildEnded,
    Fact,
    GateDecided,
    RunPaused,
    RunResumed,
    RunTimedOut,
    SignalReceived,
)
from refold.core.outcomes import (
    SECOND,
    AppendTo,
    Awaited,
    Cancelled,
    Failed,
    Fault,
    Outcome,
    Parked,
    Succeeded,
    Suspended,
    TimedOut,
)
from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Poll, Quality, Retry, Step, Wait, Work
from refold.core.read.summary import shown_steps, summarize
from refold.core.read.why import briefly
from refold.core.state import TERMINAL, OpenCommand
from refold.testing.core import NOON, reported, started
from tests.core.acts import Given, plan

WORK: tuple[Work, ...] = (
    *(Call(), Call(), Call(), Wait(seconds=5, signal="go"), Gate(timeout=9.0), Child(plan="kid")),
    *(Wait(signal=["stop", "go"]), Gate(min_approvals=2), Quality(source={"path": ["visit"]}, threshold=2)),
)
POLLS = (None, None, Poll(until={"script": [True, "error", True]}, every=3.0, timeout=50.0))
SIGNALS = ("go", "stop")


def random_plan(chance: random.Random) -> Plan:
    names = [f"s{n}" for n in range(chance.randint(1, 6))]
    steps = [_random_step(chance, name, names) for name in names]
    tidy = [Step(name=name, work=chance.choice(WORK), retry=Retry(attempts=2)) for name in ("tidy", "oops", "last")]
    named = {"always": ("tidy",), "on_fail": ("oops",), "final_step": "last"}
    return plan(
        *steps,
        *tidy,
        on_failure=chance.choice(["drain", "cancel"]),
        timeout=100.0,
        **{key: value for key, value in named.items() if chance.random() < 0.8},
    )


def _random_step(chance: random.Random, name: str, names: list[str]) -> Step:
    work = chance.choice(WORK)
    loops = isinstance(work, Call | Child) and chance.random() < 0.3
    return Step(
        name=name,
        work=work,
        when=chance.choice([None, None, None, {"script": [True, False, "error"]}]),
        mode=chance.choice(["exclusive", "inclusive"]),
        join=chance.choice(["all", "any", "race"]),
        arcs=tuple(_random_arc(chance, names) for _ in range(chance.randint(0, 3))),
        set=chance.choice([{}, {}, {"seen": {"path": ["visit"]}}]),
        input=chance.choice([None, {"path": ["item" if loops else "input"]}, {"path": ["input", "nothing"]}]),
        retry=Retry(attempts=chance.randint(1, 3), delay=chance.choice([0.0, 3.0]), jitter=chance.choice([0.0, 0.5])),
        loop=_random_loop(chance) if loops else None,
        poll=chance.choice(POLLS) if isinstance(work, Call) and not loops else None,
        timeout=chance.choice([None, 40.0]),
        visit_limit=3,
    )


def _random_arc(chance: random.Random, names: list[str]) -> Arc:
    return Arc(
        to=chance.choice(names),
        on=chance.choice(["success", "success", "failure", "both"]),
        when=chance.choice([None, None, {"script": [True, False]}, {"script": [False, "error", True]}]),
    )


def _random_loop(chance: random.Random) -> Loop:
    return Loop(
        items=list(range(chance.randint(0, 4))), max_in_flight=chance.randint(1, 3), sequential=chance.random() < 0.4
    )


class Drive:
    """Answers for workers, people, children and clocks, as chance will have it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plan = random_plan(self.chance)
        self.run = Given(self.plan)
        self.run.chance = self.chance.random
        self.after = 0.0
        self.calls = 0
        self.turn(started(self.plan))

    def turn(self, *facts: Fact) -> None:
        self.after += self.chance.choice([0, 0, 1, 10])
        open_now = [command for command, opened in self.run.state.open.items() if not opened.held]
        self.run.claimed = frozenset(command for command in open_now if self.chance.random() < 0.5)
        self.run.when(*facts, after=self.after)
        summarize(self.run.graph, self.run.state)
        briefly(self.run.graph, self.run.state)
        shown_steps(self.run.graph, self.run.state)

    def disturb(self) -> None:
        state, roll = self.run.state, self.chance.random()
        if roll < 0.06 and not state.paused:
            self.turn(RunPaused())
        elif roll < 0.12 and state.paused:
            self.turn(RunResumed())
        elif roll < 0.14 and state.outcome != "cancelled":
            self.turn(CancelAsked())
        elif roll < 0.15 and state.life == "running":
            self.turn(RunTimedOut(100.0))
        elif roll < 0.3:
            self.turn(SignalReceived(self.chance.choice(SIGNALS), roll))
        else:
            self.answer(self.random_outcome)

    def answer(self, outcome: Callable[[OpenCommand], Outcome]) -> None:
        """Up to three things that were waited for come in one turn."""
        state = self.run.state
        answers = [
            fact
            for command, opened in state.open.items()
            if command not in state.judge and (fact := self._answer(command, opened, outcome(opened))) is not None
        ]
        answers += [ChildEnded(child, "gone/1", Cancelled()) for child in state.orphans]
        self.turn(*self.chance.sample(answers, min(len(answers), self.chance.randint(1, 3))))

    def _answer(self, command: str, opened: OpenCommand, outcome: Outcome) -> Fact | None:
        step = self.run.graph.step(opened.step)
        if opened.child:
            return ChildEnded(opened.child, command, outcome if _ends(outcome) else Succeeded(), usage={"x": 1})
        if isinstance(step.work, Gate):
            return GateDecided(step.name, opened.visit, self.chance.choice(["approve", "approve", "reject"]))
        if opened.calls and opened.held:
            return self._call(command, self.chance.choice(sorted(opened.calls)), opened)
        if opened.held:
            return None
        if isinstance(step.work, Wait) and not _ends(outcome):
            return None
        writes = (AppendTo("log", command),)
        return reported(step.name, outcome, opened.visit, opened.attempt, opened.item, writes=writes, usage={"x": 1})

    def _call(self, command: str, key: str, opened: OpenCommand) -> Fact:
        call = opened.calls[key]
        if call.child and self.chance.random() < 0.7:
            return ChildEnded(self.run.state.children[f"{command}#{key}"], command, Succeeded(key), call=key)
        return CallSettled(command, key, Succeeded({"by": "timer"}))

    def random_outcome(self, opened: OpenCommand) -> Outcome:
        self.calls += 1
        later = NOON + round((self.after + self.chance.choice([-5, 5])) * SECOND)
        outcomes: list[Outcome] = [
            Succeeded({"n": self.calls}),
            Succeeded(self.calls),
            Failed(Fault("error", retryable=self.chance.choice([None, False]))),
            TimedOut(1.0),
            Cancelled("by hand"),
            Parked(until=later, signal=self.chance.choice(["", *SIGNALS]), progress=self.calls),
            Parked(signal=self.chance.choice(SIGNALS)),
            Suspended((Awaited(f"kid{self.calls}", child="kid"), Awaited("nap", until=later))),
            Suspended((Awaited("go", signal="go"), Awaited(f"both{self.calls}", until=later, child="kid"))),
        ]
        return self.chance.choice(outcomes)

    def finish(self) -> None:
        for _ in range(400):
            if self.run.state.life in TERMINAL:
                return
            self.turn(*([RunResumed()] if self.run.state.paused else [SignalReceived(name) for name in SIGNALS]))
            self.answer(lambda opened: Succeeded())
        raise AssertionError(f"does not end: {briefly(self.run.graph, self.run.state)}")


def _ends(outcome: Outcome) -> bool:
    return isinstance(outcome, Succeeded | Failed | Cancelled)


@settings(max_examples=300)
@for_all(st.integers(0, 2**32))
def test_any_run_ends_and_its_state_is_always_what_its_log_says(seed: int) -> None:
    drive = Drive(seed)
    for _ in range(40):
        if drive.run.state.life in TERMINAL:
            break
        drive.disturb()
    drive.finish()
    state = drive.run.state
    assert not (state.open or state.children or state.orphans or state.waiting or state.judge or state.entered)
    assert not state.polls
    assert state.visiting == 0
    assert all(step.life not in ("entered", "issued") for step in state.steps)
