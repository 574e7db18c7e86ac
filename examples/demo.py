"""One workflow in the simulator: it is killed once on the way, comes back, and repeats nothing that was finished."""

import asyncio
from typing import Any

from refold import Arc, Call, Loop, Plan, Retry, Step
from refold.core.fold import Record
from refold.runtime.engine import Engine
from refold.testing.faults import Rates
from refold.testing.scripted import Scripted
from refold.testing.show import told
from refold.testing.simulate import EPOCH, Simulation

PLAN = Plan(
    name="orders",
    steps=(
        Step(name="fetch", work=Call(tool="fetch"), arcs=(Arc(to="check"),)),
        Step(
            name="check",
            work=Call(tool="check"),
            loop=Loop(items={"path": ["fetch", "orders"]}, name="order", window=2),
            retry=Retry(attempts=3, delay=1.0, backoff="exponential"),
            arcs=(Arc(to="report"),),
        ),
        Step(name="report", work=Call(tool="report"), input={"checked": {"path": ["check", "results"]}}),
    ),
)

bodies: list[str] = []


async def fetch(call: Any) -> Any:
    bodies.append(call.command.id)
    await asyncio.sleep(0.5)
    return {"orders": ["apples", "pears", "plums", "nuts"]}


async def check(call: Any) -> Any:
    bodies.append(call.command.id)
    await asyncio.sleep(1.0)
    if call.input == "pears" and call.command.attempt == 1:
        raise ConnectionError("the warehouse did not answer")
    return f"{call.input} ok"


async def report(call: Any) -> Any:
    bodies.append(call.command.id)
    return ", ".join(call.input["checked"])


def line(record: Record) -> str:
    number, at, fact = record
    return f"  {number:3}  {(at - EPOCH) / 1e6:6.2f} s  {told(fact)}"


def main() -> None:
    simulation = Simulation(
        seed=1, tools={"fetch": fetch, "check": check, "report": report}, evaluate=Scripted(), rates=Rates()
    )
    runs: list[str] = []

    async def script(engine: Engine) -> None:
        runs.append(await engine.start(PLAN, name="demo"))
        await asyncio.sleep(2.2)
        print("  kill -9 at 2.20 s, in the middle of the second step; a new process takes over\n")
        simulation.restart()

    print("A workflow of three steps; the second checks four orders, two at a time. Time is virtual.\n")
    simulation.run(script, nodes=1)
    run = runs[0]
    print("Its log, fact by fact:\n")
    for record in simulation.store.facts(run):
        print(line(record))
    again = sorted({body for body in bodies if bodies.count(body) > 1})
    print(f"\nResult: {simulation.folded(run).result}")
    print(f"Bodies begun: {len(bodies)}; begun more than once: {', '.join(again)}")
    print("(tried again after an error, or under way when the process died). No finished step ran again.")
    simulation.loop.close()


if __name__ == "__main__":
    main()
