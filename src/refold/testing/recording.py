"""The results of a run, taken from its log: what each tool gave, try after try, as a recording for tests."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import structs, to_builtins

from refold.core import codec
from refold.core.commands import page_id
from refold.core.facts import (
    CallSettled,
    ChildEnded,
    EventsTaken,
    Fact,
    ItemsSettled,
    PageCame,
    RunStarted,
    StepSettled,
)
from refold.core.loaded_events import events_of
from refold.core.outcomes import Cancelled, Outcome, Parked, Succeeded, Suspended
from refold.core.pipelines import TOOL
from refold.core.plan import Call, Plan
from refold.errors import Corrupt, NotFound
from refold.ports import Store
from refold.runtime.reading import stored_plan, with_values
from refold.testing.replaying import FORMAT, Recorded, Recording

UNSETTLED = (Parked, Suspended, Cancelled)
NO_TOOLS = ("noop", "assert")


def record(store: Store, run: str) -> Recording:
    """Of a run and of all it has started. Secrets are as the log has them: redacted, or sealed. Raises NotFound."""
    summary = store.summary(run)
    if summary is None:
        raise NotFound(f"there is no run {run}")
    calls: list[Recorded] = []
    input: Any = None
    for each in _family(store, run):
        found = _Run(store, each)
        input = found.input if each == run else input
        calls += found.calls()
    return Recording(FORMAT, summary.workflow, run, input, calls)


def _family(store: Store, run: str) -> Iterator[str]:
    yield run
    for _, _, fact in store.facts(run):
        if isinstance(fact, ChildEnded) and store.summary(fact.child) is not None:
            yield from _family(store, fact.child)


class _Run:
    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self.facts: list[Fact] = [fact for _, _, fact in store.facts(run)]
        first = self.facts[0] if self.facts else None
        if not isinstance(first, RunStarted):
            raise Corrupt(f"the log of run {run} begins with {type(first).__name__}")
        self.input = first.input
        self.pages: set[str] = set()  # commands that have fetched items
        data = store.plan(first.plan)
        self.plan: Plan = stored_plan(first.plan, data or b"")
        self.tools = {step.name: step.work for step in self.plan.steps if isinstance(step.work, Call)}

    def calls(self) -> Iterator[Recorded]:
        yield from self._of_bodies() if self.plan.events else self._of_tools()

    def _of_tools(self) -> Iterator[Recorded]:
        tries: dict[tuple[str, str], list[Outcome]] = {}
        for command, step, outcome in self._outcomes():
            if not isinstance(outcome, UNSETTLED):
                tries.setdefault((command, step), []).append(self._whole(outcome))
        for (command, step), outcomes in tries.items():
            work = self.tools.get(step)
            if command in self.pages:
                yield Recorded(self.plan.name, step, command, outcomes)
            elif work is None:
                continue  # nothing that a tool has done
            elif work.tool == TOOL:
                yield from self._of_pipeline(command, step, work.settings, outcomes)
            elif work.tool not in NO_TOOLS:
                yield Recorded(self.plan.name, step, command, outcomes)

    def _of_pipeline(
        self, command: str, step: str, settings: dict[str, Any], outcomes: list[Outcome]
    ) -> Iterator[Recorded]:
        """A step with several tools has one result: what came of each stands in it, by its name."""
        tasks = [task for task in settings["tasks"] if task["kind"] not in NO_TOOLS]
        if settings.get("single"):
            yield from (Recorded(self.plan.name, step, command, outcomes) for _ in tasks)
            return
        last = outcomes[-1]
        labels = last.result if isinstance(last, Succeeded) and isinstance(last.result, dict) else {}
        for task in tasks:
            if task["name"] in labels:
                told: list[Outcome] = [Succeeded(labels[task["name"]])]
                yield Recorded(self.plan.name, step, f"{command}/{task['name']}", told)

    def _outcomes(self) -> Iterator[tuple[str, str, Outcome]]:
        for fact in self.facts:
            if isinstance(fact, PageCame):
                command = page_id(fact.step, fact.visit, fact.page)
                self.pages.add(command)
                yield command, fact.step, fact.report.outcome
            if isinstance(fact, StepSettled):
                yield f"{fact.step}/{fact.visit}", fact.step, fact.report.outcome
            elif isinstance(fact, ItemsSettled):
                for report in fact.reports:
                    yield f"{fact.step}/{fact.visit}/{report.item}", fact.step, report.outcome

    def _of_bodies(self) -> Iterator[Recorded]:
        taken = self._events()
        for fact in self.facts:
            if isinstance(fact, CallSettled) and fact.key.startswith("call:"):
                step = fact.command.partition("/")[0]
                events = taken.get(fact.command)
                outcome = self._whole(fact.outcome)
                yield Recorded(self.plan.name, step, fact.command, [outcome], fact.key, events)

    def _events(self) -> dict[str, Any]:
        """The events for which each body was run, as it got them."""
        found = {}
        for fact in self.facts:
            if isinstance(fact, EventsTaken):
                for visit, batch in enumerate(fact.batches, fact.first):
                    given = with_values(self.store, self.run, partial(events_of, refs=batch))
                    found[f"{fact.step}/{visit}"] = to_builtins(given)
        return found

    def _whole(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Succeeded) and outcome.blob is not None:
            return structs.replace(outcome, result=self._blob(outcome.blob.hash), blob=None)
        return outcome

    def _blob(self, hash: str) -> Any:
        with self.store.turn(()) as turn:
            return codec.unbox(turn.blob(self.run, hash))
