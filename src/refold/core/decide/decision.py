"""A decision of one turn while it is made: its facts, and the commands, timers and letters that follow from them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from refold.core import codec
from refold.core.commands import (
    HELD,
    SOURCE_TOOL,
    Command,
    Held,
    Letter,
    LetterBody,
    LetterCancel,
    LetterContinued,
    LetterEnded,
    LetterPause,
    LetterResume,
    LetterStart,
    LetterUsed,
    child_id,
    child_name,
    command_id,
    rate_limit,
)
from refold.core.decide.effects import EFFECTS
from refold.core.expressions import CannotEvaluate, Evaluate
from refold.core.facts import (
    CallSettled,
    ChildContinued,
    ChildEnded,
    Dropped,
    Fact,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    Move,
    Parent,
    Routed,
    RunEnded,
    RunEnding,
    RunPaused,
    RunResumed,
    Skipped,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.faults import fault_text
from refold.core.fold import apply, visits
from refold.core.fold.events import group_of, runs_out, timers, timers_of
from refold.core.fold.routing import ARC_INPUTS, with_arc_inputs
from refold.core.fold.waits import due_at
from refold.core.graph import Graph
from refold.core.outcomes import (
    ITSELF,
    NO_QUEUEING,
    QUEUE,
    SECOND,
    Awaited,
    Blob,
    Cancelled,
    Failed,
    Fault,
    Instant,
    Outcome,
    Queueing,
    Succeeded,
    Suspended,
)
from refold.core.pipeline import sealed_in
from refold.core.plan import BODY, Child, Step, WorkerWork
from refold.core.queueing import executor_of, lane_name
from refold.core.read.loaded import Loaded, event_at, events_of
from refold.core.read.template_scope import RunScope, item_scope
from refold.core.state import COMPLETED, FAILED, RUNNING, TERMINAL, FanOut, OpenCommand, RunState

RUN_TIMER = "run"
PREFERENCE = SECOND  # how long only the worker that holds a parked body may claim its command
_NO_COMMANDS: frozenset[str] = frozenset()


def _never(plan: str) -> None:
    return None


def _none(commands: Collection[str]) -> Collection[str]:
    return ()


def _fits(plan: str, input: dict[str, Any]) -> None:
    return None


def as_input(value: Any) -> dict[str, Any]:
    """Return the inputs of a child run, which are named; another value becomes the input `value`."""
    return value if isinstance(value, dict) else {} if value is None else {"value": value}


class Decision(Struct):
    """Collects facts. Each is folded when it is recorded, and nothing else changes the state."""

    graph: Graph
    state: RunState
    now: Instant
    evaluate: Evaluate
    chance: Callable[[], float]
    claimed: Callable[[], frozenset[str]] = frozenset
    held: Callable[[Collection[str]], Collection[str]] = _none  # those of these commands that workers hold
    refuses: Callable[[str], Fault | None] = _never  # why a child of this plan cannot start
    misfit: Callable[[str, dict[str, Any]], Fault | None] = _fits  # why a child cannot start with this input
    executor_of: Callable[[str, Step], str] = executor_of  # where the body of a step runs, by plan and step
    due: dict[str, None] = {}  # commands whose child may start now
    loaded: Loaded = field(default_factory=Loaded)
    facts: list[Fact] = []
    moves: list[Move] = []
    letters: list[Letter] = []
    new: set[str] = set()  # commands that were never issued before
    blobs: dict[str, bytes] = {}
    lines: list[Any] = []  # published lines, which are stored next to the log
    restarted: list[str] = []  # commands that are taken from their workers, to start over
    interrupted: list[str] = []  # commands whose bodies are running and get CancelledError
    _touched: dict[str, None] = {}
    _timers: dict[str, None] = {}
    _orphans: set[str] = set()
    _used: dict[str, int | float] = {}  # before this turn
    _lanes: dict[str, tuple[str, str]] = {}  # shares and limits of items
    _inputs: dict[str, Any] = {}  # inputs of items, each evaluated once per turn, so that all orders use the same value
    _unfit: dict[str, Fault | None] = {}  # why the child of an item cannot start

    def __post_init__(self) -> None:
        self.now = max(self.now, self.state.at)  # the times of a run never go back
        if self.state.budgeted:
            self._used = dict(self.state.usage)
        if self.state.orphans:
            self._orphans.update(self.state.orphans)

    def record_fact(self, fact: Fact) -> None:
        effects, state = EFFECTS[type(fact)], self.state
        touched = effects.commands_touched(fact)
        if self.graph.collects_with_timeout:
            self._timers |= dict.fromkeys(timers_of(self.graph, state, fact))
        spared = self._claimed_of(touched) if effects.answers_call else _NO_COMMANDS
        if isinstance(fact, RunEnding) and fact.cleaning:
            spared = self.claimed_now() & frozenset(fact.cleaning)
            self.interrupted.extend(spared)
        for command in touched:
            if effects.opens_commands and command not in state.open:
                self.new.add(command)
            else:
                self._touch(command, command not in spared)
        suspends = effects.awaits_calls or (effects.reports and _suspends(fact))
        before = {command: set(state.open[command].calls) for command in touched} if suspends else {}
        apply.apply(self.graph, state, self.now, fact)
        self.facts.append(fact)
        if effects.read_later or (effects.sends_events and self.graph.by_events):
            self.loaded.facts[state.seq] = fact  # the store does not have it yet
        if not effects.reports or suspends:
            for command in touched:
                self._touch(command, command not in spared)
        if effects.writes_letters:
            self._write_letters(fact, touched)
        if suspends:
            self._start_called_children(before)

    def move(self, move: Move) -> None:
        """Fold a move immediately; it is recorded with the others in one Routed fact."""
        self._touch_moved(move)
        apply.apply_move(self.graph, self.state, move)
        self.moves.append(move)

    def record_moves(self) -> None:
        if self.moves:
            self.state.seq += 1
            self.state.at = self.now
            self.facts.append(Routed(tuple(_gathered(self.moves))))
            self.moves.clear()

    def claimed_now(self) -> frozenset[str]:
        """Return the commands that workers have claimed and have not reported in this turn."""
        return self.claimed() - self._touched.keys()

    def _claimed_of(self, commands: Collection[str]) -> frozenset[str]:
        """The same of these commands: mostly one, which is held, so that the others need not be read."""
        held = self.held(commands)
        return frozenset(commands) - self._touched.keys() if len(held) == len(commands) else self.claimed_now()

    def scope(self, extra: Mapping[str, Any]) -> RunScope:
        return RunScope(self.graph, self.state, self.loaded, extra, self.now)

    def box(self, value: Any) -> tuple[Any, Blob | None]:
        boxed = codec.box(value)
        if boxed is None:
            return value, None
        self.blobs[boxed[0].hash] = boxed[1]
        self.loaded.blobs[boxed[0].hash] = value
        return None, boxed[0]

    def commands(self) -> dict[str, Command | Held | None]:
        """Return every command that this turn touched as the store must keep it; None: delete it."""
        return {command: self._storable_row(command) for command in self._touched}

    def touch_open(self, spared: Collection[str] = ()) -> None:
        """Touch every open command and every timer, so that the store gets all of them and not only the changed ones.

        The rows of spared commands stay as they are.
        """
        for command in self.state.open:
            self._touch(command, command not in spared)
        self._timers |= dict.fromkeys((RUN_TIMER, *timers(self.graph, self.state)))

    def timers(self) -> dict[str, Instant | None]:
        timers = {key: _timer(self.graph, self.state, key) for key in self._timers} if self._timers else {}
        if self.state.deadline is not None:
            runs = self.state.life == RUNNING and not self.state.paused
            timers[RUN_TIMER] = self.state.deadline if runs else None
        return timers

    def post(self, key: str, to: str, body: LetterBody) -> None:
        self.letters.append(Letter(key=key, sender=self.state.run, to=to, body=body))

    def report_usage(self) -> None:
        """Tell the parent what this turn has used, if a run above has a budget. The letter about the end has it too."""
        state = self.state
        if state.budgeted and state.parent is not None and state.life not in TERMINAL and state.usage != self._used:
            body = LetterUsed(state.parent, dict(state.usage))
            self.post(f"{state.run}/{state.seq}/used", state.parent.run, body)

    def dismiss_orphans(self) -> None:
        """Cancel the child runs of dropped commands, which no command waits for."""
        for child in self.state.orphans:
            if child not in self._orphans:
                self._orphans.add(child)
                why = "its parent no longer waits for it"
                self.post(f"{child}/cancel", child, LetterCancel(why, grace=self.state.grace))

    def hurry_orphans(self) -> None:
        """Cancel the orphans a second time, so that they give up their finalizers too."""
        for child in self.state.orphans:
            self.post(f"{child}/{self.state.seq}/cancel", child, LetterCancel("its parent gives up", again=True))

    def start_child(self, owner: str, plan: str, value: Any, attempt: int = 1, call: Awaited | None = None) -> None:
        command, _, key = owner.partition("#")
        child = child_id(self.state.run, owner, attempt)
        want, detached = (call.want, call.detached) if call is not None else ("", False)
        body = LetterStart(
            plan=plan,
            parent=Parent(self.state.run, command, key, want, detached),
            input=as_input(value),
            depth=self.state.depth + 1,
            name=child_name(self.state.name or self.state.run[:8], owner),
            folder=self.state.folder,
            queueing=self._queueing_of_child(command, call),
            budgeted=not detached and (self.state.budgeted or bool(self.state.budget)),
        )
        self.post(f"{child}/start", child, body)

    def input_of(self, command: str) -> Any:
        """Return the input of a command: from the fact of its issue, or computed from the item and captured values."""
        opened = self.state.open[command]
        step = self.graph.step(opened.step)
        if opened.events:
            return {"events": events_of(self.loaded, opened.events)}
        if step.loop is None:
            return opened.input
        fan = self.state.steps[opened.step].fan
        assert fan is not None
        if opened.item is None:
            return page_input(self.state.run, step, fan)
        if command not in self._inputs:
            try:
                self._inputs[command] = self._item_input(step, fan, opened)
            except CannotEvaluate as error:
                self._inputs[command] = error
        value = self._inputs[command]
        if isinstance(value, CannotEvaluate):
            raise value
        return value

    def _item_input(self, step: Step, fan: FanOut, opened: OpenCommand) -> Any:
        assert step.loop is not None and opened.item is not None
        scope = item_scope(fan, self.loaded, step.loop.iterator, opened.item, opened.visit)
        if step.input is None:
            return scope[step.loop.iterator]
        return with_arc_inputs(self.evaluate.value(step.input, scope), fan.capture.get(ARC_INPUTS, {}))

    def queueing_of(self, command: str) -> Queueing:
        """Return where a command waits: as its step says, else as its run. Raises CannotEvaluate."""
        opened = self.state.open[command]
        step = self.graph.step(opened.step)
        share, limit = opened.share, opened.limit
        if opened.item is not None and (step.share is not None or step.limit is not None):
            share, limit = self._lane_of_item(command, step, opened)
        return self._queueing(step, share, limit)

    def _queueing(self, step: Step, share: str, limit: str) -> Queueing:
        own = self.state.queueing
        priority = own.priority if step.priority is None else step.priority
        return Queueing(step.queue or own.queue or QUEUE, priority or 0, share or own.share, limit or own.limit)

    def _lane_of_item(self, command: str, step: Step, opened: OpenCommand) -> tuple[str, str]:
        if command not in self._lanes:
            fan = self.state.steps[opened.step].fan
            assert fan is not None and step.loop is not None and opened.item is not None
            scope = item_scope(fan, self.loaded, step.loop.iterator, opened.item, opened.visit)
            self._lanes[command] = (
                lane_name("share", None if step.share is None else self.evaluate.value(step.share, scope)),
                lane_name("limit", None if step.limit is None else self.evaluate.value(step.limit, scope)),
            )
        return self._lanes[command]

    def _queueing_of_child(self, command: str, call: Awaited | None) -> Queueing:
        """A child inherits queue, priority and share, unless it is told otherwise. A limit is not inherited."""
        above, own = self.queueing_of(command), NO_QUEUEING if call is None else call.queueing
        priority = above.priority if own.priority is None else own.priority
        queue = own.queue or above.queue
        return Queueing("" if queue == QUEUE else queue, priority or None, own.share or above.share, own.limit)

    def misfit_of(self, command: str, plan: str) -> Fault | None:
        """Return why the child of an item cannot start; computed once per turn, because expressions may be involved."""
        if command not in self._unfit:
            self._unfit[command] = self.misfit(plan, as_input(self.input_of(command)))
        return self._unfit[command]

    def _storable_row(self, command: str) -> Command | Held | None:
        """Return the row of a command. One that waits to be judged may have no input, and no worker may claim it."""
        try:
            return self._row(command)
        except CannotEvaluate:
            if command not in self.state.judge:
                raise
            return HELD

    def _row(self, command: str) -> Command | Held | None:
        opened = self.state.open.get(command)
        if opened is None:
            return None
        step = self.graph.step(opened.step)
        if opened.page and not opened.held and step.loop is not None:
            return self._page_row(command, step, opened)
        if not isinstance(step.work, WorkerWork) and not opened.page:
            return None
        if opened.held:
            return HELD
        assert isinstance(step.work, WorkerWork)
        is_body = step.work.tool == BODY
        input = opened.input if opened.item is None and not opened.events else self.input_of(command)
        queueing = self.queueing_of(command)
        limit, rate = queueing.limit, 0.0
        if step.loop is not None and step.loop.rate is not None:
            limit, rate = rate_limit(self.state.run, step.name, opened.visit), step.loop.rate
        return Command(
            id=command,
            step=step.name,
            visit=opened.visit,
            attempt=opened.attempt,
            tool=f"{BODY}:{self.state.plan}" if is_body else step.work.tool,
            item=opened.item,
            input=input,
            queue=queueing.queue,
            priority=queueing.priority or 0,
            share=queueing.share,
            limit=limit,
            rate=rate,
            not_before=opened.not_before,
            timeout=step.timeout,
            longest_wait=step.retry.max_delay,
            progress=opened.progress,
            recorded={} if is_body and opened.item is None else opened.recorded,  # such a body asks for its memory
            sealed=sealed_in(input, self.state.sealed) if self.state.sealed else (),
            last_error=opened.last_error,
            folder="" if is_body else self.state.folder,  # a body is code of the worker, and runs where the worker runs
            prefer=opened.parked_by,
            prefer_until=max(self.now, opened.not_before) + PREFERENCE if opened.parked_by else 0,
            executor=self.executor_of(self.state.plan, step),
        )

    def _page_row(self, command: str, step: Step, opened: OpenCommand) -> Command:
        assert step.loop is not None and step.loop.source is not None
        queueing = self._queueing(step, self.state.queueing.share, "")
        return Command(
            id=command,
            step=step.name,
            visit=opened.visit,
            attempt=opened.attempt,
            tool=SOURCE_TOOL,
            input=self.input_of(command),
            queue=queueing.queue,
            priority=queueing.priority or 0,
            share=queueing.share,
            not_before=opened.not_before,
            timeout=step.loop.source.timeout,
        )

    def _touch(self, command: str, row: bool = True) -> None:
        """Note that the timers of a command may change, and its row too if `row`.

        The row stays if an answer reached a body that a worker is still running.
        """
        opened = self.state.open.get(command)
        if row:
            self._touched[command] = None
        if opened is None:
            return
        timed = opened.until is not None or opened.deadline is not None
        if timed or (opened.not_before and starts_at(self.graph, opened) is not None):
            self._timers[command] = None
        if opened.calls:
            self._timers.update(
                {f"{command}#{key}": None for key, call in opened.calls.items() if call.until is not None}
            )

    def _touch_moved(self, move: Move) -> None:
        if type(move) is Took:
            self._touch(command_id(move.step, move.visit))
        elif type(move) is Dropped:
            for name in move.steps:
                for command in visits.commands_of(self.graph, self.state, self.graph.index[name]):
                    self._touch(command)

    def _write_letters(self, fact: Fact, touched: Iterable[str]) -> None:
        match fact:
            case StepIssued() | ItemsIssued() | ItemsRetried():
                work = self.graph.step(self.graph.index[fact.step]).work
                if isinstance(work, Child):
                    self._start_children(work.plan or self.state.plan, touched)
            case RunPaused() | RunResumed():
                body = LetterPause() if isinstance(fact, RunPaused) else LetterResume()
                for child in self.state.children.values():
                    self.post(f"{child}/{self.state.seq}/{body.__class__.__name__}", child, body)
            case ChildContinued(successor=successor) if self.state.paused:
                self.post(f"{successor}/{self.state.seq}/LetterPause", successor, LetterPause())
            case RunEnded(successor=successor) if successor:
                self._start_successor(successor)
            case RunEnded(status=status) if self.state.parent is not None and not self.state.parent.detached:
                body_ended = LetterEnded(self.state.parent, _as_outcome(fact, status), self.state.usage)
                self.post(f"{self.state.run}/ended", self.state.parent.run, body_ended)
            case _:
                pass

    def _start_successor(self, successor: str) -> None:
        """Start the run that continues this one, with all that this one has not taken, and tell the parent."""
        state = self.state
        assert state.stopped is not None
        body = LetterStart(
            plan=state.plan,
            parent=state.parent,
            input=as_input(event_at(self.loaded, state.stopped)["data"]),
            depth=state.depth,
            name=state.name,
            key=state.key,
            labels=state.labels,
            predecessor=state.run,
            signals=state.signals,
            folder=state.folder,
            queueing=state.queueing,
            budgeted=state.budgeted,
        )
        self.post(f"{successor}/start", successor, body)
        if state.parent is not None and not state.parent.detached:
            continued = LetterContinued(state.parent, successor, dict(state.usage))
            self.post(f"{state.run}/continued", state.parent.run, continued)

    def _start_children(self, plan: str, commands: Iterable[str]) -> None:
        """Start the children of these commands, if it is their time. An item whose child cannot start has none."""
        if self.refuses(plan) is not None:
            return
        for command in commands:
            opened = self.state.open[command]
            if opened.child:
                with suppress(CannotEvaluate):
                    input = self.input_of(command)
                    if opened.item is None or self.misfit_of(command, plan) is None:
                        self.start_child(command, plan, input, opened.attempt)

    def _start_called_children(self, before: dict[str, set[str]]) -> None:
        for command, calls_before in before.items():
            for key, call in list(self.state.open[command].calls.items()):
                if not call.child or key in calls_before:
                    continue
                plan = self.state.plan if call.child == ITSELF else call.child
                fault, owner = self.refuses(plan), f"{command}#{key}"
                child = child_id(self.state.run, owner)
                if fault is None:
                    self.start_child(owner, plan, call.input, call=call)
                if call.detached:
                    outcome = Succeeded({"run": child}) if fault is None else Failed(fault)
                    self.record_fact(CallSettled(command, key, outcome))
                elif fault is not None:
                    self.record_fact(ChildEnded(child, command, Failed(fault), key))


def _gathered(moves: list[Move]) -> Iterator[Move]:
    """Merge consecutive skips into one move."""
    skipped: list[str] = []
    for move in moves:
        if isinstance(move, Skipped):
            skipped += move.steps
            continue
        if skipped:
            yield Skipped(tuple(skipped))
            skipped = []
        yield move
    if skipped:
        yield Skipped(tuple(skipped))


def _suspends(fact: Fact) -> bool:
    if isinstance(fact, StepSettled):
        return type(fact.report.outcome) is Suspended
    return isinstance(fact, ItemsSettled) and any(type(report.outcome) is Suspended for report in fact.reports)


def _timer(graph: Graph, state: RunState, key: str) -> Instant | None:
    if graph.collects_with_timeout and group_of(key) is not None:
        return runs_out(graph, state, key)
    command, _, call = key.partition("#")
    opened = state.open.get(command)
    if opened is None:
        return None
    if not call:
        moment = due_at(opened)
        return moment if moment is not None else starts_at(graph, opened)
    return opened.calls[call].until if call in opened.calls else None


def starts_at(graph: Graph, opened: OpenCommand) -> Instant | None:
    """Return when the next try of a child run starts; the engine needs a timer for it."""
    waits = opened.not_before and not opened.child and not opened.held and not opened.page
    return opened.not_before if waits and isinstance(graph.step(opened.step).work, Child) else None


def _as_outcome(fact: RunEnded, status: str) -> Outcome:
    if status == COMPLETED:
        return Succeeded(fact.result, fact.blob)
    if status == FAILED:
        error = fact.error
        why = f"{error.step}: {fault_text(error.fault) if error.fault else error.why}" if error else ""
        data = None if error is None else {"step": error.step, "why": error.why}
        return Failed(Fault("child_failed", why, data=data))
    return Cancelled("the child run was cancelled")


def page_input(run: str, step: Step, fan: FanOut) -> dict[str, Any]:
    assert step.loop is not None and step.loop.source is not None and fan.pulls is not None
    return {
        "kind": step.loop.source.kind,
        "settings": fan.pulls.settings,
        "cursor": fan.pulls.cursor,
        "most": step.loop.source.page,
        "owner": f"{run}/{step.name}/{fan.visit}",
    }
