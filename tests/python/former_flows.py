"""Workflows of which runs were left unfinished by a Refold that hashed names and shapes alone."""

import refold
from refold import Context, Event, StartEvent, StopEvent, Workflow, step

made: list[str] = []


def charge(amount: int) -> str:
    made.append(f"charged {amount}")
    return f"receipt {amount}"


@refold.flow
async def pack(ctx: Context, parts: int) -> int:
    await ctx.call(made.append, f"packed {parts}")
    return parts


@refold.flow
async def order(ctx: Context, amount: int) -> str:
    receipt = await ctx.call(charge, amount)
    packed = await ctx.run_child(pack, parts=2)
    mapped = await ctx.map(pack, [{"parts": 5}])
    await ctx.sleep(0.01)
    paid = await ctx.wait_for("paid")
    await ctx.call(made.append, "shipped")
    return f"{receipt}, {packed} and {mapped[0]} parts, paid {paid}"


class Item(Event):
    n: int


class Sorted(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in ev.numbers]

    @step(workers=1)
    async def wait(self, ctx: Context, ev: Item) -> StopEvent | None:
        await ctx.wait_for("go")
        made.append(f"item {ev.n}")
        return StopEvent(result=f"item {ev.n} was last") if ev.n == 2 else None
