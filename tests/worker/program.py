"""A program in the foreground, for the tests to send signals to: `program.py BODY FOLDER GRACE [ISOLATION [NEXT]]`."""

import asyncio
import sys
import threading
from typing import Any

from refold.cli.commands.execute import in_foreground
from refold.errors import Stopped
from refold.plan import Arc, Call, Plan, Step
from refold.settings import Settings
from refold.wiring import open_process

BODIES = "tests.executors.bodies"


def plan(body: str, folder: str, isolation: str, then: str) -> Plan:
    work = Call(tool="function", settings={"call": f"{BODIES}:{body}", "isolation": isolation})
    first = Step(name="a", work=work, input=folder, arcs=(Arc(to="b"),) if then else ())
    after = Call(tool="function", settings={"call": f"{BODIES}:{then}"})
    return Plan(name="p", steps=(first, Step(name="b", work=after, input=folder)) if then else (first,))


async def main(body: str, folder: str, grace: str, isolation: str = "inline", then: str = "") -> Any:
    settings = Settings(lease_for=1.0, sweep_every=0.1, poll=0.1, process_grace=0.1)
    async with open_process(settings=settings) as process:
        engine, run = process.engine, "RUN"

        async def work() -> Any:
            await engine.options(run=run).start(plan(body, folder, isolation, then))
            return await engine.result(run)

        try:
            return await in_foreground(
                work(),
                process.stop,
                grace=float(grace),
                resume=f"refold runs resume {run}",
                say=lambda line: print(line, file=sys.stderr, flush=True),
            )
        except Stopped as stopped:
            row = engine.store.summary(run)
            print("left", row and row.status, "threads", threading.active_count(), flush=True)
            sys.exit(stopped.code)


if __name__ == "__main__":
    print("result", asyncio.run(main(*sys.argv[1:])), flush=True)
