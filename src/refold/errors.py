"""Every deliberate error of Refold, named by what the catcher should do.

RefoldError
├── Diverged             correct the body: a durable call has other arguments than the recorded one at its place
├── InvalidPlan          correct the workflow; `problems` lists everything that is wrong with it
├── NameTaken            give one of the two workflows another name; `places` says where they are
├── InvalidValue         correct the value; `path` says where it is
│   ├── OverBound        make the value or its schema smaller or simpler: the check exceeded its limit
│   └── Unstorable       return or write something else: this cannot be stored exactly, and trying again is useless
├── NotFound             there is no such run, workflow, step or gate
├── Conflict             another caller was first, or the state of the run does not allow this; look again
│   ├── CannotMigrate    change the plan, or wait until the run has passed the steps in `refusals`
│   ├── RunContinued     send it to `successor`, the run that continues this one
│   └── KeyTaken         use another key, or wait until `run` has ended: the key belongs to it
├── Outdated             take the turn again, and read first: another process has changed one of the runs
├── RunFailed            the run ended as failed; `error` says why
│   └── StepFailed       the same for a Python workflow; `__cause__` is the original error, if it was in this process
│       └── RunTimeout   the run ended because it exceeded its timeout, `after` seconds; also a TimeoutError
├── RunCancelled         the run ended as cancelled; `reason` says why
├── EngineClosed         open another engine, and attach to the run: this one is closed
├── Stopped              exit with its `code`: a signal stopped the process, and the run continues later
├── NotAllowed           use another token: the server does not know this one, or it may not do this
├── LeaseLost            drop the result: another worker has the command now
├── ChildFailed          the child run of a step failed or was cancelled; `fault` says why
├── StageFailed          the same for a stage; `stage` is its name, with its branch if there are several
├── RequestRefused       the run refused the request, or ended without an answer; the message says why
├── LiveObjectLost       create the object again, or declare how: the process that had it has ended
├── ToolFailed           record `fault`: the try failed, in this process or in another
├── StaleWrite           apply the update again to `current`, the newest value of the key
├── Unavailable          the store could not answer; try again
│   ├── Unreachable      look at the server: it does not answer, or takes no writes
│   └── Ambiguous        the commit may or may not have been applied; read before trying again
├── Unusable             correct what the message names; this store cannot be opened before
└── Corrupt              stop writing; the stored bytes or the log are damaged
    ├── TailLost         find out which facts a failover has lost, then accept that or restore them
    └── UnknownFact      written by a newer Refold; upgrade this one
"""

from collections.abc import Sequence
from typing import Any


class RefoldError(Exception):
    """Anything Refold raises on purpose."""


class InvalidPlan(RefoldError):
    def __init__(self, problems: Sequence[str]) -> None:
        self.problems: tuple[Any, ...] = tuple(problems)
        super().__init__("; ".join(self.problems))


class NameTaken(RefoldError):
    def __init__(self, name: str, places: tuple[str, str], advice: str) -> None:
        self.name, self.places = name, places
        first, second = places
        where = f"{first} and {second}" if first != second else f"two of {first}"
        super().__init__(f"two different workflows are called {name!r}: {where}; {advice}")


class InvalidValue(RefoldError):
    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"{path}: {why}")


class OverBound(InvalidValue):
    pass


class Unstorable(InvalidValue):
    retryable = False


class Diverged(RefoldError):
    """A body that started over made another durable call than the recorded one. Nothing was called."""

    kind, retryable = "diverged", False  # another try would find the same record

    def __init__(self, function: str, now: str, recorded: str) -> None:
        self.function, self.now, self.recorded = function, now, recorded
        super().__init__(
            f"this body started over and calls {function}({now}), where it has recorded {function}({recorded}). "
            "Nothing was called. Arguments must be the same in every pass: take times, ids and chance from ctx.now(), "
            "ctx.uuid() and ctx.random(), which are recorded, or name the call with ctx.options(key=...)"
        )


class NotFound(RefoldError):
    pass


class Conflict(RefoldError):
    pass


class Outdated(RefoldError):
    pass


class CannotMigrate(Conflict):
    def __init__(self, run: str, plan: str, refusals: Sequence[tuple[str, str]]) -> None:
        self.refusals = tuple(refusals)  # (step, reason); the step is empty if the reason concerns the whole plan
        lines = [f"  step {step}: {why}" if step else f"  {why}" for step, why in refusals]
        super().__init__("\n".join([f"run {run} cannot follow plan {plan[:12]}:", *lines]))


class RunContinued(Conflict):
    def __init__(self, run: str, successor: str) -> None:
        self.successor = successor
        super().__init__(f"run {run} is continued by run {successor}")


class KeyTaken(Conflict):
    def __init__(self, why: str, run: str) -> None:
        self.run = run
        super().__init__(why)


class RunFailed(RefoldError):
    def __init__(self, run: str, error: Any) -> None:
        self.run, self.error = run, error
        super().__init__(f"run {run} failed: {error}")


class StepFailed(RunFailed):
    pass


class ChildFailed(RefoldError):
    def __init__(self, fault: Any) -> None:
        self.fault = fault
        super().__init__(fault.message)


class StageFailed(RefoldError):
    def __init__(self, stage: str, why: str) -> None:
        self.stage = stage
        super().__init__(f"stage {stage!r} failed: {why}")


class RequestRefused(RefoldError):
    pass


class LiveObjectLost(RefoldError, KeyError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"there is no live object {key!r} in this process; put it there, or declare how with @resource"
        )

    def __str__(self) -> str:
        return str(self.args[0])


class RunTimeout(StepFailed, TimeoutError):
    def __init__(self, run: str, error: Any, after: float) -> None:
        self.after = after
        super().__init__(run, error)
        self.args = (f"run {run} failed: no end after {after:g} s, which is its timeout",)


class RunCancelled(RefoldError):
    def __init__(self, run: str, reason: str = "") -> None:
        self.run, self.reason = run, reason
        super().__init__(f"run {run} was cancelled" + (f": {reason}" if reason else ""))


class EngineClosed(RefoldError):
    def __init__(self) -> None:
        super().__init__(
            "the engine is closed: open another one with `refold.open_engine(...)`; unfinished runs continue there, "
            "and `engine.attach` gives their handles"
        )


class Stopped(RefoldError):
    def __init__(self, signal: int) -> None:
        self.signal, self.code = signal, 128 + signal
        super().__init__(f"stopped by signal {signal}")


class NotAllowed(RefoldError):
    pass


class LeaseLost(RefoldError):
    pass


class ToolFailed(RefoldError):
    def __init__(self, fault: Any) -> None:
        self.fault = fault
        super().__init__(fault.message)


class StaleWrite(RefoldError):
    def __init__(self, key: str, current: Any, version: int, is_there: bool = True) -> None:
        self.key, self.current, self.version, self.is_there = key, current, version, is_there
        super().__init__(f"context key {key!r} has moved on to version {version}")


class Unavailable(RefoldError):
    pass


class Unreachable(Unavailable):
    pass


class Ambiguous(Unavailable):
    pass


class Unusable(RefoldError):
    pass


class Corrupt(RefoldError):
    pass


class TailLost(Corrupt):
    pass


class UnknownFact(Corrupt):
    pass


class BodyLost(BaseException):
    """What ran a body has died, and not the body: the command is handed back, which counts as a loss and not as a try.
    No rule or policy of a step sees it."""
