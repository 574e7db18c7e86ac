"""The engine: starts runs, shows them and operates on them. It delegates everything and computes nothing."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from msgspec import Struct, structs

from refold.core import codec
from refold.core.facts import GRACE, CallSettled, StepFault
from refold.core.faults import text_of
from refold.core.fold.apply import Record
from refold.core.graph import Graph, PreparedPlan, prepare
from refold.core.outcomes import NO_QUEUEING, QUEUE, Cancelled, Failed, Outcome, Queueing, Succeeded
from refold.core.plan import Plan
from refold.core.queueing import checked_queueing, name_flaw
from refold.core.read.gates import OpenQuestion, open_questions
from refold.core.read.summary import Progress, Summary, progress, shown_steps, status_of
from refold.core.read.why import WorkerView, briefly
from refold.core.state import CANCELLED, FAILED, TERMINAL, RunState
from refold.core.times import seconds
from refold.errors import (
    Conflict,
    InvalidValue,
    KeyTaken,
    NotFound,
    RefoldError,
    RequestRefused,
    RunCancelled,
    RunContinued,
    RunFailed,
    RunTimeout,
    Unavailable,
)
from refold.logs import INFO, WARNING, event, logger
from refold.names import label_flaw
from refold.ports import Abilities, Advance, Clock, FeedFact, RunFilter, Store
from refold.python.startable import is_playbook
from refold.queries.reading import stored_value
from refold.queries.runs import Moment, RunList, moment, part_of_runs, read_cursor
from refold.queries.workers import world
from refold.runtime.archive import export_run, import_run, read_archive
from refold.runtime.caller_contexts import CallerContexts
from refold.runtime.children import fits
from refold.runtime.handle import Code, Handle, Saved, Span
from refold.runtime.keys import KeyPolicy, OnTaken, RunKey, check_same_start, place_of
from refold.runtime.mail import (
    Cancel,
    CancelItems,
    DecideGate,
    Look,
    Mail,
    Migrate,
    Pause,
    Reopen,
    Request,
    Resume,
    RetryItems,
    Signal,
    Start,
)
from refold.runtime.mailroom import Mailroom
from refold.runtime.migrations import Migration, preview_all
from refold.runtime.run_waiters import RunEnd, RunWaiters
from refold.runtime.turn import RunSnapshot
from refold.schemas import QUICK

if TYPE_CHECKING:
    from refold.playbooks.playbook import Playbook
    from refold.python.definition import Definition
    from refold.python.startable import AnyWorkflow, StartInput
    from refold.python.workflow import Flow, Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


log = logger("runtime")

PLANS = 100  # prepared plans that are kept
AT_ONCE = 1000  # lines of a side stream in one read
SOON = 0.002  # seconds between the first two looks for an answer
FOLLOW = 0.05  # seconds between two looks at a side stream


class RunReport(Struct, frozen=True):
    """A run as users see it."""

    id: str
    name: str
    workflow: str
    status: str
    result: Any
    error: StepFault | None
    steps: dict[str, dict[str, Any]]
    waits: dict[str, str]
    usage: dict[str, int | float]
    state: RunState


class RunOptions(Struct, frozen=True):
    """What is said about a run beside its inputs."""

    key: str = ""  # the same key again gives the same run
    name: str = ""  # for people
    run: str = ""  # its id; empty: a new one
    labels: Mapping[str, str] = {}
    key_policy: KeyPolicy = "forever"
    on_taken: OnTaken = "return"
    cancel_with_caller: bool = False
    queueing: Queueing = NO_QUEUEING


NO_OPTIONS = RunOptions()


class Beginning(Struct, frozen=True):
    """A run that is to start."""

    plan: Plan
    input: dict[str, Any]
    name: str
    key: str
    run: str
    definition: "Definition | None"
    labels: dict[str, str] = {}
    on_taken: OnTaken = "return"
    is_fresh: bool = False  # the id of the run was made for it
    file: str = ""  # the playbook
    queueing: Queueing = NO_QUEUEING


class Starter:
    """Starts runs with the options that were given to `engine.options`. Its keywords are inputs, all of them."""

    def __init__(self, engine: "Engine", options: RunOptions) -> None:
        self._engine, self._options = engine, options

    @overload
    async def start(self, workflow: "Flow[P, R]", /, *inputs: P.args, **named: P.kwargs) -> Handle[R]: ...

    @overload
    async def start(
        self, workflow: "Workflow[R] | type[Workflow[R]]", input: "StartInput" = None, /, **named: Any
    ) -> Handle[R]: ...

    @overload
    async def start(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Handle[Any]: ...

    async def start(self, workflow: Any, /, *inputs: Any, **named: Any) -> Handle[Any]:
        """Start a run and return its handle. If its key belongs to a run already, `on_taken` decides."""
        return await self._engine.started(workflow, inputs, named, self._options)

    @overload
    async def run(self, workflow: "Flow[P, R]", /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    async def run(
        self, workflow: "Workflow[R] | type[Workflow[R]]", input: "StartInput" = None, /, **named: Any
    ) -> R: ...

    @overload
    async def run(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...

    async def run(self, workflow: Any, /, *inputs: Any, **named: Any) -> Any:
        """Start a run and wait for its result, as `Engine.run` does."""
        return await self._engine.completed(workflow, inputs, named, self._options)


class ServiceHealth:
    """Whether the background tasks of the process run. After one has failed, a caller that waits is cancelled by
    Refold and not by its own caller, so its run must not be cancelled."""

    def __init__(self) -> None:
        self.has_failed = False

    def fail(self) -> None:
        self.has_failed = True


class EngineParts(Struct, frozen=True):
    """What an engine uses of its process."""

    store: Store
    mailroom: Mailroom
    advance: Advance
    clock: Clock
    new_id: Callable[[], str]
    waiters: RunWaiters
    code: Code  # of Python workflows
    workers: Callable[[], Mapping[str, Abilities]]  # workers that are alive, of this process and of others
    service: ServiceHealth
    contexts: CallerContexts
    queues: tuple[str, ...] | None = None  # queues that the worker of this process serves; None: all
    folder: str = ""  # the working directory of this process, and so of the steps of runs that it starts
    wake_schedules: Callable[[], None] = lambda: None  # called when this process has changed a schedule


class Engine:
    def __init__(self, parts: EngineParts) -> None:
        self.store, self.mailroom, self.advance, self.clock = parts.store, parts.mailroom, parts.advance, parts.clock
        self.new_id, self.ends, self.code, self.workers = parts.new_id, parts.waiters, parts.code, parts.workers
        self.service, self.queues, self.contexts = parts.service, parts.queues, parts.contexts
        self.folder, self.wake_schedules = parts.folder, parts.wake_schedules
        self.homes: dict[str, str] = {}  # plans and where the code is that their runs need; shown to people
        self._plans: dict[int, tuple[Plan, PreparedPlan]] = {}

    async def register(self, workflow: "AnyWorkflow") -> str:
        """Make a workflow known, so that others can start it as their child; returns its hash.

        From here on this process runs the bodies of a Python workflow, whoever has started a run of it. A class whose
        constructor needs arguments has no hash (the result is empty): the process runs its instances as stored runs
        need them. Raises NameTaken if another workflow has its name.
        """
        if isinstance(workflow, Plan):
            prepared = self._prepared(workflow)
            await self.advance(lambda: self.mailroom.turns.put_plan(prepared))
            return prepared.hash
        if is_playbook(workflow):
            await self._register_needed(workflow)
            return await self.register(workflow.plan)
        return await self.code.registered(workflow)

    async def _register_needed(self, playbook: "Playbook") -> None:
        """All that a playbook starts: other playbooks, and Python workflows, whose code is imported."""
        for child in playbook.children:
            await self.register(child.plan)
        if playbook.code:
            from refold.python.load import load

            for target in playbook.code:
                await self.code.known(load(target))
            self.homes[self._prepared(playbook.plan).hash] = shlex.join(playbook.code)

    def _prepared(self, plan: Plan) -> PreparedPlan:
        """Prepare a plan once, however often the same object is started. Raises InvalidPlan."""
        known = self._plans.get(id(plan))
        if known is None or known[0] is not plan:
            if len(self._plans) >= PLANS:
                self._plans.clear()
            known = self._plans[id(plan)] = (plan, prepare(plan))
        return known[1]

    def options(
        self,
        *,
        key: str = "",
        name: str = "",
        run: str = "",
        labels: Mapping[str, str] | None = None,
        key_policy: KeyPolicy = "forever",
        on_taken: OnTaken = "return",
        cancel_with_caller: bool = False,
        queue: str = "",
        priority: int | None = None,
        share: str = "",
        limit: str = "",
    ) -> Starter:
        """What is said about a run beside its inputs: `engine.options(key="order-7").start(order, amount=25)`.

        The same `key` again gives the run that has it: forever, or with `key_policy="while_running"` until that run has
        ended. `on_taken="raise"` raises KeyTaken instead, and `"cancel_other"` cancels the run that has the key, waits
        for its end and starts another. A key of a run of another workflow raises KeyTaken in any case.

        `name` and `labels` are for people and for lists of runs, `run` is an id of your own. With
        `cancel_with_caller`, `run` cancels the run it has started if its caller is cancelled while it waits; one with a
        key goes on, because others may wait for it.

        `queue`, `priority`, `share` and `limit` are those of its steps that name none. Its child runs have the same
        queue, priority and share.
        """
        if labels and (flaw := label_flaw(labels)):
            raise InvalidValue("labels", flaw)
        for what, text in (("key", key), ("name", name), ("run", run)):
            if flaw := name_flaw(text):
                raise InvalidValue(what, flaw)
        if key or (key_policy, on_taken) != ("forever", "return"):
            RunKey(key, key_policy, on_taken).check()
        queueing = checked_queueing(queue, priority, share, limit)
        options = RunOptions(key, name, run, labels or {}, key_policy, on_taken, cancel_with_caller, queueing)
        return Starter(self, options)

    @overload
    async def start(self, workflow: "Flow[P, R]", /, *inputs: P.args, **named: P.kwargs) -> Handle[R]: ...

    @overload
    async def start(
        self, workflow: "Workflow[R] | type[Workflow[R]]", input: "StartInput" = None, /, **named: Any
    ) -> Handle[R]: ...

    @overload
    async def start(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Handle[Any]: ...

    async def start(self, workflow: Any, /, *inputs: Any, **named: Any) -> Handle[Any]:
        """Start a run and return its handle. All keywords are inputs of the run; `options` says more about it."""
        return await self.started(workflow, inputs, named, NO_OPTIONS)

    async def started(
        self, workflow: Any, inputs: tuple[Any, ...], named: dict[str, Any], options: RunOptions
    ) -> Handle[Any]:
        begin = await self._beginning(workflow, inputs, named, options)
        await self._is_begun(begin)
        return Handle(self, begin.run, begin.definition)

    async def _beginning(
        self, workflow: Any, inputs: tuple[Any, ...], named: dict[str, Any], options: RunOptions
    ) -> Beginning:
        """The run that a call asks for. Raises InvalidValue."""
        plan, definition, labels, file = workflow, None, dict(options.labels), ""
        if isinstance(workflow, Plan):
            pass
        elif is_playbook(workflow):
            await self._register_needed(workflow)
            plan, labels, file = workflow.plan, {**workflow.labels(), **labels}, workflow.file
        else:
            definition = await self.code.known(workflow)
            plan = definition.plan
        if definition is None:
            input = {**_as_map(inputs), **named}
        else:
            input = definition.begun(definition.inputs.merged(inputs, named))
        run = await self._run_of_key(options) if options.key else options.run or self.new_id()
        is_fresh = not options.key and not options.run
        return Beginning(
            plan,
            input,
            options.name,
            options.key,
            run,
            definition,
            labels,
            options.on_taken,
            is_fresh,
            file,
            options.queueing,
        )

    async def _run_of_key(self, options: RunOptions) -> str:
        """The run that a start with this key means. A run that is in the way is cancelled first, if that is asked."""
        key = RunKey(options.key, options.key_policy, options.on_taken)
        while True:
            place: tuple[str, Summary | None] = await self.advance(lambda: place_of(self.store.views, key))
            run, row = place
            if row is None or key.on_taken != "cancel_other":
                return run
            with suppress(Conflict):  # it has ended meanwhile
                await self.cancel(run, f"another run takes over its key {key.text!r}")
            await self._wait(run)

    async def _is_begun(self, begin: Beginning) -> bool:
        """Whether this has started the run; else the key had it already."""
        codec.check_value(begin.input, "input")
        prepared = self._prepared(begin.plan)
        code = self.homes.get(prepared.hash, "") if begin.definition is None else begin.definition.home
        is_new = self.contexts.keep(begin.run)
        try:
            fit = fits(begin.plan, begin.input, QUICK)  # before the lock is taken, for it may take long
            if fit is None:
                fit = await asyncio.to_thread(fits, begin.plan, begin.input)
            start = Start(
                prepared,
                begin.input,
                begin.name,
                begin.key,
                code=code,
                labels=begin.labels,
                fits=bool(fit),
                folder=self.folder,
                is_fresh=begin.is_fresh,
                file=begin.file,
                queueing=begin.queueing,
            )
            await self.mailroom.send(begin.run, start)
        except Conflict:
            if is_new:
                self.contexts.forget(begin.run)  # another process has started the run
            if not begin.key:
                raise
            await self._check_taken(begin)
            return False
        return True

    async def _check_taken(self, begin: Beginning) -> None:
        """The key belongs to a run already, which is returned if that is what this start asks for."""
        key, run = begin.key, begin.run
        differ: list[str] = await self.advance(
            lambda: check_same_start(self.store.views, key, run, begin.plan, begin.input)
        )
        if begin.on_taken != "return":
            raise KeyTaken(f"key {key!r} belongs to run {run}", run)
        if differ:
            why = "the run that has the key is returned, and these inputs are not used"
            event(
                log,
                WARNING,
                f"key {key!r} was used again with other inputs ({', '.join(differ)}), which are not used",
                run=run,
                key=key,
                inputs=", ".join(differ),
                why=why,
            )

    @overload
    async def run(self, workflow: "Flow[P, R]", /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    async def run(
        self, workflow: "Workflow[R] | type[Workflow[R]]", input: "StartInput" = None, /, **named: Any
    ) -> R: ...

    @overload
    async def run(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...

    async def run(self, workflow: Any, /, *inputs: Any, **named: Any) -> Any:
        """Start a run and wait for its result. Raises RunFailed or RunCancelled.

        To wait is not to own: if the caller is cancelled while it waits, the run continues, and `attach` waits for it
        again. `options(cancel_with_caller=True)` cancels the run instead.
        """
        return await self.completed(workflow, inputs, named, NO_OPTIONS)

    async def completed(
        self, workflow: Any, inputs: tuple[Any, ...], named: dict[str, Any], options: RunOptions
    ) -> Any:
        begin = await self._beginning(workflow, inputs, named, options)
        run = begin.run
        end, own = self.ends.expect(run), not begin.key
        try:
            own = await self._is_begun(begin)
            if begin.definition is not None:
                return await Handle(self, run, begin.definition).result()
            return await self._result(await self._seen(run, end, look_first=bool(begin.key)))
        except asyncio.CancelledError as cancelled:
            if not self.service.has_failed:
                await self._left_by_caller(run, own and options.cancel_with_caller, cancelled)
            raise
        finally:
            self.ends.forget(run, end)

    async def _left_by_caller(self, run: str, cancels: bool, cancelled: asyncio.CancelledError) -> None:
        if not cancels:
            how = f"engine.attach({run!r}, workflow) waits for it again, engine.cancel({run!r}) cancels it"
            cancelled.add_note(f"run {run} is not cancelled: {how}")
            event(log, INFO, "run continues without its caller", run=run, how=how)
            return
        try:
            await self.mailroom.send(run, Cancel("its caller no longer waits for it"))
        except RefoldError as error:
            event(log, WARNING, "run could not be cancelled", run=run, why=text_of(error))

    async def result(self, run: str) -> Any:
        return await self._result(await self._wait(run))

    async def wait(self, run: str) -> RunReport:
        """Wait until the run has ended, in whichever process."""
        return await self._shown(await self._followed(await self._wait(run)))

    async def _wait(self, run: str) -> RunSnapshot:
        end = self.ends.expect(run)
        try:
            return await self._seen(run, end, look_first=True)
        finally:
            self.ends.forget(run, end)

    async def _seen(self, run: str, end: RunEnd, look_first: bool) -> RunSnapshot:
        """Return the run as it ended. If another process has ended it, it is read as soon as the store answers. A run
        that is open in memory is waited for without a look; if another process has ended it, a look soon tells."""
        seen, is_open = None, look_first and self.mailroom.turns.is_open(run)
        if is_open or not (look_first and await self.ends.is_over(run)):
            self.ends.watch(run, seen=not is_open)
            seen = await end
        while seen is None:
            try:
                seen = await self._look(run)
            except Unavailable as error:
                event(log, WARNING, "run could not be looked at", run=run, why=text_of(error))
                await self.clock.sleep(self.ends.poll)
        return seen

    async def _look(self, run: str) -> RunSnapshot:
        seen: RunSnapshot = await self.advance(lambda: self.ends.recent(run) or self.mailroom.turns.look(run))
        return seen

    async def show(self, run: str) -> RunReport:
        return await self._shown(await self._look(run))

    async def questions(self, run: str) -> tuple[RunState, Sequence[OpenQuestion]]:
        """Return the state of a run and what it asks people, without what its child runs ask."""
        seen = await self._look(run)
        return seen.state, open_questions(seen.graph, seen.state)

    async def _value(self, seen: RunSnapshot) -> Any:
        state, blob = seen.state, seen.state.blob
        if blob is None:
            return state.result
        if blob.hash in seen.blobs:
            return seen.blobs[blob.hash]
        return await self.advance(lambda: self._stored_value(state.run, blob.hash))

    async def _followed(self, seen: RunSnapshot) -> RunSnapshot:
        """Return the run that ended without a successor: the last of those that continue this one."""
        while seen.state.successor:
            run = seen.state.successor
            await self._start_waiting(run)
            seen = await self._wait(run)
        return seen

    async def _start_waiting(self, run: str) -> None:
        """A successor exists as soon as its letter is read; let it be read now."""
        if await self.advance(lambda: self.store.summary(run)) is None:
            await self.mailroom.send(run, Look())

    async def current(self, run: str) -> str:
        """Return the run that continues this one now: itself, or the last of its successors."""
        while True:
            successor = await self.successor(run)
            if not successor:
                return run
            run = successor

    async def successor(self, run: str) -> str:
        """Return the run that continues this one; empty if there is none."""
        row: Summary | None = await self.advance(partial(self.store.summary, run))
        if row is None or not row.successor:
            return ""
        await self._start_waiting(row.successor)
        return row.successor

    async def _send(self, run: str, mail: Mail) -> str:
        """Send mail to a run, or to the run that continues it; return which."""
        while True:
            try:
                await self.mailroom.send(run, mail)
            except RunContinued as continued:
                run = continued.successor
                await self._start_waiting(run)
            else:
                return run

    async def _result(self, seen: RunSnapshot) -> Any:
        seen = await self._followed(seen)
        state = seen.state
        if state.life == FAILED:
            if state.exceeded is not None and state.error is not None and not state.error.step:
                raise RunTimeout(state.run, state.error, state.exceeded)
            raise RunFailed(state.run, state.error)
        if state.life == CANCELLED:
            raise RunCancelled(state.run, state.cancel_reason)
        return await self._value(seen)

    async def _shown(self, seen: RunSnapshot) -> RunReport:
        graph, state = seen.graph, seen.state
        row: Summary | None = None
        if state.life not in TERMINAL:
            row = await self.advance(lambda: self.store.summary(state.run))
        stuck = {"": f"stuck: {row.stuck}"} if row is not None and row.stuck else {}
        return RunReport(
            id=state.run,
            name=state.name,
            workflow=graph.plan.name,
            status=status_of(graph, state, seen.now),
            result=await self._value(seen),
            error=state.error,
            steps=shown_steps(graph, state),
            waits={**stuck, **briefly(graph, state, await self._world(graph, state))},
            usage=dict(state.usage),
            state=state,
        )

    async def _world(self, graph: Graph, state: RunState) -> WorkerView | None:
        """Return which workers could serve the run, if this process lacks the code of its bodies or does not serve its
        queues."""
        served = all(
            self._serves(graph.step(opened.step).queue or state.queueing.queue or QUEUE)
            for opened in state.open.values()
        )
        if served and (not graph.by_events or not state.open or self.code.of(state.plan) is not None):
            return None
        seen: WorkerView = await self.advance(lambda: world(self.store.views, self.workers()))
        return seen

    async def progress(self, run: str) -> Progress | None:
        """Return the progress of a run that this process has in memory; nothing is read."""

        def look() -> Progress | None:
            known = self.mailroom.turns.known.get(run)
            return None if known is None else progress(known.graph, known.state, self.clock.now())

        seen: Progress | None = await self.advance(look)
        return seen

    async def runs(
        self,
        status: str | None = None,
        limit: int = 100,
        *,
        workflow: "str | AnyWorkflow | None" = None,
        name: str | None = None,
        key: str | None = None,
        label: Mapping[str, str] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str = "",
    ) -> RunList:
        """List runs, the newest first: those that fit everything that is given, at most `limit` of them.

        `since` and `until` bound the time of the start: a datetime with a zone, an ISO text, or a span such as "2h" for
        that long ago. If there are more runs, the `cursor` of the list, given to the next call, continues behind it.
        """
        if workflow is not None and not isinstance(workflow, str):
            workflow = await self._name(workflow)
        now, labels = self.clock.now(), tuple(sorted((label or {}).items()))
        wanted = RunFilter(status, workflow, name, key, labels, moment(since, now), moment(until, now))
        after = read_cursor(cursor)
        rows: RunList = await self.advance(lambda: part_of_runs(self.store.views, wanted, limit, after))
        return rows

    async def _name(self, workflow: "AnyWorkflow") -> str:
        if isinstance(workflow, Plan):
            return workflow.name
        return workflow.plan.name if is_playbook(workflow) else (await self.code.known(workflow)).plan.name

    async def history(self, run: str, after: int = 0) -> Sequence[Record]:
        records: Sequence[Record] = await self.advance(lambda: self.store.facts(run, after))
        return records

    async def logs(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]:
        """Return the lines that its steps have printed, each with its number, after the given number."""
        lines: Sequence[tuple[int, Any]] = await self.advance(lambda: self.store.views.lines(run, after))
        return lines

    @overload
    async def attach(self, run: str, workflow: "Flow[P, R]") -> Handle[R]: ...

    @overload
    async def attach(self, run: str, workflow: "Workflow[R] | type[Workflow[R]]") -> Handle[R]: ...

    @overload
    async def attach(self, run: str, workflow: "Plan | Playbook | None" = None) -> Handle[Any]: ...

    async def attach(self, run: str, workflow: "AnyWorkflow | None" = None) -> Handle[Any]:
        """A handle for a run that exists. Raises Conflict if it is a run of another workflow than the given one.

        A run of a Python workflow needs its workflow: only that can read what the run has stored.
        """
        plan = "" if workflow is None else await self.register(workflow)
        summary = await self.advance(lambda: self.store.summary(run))
        if summary is None:
            raise NotFound(f"there is no run {run}")
        definition, served = self.code.of(plan), self.code.of(summary.plan)
        if served is not None and served.is_of(workflow, definition):
            definition = served
        elif workflow is not None and summary.plan != plan:
            name = self._name_of(workflow, definition)
            hint = f"; `migrate(run, {plan!r})` moves it" if summary.workflow == name else ""
            ours = f"{name} ({plan[:12]})"
            raise Conflict(f"run {run} is one of {summary.workflow} ({summary.plan[:12]}), and this is {ours}{hint}")
        return Handle(self, run, definition)

    def _name_of(self, workflow: Any, definition: "Definition | None") -> str:
        if isinstance(workflow, type):
            return workflow.__name__
        plan = workflow if isinstance(workflow, Plan) else (definition or workflow).plan
        return str(plan.name)

    async def export(self, run: str, live: Saved | None = None) -> bytes:
        """Return the whole run as JSON, with everything it waits for. Pause the run first."""
        data: bytes = await self.advance(lambda: export_run(self.store, run, live or {}))
        return data

    async def restore(self, data: bytes | str) -> str:
        """Import an exported run into this store, and return its id. It continues as soon as a process serves it."""
        turns = self.mailroom.turns
        run: str = await self.advance(
            lambda: import_run(self.store, data, turns.evaluate, turns.languages, self.new_id)
        )
        self.code.revive(run, read_archive(data).live)
        await self.code.adopt_stored()
        self.mailroom.wake(run)
        return run

    async def last_line(self, run: str, stream: str) -> tuple[int, Any] | None:
        """Return the last line of a side stream that belongs to this stream, and its number."""
        before: int | None = None
        while True:
            lines: Sequence[tuple[int, Any]] = await self.advance(
                partial(self.store.views.last_lines, run, before, AT_ONCE)
            )
            for number, line in lines:
                if isinstance(line, dict) and line.get("stream") == stream:
                    return number, line
            if not lines or lines[-1][0] == 1:
                return None
            before = lines[-1][0]

    async def lines(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]:
        """Return the next lines of the side stream, at most a fixed number."""
        found: Sequence[tuple[int, Any]] = await self.advance(partial(self.store.views.lines, run, after, AT_ONCE))
        return found

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[tuple[int, Any]]:
        """Yield the lines of its side stream, each with its number, until the run has ended; few are in memory at a
        time."""
        over = False
        while True:
            lines = await self.lines(run, after)
            for number, line in lines:
                after = number
                yield number, line
            if not lines:
                if over:
                    return
                over = await self.ends.is_over(run)
                if not over:
                    await self.clock.sleep(FOLLOW)

    async def feed(self, cursor: str = "", *, follow: bool = False) -> AsyncIterator[FeedFact]:
        """Yield every fact of every run behind a cursor, each once, those of a run in their order.

        Each has `run`, `number`, `at`, `fact` and `cursor`. Store the cursor of the last fact that you have used, and
        pass it on to continue behind it. An empty cursor is before everything, and "now" behind what there is. With
        `follow` it waits for facts to come, else it ends behind the last one.

        Raises InvalidValue for a cursor that belongs to another database, as after a restore.
        """
        if cursor == "now":
            cursor = await self.advance(self.store.views.feed_end)
        while True:
            facts: Sequence[FeedFact] = await self.advance(partial(self.store.views.feed, cursor))
            for each in facts:
                cursor = each.cursor
                yield each
            if not facts and not follow:
                return
            if not facts:
                await self.clock.sleep(FOLLOW)

    async def signal(self, run: str, name: str, value: Any = None, sender: str = "") -> None:
        """Send a signal to a run; one that comes early is kept. A Python workflow takes any value that can be stored, a
        playbook takes JSON."""
        await self.signal_stored(run, name, await self._encoded(run, value), sender)

    async def signal_stored(self, run: str, name: str, value: Any = None, sender: str = "") -> None:
        """Send a signal whose value is in its stored form."""
        codec.check_value(value, "value")
        await self._send(run, Signal(name, value, sender))

    async def _encoded(self, run: str, value: Any) -> Any:
        """Return a value in the form in which the run reads it. Raises InvalidValue."""
        if value is None or type(value) in (bool, str):
            return value
        from refold.python.values import ValueCodec

        seen = await self._look(run)
        if not seen.graph.by_events:
            return value
        definition = self.code.of(seen.state.plan)
        return (ValueCodec() if definition is None else definition.codec).opened().put(value, "value")

    async def request(
        self, run: str, name: str, value: Any = None, *, id: str = "", timeout: float | None = None, sender: str = ""
    ) -> Any:
        """Send a request to a run, wait for the answer of its body and return it as it is stored.

        The same `id` again is the same request: it is not sent again, and its answer is returned. Raises RequestRefused
        or TimeoutError.
        """
        codec.check_value(value, "value")
        id = id or self.new_id()
        run = await self._send(run, Request(id, name, value, sender))
        async with asyncio.timeout(timeout):
            run, outcome = await self._answer(run, id, name)
        if isinstance(outcome, Succeeded):
            blob = outcome.blob
            return outcome.result if blob is None else await self.advance(lambda: self._stored_value(run, blob.hash))
        raise RequestRefused(outcome.fault.message if isinstance(outcome, Failed) else f"run {run} gave no answer")

    async def _answer(self, run: str, id: str, name: str) -> tuple[str, Outcome]:
        """Look for the answer until it is there. Raises RequestRefused if the run has ended without it."""
        pause = SOON
        while True:
            state = (await self._look(run)).state
            at = state.replies.get(id, 0)
            if at:
                [(_, _, fact)] = await self.advance(partial(self.store.facts, run, at - 1, 1))
                return run, fact.outcome if isinstance(fact, CallSettled) else Cancelled()
            if state.successor and any(_carries(values, id) for values in state.signals.values()):
                run = state.successor
                await self._start_waiting(run)
                continue
            if state.life in TERMINAL:
                raise RequestRefused(f"run {run} is {state.life}, and has not answered the request {name!r}")
            await self.clock.sleep(pause)
            pause = min(pause * 1.5, FOLLOW)

    async def decide(
        self,
        run: str,
        step: str,
        option: str,
        *,
        by: str = "",
        feedback: Any = None,
        visit: int | None = None,
        choices: Iterable[str] = (),
    ) -> None:
        """Decide a gate, for the last visit or for the given one. `choices` are those of the gate's choices that are
        taken. The first decision counts; later ones raise Conflict."""
        codec.check_value(feedback, "feedback")
        await self.mailroom.send(run, DecideGate(step, option, by, feedback, visit, tuple(choices)))

    async def pause(self, run: str, by: str = "") -> None:
        await self._send(run, Pause(by))

    async def resume(self, run: str, by: str = "", budget: dict[str, int | float] | None = None) -> None:
        """Resume a paused run, if wanted with new limits of its budget."""
        await self._send(run, Resume(by, _checked(budget)))

    async def retry(
        self, run: str, step: str = "", by: str = "", budget: dict[str, int | float] | None = None, plan: str = ""
    ) -> None:
        """Resume a run that has failed or was cancelled, with the steps that did not complete, or from the given
        step. A run that has completed needs a step. With `plan`, the hash of a stored plan, the run follows that plan
        from here on; both are one commit, and if the plan does not fit, nothing is changed."""
        to = Migrate(plan, await self._graph(plan), by) if plan else None
        await self.mailroom.send(run, Reopen(by, step, _checked(budget), to))

    async def retry_items(
        self, run: str, step: str, items: Iterable[int] = (), by: str = "", follow: bool = False
    ) -> None:
        """Run items of a loop again that failed or were cancelled: all of them, or the given ones. With `follow`, all
        steps that follow from the loop are visited again with the new values; otherwise nothing else is repeated, and
        a run whose loop had completed keeps its status and its result."""
        await self.mailroom.send(run, RetryItems(step, tuple(items), by, follow))

    async def cancel_items(self, run: str, step: str, items: Iterable[int], by: str = "") -> None:
        """Cancel items of a loop; the other items continue."""
        await self.mailroom.send(run, CancelItems(step, tuple(items), by))

    async def migrate(self, run: str, plan: str, by: str = "") -> None:
        """Let the run follow another stored plan, named by its hash. The past stays as it is.

        Raises CannotMigrate, with the steps that prevent it.
        """
        await self.mailroom.send(run, Migrate(plan, await self._graph(plan), by))

    async def _graph(self, plan: str) -> Graph:
        graph: Graph = await self.advance(lambda: self.mailroom.turns.graph(plan))
        return graph

    async def migrate_all(self, workflow: "AnyWorkflow", *, dry_run: bool = False, by: str = "") -> Sequence[Migration]:
        """Let all unfinished runs of a workflow follow its present plan, as after a deployment.

        Each run is moved or stays by itself: `refused` says why one stays. `dry_run` moves none and returns what would
        happen.
        """
        hash = await self.register(workflow)
        graph = await self._graph(hash)
        found: list[Migration] = await self.advance(lambda: preview_all(self.store.views, hash, graph))
        for number, each in enumerate(found if not dry_run else ()):
            if not each.refused:
                try:
                    await self.mailroom.send(each.run, Migrate(hash, graph, by))
                except Conflict as error:
                    found[number] = structs.replace(each, refused=str(error))
        return found

    async def change_schedules(self, change: Callable[[Store], T]) -> T:
        """Change schedules by a function of `refold.runtime.schedule_changes`, and serve at once what is due now."""
        changed: T = await self.advance(lambda: change(self.store))
        self.wake_schedules()
        return changed

    async def cancel(self, run: str, reason: str = "", by: str = "", command: str = "", grace: Span = GRACE) -> None:
        """Cancel the run, or one open command of it, which then counts as a failure of its step.

        Bodies that wait get `asyncio.CancelledError` there, and have the grace for their clean-up.
        """
        await self._send(run, Cancel(reason, by, command, seconds(grace)))

    def _serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def _stored_value(self, run: str, hash: str) -> Any:
        with self.store.turn([run]) as turn:
            return stored_value(turn, run, hash)


def _carries(values: list[Any], id: str) -> bool:
    """Whether a request with this id is among signals that were not taken."""
    return any(isinstance(value, dict) and value.get("id") == id for value in values)


def _as_map(inputs: tuple[Any, ...]) -> dict[str, Any]:
    """The inputs of a plan: at most one map without a name."""
    if len(inputs) > 1:
        raise InvalidValue("input", f"inputs are one map, or keywords, and these are {len(inputs)} values")
    input = inputs[0] if inputs else None
    if input is not None and not isinstance(input, Mapping):
        raise InvalidValue("input", f"inputs are a map, and this is of type {type(input).__name__}")
    return dict(input or {})


def _checked(budget: dict[str, int | float] | None) -> dict[str, int | float]:
    for unit, limit in (budget or {}).items():
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < inf:
            raise InvalidValue(f"budget.{unit}", f"{limit!r} is not a limit")
    return budget or {}
