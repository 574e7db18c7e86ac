"""A file as a user would write it; mypy --strict and pyright must find that every type is known and right."""

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import refold
from refold import (
    Collect,
    Context,
    Event,
    Handle,
    Retry,
    StartEvent,
    StopEvent,
    SyncContext,
    SyncEngine,
    SyncHandle,
    Workflow,
    flow,
    step,
)
from refold.plan import Call, Plan
from refold.plan import Step as PlanStep
from refold.stages import Pipeline, PipelineResult, Stage


class Page(Event):
    url: str
    size: int = 0


@dataclass
class Receipt:
    total: float


class Wanted(StartEvent):
    urls: list[str]


def charge(card: str, amount: int) -> str:
    return f"{card}: {amount}"


async def price(item: str) -> float:
    return 7.5 * len(item)


@flow
async def order(ctx: Context, item: str, amount: int = 1) -> float:
    found = assert_type(await ctx.call(price, item), float)
    receipt = await ctx.options(key="charge", retry=Retry(attempts=3), timeout="5s").call(charge, "card", amount=2)
    assert_type(receipt, str)
    await ctx.sleep("1s", key="nap")
    answer: object = await ctx.ask("Send it?", timeout="1d")
    ctx.log(f"{receipt} {answer}")
    paid = assert_type(await ctx.wait_for("paid", timeout="1d", type=Receipt), Receipt)
    count = assert_type(await ctx.ask("How many?", type=int), int)
    ctx.set("count", count + paid.total)
    assert_type(ctx.get("count", type=float), float)
    assert_type(ctx.get("missing", 1.5, type=float), float)
    return found * amount


@flow(timeout="1h")
def sync_order(ctx: SyncContext, item: str) -> list[str]:
    assert_type(ctx.call(price, item), float)
    assert_type(ctx.options(timeout=1).call(charge, "card", 2), str)
    assert_type(ctx.run_child(order, item, amount=2), float)
    ctx.sleep(0.5)
    assert_type(ctx.wait_for("paid", type=Receipt), Receipt)
    assert_type(ctx.ask("How many?", type=int), int)
    return [item]


class Crawl(Workflow[int]):
    retry = Retry(attempts=3, delay=0.5)

    @step
    async def begin(self, ctx: Context, ev: Wanted) -> list[Page]:
        pages = await ctx.map(self.fetch, [Page(url=url) for url in ev.urls], max_in_flight=2)
        assert_type(pages[0], Page)
        prices = await ctx.options(key="prices").map(price, ev.urls)
        assert_type(prices[0], float)
        children = await ctx.map(order, [{"item": "tea"}], tolerate=1)
        assert_type(children[0], float)
        return list(pages)

    @step(mapped=True)
    async def fetch(self, page: Page) -> Page:
        return Page(url=page.url, size=len(page.url))

    @step(collect=Collect(Page, n="pages"), workers=4, timeout="30s")
    def add(self, ctx: SyncContext, pages: list[Page]) -> StopEvent:
        ctx.set("total", sum(page.size for page in pages))
        ctx.update("seen", lambda count: count + 1, 0)
        return StopEvent(result=ctx.get("total"))


class Typed(Workflow[Receipt]):
    @step
    async def only(self, ev: StartEvent, ctx: Context) -> StopEvent[Receipt]:
        items = await ctx.map(self.each, [Page(url="a")])
        assert_type(items[0], Receipt)
        stop = StopEvent(result=Receipt(ev.get("total", 1.0)))
        assert_type(stop.result, Receipt)
        return stop

    @step(mapped=True)
    async def each(self, page: Page) -> StopEvent[Receipt]:
        return StopEvent(result=Receipt(page.size))


class Untyped(Workflow):
    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        child = assert_type(await ctx.run_child(Crawl, urls=["a"]), int)
        return StopEvent(result=child + assert_type(await ctx.run_child(Crawl, Wanted(urls=[])), int))


async def main() -> None:
    async with refold.open_engine(db="runs.db", settings=refold.Settings(slots=4)) as engine:
        handle = await engine.options(key="order-7", name="first").start(order, "tea", amount=2)
        assert_type(handle, Handle[float])
        assert_type(handle.id, str)
        assert_type(await handle.result(), float)
        assert_type(await engine.run(order, item="tea"), float)
        assert_type(await engine.run(sync_order, "tea"), list[str])
        assert_type(await engine.options(key="k").run(Crawl, urls=["a", "bb"]), int)
        assert_type(await (await engine.start(Crawl, {"urls": []})).result(), int)
        assert_type(await (await engine.attach(handle.id, order)).result(), float)
        assert_type((await engine.runs(label={"a": "b"})).cursor, str)
        async for shown in handle.stream():
            print(shown.number, shown.value)
        untyped = await engine.start(Untyped)
        plan = Plan(name="p", steps=(PlanStep(name="a", work=Call(settings={"result": 3})),))
        planned: Handle = await engine.start(plan, {"n": 1})
        playbook = await engine.start(refold.playbook("etl.yaml"), day="monday")
        print(await untyped.result(), await planned.result(), await playbook.result())
        pipeline = Pipeline("two", [Stage("first", order), Stage("then", Crawl)])
        assert_type(await engine.run(pipeline, item="tea"), PipelineResult)


def without_async() -> None:
    with refold.open_engine(db="runs.db") as engine:
        assert_type(engine, SyncEngine)
        handle = engine.options(key="order-7", key_policy="while_running", labels={"a": "b"}).start(
            order, "tea", amount=2
        )
        assert_type(handle, SyncHandle[float])
        assert_type(handle.result(), float)
        assert_type(engine.run(order, item="tea"), float)
        assert_type(engine.start(Crawl, {"urls": []}).result(), int)
        assert_type(engine.attach(handle.id, order).result(), float)
        assert_type(engine.show(handle.id).status, str)
        assert_type([row.labels for row in engine.runs(workflow=order, since="2h")], list[dict[str, str]])
        handle.signal("go", 1)
        handle.cancel("enough")


def everything() -> dict[str, Any]:
    assert_type(refold.run_sync(order, "tea", amount=3), float)
    assert_type(refold.options(db="runs.db", key="once").run_sync(sync_order, item="tea"), list[str])
    return {"total": assert_type(refold.run_sync(Crawl, urls=["a"]), int)}


if __name__ == "__main__":
    asyncio.run(main())
    print(everything())
