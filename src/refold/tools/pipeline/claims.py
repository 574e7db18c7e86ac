"""Runs a pipeline for claimed rows, a few at a time.

A claim is stored before its rows are run, so that none is lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, convert, structs, to_builtins

from refold.core.faults import short
from refold.core.outcomes import Failed, Fault, Parked, SetKey, Succeeded, fault_of_outcome
from refold.core.pipeline import Claim, TaskPipeline
from refold.ports import Done, ToolCall

RunOne = Callable[[ToolCall, TaskPipeline], Awaitable[Done]]
"""Runs a pipeline for a call, from its beginning or from where the call says it was put aside."""


class ClaimedRow(Struct):
    """A claimed row, or all rows of a claim, with the progress of its pipeline."""

    value: Any
    progress: Any = None
    done: bool = False
    ctx: dict[str, Any] = {}


class Cursor(Struct):
    """The stored state of a loop over claims."""

    frames: int = 0
    rows: list[ClaimedRow] = []
    tries: int = 0
    ctx: dict[str, Any] = {}


class Numbers(Struct, frozen=True):
    """The rendered limits of claims."""

    rows: int
    at_once: int
    attempts: int
    pullers: int


class Claiming:
    """Claims rows and runs them: `run_one` runs the tasks for a row. The claim itself is a pipeline of one task."""

    def __init__(self, call: ToolCall, pipeline: TaskPipeline, numbers: Numbers, run_one: RunOne, now: int) -> None:
        assert pipeline.claim is not None
        self.call, self.claim, self.numbers, self.run_one, self.now = call, pipeline.claim, numbers, run_one, now
        self.body = structs.replace(pipeline, claim=None)
        self.cursor = convert(call.command.progress or {}, Cursor)

    async def run(self) -> Done:
        cursor = self.cursor
        if cursor.rows:
            ended = await self._run_rows()
            if ended is not None:
                return ended
        claimed = await asyncio.gather(*(self._claimed(puller) for puller in range(self.numbers.pullers)))
        for each in claimed:
            if isinstance(each, Fault):
                return Done(Failed(each))
        frames = [rows for rows in claimed if isinstance(rows, list) and rows]
        if not frames:
            writes = tuple(SetKey(key, value) for key, value in cursor.ctx.items())
            return Done(Succeeded({"cursor": "drained", "frames": cursor.frames}), writes=writes)
        cursor.frames += len(frames)
        whole = self.claim.whole
        cursor.rows = (
            [ClaimedRow(rows) for rows in frames] if whole else [ClaimedRow(row) for rows in frames for row in rows]
        )
        cursor.tries = 1
        return self._aside(self.now, f"{sum(map(len, frames))} rows were claimed")

    async def _claimed(self, puller: int) -> list[Any] | Fault:
        """Claim rows. Each claim has an idempotency key of its own, the same when it is repeated after a crash."""
        given = self.call.input or {}
        scope = {**(given.get("scope") or {}), "__frame_max_rows": self.numbers.rows}
        id = f"{self.call.command.id}/claim.{self.cursor.frames}.{puller}"
        command = structs.replace(self.call.command, id=id, input={**given, "scope": scope}, progress=None)
        pipeline = structs.replace(self.body, tasks=(self.claim.task,), single=True)
        done = await self.run_one(structs.replace(self.call, command=command), pipeline)
        if isinstance(done.outcome, Succeeded):
            result = done.outcome.result
            return list(result.get("rows") or ()) if isinstance(result, dict) else []
        return fault_of_outcome(done.outcome) or Fault("claim", "a claim cannot wait", retryable=False)

    async def _run_rows(self) -> Done | None:
        """Run the rows that are not done. The first failure repeats all of them, up to the limit."""
        cursor, slots = self.cursor, asyncio.Semaphore(self.numbers.at_once * self.numbers.pullers)

        async def run(place: int, row: ClaimedRow) -> Done:
            async with slots:
                return await self.run_one(self._call_for(place, row), self.body)

        rows = [(place, row) for place, row in enumerate(cursor.rows) if not row.done]
        dones = await asyncio.gather(*(run(place, row) for place, row in rows))
        waits: list[int] = []
        for (_, row), done in zip(rows, dones, strict=True):
            match done.outcome:
                case Succeeded():
                    row.done, row.progress = True, None
                    row.ctx = {write.key: write.value for write in done.writes if isinstance(write, SetKey)}
                case Parked(until=until, progress=progress):
                    row.progress = progress
                    waits.append(until or self.now)
                case outcome:
                    fault = fault_of_outcome(outcome) or Fault("row", "a row cannot wait for this", retryable=False)
                    return self._again(fault)
        if waits:
            return self._aside(min(waits), "rows wait for another try")
        for row in cursor.rows:
            cursor.ctx |= row.ctx
        cursor.rows = []
        return None

    def _again(self, fault: Fault) -> Done:
        cursor = self.cursor
        if cursor.tries >= self.numbers.attempts:
            return Done(Failed(fault))
        cursor.tries += 1
        cursor.rows = [ClaimedRow(row.value) for row in cursor.rows]
        return self._aside(self.now, short(f"try {cursor.tries} of the claimed rows: {fault.message}", 500))

    def _call_for(self, place: int, row: ClaimedRow) -> ToolCall:
        given, claim = self.call.input or {}, self.claim
        names = {"frame": {"rows": row.value}} if claim.whole else {claim.row: row.value}
        scope = dict(given.get("scope") or {})
        scope["iter"] = {**(scope.get("iter") or {}), **names}
        command = structs.replace(
            self.call.command,
            id=f"{self.call.command.id}/{self.cursor.frames}.{place}",
            input={"input": {**(given.get("input") or {}), **names}, "scope": scope},
            progress=row.progress,
        )
        return structs.replace(self.call, command=command)

    def _aside(self, until: int, reason: str) -> Done:
        return Done(Parked(until=until, progress=to_builtins(self.cursor), reason=reason))


def numbers_of(claim: Claim, number: Callable[[Any, str], float]) -> Numbers:
    """Return the rendered limits. Raises CannotEvaluate."""
    told = {
        "rows": number(claim.rows, "max_rows"),
        "at_once": number(claim.at_once, "row_concurrency"),
        "attempts": number(claim.attempts, "max_attempts"),
        "pullers": number(claim.pullers, "max_in_flight"),
    }
    return Numbers(**{name: max(int(value), 1) for name, value in told.items()})
