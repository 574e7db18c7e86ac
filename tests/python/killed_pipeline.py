"""A pipeline of workflows that leaves a mark for everything it does, and a program that runs it until it is killed.

`python -m tests.python.killed_pipeline DB RUN` runs it; it dies where the file `die` beside the store says.
"""

import asyncio
import os
import sys
from typing import Any

from refold import Context, Event, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.stages import LoopStage, ParallelStage, Pipeline, PipelineState, Stage
from tests.python.killed import SHORT, die_at, mark

ROUNDS = 4


class Half(Event):
    n: int
    folder: str


class Polish(Workflow):
    """Two steps, so that a run of it can be half done."""

    @step
    async def first(self, ev: StartEvent) -> Half:
        mark(ev.folder, f"first {ev.n}")
        return Half(n=ev.n, folder=ev.folder)

    @step
    async def second(self, ev: Half) -> StopEvent:
        die_at(ev.folder, f"second {ev.n}")
        mark(ev.folder, f"second {ev.n}")
        return StopEvent(result=ev.n + 1)


@flow
async def quick(ctx: Context, folder: str) -> str:
    mark(folder, "quick")
    return "quick"


@flow
async def patient(ctx: Context, folder: str) -> str:
    """Ends when the other branch has, and perhaps dies before."""
    mark(folder, "patient began")
    await ctx.sleep(0.3)
    die_at(folder, "patient")
    mark(folder, "patient")
    return "patient"


@flow
async def stuck(ctx: Context, folder: str) -> None:
    await ctx.sleep("1h")
    mark(folder, "stuck")


def inputs(state: PipelineState) -> dict[str, Any]:
    mark(state.input["folder"], f"asked {state.get('rounds', 0)}")
    return {"folder": state.input["folder"], "n": state.get("rounds", 0)}


def until(state: PipelineState, round: int) -> bool:
    state.set("rounds", round)
    mark(state.input["folder"], f"until {round}")
    die_at(state.input["folder"], f"until {round}")
    return round == ROUNDS


def folder(state: PipelineState) -> dict[str, Any]:
    return {"folder": state.input["folder"]}


def raced(state: PipelineState) -> dict[str, Any]:
    die_at(state.input["folder"], "raced")
    return folder(state)


PIPELINE = Pipeline(
    "killed",
    [
        ParallelStage("both", [Stage("quick", quick), Stage("patient", patient)]),
        ParallelStage("race", [Stage("stuck", stuck, input=folder), Stage("won", quick, input=folder)], join="first"),
        LoopStage("polish", Stage("round", Polish, input=inputs), until=until, max_rounds=9),
        Stage("last", quick, input=raced),
    ],
)


async def begin(db: str, run: str) -> Any:
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.options(run=run).start(PIPELINE, folder=os.path.dirname(db))
        return await handle.result()


async def go_on(db: str, run: str) -> Any:
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, PIPELINE)
        return await asyncio.wait_for(handle.result(), 60)


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1], sys.argv[2]))
