"""A run on a bench: how it stands, and what a person or the world does to it."""

import asyncio
import typing
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from refold.core.faults import fault_text
from refold.core.fold.apply import Record
from refold.core.outcomes import ANSWER, SECOND
from refold.core.read.fact_text import fact_text
from refold.core.read.loaded import Loaded
from refold.core.read.summary import shown_steps
from refold.core.read.template_scope import step_value
from refold.core.read.why import Reason, reasons
from refold.core.state import TERMINAL, RunState
from refold.core.times import seconds, stamp
from refold.errors import Conflict, RefoldError, RunFailed
from refold.queries.reading import RunReader, with_values
from refold.runtime.engine import Engine
from refold.runtime.handle import Handle
from refold.stores.memory import MemoryStore

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", covariant=True, default=Any)
else:
    R = typing.TypeVar("R", covariant=True)
T = typing.TypeVar("T")
LONG = "4000d"  # of virtual time, in which whatever waits for a time has come
LATER = ("join", "loop", "final")  # steps that others come before
SHOWN = 40  # facts of a history


class RunBench(Protocol):
    """What a run needs of the bench it is on."""

    engine: Engine
    store: MemoryStore

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """What comes of this; then all that can happen at this moment happens."""


class StillGoing(AssertionError):
    """A run does not come to its end by itself; the message says what it waits for."""


class Run(Generic[R]):
    def __init__(self, bench: RunBench, id: str, handle: Handle[R] | None) -> None:
        self._bench, self.id, self.handle = bench, id, handle

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.status}>"

    def result(self, within: str | float = LONG) -> R:
        """When it has ended, in virtual time. Raises RunFailed, RunCancelled or StillGoing."""

        async def result() -> R:
            engine = self._bench.engine
            coming = self.handle.result() if self.handle is not None else engine.result(self.id)
            async with asyncio.timeout(seconds(within)):
                return await coming

        try:
            return self._bench.do(result())
        except TimeoutError as error:
            if self.status in TERMINAL:
                raise
            waits = "; ".join(self.waits) or "nothing it could say"
            error_text = f"run {self.id} is {self.status} and waits for {waits}\n{self.story()}"
            raise StillGoing(error_text) from error.__cause__
        except RefoldError as error:
            error.add_note(self.story())
            if isinstance(error, RunFailed) and self.handle is None:
                error.args = (f"run {self.id} failed: {self.error}",)
            raise

    @property
    def status(self) -> str:
        row = self._bench.store.summary(self.id)
        return row.status if row is not None else ""

    @property
    def error(self) -> str:
        """Why it has failed, in a line."""
        error = self.state().error
        if error is None:
            return ""
        why = fault_text(error.fault) if error.fault is not None else error.why
        return f"{error.step}: {why}" if error.step else why

    @property
    def waits(self) -> list[str]:
        """What it waits for: `gate approve`, `signal 'go'`, `timer until …`, in the order of its steps."""
        return [shown(reason) for reason in self.reasons() if reason.kind not in LATER]

    def reasons(self) -> list[Reason]:
        graph, state = RunReader(self._bench.store.views, self.id).read()
        return reasons(graph, state, state.at)

    def state(self) -> RunState:
        return RunReader(self._bench.store.views, self.id).read()[1]

    def steps(self) -> Mapping[str, Mapping[str, Any]]:
        """Each step with its `status`, its `result` and how often it was visited and tried."""
        graph, state = RunReader(self._bench.store.views, self.id).read()

        def computed(loaded: Loaded) -> dict[str, dict[str, Any]]:
            found = shown_steps(graph, state)
            for s, step in enumerate(state.steps):
                if step.done_at:
                    value = step_value(state, loaded, s)
                    found[graph.name(s)]["result"] = value if step.shown is None else value.get("results", value)
            return found

        return with_values(self._bench.store.views, self.id, computed)

    def story(self, most: int = SHOWN) -> str:
        """The last facts of its log, in words."""
        return "\n".join([f"history of run {self.id}:", *told_in_lines(self._bench.store.facts(self.id), most)])

    def published(self) -> list[Any]:
        """What its steps have shown to those who follow the run."""
        handle = self.handle
        if handle is None:
            return []
        lines = self._bench.store.views.lines(self.id)
        found = [(number, line) for number, line in lines if line.get("stream") == "event"]
        return [handle._shown(self.id, number, line).value for number, line in found]

    def signal(self, name: str, value: Any = None) -> None:
        steer = self.handle.signal(name, value) if self.handle else self._bench.engine.signal(self.id, name, value)
        self._bench.do(steer)

    def answer(self, value: Any, request: str = "") -> None:
        """To the question that is open, or to that of this id. Raises Conflict if none or several are."""
        if self.handle is None:
            raise Conflict("only steps of Python workflows ask; `decide` is for gates, `signal` for waits")
        asked = self._bench.do(self.handle.requests())
        if not request and len(asked) != 1:
            raise Conflict(f"{len(asked)} questions are open: {', '.join(each.id for each in asked) or 'none'}")
        self._bench.do(self.handle.answer(request or asked[0].id, value))

    def decide(self, step: str, option: str = "approve", *, by: str = "", feedback: Any = None) -> None:
        """At a gate."""
        self._bench.do(self._bench.engine.decide(self.id, step, option, by=by, feedback=feedback))

    def pause(self) -> None:
        self._bench.do(self._bench.engine.pause(self.id))

    def resume(self) -> None:
        self._bench.do(self._bench.engine.resume(self.id))

    def cancel(self, reason: str = "") -> None:
        self._bench.do(self._bench.engine.cancel(self.id, reason))


def told_in_lines(records: Sequence[Record], most: int) -> list[str]:
    """Facts with their numbers and how long after the beginning they came; of many, the last."""
    began = records[0][1] if records else 0
    lines = [
        f"  {number:>4}  {(at - began) / SECOND:>10.3f} s  {fact_text(fact, at)}"
        for number, at, fact in records[-most:]
    ]
    return [f"  … {len(records) - most} facts before"] * (len(records) > most) + lines


def shown(reason: Reason) -> str:
    """In a few words that a test can name."""
    until = f" until {stamp(reason.until)}" if reason.until else ""
    match reason.kind:
        case "signal" if reason.signal.startswith(ANSWER):
            return f"answer {reason.signal.removeprefix(ANSWER)!r} ({reason.step}){until}"
        case "signal":
            return f"signal {reason.signal!r} ({reason.step}){until}"
        case "child":
            return f"child of {reason.step}{until}"
        case kind:
            return f"{kind} {reason.step}{until}"
