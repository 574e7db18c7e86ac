"""The results of a run, taken from its log: what each tool gave, try after try, as a recording for tests."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs, to_builtins

from refold.core import plan as plans
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
from refold.core.outcomes import Cancelled, Failed, Fault, Outcome, Parked, Succeeded, Suspended, TimedOut
from refold.core.pipeline import TaskPipeline
from refold.core.plan import Plan
from refold.core.read.loaded import events_of
from refold.errors import Corrupt, InvalidValue, NotFound, ToolFailed
from refold.ports import Meanwhile, Memory, ToolCall, Views
from refold.python.definition import Definition
from refold.queries.reading import plan_data, stored_plan, stored_value, with_values
from refold.testing.bench.fakes import Called

FORMAT = "refold-recording/1"


class Recorded(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What came of one call: a tool's, by its command, or a durable one that a body has made, by its key."""

    workflow: str
    step: str
    command: str  # step/visit, and item and task if there are any
    tries: list[Outcome]  # one after the other; the last is for all that follow
    call: str = ""  # the key of a durable call
    events: Any = None  # for which the body was run that made it


class Recording(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    format: str
    workflow: str
    run: str
    input: Any = None
    calls: list[Recorded] = []


def write(recording: Recording, file: str | os.PathLike[str]) -> None:
    Path(file).write_bytes(msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n")


def read(file: str | os.PathLike[str]) -> Recording:
    """Raises NotFound or InvalidValue."""
    try:
        found = msgspec.json.decode(Path(file).read_bytes(), type=Recording)
    except FileNotFoundError:
        raise NotFound(f"there is no recording {os.fspath(file)}: `refold runs record RUN -o FILE` makes one") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(os.fspath(file), f"is not a recording: {error}") from None
    if found.format != FORMAT:
        raise InvalidValue(os.fspath(file), f"is a recording of another kind: {found.format!r} and not {FORMAT!r}")
    return found


class Replay:
    """Gives out what was recorded, and remembers the calls for which there is nothing."""

    def __init__(self, recordings: Sequence[Recording], live: Sequence[str] = ()) -> None:
        self.live = frozenset(live)
        self.missing: list[str] = []
        self._tools: dict[str, Recorded] = {}
        self._bodies: dict[str, list[Recorded]] = {}
        for each in (call for recording in recordings for call in recording.calls):
            if each.call:
                self._bodies.setdefault(each.step, []).append(each)
            else:
                self._tools.setdefault(each.command, each)

    def of_tool(self, called: Called) -> tuple[bool, Any]:
        """Whether there is something, and what. Raises what was recorded as a failure."""
        if called.kind in self.live or called.step in self.live:
            return False, None
        found = self._tools.get(called.command)
        if found is None:
            self._miss(f"{called.command} ({called.kind})")
            return False, None
        called.faked = True
        outcome = found.tries[min(called.attempt, len(found.tries)) - 1]
        match outcome:
            case Succeeded(result=result):
                return True, result
            case Failed(fault=fault):
                raise ToolFailed(fault)
            case TimedOut():
                raise ToolFailed(Fault("timeout", "as it was recorded", retryable=True))
            case _:
                return True, outcome

    def of_body(self, call: ToolCall, definition: Definition) -> ToolCall:
        """The same call, in which the durable calls are known that were recorded for such events."""
        if call.command.step in self.live or call.meanwhile is None:
            return call
        events = msgspec.to_builtins(call.input["events"])
        calls = self._bodies.get(call.command.step, [])
        known = {each.call: each.tries[-1] for each in calls if each.events == events}
        return structs.replace(call, meanwhile=_Knowing(call.meanwhile, known, call.command.id, self._miss))

    def _miss(self, what: str) -> None:
        if what not in self.missing:
            self.missing.append(what)


class _Knowing:
    """A desk that remembers more than it was told."""

    def __init__(self, desk: Meanwhile, known: dict[str, Outcome], command: str, miss: Any) -> None:
        self._desk, self._known, self._command, self._miss = desk, known, command, miss

    async def recall(self) -> Memory:
        memory = await self._desk.recall()
        return structs.replace(memory, recorded={**self._known, **memory.recorded})

    async def recorded_before(self) -> Mapping[str, Outcome]:
        return {**self._known, **await self._desk.recorded_before()}

    async def record(self, key: str, outcome: Outcome) -> None:
        self._miss(f"{self._command} ({key})")
        await self._desk.record(key, outcome)

    async def publish(self, lines: Sequence[Any]) -> None:
        await self._desk.publish(lines)


UNSETTLED = (Parked, Suspended, Cancelled)
NO_TOOLS = ("noop", "assert")


def record(views: Views, run: str) -> Recording:
    """Of a run and of all it has started. Secrets are as the log has them: redacted, or sealed. Raises NotFound."""
    summary = views.summary(run)
    if summary is None:
        raise NotFound(f"there is no run {run}")
    calls: list[Recorded] = []
    input: Any = None
    for each in _family(views, run):
        found = _Run(views, each)
        input = found.input if each == run else input
        calls += found.calls()
    return Recording(FORMAT, summary.workflow, run, input, calls)


def _family(views: Views, run: str) -> Iterator[str]:
    yield run
    for _, _, fact in views.facts(run):
        if isinstance(fact, ChildEnded) and views.summary(fact.child) is not None:
            yield from _family(views, fact.child)


class _Run:
    def __init__(self, views: Views, run: str) -> None:
        self.views, self.run = views, run
        self.facts: list[Fact] = [fact for _, _, fact in views.facts(run)]
        first = self.facts[0] if self.facts else None
        if not isinstance(first, RunStarted):
            raise Corrupt(f"the log of run {run} begins with {type(first).__name__}")
        self.input = first.input
        self.pages: set[str] = set()  # commands that have fetched items
        self.plan: Plan = stored_plan(first.plan, plan_data(views, first.plan))
        self.tools = {step.name: step.work for step in self.plan.steps if isinstance(step.work, plans.WorkerWork)}

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
            elif isinstance(work, TaskPipeline):
                yield from self._of_pipeline(command, step, work, outcomes)
            elif work.tool not in NO_TOOLS:
                yield Recorded(self.plan.name, step, command, outcomes)

    def _of_pipeline(
        self, command: str, step: str, pipeline: TaskPipeline, outcomes: list[Outcome]
    ) -> Iterator[Recorded]:
        """A step with several tools has one result: what came of each stands in it, by its name."""
        tasks = [task for task in pipeline.tasks if task.kind not in NO_TOOLS]
        if pipeline.single:
            yield from (Recorded(self.plan.name, step, command, outcomes) for _ in tasks)
            return
        last = outcomes[-1]
        labels = last.result if isinstance(last, Succeeded) and isinstance(last.result, dict) else {}
        for task in tasks:
            if task.name in labels:
                told: list[Outcome] = [Succeeded(labels[task.name])]
                yield Recorded(self.plan.name, step, f"{command}/{task.name}", told)

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
            if isinstance(fact, CallSettled) and fact.key.startswith(("call:", "call/")):
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
                    given = with_values(self.views, self.run, partial(events_of, refs=batch))
                    found[f"{fact.step}/{visit}"] = to_builtins(given)
        return found

    def _whole(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Succeeded) and outcome.blob is not None:
            return structs.replace(outcome, result=self._blob(outcome.blob.hash), blob=None)
        return outcome

    def _blob(self, hash: str) -> Any:
        return stored_value(self.views, self.run, hash)
