"""Between a remote worker and its servers, requests are cut, lost, doubled and delayed, and servers are killed: each
command is settled once, each durable call counts once, and no published line is lost or doubled."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from refold import Context, Event, flow
from refold.client.worker import RemoteWorker
from refold.core.facts import CallSettled, Fact, ItemsSettled, StepSettled
from refold.core.outcomes import Suspended
from refold.core.plan import Loop
from refold.plan import Arc, Call, Plan, Step
from refold.ports import ToolCall
from refold.runtime.engine import Engine
from refold.settings import Settings
from tests.client.faulty_proxy import FaultyProxy, Rates
from tests.client.remote import serving, working

STORMY = Rates(cut_before=0.08, lose_answer=0.12, double=0.15, delay=0.15, half_open=0.03)
STEADY = Settings(poll=0.05, sweep_every=0.1, processes=1, lease_for=200.0)  # no lease ends by time


class Counted(Struct):
    """A tool that notes what it did."""

    done: Counter[str]

    async def __call__(self, call: ToolCall) -> Any:
        self.done[f"{call.run}/{call.command.id}"] += 1
        await asyncio.sleep(0)
        return call.command.id


def chain(steps: int, items: int) -> Plan:
    names = [f"s{n}" for n in range(steps)]
    arcs = [(Arc(to=after),) for after in names[1:]] + [(Arc(to="each"),)]
    work = Call(tool="counted")
    plain = [Step(name=name, work=work, arcs=to) for name, to in zip(names, arcs, strict=True)]
    each = Step(name="each", work=work, loop=Loop(items=list(range(items)), max_in_flight=8))
    return Plan(name="chain", steps=(*plain, each))


def same(n: int) -> int:
    return n


class Shown(Event):
    n: int


@flow
async def talkative(ctx: Context, n: int) -> int:
    total = 0
    for i in range(n):
        total += await ctx.call(same, i)
        await ctx.publish(Shown(n=i))
    return total


def settled(facts: list[Fact]) -> Counter[tuple[str, int, int | None, int]]:
    """How often each command was settled, by its try."""
    found: Counter[tuple[str, int, int | None, int]] = Counter()
    for fact in facts:
        match fact:
            case StepSettled(step, visit, report) if not isinstance(report.outcome, Suspended):
                found[step, visit, None, report.attempt] += 1
            case ItemsSettled(step, visit, reports):
                found.update((step, visit, report.item, report.attempt) for report in reports)
    return found


async def all_facts(engine: Engine, run: str) -> list[Fact]:
    return [fact for _, _, fact in await engine.history(run)]


@asynccontextmanager
async def stormy_fleet(
    folder: Path, seed: int, servers: int, tool: Counted, rates: Rates = STORMY
) -> AsyncIterator[tuple[Engine, FaultyProxy, RemoteWorker]]:
    """Servers of one file behind one address, and a worker that knows only that address."""
    async with FaultyProxy(seed, rates).open() as proxy:
        opened = [serving(STEADY, db=folder / "refold.db", public=proxy.address) for _ in range(servers)]
        first = await opened[0].__aenter__()
        others = [await each.__aenter__() for each in opened[1:]]
        try:
            proxy.servers = [int(each.address.rpartition(":")[2]) for each in (first, *others)]
            async with working(first, STEADY, {"counted": tool}, proxy.address) as remote:
                yield first.engine, proxy, remote
        finally:
            for each in reversed(opened):
                await each.__aexit__(None, None, None)


async def storm(folder: Path, seed: int, servers: int, runs: int, n: int) -> Counter[str]:
    tool = Counted(Counter())
    async with stormy_fleet(folder, seed, servers, tool) as (engine, proxy, _):
        handles = [await engine.start(chain(3, n)) for _ in range(runs)]
        talks = [await engine.start(talkative, n=n) for _ in range(runs)]
        async with asyncio.timeout(240):
            for handle in handles:
                await handle.result()
                facts = await all_facts(engine, handle.id)
                assert set(settled(facts).values()) == {1}
                assert len(settled(facts)) == 3 + n
            for talk in talks:
                assert await talk.result() == sum(range(n))
                facts = await all_facts(engine, talk.id)
                assert set(settled(facts).values()) == {1}
                keys = Counter(fact.key for fact in facts if isinstance(fact, CallSettled))
                assert set(keys.values()) == {1}
                lines = [line for _, line in engine.store.views.lines(talk.id)]
                shown = [line["text"] for line in lines if line["stream"] == "event"]
                assert shown == [f"Shown(n={i})" for i in range(n)]
        assert set(tool.done.values()) == {1}  # no lease was lost, so no body ran twice
        return proxy.faults


@pytest.mark.parametrize("servers", [1, 2])
async def test_each_command_is_settled_once_and_each_line_shown_once_through_a_bad_network(
    tmp_path: Path, servers: int
) -> None:
    faults = await storm(tmp_path, 7 + servers, servers, runs=2, n=6)
    assert all(faults[kind] > 0 for kind in ("cut_before", "lose_answer", "double", "delay")), faults


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.timeout(900)
async def test_a_long_storm_loses_nothing_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    faults = await storm(tmp_path, seed, 2, runs=6, n=20)
    assert sum(faults.values()) > 100
