"""Stages of a pipeline of workflows, as data: one workflow, several at once, or one again and again."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

JOINS = ("all", "first")
BRANCH = "::"  # between the name of a stage and that of its branch


class Stage(Struct, frozen=True):
    """A run of one workflow, which may be a class, an instance, a flow, another pipeline or the plan of a playbook.

    `input` gets the state and returns the inputs of that run; without it they are what the stage before has given, or
    the inputs of the pipeline. `when` gets the state too: if what it returns is false, the stage is skipped.
    """

    name: str
    workflow: Any
    input: Callable[[Any], Any] | None = None
    when: Callable[[Any], Any] | None = None


class ParallelStage(Struct, frozen=True):
    """Several at once. Gives a map from branches to what they gave: of all, or of the first that succeeds, when the
    others are cancelled. If one of all fails, so does the stage, and the others are cancelled too."""

    name: str
    branches: Sequence[Stage]
    join: Literal["all", "first"] = "all"


class LoopStage(Struct, frozen=True):
    """The same stage again and again, until `until(state, round)` says so, at most `max_rounds` times; the first round
    is 1. It returns true when the loop is done, or a LoopDecision."""

    name: str
    stage: Stage | ParallelStage
    until: Callable[[Any, int], Any]
    max_rounds: int


class LoopDecision(Struct, frozen=True):
    """What follows a round: another one, the next stage, or the failure of this one."""

    is_done: bool = False
    failure: str | None = None

    @classmethod
    def cont(cls) -> "LoopDecision":
        return cls()

    @classmethod
    def done(cls) -> "LoopDecision":
        return cls(True)

    @classmethod
    def abort(cls, reason: str = "") -> "LoopDecision":
        return cls(True, reason)


AnyStage: TypeAlias = Stage | ParallelStage | LoopStage


class StageResult(Struct, frozen=True):
    """What came of a stage. Time and usage are those of its runs; of a race, as far as the losers had come by then."""

    name: str
    output: Any = None
    skipped: bool = False
    run: str = ""  # of a loop, that of its last round
    duration: float = 0.0  # seconds
    usage: dict[str, int | float] = {}
    rounds: int = 0
    branches: list["StageResult"] = []


class PipelineResult(Struct, frozen=True):
    """Of a pipeline: what its last stage gave that was not skipped, each stage's result, and the state it leaves."""

    pipeline: str
    output: Any = None
    stages: list[StageResult] = []
    state: dict[str, Any] = {}

    def stage(self, name: str) -> StageResult:
        return next(each for each in self.stages if each.name == name)


def total_usage(amounts: Sequence[dict[str, int | float]]) -> dict[str, int | float]:
    units = dict.fromkeys(unit for each in amounts for unit in each)
    return {unit: sum(each.get(unit, 0) for each in amounts) for unit in units}


def plain_stages(stages: Sequence[Any]) -> Iterator[Stage]:
    """Yield the stages that name a workflow, at any depth."""
    for each in stages:
        if isinstance(each, ParallelStage):
            yield from plain_stages(each.branches)
        elif isinstance(each, LoopStage):
            yield from plain_stages([each.stage])
        else:
            yield each


def problems_of(pipeline: str, stages: Sequence[Any]) -> Iterator[str]:
    if not pipeline:
        yield "a pipeline needs a name: write Pipeline('name', [Stage(…), …])"
    if not stages:
        yield f"pipeline {pipeline!r} has no stages"
    yield from _twice(f"stages of pipeline {pipeline!r}", stages)
    for each in stages:
        yield from _stage_problems(each)


def _twice(of: str, stages: Sequence[Any]) -> Iterator[str]:
    times = Counter(getattr(each, "name", "") for each in stages)
    yield from (f"{count} {of} are called {name!r}" for name, count in times.items() if name and count > 1)


def _stage_problems(stage: Any) -> Iterator[str]:
    if not isinstance(stage, Stage | ParallelStage | LoopStage):
        yield f"{stage!r} is not a stage: write Stage('name', workflow), ParallelStage or LoopStage"
        return
    name = stage.name
    if not isinstance(name, str) or not name.strip() or any(each in name for each in ("/", "#", BRANCH)):
        yield f"{name!r} cannot be the name of a stage: it must not be empty or contain '/', '#' or {BRANCH!r}"
    match stage:
        case Stage():
            yield from _unfit(name, "input", stage.input)
            yield from _unfit(name, "when", stage.when)
        case ParallelStage():
            yield from _parallel_problems(stage)
        case LoopStage():
            yield from _loop_problems(stage)


def _unfit(stage: str, what: str, function: Any) -> Iterator[str]:
    if function is not None and not callable(function):
        yield f"stage {stage!r}: {what} is a {type(function).__name__}; it must be a function of the state"


def _parallel_problems(stage: ParallelStage) -> Iterator[str]:
    if not stage.branches:
        yield f"stage {stage.name!r} has no branches"
    if stage.join not in JOINS:
        yield f"stage {stage.name!r}: join is {stage.join!r}; it is one of {', '.join(JOINS)}"
    yield from _twice(f"branches of stage {stage.name!r}", stage.branches)
    for each in stage.branches:
        if isinstance(each, Stage):
            yield from _stage_problems(each)
        else:
            yield f"stage {stage.name!r}: a branch is a Stage, and this is a {type(each).__name__}"


def _loop_problems(loop: LoopStage) -> Iterator[str]:
    if isinstance(loop.max_rounds, bool) or not isinstance(loop.max_rounds, int) or loop.max_rounds < 1:
        yield f"stage {loop.name!r}: max_rounds is {loop.max_rounds!r}; it is a number from 1 on"
    if not callable(loop.until):
        yield f"stage {loop.name!r}: until is a {type(loop.until).__name__}; it must be a function of state and round"
    if isinstance(loop.stage, Stage | ParallelStage):
        yield from _stage_problems(loop.stage)
    else:
        yield f"stage {loop.name!r}: a loop repeats a Stage or a ParallelStage, and no {type(loop.stage).__name__}"
