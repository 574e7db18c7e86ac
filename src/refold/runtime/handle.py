"""A run of a Python workflow in the hands of whoever has started it: its result, what it shows, and how to steer it."""

import asyncio
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol

from msgspec import Struct

from refold.core.commands import child_id
from refold.core.facts import GRACE, RunEnded, StepSettled
from refold.core.faults import fault_text
from refold.core.fold.apply import Record
from refold.core.outcomes import ANSWER, Suspended
from refold.core.read.gates import OpenQuestion, answer_fields, why_no_answer
from refold.core.state import OpenRequest, RunState
from refold.core.times import seconds
from refold.errors import Conflict, InvalidValue, NotFound, RunFailed, RunTimeout, StepFailed
from refold.ports import Clock
from refold.python.events import InputResponseEvent
from refold.python.stages.progress import StageProgress, stage_progress, stages_of
from refold.python.state import set_by_waiting_body

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from refold.python.definition import Definition

    R = TypeVar("R", covariant=True, default=Any)
else:
    R = typing.TypeVar("R", covariant=True)
Span = str | int | float
LOOK_FOR_CHILDREN = 0.05  # seconds


class Reader(Protocol):
    @property
    def clock(self) -> Clock: ...

    async def history(self, run: str, after: int = 0) -> Sequence[Record]: ...

    async def lines(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]: ...


class Family:
    """`plans` are those of the children, by their runs; `calls` are the names of the calls of the first run to which
    they, or the runs above them, belong."""

    def __init__(self, reader: Reader, run: str, after: int) -> None:
        self.reader = reader
        self.plans: dict[str, str] = {}
        self.calls: dict[str, str] = {}
        self._lines, self._facts = {run: after}, {run: 0}
        self._over: set[str] = set()

    async def follow(self) -> AsyncIterator[tuple[str, int, Any]]:
        """Run, number and line, until all of them are over."""
        while True:
            over = await self._look()
            found = False
            for run in list(self._lines):
                for number, line in await self.reader.lines(run, self._lines[run]):
                    self._lines[run], found = number, True
                    yield run, number, line
            if over and not found:
                return
            if not found:
                await self.reader.clock.sleep(LOOK_FOR_CHILDREN)

    async def _look(self) -> bool:
        """Who was born, and whether all have ended."""
        for run in list(self._facts):
            for number, _, fact in await self._history(run):
                self._facts[run] = number
                if isinstance(fact, RunEnded):
                    self._over.add(run)
                    if fact.successor:
                        self._meet(fact.successor, self.plans.get(run, ""), self.calls.get(run, ""))
                elif isinstance(fact, StepSettled) and isinstance(fact.report.outcome, Suspended):
                    for call in fact.report.outcome.calls:
                        if call.child and not call.detached:
                            child = child_id(run, f"{fact.step}/{fact.visit}#{call.key}")
                            self._meet(child, call.child, self.calls.get(run) or call.key.partition(":")[2])
        return self._over >= self._facts.keys()

    def _meet(self, child: str, plan: str, call: str) -> None:
        self.plans[child], self.calls[child] = plan, call
        self._lines.setdefault(child, 0)
        self._facts.setdefault(child, 0)

    async def _history(self, run: str) -> Sequence[Record]:
        try:
            return await self.reader.history(run, self._facts[run])
        except NotFound:
            return ()  # its letter is still on its way


LOOK = 0.05  # seconds between two looks at what is asked


Saved = Mapping[str, tuple[str, str]]
"""Live objects, by their keys: the name of a class, and what an object of it says of itself."""


class Code(Protocol):
    """The Python workflows of a process."""

    async def known(self, workflow: Any) -> "Definition":
        """From here on this process runs its bodies. Raises InvalidPlan or NameTaken."""

    async def registered(self, workflow: Any) -> str:
        """The same; returns its hash, which is empty for a class that needs arguments."""

    async def adopt_stored(self) -> None:
        """Serve the instances of registered classes that runs in the store need."""

    def live(self, run: str, definition: Any) -> Saved:
        """What an export says of the live objects of a run. Raises Conflict."""

    def revive(self, run: str, saved: Saved) -> None: ...

    def of(self, plan: str) -> "Definition | None":
        """The workflow of this hash, if its code is here."""

    def original(self, run: str, step: str, visit: int) -> BaseException | None:
        """The exception itself, if it was raised here."""


class Shown(Struct, frozen=True):
    """Something that a step has published, or a question: then `value` is the InputRequestEvent, with its id."""

    number: int
    step: str
    value: Any
    run: str = ""
    stage: str = ""  # of a pipeline: the stage whose run shows it, with the branch and the round if there are several


class Request(Struct, frozen=True):
    """A question that waits for a person."""

    id: str
    prompt: str
    metadata: Any = None
    event: Any = None  # the event itself, if a step has sent it; None: a body asks with `ctx.ask`


class Asked(Struct, frozen=True):
    """A request, with the run and the visit that ask it and the workflow of that run."""

    run: str
    question: OpenQuestion
    request: Request
    definition: "Definition | None"

    @property
    def place(self) -> tuple[str, str, int, str]:
        """What tells it from any other question, also from a later one with the same id."""
        return self.run, self.question.step, self.question.visit, self.question.id


class Seen(Protocol):
    @property
    def state(self) -> RunState: ...

    @property
    def waits(self) -> Mapping[str, str]: ...


class Runs(Protocol):
    """What a handle wants of an engine."""

    @property
    def code(self) -> Code: ...

    async def register(self, workflow: Any) -> str: ...

    async def result(self, run: str) -> Any: ...

    async def show(self, run: str) -> Seen: ...

    async def questions(self, run: str) -> tuple[RunState, Sequence[OpenQuestion]]: ...

    def follow(self, run: str, after: int = 0) -> AsyncIterator[tuple[int, Any]]: ...

    @property
    def clock(self) -> Clock: ...

    async def history(self, run: str, after: int = 0) -> Sequence[Record]: ...

    async def lines(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]: ...

    async def current(self, run: str) -> str: ...

    async def successor(self, run: str) -> str: ...

    async def last_line(self, run: str, stream: str) -> tuple[int, Any] | None: ...

    async def request(
        self, run: str, name: str, value: Any = None, *, id: str = "", timeout: float | None = None, sender: str = ""
    ) -> Any: ...

    async def signal(self, run: str, name: str, value: Any = None, sender: str = "") -> None: ...

    async def signal_stored(self, run: str, name: str, value: Any = None) -> None: ...

    async def export(self, run: str, live: Saved | None = None) -> bytes: ...

    async def pause(self, run: str, by: str = "") -> None: ...

    async def resume(self, run: str, by: str = "", budget: dict[str, int | float] | None = None) -> None: ...

    async def cancel(
        self, run: str, reason: str = "", by: str = "", command: str = "", grace: Span = GRACE
    ) -> None: ...

    async def migrate(self, run: str, plan: str, by: str = "") -> None: ...


Answer = Callable[[Request], Any]
"""Gives, or awaits, what a person would say."""


class Handle(Generic[R]):
    """A run that was started. A run may have any number of handles, and continues when there is none.

    `definition` is None for a run of a plan or a playbook: its values are plain data.
    """

    def __init__(self, engine: Runs, run: str, definition: "Definition | None") -> None:
        self.engine, self.id, self.definition = engine, run, definition

    async def result(self, answer: Answer | None = None) -> R:
        """Wait for the end of the run and return its result; any number of callers may wait, any number of times.

        Raises RunFailed (StepFailed if it is a Python workflow) or RunCancelled. While it waits, `answer` is called
        for each question that the run asks a person.
        """
        try:
            value = await (self.engine.result(self.id) if answer is None else self._answered_result(answer))
        except RunFailed as failed:
            if self.definition is None:
                raise
            if isinstance(failed, RunTimeout):
                raise
            original = self._original(failed)
            raise self._failed(failed, original is None) from original
        result: R = self._get(value, "result")
        return result

    async def _answered_result(self, answer: Answer) -> Any:
        """Wait for the result and answer questions meanwhile; whatever `answer` raises is raised here at once."""
        result = asyncio.ensure_future(self.engine.result(self.id))
        answering = asyncio.create_task(self._answer_all(answer))
        try:
            await asyncio.wait((result, answering), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                answering.result()
            return await result
        finally:
            for each in (result, answering):
                each.cancel()
            await asyncio.wait((result, answering))

    def _get(self, raw: Any, path: str = "$") -> Any:
        return raw if self.definition is None else self.definition.codec.get(raw, path)

    def _put(self, value: Any, path: str) -> Any:
        return value if self.definition is None else self.definition.codec.put(value, path)

    async def _answer_all(self, answer: Answer) -> NoReturn:
        answered: set[tuple[str, str, int, str]] = set()
        while True:
            for asked in await self._asked(self.id):
                if asked.place not in answered:
                    answered.add(asked.place)
                    value = answer(asked.request)
                    value = await value if inspect.isawaitable(value) else value
                    with suppress(NotFound, Conflict):  # it was answered by somebody else, or the run has ended
                        await self.answer(asked.request.id, value)
            await asyncio.sleep(LOOK)

    async def stream(self, after: int = 0, *, children: bool | None = None) -> AsyncIterator[Shown]:
        """All that the run shows, from the first on or after a number, until the run is over; nothing is lost. What the
        runs show that continue it comes behind, each with its own numbers.

        With `children`, as is usual for a pipeline, also what the runs show that it has started here, in between; each
        has its own numbers.
        """
        stages = () if self.definition is None else stages_of(self.definition.plan)
        if not (children if children is not None else stages):
            run = self.id
            while run:
                async for number, line in self.engine.follow(run, after):
                    if line.get("stream") == "event":
                        yield self._shown(run, number, line)
                run, after = await self.engine.successor(run), 0
            return
        family = Family(self.engine, self.id, after)
        async for run, number, line in family.follow():
            if line.get("stream") == "event":
                stage = family.calls.get(run, "") if stages else ""
                yield self._shown(run, number, line, family.plans.get(run, ""), stage)

    async def pause(self) -> Sequence[str]:
        """Nothing new begins; returns what is still under way, and ends as if nothing had happened."""
        await self.engine.pause(self.id)
        return sorted(command for command, opened in (await self._state()).open.items() if not opened.held)

    async def resume(self) -> None:
        await self.engine.resume(self.id)

    async def cancel(self, reason: str = "", *, grace: Span = GRACE) -> None:
        """Cancel the run. An async body that waits gets `asyncio.CancelledError` at its wait, and has `grace` (30 s; a
        number of seconds, or a text such as "5m") for its clean-up. Cancel it again to end it without."""
        await self.engine.cancel(self.id, reason, grace=grace)

    async def get(self, key: str, default: Any = None) -> Any:
        """A value of the run's context, as the steps that have completed left it, or as a body has set it that waits
        now; the default if there is none."""
        state = (await self.engine.show(await self.engine.current(self.id))).state
        told = set_by_waiting_body(state, key)
        if told is not None:
            return self._get(told[0], f"context.{key}") if told else default
        return self._get(state.ctx[key], f"context.{key}") if key in state.ctx else default

    async def latest(self) -> Shown | None:
        """What the run has published last; None if it has published nothing. It does not wait."""
        run = await self.engine.current(self.id)
        last = await self.engine.last_line(run, "event")
        return None if last is None else self._shown(run, *last)

    async def request(self, name: str, value: Any = None, *, id: str = "", timeout: Span | None = None) -> Any:
        """Send a request to the run and return the answer of its body, which takes it with `ctx.requests(name)`.

        A request that comes early is kept. The same `id` again is the same request, which a caller that was
        interrupted uses to get its answer. Raises RequestRefused if the body refuses it or the run ends without an
        answer, and TimeoutError after `timeout`: the request stays, and may still be answered.
        """
        limit = None if timeout is None else seconds(timeout)
        value = self._put(value, "value")
        return self._get(await self.engine.request(self.id, name, value, id=id, timeout=limit), "reply")

    async def signal(self, name: str, value: Any = None) -> None:
        await self.engine.signal(self.id, name, value)

    async def requests(self) -> list[Request]:
        """What people are asked now, by the run or by its child runs: events that steps have returned, and the
        questions of `ctx.ask`.
        """
        return [asked.request for asked in await self._asked(self.id)]

    async def _asked(self, run: str) -> list[Asked]:
        state, questions = await self.engine.questions(run)
        definition = self.definition if run == self.id else self.engine.code.of(state.plan)
        found = [Asked(run, each, _request(each, definition), definition) for each in questions]
        for child in state.children.values():
            with suppress(NotFound):  # its letter is still on its way
                found += await self._asked(child)
        return found

    async def answer(self, request_id: str, value: Any = None, *, early: bool | None = None) -> None:
        """Answer an open request. While none is open an answer is kept for the request to come; so it is with `early`.

        The value is the `response` of the answer; if the class of the answer has further fields, it is a map of them,
        or an event of that class. Raises NotFound, with the requests that are open, InvalidValue for an answer that
        does not fit, or Conflict if the run is over.
        """
        asking = {asked.request.id: asked for asked in reversed(await self._asked(self.id))}  # of equal ids the oldest
        if request_id not in asking and not (early if early is not None else not asking):
            raise NotFound(f"run {self.id} has no request {request_id!r}; open: {', '.join(asking) or 'none'}")
        asked = asking.get(request_id)
        if asked is None:
            definition, run = self.definition, self.id
        else:
            definition, run = asked.definition, asked.run
        if definition is not None:
            is_event = isinstance(value, InputResponseEvent)
            value = definition.answer(value) if is_event else definition.codec.opened().put(value, "answer")
        if asked is not None and asked.question.request is not None:
            _check_answer(asked.question.request, value, definition)
        await self.engine.signal_stored(run, f"{ANSWER}{request_id}", value)

    async def export(self) -> bytes:
        """The whole run as JSON, with all that waits in it: for `engine.restore`, here or elsewhere.

        Raises Conflict if live objects prevent it, as the workflow says.
        """
        live = None if self.definition is None else self.engine.code.live(self.id, self.definition)
        return await self.engine.export(self.id, live)

    async def why(self) -> dict[str, str]:
        """Why each command that is open is not over, in a few words; also if no live worker has the code for it."""
        return dict((await self.engine.show(self.id)).waits)

    async def migrate(self, workflow: Any, by: str = "") -> "Handle[Any]":
        """From here on the run follows this workflow, whose code is at hand; returns the handle that knows it.

        Raises CannotMigrate, with the steps that prevent it.
        """
        plan = await self.engine.register(workflow)
        await self.engine.migrate(self.id, plan, by)
        return Handle(self.engine, self.id, self.engine.code.of(plan))

    async def usage(self) -> dict[str, int | float]:
        """What was used up until now, with all that child runs have reported."""
        return dict((await self._state()).usage)

    async def progress(self) -> StageProgress | None:
        """Of a pipeline, the stage that it has reached; None for any other workflow."""
        return None if self.definition is None else stage_progress(self.definition.plan, await self._state())

    async def _state(self) -> RunState:
        return (await self.engine.show(self.id)).state

    def _shown(self, run: str, number: int, line: Mapping[str, Any], plan: str = "", stage: str = "") -> Shown:
        known = self.engine.code.of(plan) if plan else self.definition
        value = line["data"]
        if known is not None:
            value = known.seen(line["type"], value)
        return Shown(number, line["step"], value, run, stage)

    def _original(self, failed: RunFailed) -> BaseException | None:
        error = failed.error
        return None if error is None else self.engine.code.original(failed.run, error.step, error.visit)

    def _failed(self, failed: RunFailed, shows_traceback: bool) -> StepFailed:
        error = failed.error
        fault = error.fault if error is not None else None
        told = StepFailed(self.id, error)
        if error is not None:
            what = fault_text(fault) if fault is not None else error.why
            where = f"step {error.step!r} (visit {error.visit}) of " if error.step else ""
            told.args = (f"{where}run {failed.run} failed: {what}",)
        if shows_traceback and fault is not None and fault.traceback:
            told.add_note(fault.traceback)
        return told


def _request(question: OpenQuestion, definition: "Definition | None") -> Request:
    """Return a question with its values as objects, as far as the code of its workflow is here."""
    sent = question.request
    if definition is None:
        return Request(question.id, question.prompt, question.metadata, None if sent is None else sent.data)
    event = None if sent is None else definition.received(sent.type, sent.data)
    return Request(question.id, question.prompt, definition.codec.get(question.metadata), event)


def _check_answer(request: OpenRequest, value: Any, definition: "Definition | None") -> None:
    """Raises InvalidValue if the step that takes the answer could not read it."""
    why = why_no_answer(request.asks, value)
    if why:
        raise InvalidValue("answer", why)
    if definition is not None and request.asks.answer in definition.classes:
        definition.received(request.asks.answer, answer_fields(request.asks, value))
