"""What a try prints: with its report if it is short, before it if it takes long, and never at the cost of a commit."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from refold.core.commands import Command
from refold.core.plan import Call, Plan, Step
from refold.ports import Lease, ToolCall
from refold.runtime.desk import LocalDesk
from refold.wiring import open_engine
from refold.worker.output import AT_ONCE, TryOutput

LEASE = Lease("run", Command("a/1", "a", 1, 1), "w", 1, 0, 0, "plan")


class Published:
    def __init__(self) -> None:
        self.lines: list[Any] = []

    async def __call__(self, lease: Lease, lines: Sequence[Any]) -> None:
        self.lines.extend(lines)


class Now:
    def now(self) -> int:
        return 7

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def texts(lines: Sequence[Any]) -> list[str]:
    return [line["text"] for line in lines]


def test_what_was_printed_last_goes_with_the_report() -> None:
    async def main() -> None:
        published = Published()
        printed = TryOutput(LEASE, published, Now())
        printed.say("stdout", "one")
        printed.say("stderr", "two")
        assert texts(await printed.rest()) == ["one", "two"]
        printed.say("stdout", "late")
        assert (published.lines, await printed.rest()) == ([], ())

    asyncio.run(main())


def test_what_is_much_goes_at_once_and_the_rest_with_the_report() -> None:
    async def main() -> None:
        published = Published()
        printed = TryOutput(LEASE, published, Now())
        printed.say("stdout", "x" * AT_ONCE)
        await asyncio.sleep(0)
        printed.say("stdout", "rest")
        rest = await printed.rest()
        assert len(published.lines) == 1 and texts(rest) == ["rest"]

    asyncio.run(main())


def test_a_try_that_is_stopped_tells_what_it_has_printed() -> None:
    async def main() -> None:
        published = Published()
        printed = TryOutput(LEASE, published, Now())
        printed.say("stdout", "one")
        await printed.close()
        assert texts(published.lines) == ["one"]

    asyncio.run(main())


def test_a_step_that_prints_needs_no_commit_of_its_own_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[Any]] = []
    publish = LocalDesk.publish

    async def counted(desk: LocalDesk, lease: Lease, lines: Sequence[Any]) -> None:
        asked.append(lines)
        await publish(desk, lease, lines)

    async def tool(call: ToolCall) -> int:
        assert call.say is not None
        call.say("stdout", "hello")
        return 1

    monkeypatch.setattr(LocalDesk, "publish", counted)

    async def main() -> list[str]:
        async with open_engine({"t": tool}) as engine:
            run = (await engine.start(Plan(name="p", steps=(Step(name="a", work=Call(tool="t")),)))).id
            await engine.wait(run)
            return texts([line for _, line in await engine.logs(run)])

    assert asyncio.run(main()) == ["hello"]
    assert asked == []
