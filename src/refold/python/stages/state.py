"""The state that the functions of a pipeline read and write."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from refold.errors import InvalidValue
from refold.python.stages.stages import PipelineResult, StageResult, total_usage

INPUT, RESULT = "pipeline.input", "pipeline.result:"


class StoredState(Protocol):
    """The state of a run, with what Refold itself keeps there."""

    def get(self, key: str, default: Any = None) -> Any: ...

    def keys(self) -> list[str]: ...

    def kept(self, key: str, default: Any = None) -> Any: ...


class PipelineState:
    """What is known so far, and a map that all functions of a pipeline share.

    What one of them writes is there for those that are asked after it, and is recorded with its answer. It may be kept
    for reading; to write is possible only until the function has returned.
    """

    def __init__(self, state: StoredState, stages: Sequence[str], rounds: Mapping[str, Any]) -> None:
        self._state, self._stages, self._rounds = state, stages, dict(rounds)
        self._wrote: dict[str, Any] = {}
        self._deleted: dict[str, None] = {}
        self._is_over = False

    @property
    def input(self) -> dict[str, Any]:
        """The inputs of the pipeline."""
        found: dict[str, Any] = self._state.kept(INPUT, {})
        return found

    @property
    def last(self) -> Any:
        """The output of the last stage, or round of a loop, that was not skipped; None if there is none."""
        found = self.outputs()
        return found[-1] if found else None

    def outputs(self) -> list[Any]:
        """The outputs of all stages that were not skipped, in order."""
        return [*(each.output for each in self.results() if not each.skipped), *self._rounds.values()]

    def result(self, stage: str) -> Any:
        """The output of a stage; None if it was skipped or has not ended. Raises KeyError if there is no such stage."""
        if stage not in self._stages:
            raise KeyError(f"there is no stage {stage!r}; there are {', '.join(self._stages)}")
        done = {each.name: each.output for each in self.results()} | self._rounds
        return done.get(stage)

    def results(self) -> list[StageResult]:
        """The results of the stages that have ended, in their order."""
        found: Iterable[StageResult | None] = (self._state.kept(f"{RESULT}{name}") for name in self._stages)
        return [each for each in found if each is not None]

    @property
    def usage(self) -> dict[str, int | float]:
        """The usage of the stages that have ended."""
        return total_usage([each.usage for each in self.results()])

    def get(self, key: str, default: Any = None) -> Any:
        if key in self._wrote:
            return self._wrote[key]
        return default if key in self._deleted else self._state.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self._may_write(key)
        self._wrote[key] = value

    def delete(self, key: str) -> None:
        self._may_write(key)
        self._wrote.pop(key, None)
        self._deleted[key] = None

    def keys(self) -> list[str]:
        known = dict.fromkeys([*self._state.keys(), *self._wrote])
        return [key for key in known if key in self._wrote or key not in self._deleted]

    def answered(self, value: Any) -> dict[str, Any]:
        """Return the answer of a function and all that it has written as one value, to record it."""
        self._is_over = True
        return {"value": value, "wrote": self._wrote, "deleted": list(self._deleted)}

    def _may_write(self, key: str) -> None:
        if self._is_over:
            raise InvalidValue(key, "the function that was given this state has returned; write before it does")


def result_of(pipeline: str, state: PipelineState) -> PipelineResult:
    shared = {key: state.get(key) for key in list(state.keys())}
    return PipelineResult(pipeline, state.last, state.results(), shared)
