"""Turns mail, letters and due timers of a run into facts, or refuses them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from refold.core.commands import (
    Letter,
    LetterCancel,
    LetterContinued,
    LetterEnded,
    LetterPause,
    LetterReport,
    LetterResume,
    LetterStart,
    LetterUsed,
)
from refold.core.decide.decision import RUN_TIMER, Decision, starts_at
from refold.core.decide.ending import GIVEN_UP, end_run
from refold.core.decide.events import gather_no_longer
from refold.core.decide.inputs import started_with
from refold.core.expressions import CannotEvaluate
from refold.core.facts import (
    BodyWoke,
    CallsAwaited,
    CallSettled,
    CancelAsked,
    ChildContinued,
    ChildEnded,
    ChildUsed,
    GateDecided,
    ItemsSettled,
    PageCame,
    Parent,
    RunPaused,
    RunResumed,
    RunStarted,
    RunTimedOut,
    SignalReceived,
    StepFault,
    StepSettled,
)
from refold.core.fold.events import group_of, runs_out
from refold.core.fold.visits import can_add
from refold.core.fold.waits import outcome_of_timer
from refold.core.graph import Graph
from refold.core.outcomes import (
    ITSELF,
    REQUEST_SIGNAL,
    AddTo,
    AppendTo,
    Awaited,
    Cancelled,
    Failed,
    Fault,
    Instant,
    Outcome,
    PutIf,
    Report,
    Sent,
    SetKey,
    Succeeded,
    TimedOut,
    Write,
)
from refold.core.plain_values import to_plain_data
from refold.core.plan import Child, Gate
from refold.core.read.gates import how_gate_ended
from refold.core.state import ENDING, FAILED, INITIAL, RUNNING, TERMINAL, OpenCommand
from refold.errors import Conflict, InvalidValue, LeaseLost, NotFound, RunContinued, StaleWrite
from refold.logs import WARNING, event, logger
from refold.ports import Done, Lease, StoreTurn
from refold.queries.reading import stored_value
from refold.runtime.children import begun_with, check_inputs
from refold.runtime.mail import (
    Cancel,
    CancelItems,
    DecideGate,
    Expect,
    Expire,
    Look,
    Mail,
    Migrate,
    Note,
    Pause,
    Reopen,
    Request,
    Resume,
    RetryItems,
    Settle,
    Signal,
    Start,
    Wake,
)
from refold.runtime.operations import apply_operation, refuse_spent
from refold.schemas import WORK_UNDER_LOCK, misfits, misfits_text, schema_flaw

log = logger("runtime")


def check_form(form: dict[str, Any], answers: Any) -> None:
    """Check the answers of a form. Raises InvalidValue, or OverBound because other runs wait for the lock meanwhile."""
    wrong = schema_flaw(form, WORK_UNDER_LOCK)
    if wrong is not None:
        raise InvalidValue("form", f"it is not a JSON Schema that can be used: {wrong[1]}")
    found = misfits(form, answers, WORK_UNDER_LOCK)
    if found and found[0].of_schema:
        raise InvalidValue("form", f"it is not a JSON Schema that can be used: {found[0].message}")
    if found:
        raise InvalidValue("the form", misfits_text(found, "feedback"))


def check_vote(d: Decision, turn: StoreTurn, asked: GateDecided) -> GateDecided:
    """Return the decision as a fact; visit 0 means the last visit. Raises the reason for which it does not count."""
    s = d.graph.index.get(asked.step)
    gate = None if s is None else d.graph.step(s).work
    if s is None or not isinstance(gate, Gate):
        raise NotFound(f"{asked.step!r} is not a gate of run {d.state.run}")
    visit = asked.visit or d.state.steps[s].visits
    opened = d.state.open.get(f"{asked.step}/{visit}")
    if opened is None or opened.held:
        raise Conflict(_too_late(d, turn, gate, asked.step, visit))
    if asked.option not in gate.options:
        raise Conflict(f"gate {asked.step!r} knows {', '.join(gate.options)}, not {asked.option!r}")
    for choice in asked.choices:
        if choice not in opened.choices:
            there = f"its choices are {', '.join(opened.choices)}" if opened.choices else "it has no choices"
            raise Conflict(f"gate {asked.step!r} has no choice {choice!r}: {there}")
    if asked.choices and asked.option in gate.refuse:
        raise Conflict(f"gate {asked.step!r}: a refusal takes no choices")
    if asked.option not in gate.refuse:
        _check_person(gate, opened, asked)
        if gate.form is not None:
            check_form(gate.form, {} if asked.feedback is None else asked.feedback)
    taken = tuple(dict.fromkeys(asked.choices))
    return GateDecided(asked.step, visit, asked.option, asked.by, asked.feedback, taken)


def _too_late(d: Decision, turn: StoreTurn, gate: Gate, step: str, visit: int) -> str:
    """Say who decided first, from the log and from the facts of this turn."""
    log = [(at, fact) for _, at, fact in turn.facts(d.state.run)] + [(d.now, fact) for fact in d.facts]
    end = how_gate_ended(gate, step, visit, log)
    if end:
        return f"gate {step!r} (visit {visit}) {end}"
    if d.state.life in TERMINAL:
        return f"run {d.state.run} is {d.state.life}"
    return f"gate {step!r} is not waiting for a decision (visit {visit})"


def _check_person(gate: Gate, opened: OpenCommand, asked: GateDecided) -> None:
    """Refuse a second decision of the same person."""
    if gate.min_approvals == 1:
        return
    if not asked.by:
        raise InvalidValue("by", f"gate {asked.step!r} wants {gate.min_approvals} different people; say who decides")
    for each in opened.progress or ():
        if each["by"] == asked.by:
            raise Conflict(f"{asked.by} has decided at gate {asked.step!r} already, at {each['at']}: {each['option']}")


class MailReader(Struct):
    """Reads the mail of one run in one turn. Reports of items of one visit become one fact."""

    d: Decision
    turn: StoreTurn
    held: Mapping[str, int] = {}  # the reported commands, each with the generation of its lease
    items: dict[tuple[str, int], list[Report]] = {}
    settled: set[str] = set()
    graph: Callable[[str], Graph] | None = None  # returns the graph of any plan

    def accept(self, mail: Mail) -> None:
        """Record the facts that follow from mail, or raise the reason for a refusal, which changes nothing.

        Call `flush` first unless the mail is a report: it is judged after the reports of items that came before it.
        """
        match mail:
            case Settle():
                self._settle(mail)
            case Start():
                self._start(mail)
            case Note():
                self._note(mail)
            case Expect():
                self._expect(mail)
            case Wake():
                self._wake(mail)
            case Expire():
                self._expire(mail)
            case Cancel(command=command) if command:
                self._known()
                self._report(command, Report(self._attempt(command), Cancelled(mail.reason)))
            case Look():
                pass
            case Request():
                self._known()
                self._request(mail)
            case Reopen() | RetryItems() | CancelItems() | Migrate():
                self._known()
                apply_operation(self.d, mail)
            case _:
                self._known()
                self._operate(mail)

    def flush(self) -> None:
        if self.items:
            for (step, visit), reports in self.items.items():
                self.d.record_fact(ItemsSettled(step, visit, tuple(reports)))
            self.items = {}

    def _known(self) -> None:
        if self.d.state.life == INITIAL:
            raise NotFound(f"there is no run {self.d.state.run}")

    def _start(self, mail: Start) -> None:
        if self.d.state.life != INITIAL:
            raise Conflict(
                f"run {self.d.state.run} exists: attach to it, or start runs with a key, which may be repeated"
            )
        input = mail.input
        if self.d.graph.plan.computed:
            try:
                input = started_with(self.d.graph.plan, self.d.state.run, input, self.d.evaluate)
            except CannotEvaluate as error:
                raise InvalidValue("input", str(error)) from None
        check_inputs(self.d.graph.plan, input, WORK_UNDER_LOCK, mail.input if mail.fits else ())
        started = RunStarted(
            mail.plan.hash,
            input,
            mail.name,
            mail.key,
            mail.parent,
            mail.depth,
            mail.code,
            mail.labels,
            folder=mail.folder,
            schedule=mail.schedule,
            file=mail.file,
            queueing=mail.queueing,
        )
        self.d.record_fact(started)

    def _settle(self, mail: Settle) -> None:
        lease, done = mail.lease, mail.done
        self._refuse_stale(lease)
        if done.writes and isinstance(done.outcome, Succeeded):
            self._judge_writes(lease.command.id, done.writes)
        report = self._boxed_report(reported(lease, done))
        self.d.lines.extend(done.lines)
        self._report(lease.command.id, report)

    def _boxed_report(self, report: Report) -> Report:
        """Return the report with large values moved to blobs."""
        outcome = self._boxed(report.outcome)
        if outcome is report.outcome and not report.events:
            return report
        return structs.replace(report, outcome=outcome, events=tuple(map(self._sent, report.events)))

    def _settle_kept(self, kept: LetterReport) -> None:
        """Read a report that was kept while the run was stuck. No worker can repeat a write that has become stale."""
        opened, report = self.d.state.open.get(kept.command), kept.report
        if opened is None or opened.attempt != report.attempt or kept.command in self.settled:
            return  # it was withdrawn, or settled in another way
        if report.writes and isinstance(report.outcome, Succeeded):
            try:
                self._judge_writes(kept.command, report.writes)
            except StaleWrite as stale:
                report = _failed(report, Fault("stale_write", str(stale), retryable=True))
            except Conflict as error:
                report = _failed(report, Fault("refused", str(error), retryable=False))
        self._report(kept.command, self._boxed_report(report))

    def _note(self, mail: Note) -> None:
        self._refuse_stale(mail.lease)
        command = mail.lease.command.id
        recorded = self.d.state.open[command].recorded.get(mail.key)
        gives_back = isinstance(mail.outcome, Cancelled) and mail.outcome.signal and isinstance(recorded, Succeeded)
        if recorded is None or gives_back:
            self.d.record_fact(CallSettled(command, mail.key, self._boxed(mail.outcome)))

    def _expect(self, mail: Expect) -> None:
        self._refuse_stale(mail.lease)
        self.d.record_fact(CallsAwaited(mail.lease.command.id, mail.calls))

    def _wake(self, mail: Wake) -> None:
        """Free a suspended command for its parked body. If its worker holds it already, nothing has to be done."""
        command = mail.lease.command
        opened, held = self.d.state.open.get(command.id), self.turn.lease(self.d.state.run, command.id)
        is_over = opened is None or opened.attempt != command.attempt
        if is_over or (held is not None and held.worker != mail.lease.worker):
            raise LeaseLost(f"{command.id} of run {mail.lease.run} is over, or another worker has it")
        if opened is not None and opened.held and opened.report is None and held is None:
            self.d.record_fact(BodyWoke(command.id))

    def _refuse_stale(self, lease: Lease) -> None:
        if lease.command.id in self.d.restarted:
            raise LeaseLost(f"{lease.command.id} of run {lease.run} starts over, for the run follows another plan")
        if self.held.get(lease.command.id) != lease.generation or lease.command.id in self.settled:
            raise LeaseLost(f"{lease.command.id} of run {lease.run} is no longer held under {lease.generation}")

    def _judge_writes(self, command: str, writes: tuple[Write, ...]) -> None:
        """Refuse the whole report if one write is stale or does not fit, so that no write is lost silently."""
        state, written = self.d.state, set[str]()
        for write in writes:
            held, version = state.ctx.get(write.key), state.versions.get(write.key, 0)
            if isinstance(write, PutIf):
                if self._writes_later(command):
                    raise Conflict(f"{command} writes when its loop ends; no version of {write.key!r} holds till then")
                if write.version != version:
                    raise StaleWrite(write.key, held, version, write.key in state.ctx)
            elif isinstance(write, SetKey) and write.read not in (None, version) and write.key not in written:
                self._log_lost_update(command, write.key)
            elif held is not None and write.key not in written and not _fits(write, held):
                raise Conflict(f"context key {write.key!r} holds a {type(held).__name__}; this does not fit: {write}")
            written.add(write.key)

    def _log_lost_update(self, command: str, key: str) -> None:
        """The body has read a value and set another one, and what was written in between is overwritten."""
        why = "another step has set it since this one read it; `ctx.update` loses nothing"
        event(
            log, WARNING, "an update of the context was lost", run=self.d.state.run, command=command, key=key, why=why
        )

    def _writes_later(self, command: str) -> bool:
        loop = self.d.graph.step(self.d.state.open[command].step).loop
        return loop is not None and not loop.sequential

    def _sent(self, sent: Sent) -> Sent:
        """Move a large event to a blob; the fields by which events are collected stay next to it.

        A request stays as it is, because the state has all of it while it is open.
        """
        if sent.asks is not None:
            return sent
        data, blob = self.d.box(sent.data)
        if blob is None or not isinstance(sent.data, dict):
            return Sent(sent.type, data, blob)
        fields = {step.collect.by for step in self.d.graph.plan.steps if step.collect is not None and step.collect.by}
        return Sent(sent.type, None, blob, {field: sent.data.get(field) for field in fields})

    def _boxed(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Succeeded):
            return outcome
        result, blob = self.d.box(outcome.result)
        is_plain = type(outcome) is Succeeded and outcome.blob is None
        return outcome if is_plain and blob is None else Succeeded(result, blob)

    def _expire(self, mail: Expire) -> None:
        """Check the lease again under the lock: a report or a heartbeat that came first wins."""
        held = self.turn.lease(self.d.state.run, mail.command)
        if held is None or held.generation != mail.generation or mail.command in self.settled:
            return
        if held.hangs():
            outcome: Outcome = TimedOut(held.command.timeout or 0.0)
        elif held.until <= self.turn.now and held.losses >= mail.losses:
            why = f"{held.losses + 1} workers were lost while they ran it"
            outcome = Failed(Fault("lost", why, retryable=False))
        else:
            return
        report = Report(held.command.attempt, outcome, held.command.item, held.worker, held.generation, held.claimed_at)
        self._report(mail.command, report)

    def _report(self, command: str, report: Report) -> None:
        self.settled.add(command)
        opened = self.d.state.open[command]
        name = self.d.graph.name(opened.step)
        if opened.page:
            self.flush()
            self.d.record_fact(PageCame(name, opened.visit, opened.page, report))
        elif opened.item is None:
            self.flush()
            if report.events:
                self.d.lines.extend(_request_lines(name, opened.visit, report, self.d.now))
            self.d.record_fact(StepSettled(name, opened.visit, report))
        else:
            self.items.setdefault((name, opened.visit), []).append(
                report if report.item is not None else Report(report.attempt, report.outcome, opened.item)
            )

    def _attempt(self, command: str) -> int:
        opened = self.d.state.open.get(command)
        if opened is None or command in self.settled:
            raise NotFound(f"run {self.d.state.run} has no open command {command!r}")
        return opened.attempt

    def _request(self, mail: Request) -> None:
        state = self.d.state
        if not self.d.graph.by_events:
            why = "it is not a Python workflow, and only bodies of those answer requests"
            raise Conflict(f"run {state.run} answers no request: {why}")
        if mail.id in state.replies:
            return  # it was sent before: its answer is here, or will be
        self._refuse_continued()
        if state.life in TERMINAL:
            raise Conflict(f"run {state.run} is {state.life}")
        value = {"id": mail.id, "value": mail.value}
        self.d.record_fact(SignalReceived(f"{REQUEST_SIGNAL}{mail.name}", value, mail.sender, mail.id))

    def _operate(self, mail: Signal | DecideGate | Pause | Resume | Cancel) -> None:
        state = self.d.state
        if isinstance(mail, DecideGate):
            asked = GateDecided(mail.step, mail.visit or 0, mail.option, mail.by, mail.feedback, mail.choices)
            self.d.record_fact(check_vote(self.d, self.turn, asked))
            return
        self._refuse_continued()
        if state.life in TERMINAL:
            raise Conflict(f"run {state.run} is {state.life}")
        match mail:
            case Signal():
                self.d.record_fact(SignalReceived(mail.name, mail.value, mail.sender))
            case Pause() if not state.paused or (self._by_parent(state.paused_by) and not self._by_parent(mail.by)):
                self.d.record_fact(RunPaused(mail.by))
            case Resume() if state.paused:
                refuse_spent(state, mail.budget)
                self.d.record_fact(RunResumed(mail.by, mail.budget))
            case Cancel() if state.cancel is None and state.cancels < GIVEN_UP:
                self.d.record_fact(CancelAsked(mail.reason, mail.by, mail.grace))
            case _:
                pass  # nothing would change

    def _refuse_continued(self) -> None:
        if self.d.state.successor:
            raise RunContinued(self.d.state.run, self.d.state.successor)

    def _by_parent(self, by: str) -> bool:
        return self.d.state.parent is not None and by == self.d.state.parent.run

    def read(self, letter: Letter) -> None:
        """Read a letter. It is removed in the same commit, so each is read once; one that comes too late has no
        effect."""
        state, body = self.d.state, letter.body
        match body:
            case LetterStart():
                if state.life == INITIAL:
                    self._start_child(body)
            case LetterEnded():
                if state.life in (RUNNING, ENDING):
                    self.d.record_fact(
                        ChildEnded(
                            letter.sender,
                            body.parent.command,
                            self._brought(letter.sender, body),
                            body.parent.call,
                            body.usage,
                        )
                    )
            case LetterUsed():
                at = body.parent
                waited = state.children.get(f"{at.command}#{at.call}" if at.call else at.command) == letter.sender
                if state.life in (RUNNING, ENDING) and (waited or letter.sender in state.orphans):
                    self.d.record_fact(ChildUsed(letter.sender, at.command, body.usage, at.call))
            case LetterContinued():
                if state.life in (RUNNING, ENDING):
                    parent = body.parent
                    self.d.record_fact(
                        ChildContinued(letter.sender, parent.command, body.successor, parent.call, body.usage)
                    )
            case LetterReport():
                self._settle_kept(body)
            case LetterCancel() if body.again or not state.cancels:  # else it is so already
                self._operate_late(Cancel(body.reason, by=letter.sender, grace=body.grace))
            case LetterPause():
                self._operate_late(Pause(by=letter.sender))
            case LetterResume() if state.paused_by == letter.sender:  # else another sender has paused it
                self._operate_late(Resume(by=letter.sender))
            case _:
                pass

    def _start_child(self, body: LetterStart) -> None:
        """Start a child. Its parent waits for it already, so a child whose inputs do not fit fails instead of being
        refused."""
        plan = self.d.graph.plan
        input, fault = begun_with(plan, self.d.state.run, body.input, self.d.evaluate)
        self.d.record_fact(
            RunStarted(
                body.plan,
                input,
                body.name,
                body.key,
                body.parent,
                body.depth,
                labels=body.labels,
                predecessor=body.predecessor,
                signals=body.signals,
                folder=body.folder,
                queueing=body.queueing,
                budgeted=body.budgeted,
            )
        )
        if fault is not None:
            end_run(self.d, FAILED, StepFault(plan.entry or plan.steps[0].name, 0, "input", fault))

    def _operate_late(self, mail: Pause | Resume | Cancel) -> None:
        if self.d.state.life not in TERMINAL and self.d.state.life != INITIAL:
            self._operate(mail)

    def _brought(self, sender: str, body: LetterEnded) -> Outcome:
        """Copy a large result of a child to a blob of the parent, because a blob belongs to its run.

        Templates cannot read typed values of Python workflows: a playbook gets plain data.
        """
        outcome = body.outcome
        if not isinstance(outcome, Succeeded):
            return outcome
        graph = self.d.graph
        plain = not graph.by_events and not graph.plan.typed and self._is_coded(body.parent)
        if outcome.blob is None:
            return Succeeded(to_plain_data(outcome.result)) if plain else outcome
        result = stored_value(self.turn, sender, outcome.blob.hash)
        return Succeeded(*self.d.box(to_plain_data(result) if plain else result))

    def _is_coded(self, at: Parent) -> bool:
        """Whether the child of this command is a Python workflow."""
        opened = self.d.state.open.get(at.command)
        if opened is None:
            return False
        call, work = opened.calls.get(at.call), self.d.graph.step(opened.step).work
        plan = work.plan if isinstance(work, Child) else call.child if call is not None else ""
        return plan not in ("", ITSELF) and self.graph is not None and self.graph(plan).by_events

    def ring(self, key: str) -> None:
        """A timer is due."""
        state = self.d.state
        if state.paused or state.life not in (RUNNING, ENDING):
            return
        if key == RUN_TIMER:
            if state.life == RUNNING and state.timed_out is None:
                self.d.record_fact(RunTimedOut(self.d.graph.plan.timeout or 0.0))
            return
        group = group_of(key) if self.d.graph.collects_with_timeout else None
        if group is not None:
            moment = runs_out(self.d.graph, state, key)
            if moment is not None and moment <= self.d.now:
                gather_no_longer(self.d, *group)
            return
        command, _, call = key.partition("#")
        if command in state.open:
            self._ring(command, call)

    def _ring(self, command: str, call: str) -> None:
        opened = self.d.state.open[command]
        if call:
            if call in opened.calls:
                self.d.record_fact(CallSettled(command, call, self._rung(opened.calls[call])))
        elif starts_at(self.d.graph, opened) is not None:
            self.d.due[command] = None
        elif command not in self.settled and command not in self.d.state.judge:
            outcome = outcome_of_timer(self.d.graph.step(opened.step), opened, self.d.now)
            if outcome is not None:
                self._report(command, Report(opened.attempt, outcome))

    def _rung(self, call: Awaited) -> Outcome:
        """A body gets a timeout, which no signal can bring; a playbook gets a result that names the timer."""
        if self.d.graph.by_events and (call.signal or call.child):
            return TimedOut()
        return Succeeded({"by": "timer"})


def reported(lease: Lease, done: Done) -> Report:
    """Return the outcome that a worker has reported in the form in which it is logged."""
    return Report(
        attempt=lease.command.attempt,
        outcome=done.outcome,
        item=lease.command.item,
        worker=lease.worker,
        generation=lease.generation,
        claimed_at=lease.claimed_at,
        started_at=done.started_at,
        losses=lease.losses,
        writes=done.writes,
        usage=done.usage,
        events=done.events,
        unasked=done.unasked,
    )


def _request_lines(step: str, visit: int, report: Report, now: Instant) -> Iterator[Any]:
    """Return the requests of a report as lines of the run's stream: they are shown when they are asked, and once."""
    for sent in report.events:
        if sent.asks is not None:
            line = {"at": now, "step": step, "visit": visit, "attempt": report.attempt, "stream": "event"}
            yield {**line, "type": sent.type, "data": sent.data, "text": str(sent.data.get("prompt", ""))}


def _failed(report: Report, fault: Fault) -> Report:
    return structs.replace(report, outcome=Failed(fault), writes=(), events=())


def _fits(write: Write, held: Any) -> bool:
    match write:
        case AddTo():
            return can_add(held)
        case AppendTo():
            return isinstance(held, list)
        case _:
            return True
