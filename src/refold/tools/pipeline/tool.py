"""The tool that runs a pipeline: task after task in one worker, with rules about what follows each try.

A task that has ended is recorded before the next one begins, so that a crash repeats only the task that was running.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, convert, structs, to_builtins

from refold.core import codec
from refold.core.expressions import CannotEvaluate
from refold.core.faults import fault_from_exception
from refold.core.outcomes import SECOND, Blob, Failed, Fault, Parked, SetKey, Succeeded, Suspended, TimedOut
from refold.core.outcomes import fault_of_outcome as fault_in
from refold.core.pipeline import Rule, Task, TaskPipeline, digest
from refold.core.retry import asked_to_wait
from refold.errors import InvalidValue, ToolFailed
from refold.ports import Clock, Done, Tool, ToolCall
from refold.schemas import unfit
from refold.templates import Templates
from refold.time_limits import TimeLimit, began
from refold.tools.pipeline.calls import Awaits, awaits_of, call_of
from refold.tools.pipeline.claims import Claiming, numbers_of
from refold.tools.pipeline.envelope import envelope, raw
from refold.tools.pipeline.finished import MOST_RECORDS, PREFIX, WITHOUT_EFFECT, FinishedTask, key_of, with_finished
from refold.tools.pipeline.render import Renderer
from refold.tools.pipeline.scope import TaskProgress, TaskScope
from refold.tools.pipeline.secrets import Unseen, Vault, Wallet, hidden

VALUES = ("labels", "prev", "ctx", "iter", "vars", "inner")  # parts of the progress that come from tasks
LAST_ERROR = 2_000  # characters of the message of a failed try
LONGEST_WAIT = 365 * 86_400.0  # seconds between two tries


class Tried(Struct):
    """The end of one try of a task; `aside` is what it waits for, and then there is no result yet."""

    data: Any = None
    fault: Fault | None = None
    aside: Parked | Suspended | None = None


class PipelineTool:
    """Runs pipelines; `worker` is the name of the worker, and `vault` its access to secrets, if it has one."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        templates: Callable[[str], Templates],
        clock: Clock,
        worker: str = "",
        vault: Vault | None = None,
        read_blob: Callable[[str, str], Awaitable[bytes]] | None = None,
    ) -> None:
        self.tools, self.templates, self.clock, self.worker, self.vault = tools, templates, clock, worker, vault
        self.read_blob = read_blob

    async def __call__(self, call: ToolCall) -> Done:
        pipeline: TaskPipeline = call.settings[TaskPipeline.tool]
        return await (self._run if pipeline.claim is None else self._run_claims)(call, pipeline)

    async def _run(self, call: ToolCall, pipeline: TaskPipeline) -> Done:
        progress = self._opened(convert(call.command.progress or {}, TaskProgress), call.run)
        if progress.of != call.command.attempt:  # what an earlier try of the step has left behind counts no more
            why = call.command.last_error
            progress = TaskProgress(of=call.command.attempt, since=self.clock.now(), error=why, before=why)
        running = _Running(self, call, pipeline, progress)
        if len(pipeline.tasks) > 1 and call.meanwhile is not None:
            for recorded in await self._recorded(call):
                running.pass_over(recorded)
        return await running.run()

    async def _recorded(self, call: ToolCall) -> list[FinishedTask]:
        """Return what tasks that have ended have left, in their order."""
        assert call.meanwhile is not None
        values = []
        for key, outcome in (await call.meanwhile.recorded_before()).items():
            if key.startswith(PREFIX) and isinstance(outcome, Succeeded):
                values.append(outcome.result if outcome.blob is None else await self._blob(call.run, outcome.blob))
        found = [convert(value, FinishedTask) for value in values]
        opened = [structs.replace(each, progress=self._opened(each.progress, call.run)) for each in found]
        return sorted(opened, key=lambda each: each.progress.runs)

    async def _blob(self, run: str, blob: Blob) -> Any:
        assert self.read_blob is not None
        return codec.unbox(await self.read_blob(run, blob.hash))

    def _opened(self, progress: TaskProgress, run: str) -> TaskProgress:
        if progress.sealed is None:
            return progress
        if self.vault is None:
            raise ToolFailed(Fault("auth", "this worker has no key to open what is kept of a secret step with"))
        values = self.vault.open_all(progress.sealed, run, (digest(progress.sealed),))
        return structs.replace(progress, sealed=None, **{name: values[name] for name in VALUES})

    async def _run_claims(self, call: ToolCall, pipeline: TaskPipeline) -> Done:
        assert pipeline.claim is not None
        try:
            numbers = numbers_of(pipeline.claim, _Running(self, call, pipeline, TaskProgress()).renderer.number)
        except CannotEvaluate as error:
            return Done(Failed(Fault("expression", str(error), retryable=False)))
        unrecorded = structs.replace(call, meanwhile=None)  # rows share a command, and their tasks would share records
        return await Claiming(unrecorded, pipeline, numbers, self._run, self.clock.now()).run()


class _Running:
    """One run of a pipeline, from its start or from where it was put aside, until it ends or waits."""

    def __init__(self, tool: PipelineTool, call: ToolCall, pipeline: TaskPipeline, progress: TaskProgress) -> None:
        self.tool, self.call, self.pipeline, self.progress = tool, call, pipeline, progress
        owner = (pipeline.playbook, call.run)
        self.wallet = Wallet(tool.vault, pipeline.keychain, owner, self._render_for_keychain)
        given = self.wallet.opened(call.input or {}, call.command.sealed)
        self.scope = TaskScope(pipeline, progress, self._ids(), given)
        self.renderer = Renderer(tool.templates(pipeline.language), self.scope, self.wallet)
        self.usage: dict[str, int | float] = {}
        self._told: dict[str, int | float] = {}  # the part of the usage that records have

    def _ids(self) -> dict[str, Any]:
        """Return the names that only NoETL has."""
        if self.pipeline.language != "noetl":
            return {}
        by_engine = {"execution_id": self.call.run, "command_id": self.call.idempotency_key}
        return {**by_engine, "worker_id": self.tool.worker, **self.pipeline.about}

    def _render_for_keychain(self, value: Any, names: Mapping[str, Any]) -> Any:
        self.scope.at_this_moment(**names)
        try:
            return self.renderer.templates.value(value, self.scope)
        finally:
            self.scope.at_this_moment()

    async def run(self) -> Done:
        made, tasks = self.progress, self.pipeline.tasks
        while made.at < len(tasks):
            if made.runs >= self.pipeline.most_runs:
                return self._failed(Fault("runaway", f"the pipeline has run {made.runs:,} tasks", retryable=False))
            task = tasks[made.at]
            ended = await self._run_task(task)
            if ended is not None:
                return ended
            if made.at < len(tasks) and made.runs <= MOST_RECORDS:
                await self._record(task)
        return self._succeeded()

    def pass_over(self, recorded: FinishedTask) -> None:
        """Take what a task has left that ended before a crash."""
        made, before = self.progress, recorded.progress
        if before.of == made.of and before.runs > made.runs:
            with_finished(made, before, recorded.task)
            for unit, amount in recorded.usage.items():
                self.usage[unit] = self._told[unit] = self.usage.get(unit, 0) + amount

    async def _record(self, task: Task) -> None:
        """Record that a task has ended. What holds a secret is not recorded: then a crash repeats the task."""
        meanwhile, made = self.call.meanwhile, self.progress
        if meanwhile is None or task.kind in WITHOUT_EFFECT or task.child is not None:
            return
        left = {name: value for name, value in made.labels.items() if name == task.name}
        is_label = task.name in left and left[task.name] is made.prev
        before = structs.replace(made, labels=left, prev=None if is_label else made.prev)
        used = {unit: amount - self._told.get(unit, 0) for unit, amount in self.usage.items()}
        value = {"task": task.name, "progress": self._kept(before), "usage": used}
        with suppress(ToolFailed, InvalidValue):
            await meanwhile.record(key_of(task, made), Succeeded(value))
            self._told = dict(self.usage)

    async def _run_task(self, task: Task) -> Done | None:
        """Try a task once and apply its rules. Return something if the pipeline has ended or has to wait."""
        made = self.progress
        tried, meta = await self._timed(task)
        if tried.aside is not None:
            return Done(tried.aside, usage=self.usage)
        if self.pipeline.secret:
            self.wallet.remember(tried.data)
        made.runs, made.inner = made.runs + 1, None
        made.labels.pop(task.name, None)
        if tried.fault is None or tried.data is not None:
            made.labels[task.name] = tried.data
        try:
            self._set(task, tried)
            told = envelope(task.kind, tried.data, tried.fault, meta)
            self.scope.at_this_moment(output=told, outcome=told)
            rule = self._rule(task)
            if rule is not None and rule.set:
                self.scope.set(self.renderer.values(rule.set, "set"))
            return self._follow(task, rule, tried)
        except CannotEvaluate as error:
            return self._failed(Fault("expression", f"task {task.name!r}: {error}", retryable=False))
        finally:
            self.scope.at_this_moment()

    def _set(self, task: Task, tried: Tried) -> None:
        """Set the task's values after a try.

        Values that cannot be computed because the try has failed keep their old value.
        """
        if not task.set:
            return
        self.scope.at_this_moment(output=raw(tried.data, tried.fault))
        with suppress(*([] if tried.fault is None else [CannotEvaluate])):
            self.scope.set(self.renderer.values(task.set, "set"))

    async def _timed(self, task: Task) -> tuple[Tried, dict[str, Any]]:
        """Try a task once, and return with it what rules can read as `meta`."""
        began = self.tool.clock.now()
        tried = await self._try(task)
        took = (self.tool.clock.now() - began) / 1000
        return tried, {"attempt": self.progress.attempt, "duration_ms": took, "ts": began / SECOND}

    async def _try(self, task: Task) -> Tried:
        """Try a task once. Any error is an outcome of the task; only a cancellation from outside is passed on."""
        made = self.progress
        if made.attempt == 1 and not made.waiting:
            made.times[task.name] = made.times.get(task.name, 0) + 1
        made.waiting = False
        try:
            return await self._begun(task)
        except CannotEvaluate as error:
            return Tried(fault=Fault("expression", f"task {task.name!r}: {error}", retryable=False))
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            return Tried(fault=fault_from_exception(error))
        except Exception as error:
            fault = fault_from_exception(error)
            answered = task.kind == "http" and isinstance(fault.data, dict)
            return self._shaped(task, Tried(fault.data if answered else None, fault))

    async def _begun(self, task: Task) -> Tried:
        seconds = self.renderer.seconds(task.timeout)
        if task.child is not None or task.kind == "wait":
            return self._awaited(task, seconds)
        ready = await self.renderer.prepared(task)
        if task.kind not in self.tool.tools:
            return Tried(fault=Fault("unknown_tool", f"this worker has no tool {task.kind!r}", retryable=False))
        given = call_of(self.call, task, ready, self.progress, self.pipeline.single)
        unseen = Unseen(self.call.say) if self.pipeline.secret and self.call.say is not None else None
        if unseen is not None:
            given = structs.replace(given, say=unseen.say)
        limit = TimeLimit(self._left(seconds))
        try:
            async with limit:
                return self._shaped(task, self._taken(await self.tool.tools[task.kind](given)))
        except TimeoutError:
            if not limit.expired():
                raise
            return Tried(fault=Fault("timeout", f"task {task.name!r}: no result in time", retryable=True))
        finally:
            if unseen is not None:
                unseen.end()
            self.progress.since += round(limit.waited * SECOND)  # to wait for a turn counts for no limit
            began()

    def _shaped(self, task: Task, tried: Tried) -> Tried:
        """Return the data as later tasks expect it: in NoETL the body of a response has two names."""
        data = tried.data
        if self.pipeline.language == "noetl" and task.kind == "http" and isinstance(data, dict):
            body = data["text"] if data.get("data") is None and data.get("text") is not None else data.get("data")
            tried.data = {**data, "data": body, "body": body}
        missing = [name for name in task.returns if not isinstance(data, Mapping) or name not in data]
        if missing and tried.fault is None and tried.aside is None:
            why = f"the result of task {task.name!r} has no {', '.join(map(repr, missing))}"
            return Tried(data, Fault("schema", why, retryable=False))
        return tried

    def _awaited(self, task: Task, seconds: float | None) -> Tried:
        """Return the recorded end of a child or a wait, or ask the engine for it."""
        waits = awaits_of(task, self.renderer, self.progress, self.tool.clock.now(), seconds)
        outcome = self.call.command.recorded.get(waits.awaited.key)
        if outcome is not None:
            return _settled(waits, outcome)
        return Tried(aside=Suspended((waits.awaited,), self._put_aside()))

    def _put_aside(self, inner: Any = None) -> Any:
        self.progress.waiting, self.progress.inner = True, inner
        return self._kept()

    def _kept(self, progress: TaskProgress | None = None) -> Any:
        """Return the progress as it is stored: if the result is secret, the results of all tasks are sealed."""
        made = to_builtins(self.progress if progress is None else progress)
        if not self.pipeline.secret:
            return made
        counts = {name: value for name, value in made.items() if name not in VALUES}
        return {**counts, "sealed": self.wallet.seal({name: made[name] for name in VALUES})}

    def _taken(self, value: Any) -> Tried:
        if isinstance(value, Done):
            for unit, amount in value.usage.items():
                self.usage[unit] = self.usage.get(unit, 0) + amount
            value = value.outcome
        match value:
            case Succeeded(result=result):
                return Tried(result)
            case Parked():
                return Tried(aside=structs.replace(value, progress=self._put_aside(value.progress)))
            case Suspended():
                raise TypeError("a tool inside a pipeline cannot be suspended")
            case _:
                fault = fault_in(value) if isinstance(value, Failed | TimedOut) else None
                return Tried(value) if fault is None else Tried(fault=fault)

    def _rule(self, task: Task) -> Rule | None:
        return next((rule for rule in task.rules if rule.when is None or self.renderer.holds(rule.when)), None)

    def _follow(self, task: Task, rule: Rule | None, tried: Tried) -> Done | None:
        """Choose the next task. Return something if the pipeline has ended or has to wait."""
        made = self.progress
        do = rule.do if rule is not None else _by_outcome(task, tried)
        why = f"task {task.name!r} went well, and a rule of it says {do}"
        fault = tried.fault or Fault("policy", why, retryable=False)
        if do in ("retry", "fail") and (until := self._asked_to_wait(rule, fault)) is not None:
            reason = self.wallet.conceal((hidden(fault) if self.pipeline.secret else fault).message)
            return Done(Parked(until=until, progress=self._kept(), reason=reason[:500]), usage=self.usage)
        if do == "retry" and rule is not None:
            return self._again(rule, fault)
        if do == "fail":
            return self._failed(fault)
        made.attempt, made.prev, made.error, made.asked_since = 1, tried.data, made.before, 0
        if do == "break":
            made.at = len(self.pipeline.tasks)
        elif do == "jump" and rule is not None:
            made.at = next(at for at, each in enumerate(self.pipeline.tasks) if each.name == rule.to)
        else:
            made.at += 1
        return None

    def _asked_to_wait(self, rule: Rule | None, fault: Fault) -> int | None:
        """Return when the task is tried again because a busy service asks for it, without using up a try. A rule that
        fails has decided; the rules of NoETL count every try."""
        if self.pipeline.language == "noetl" or (rule is not None and rule.do == "fail"):
            return None
        now = self.tool.clock.now()
        until = asked_to_wait(fault, self.progress.asked_since, now)
        if until is not None:
            self.progress.asked_since = self.progress.asked_since or now
        return until

    def _again(self, rule: Rule, fault: Fault) -> Done | None:
        made = self.progress
        attempts = self.renderer.number(rule.attempts, "attempts")
        if made.attempt >= attempts:
            return self._failed(fault)
        wait = self._wait(rule, fault)
        made.attempt += 1
        made.error = self.wallet.conceal((hidden(fault) if self.pipeline.secret else fault).message)[:LAST_ERROR]
        if not wait:
            return None
        until = self.tool.clock.now() + round(wait * SECOND)
        if self.pipeline.timeout is not None and until > made.since + self.pipeline.timeout * SECOND:
            return Done(TimedOut(self.pipeline.timeout), usage=self.usage)
        why = (hidden(fault) if self.pipeline.secret else fault).message
        reason = self.wallet.conceal(f"try {made.attempt} of task {self.pipeline.tasks[made.at].name!r}: {why}")
        return Done(Parked(until=until, progress=self._kept(), reason=reason[:500]), usage=self.usage)

    def _wait(self, rule: Rule, fault: Fault) -> float:
        """Return the seconds before the next try, never less than the error itself asks for."""
        attempt, delay = self.progress.attempt, self.renderer.number(rule.delay, "delay")
        factor = {"none": 0, "fixed": 1, "linear": attempt, "exponential": 2.0 ** min(attempt - 1, 60)}[rule.backoff]
        return min(max(delay * factor, fault.retry_after or 0.0), LONGEST_WAIT)

    def _left(self, seconds: float | None) -> float | None:
        """Return how long a try may take, by its own limit and by that of the pipeline."""
        if self.pipeline.timeout is None:
            return seconds
        left = self.pipeline.timeout - (self.tool.clock.now() - self.progress.since) / SECOND
        return max(left if seconds is None else min(left, seconds), 0.001)

    def _failed(self, fault: Fault) -> Done:
        """Return the failure. It names the task, if there are several."""
        fault = hidden(fault) if self.pipeline.secret else fault
        name = self.pipeline.tasks[min(self.progress.at, len(self.pipeline.tasks) - 1)].name
        if not self.pipeline.single and (fault.data is None or isinstance(fault.data, dict)):
            fault = structs.replace(fault, data={**(fault.data or {}), "task": name})
        return Done(Failed(fault), usage=self.usage)

    def _succeeded(self) -> Done:
        made = self.progress
        writes = tuple(SetKey(key, value) for key, value in made.ctx.items())
        last = made.labels.get(self.pipeline.tasks[0].name) if self.pipeline.single else _gathered(made.labels)
        if self.pipeline.secret:
            found = unfit(self.pipeline.schema, last) if self.pipeline.schema is not None else ""
            if found:
                why = f"the result does not fit its schema, at {found}; the values are secret and not shown"
                return Done(Failed(Fault("schema", why)), usage=self.usage)
            last = self.wallet.seal(last)
        return Done(Succeeded(last), writes=writes, usage=self.usage)


def _by_outcome(task: Task, tried: Tried) -> str:
    if task.rules and task.unmatched:
        return task.unmatched
    return "continue" if tried.fault is None else "fail"


def _settled(waits: Awaits, outcome: Any) -> Tried:
    if isinstance(outcome, Succeeded):
        if waits.by_time(outcome.result):
            return Tried(fault=Fault("timeout", "the child has not ended in time", retryable=True))
        return Tried(waits.data(outcome.result))
    return Tried(fault=fault_in(outcome) or Fault("child_failed"))


def _gathered(labels: dict[str, Any]) -> dict[str, Any]:
    """Return the result of each task; if all are maps, their fields too.

    Later tasks override earlier ones, and labels all fields.
    """
    if not all(isinstance(each, dict) for each in labels.values()):
        return labels
    fields = {key: value for each in labels.values() for key, value in each.items()}
    return {**fields, **labels}
