"""Workflows and playbooks for the tests of what users test with."""

import asyncio
import itertools
import time
from pathlib import Path

from refold import Collect, Context, Event, Retry, StartEvent, StopEvent, Workflow, flow, step

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: play}\n"

ORDER = """\
workload: {id: 7}
workflow:
  - step: fetch
    tool: {kind: http, url: "http://shop.example/orders/{{ workload.id }}"}
    retry: {attempts: 4, backoff: exponential, delay: 1h}
    timeout: 1m
    output:
      schema:
        type: object
        required: [data]
        properties: {data: {type: object, required: [total], properties: {total: {type: integer, minimum: 1}}}}
    next: price
  - step: price
    input: {total: "{{ fetch.data.total }}"}
    tool: {kind: python, code: "return total * 2"}
    next: cool
  - step: cool
    tool: {kind: wait, seconds: 7d}
    next: approve
  - step: approve
    tool: {kind: gate, timeout: 2d, on_timeout: fail}
    next: tell
  - step: tell
    tool: {kind: noop, result: "{{ price }} by {{ approve.option }}"}
"""

LIST = """\
workflow:
  - step: send
    loop: {in: [a, b, c], iterator: name}
    retry: {attempts: 3, delay: 10s}
    tool: {kind: http, url: "http://post.example/{{ name }}"}
    next: both
  - step: both
    tool:
      - {name: first, kind: shell, script: "echo one"}
      - {name: second, kind: python, code: "return {'n': 2}"}
"""


def playbook(folder: Path, body: str, name: str = "play.yaml") -> str:
    (folder / name).write_text(HEAD + body)
    return str(folder / name)


class Page(Event):
    n: int


class Done(Event):
    n: int


fetched: list[int] = []


async def square(n: int) -> int:
    fetched.append(n)
    return n * n


class Crawl(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(ev.pages)]

    @step(retry=Retry(attempts=3, delay=5.0))
    async def fetch(self, ctx: Context, ev: Page) -> Done:
        return Done(n=await ctx.call(square, ev.n))

    @step(collect=Collect(Done, n=2))
    async def join(self, ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))


class Patient(Workflow):
    """Sleeps, asks and waits for a word."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep("7d")
        answer = await ctx.ask("May I?")
        word = await ctx.wait_for("word", timeout="3d")
        return StopEvent(result=[answer, word])


class Plain(Workflow):
    """Steps without `async` run in threads."""

    @step
    def nap(self, ctx: Context, ev: StartEvent) -> StopEvent:
        time.sleep(0.02)
        ctx.sleep("7d")  # type: ignore[unused-coroutine]
        return StopEvent(result=ev.n + 1)


class Calling(Workflow):
    @step
    def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ctx.call(int, 5))


@flow
async def slowly(ctx: Context, n: int) -> int:
    await asyncio.sleep(3600)
    return n


_times = itertools.count()


class Moody(Workflow):
    """Its result is another one every time."""

    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=next(_times))


class Racing(Workflow):
    """Its result depends on who comes first."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(4)]

    @step
    async def fetch(self, ctx: Context, ev: Page) -> Done:
        await asyncio.sleep(0.01)
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=4))
    async def join(self, ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=[each.n for each in done])


class Endless(Workflow):
    @step
    async def turn(self, ctx: Context, ev: StartEvent | Page) -> Page | StopEvent:
        return Page(n=1)


ROWS = """\
workflow:
  - step: each
    loop: {source: {kind: jsonl, path: rows.jsonl}, iterator: row}
    tool: {kind: python, code: "return row['n'] * 2"}
    input: {row: "{{ row }}"}
"""
