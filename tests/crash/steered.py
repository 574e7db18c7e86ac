"""Generated workflows as trees of three levels, steered after any of their commits: in virtual time, over one store."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from refold.core.facts import ChildEnded, RunEnded, RunStarted
from refold.core.plan import Arc, Call, Child, Plan, Step, Wait, plan_hash
from refold.core.state import TERMINAL
from refold.ports import ToolCall
from refold.runtime.engine import Engine
from refold.stores.memory import MemoryStore, MemoryTurn
from tests.compat.stage import Stage
from tests.core.driving import workflows
from tests.ticks import pick, plan_of

TICK = 0.05
LEAF = Plan(
    name="leaf",
    steps=(
        Step(name="nap", work=Wait(seconds=0.1), arcs=(Arc(to="work"),)),
        Step(name="work", work=Call(tool="act", settings={})),
        Step(name="tidy", work=Call(tool="act", settings={})),
    ),
    always=("tidy",),
)


class CountingStore(MemoryStore):
    """Counts commits, and tells of each."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.commits = 0

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[MemoryTurn]:
        with super().turn(runs) as turn:
            yield turn
        self.commits += turn.wrote


async def act(call: ToolCall) -> Any:
    """As the program says: how long, and whether it fails in this visit, or for this item."""
    step, command = call.settings, call.command
    await asyncio.sleep(TICK * pick(step.get("duration", [1]), command.visit))
    fails = pick(step.get("outcome", ["ok"]), command.visit)
    if command.item is not None:
        fails = step["loop"]["items"][command.item]
    times = {"ok": 0, "fail": -1}.get(fails, fails)
    if times == -1 or command.attempt <= times:
        raise RuntimeError("as written")
    return f"{command.step}.{command.visit}"


def trees(count: int) -> list[tuple[Plan, Plan, Plan]]:
    """Root, middle and leaf; the middle is a generated program, one of whose plain steps starts the leaf."""
    return [_tree(workflow, seed) for seed, workflow in enumerate(workflows(count))]


def _tree(workflow: dict[str, Any], seed: int) -> tuple[Plan, Plan, Plan]:
    program = plan_of(workflow, "act")
    plain = [
        step.name
        for step in program.steps
        if step.loop is None and not any(each not in ("ok", 0) for each in _outcomes(workflow, step.name))
    ]
    chosen = random.Random(seed).choice(plain) if plain else ""
    steps = [
        structs.replace(step, work=Child(plan=plan_hash(LEAF))) if step.name == chosen else step
        for step in program.steps
    ]
    tidy = Step(name="tidy", work=Call(tool="act", settings={}))
    middle = structs.replace(program, steps=(*steps, tidy), always=("tidy",))
    root = Plan(
        name="root",
        steps=(Step(name="kid", work=Child(plan=plan_hash(middle))), Step(name="tidy", work=tidy.work)),
        always=("tidy",),
    )
    return root, middle, LEAF


def _outcomes(workflow: dict[str, Any], name: str) -> list[Any]:
    found: list[Any] = workflow["steps"][name].get("outcome", ["ok"])
    return found


class Steered:
    """One run of a tree; something is done to it after its n-th commit."""

    def __init__(self, tree: tuple[Plan, Plan, Plan]) -> None:
        self.stage = Stage()
        self.store = self.stage.store = CountingStore(self.stage.clock.now)
        self.stage.tools["act"] = act
        for plan in tree[1:]:
            self.stage.register(plan)
        self.run = self.stage.start(tree[0])

    def after_commit(self, n: int, do: Callable[[Engine, str], Any]) -> bool:
        """False if the run ends before it."""
        stage, store = self.stage, self.store
        stage.until(lambda: store.commits >= n or stage.status(self.run) in TERMINAL)
        if stage.status(self.run) in TERMINAL:
            stage.close()
            return False
        stage.do(do(stage.engine, self.run))
        return True

    def end(self) -> dict[str, Any]:
        """How each run ended, once nothing is under way; checks that nothing is left."""
        try:
            self.stage.end(self.run)
            self.stage.pass_time(100)
            self.check()
            ends = {row.run: self.stage.show(row.run) for row in self.store.rows.values()}
            return {run: (shown.status, shown.result, visits(shown)) for run, shown in ends.items()}
        finally:
            self.stage.loop.close()

    def check(self) -> None:
        """Over means: no open command, no slot, no timer, no unread letter, no child alive, each end told once."""
        store = self.store
        assert [row.status for row in store.rows.values() if row.status not in TERMINAL] == []
        assert (store.commands, store.leases) == ({}, {})
        assert [due for timers in store.timers.values() for due in timers.values() if due] == []
        assert not any(store.letters.values())
        for run in store.logs:
            facts = [fact for _, _, fact in store.facts(run)]
            assert [sum(isinstance(fact, kind) for fact in facts) for kind in (RunStarted, RunEnded)] == [1, 1]
            children = [fact.child for fact in facts if isinstance(fact, ChildEnded)]
            born = [row.run for row in store.rows.values() if row.parent == run]
            assert sorted(children) == sorted(born), "parent and child agree, once"


def visits(shown: Any) -> dict[str, int]:
    return {name: step["visits"] for name, step in shown.steps.items()}
