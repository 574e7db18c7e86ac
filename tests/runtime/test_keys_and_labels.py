"""Keys and labels of runs, and lists of runs that are filtered by them."""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import Context, Settings, flow, open_engine
from refold.core.outcomes import SECOND
from refold.errors import InvalidValue, KeyTaken, RunCancelled
from refold.plan import Plan, Step, Wait
from refold.queries.runs import moment

SHORT = Settings(poll=0.05, sweep_every=0.05)
WAITS = Plan(name="waits", steps=(Step(name="a", work=Wait(signal="go")),))


@flow
async def echo(ctx: Context, value: int = 0) -> int:
    return value


@flow
async def other(ctx: Context, value: int = 0) -> int:
    return -value


@flow
async def waits(ctx: Context, value: int = 0) -> Any:
    return await ctx.wait_for("go")


async def test_labels_are_stored_with_a_run_and_lists_are_filtered_by_them(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:
        for team in ("data", "shop", "data"):
            await engine.options(labels={"team": team, "tier": "1"}).run(echo, value=1)
        await engine.run(echo, value=2)
        rows = await engine.runs(label={"team": "data"})
        assert [row.labels for row in rows] == [{"team": "data", "tier": "1"}] * 2
        assert [row.labels for row in await engine.runs(label={"team": "data", "tier": "2"})] == []
        assert (await engine.show(rows[0].run)).state.labels == {"team": "data", "tier": "1"}


async def test_a_playbook_gives_its_runs_its_labels(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: p, labels: {team: data, tier: 2, on: true}}\n"
        "workflow: [{step: a}]\n"
    )
    async with open_engine() as engine:
        await engine.options(labels={"tier": "3"}).run(refold.playbook(file))
        assert (await engine.runs())[0].labels == {"team": "data", "tier": "3", "on": "true"}


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({f"k{n}": "v" for n in range(17)}, "at most 16 labels"),
        ({"a b": "v"}, "'a b' is not the name of a label"),
        ({"k" * 64: "v"}, "at most 63"),
        ({"k": "v" * 256}, "at most 255"),
        ({"k": 3}, "is a text"),
        ({"k": "a\nb"}, "printable"),
    ],
)
async def test_labels_that_cannot_be_used_are_refused(labels: Any, why: str) -> None:
    async with open_engine() as engine:
        with pytest.raises(InvalidValue, match=why):
            engine.options(labels=labels)


async def test_runs_are_listed_by_workflow_name_key_and_time_in_parts() -> None:
    async with open_engine() as engine:
        for n in range(5):
            await engine.options(name=f"n{n % 2}", key=f"k{n}").run(echo, value=n)
        await engine.run(other)
        middle = (await engine.runs(key="k2"))[0]
        assert {row.workflow for row in await engine.runs(workflow=echo)} == {"echo"}
        assert len(await engine.runs(workflow="other")) == 1
        assert [row.key for row in await engine.runs(name="n1")] == ["k3", "k1"]
        at = datetime.fromtimestamp(middle.created_at / SECOND, UTC)
        assert [row.key for row in await engine.runs(until=at)] == ["k1", "k0"]
        assert {row.key for row in await engine.runs(since=at, workflow=echo)} == {"k2", "k3", "k4"}
        assert len(await engine.runs(since="1h")) == 6 and not await engine.runs(until="1h")
        first = await engine.runs(workflow=echo, limit=2)
        second = await engine.runs(workflow=echo, limit=2, cursor=first.cursor)
        third = await engine.runs(workflow=echo, limit=2, cursor=second.cursor)
        assert [row.key for row in [*first, *second, *third]] == ["k4", "k3", "k2", "k1", "k0"]
        assert third.cursor == ""
        assert (await engine.runs(workflow=echo, limit=5)).cursor == ""
        with pytest.raises(InvalidValue, match="cursor"):
            await engine.runs(cursor="nonsense")


def test_a_moment_is_a_date_a_text_or_a_span_before_now() -> None:
    now = 2_000_000_000 * SECOND
    assert moment("2h", now) == now - 7200 * SECOND
    assert moment("1970-01-01T00:00:01Z", now) == SECOND
    assert moment(5, now) == 5 * SECOND
    assert moment(None, now) is None
    for wrong in ("yesterday", "2026-01-01T00:00:00", datetime(2026, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidValue):
            moment(wrong, now)


async def test_a_key_means_the_same_run_forever() -> None:
    async with open_engine() as engine:
        keyed = engine.options(key="k")
        assert await keyed.run(echo, value=1) == 1
        assert await keyed.run(echo, value=1) == 1
        assert len(await engine.runs()) == 1
        with pytest.raises(KeyTaken) as raised:
            await engine.options(key="k", on_taken="raise").start(echo, value=1)
        assert raised.value.run == (await engine.runs())[0].run


async def test_a_key_that_is_used_again_with_another_workflow_is_refused() -> None:
    async with open_engine() as engine:
        await engine.options(key="k").run(echo, value=1)
        with pytest.raises(KeyTaken, match=r"belongs to run .* of workflow 'echo', and this is 'other'"):
            await engine.options(key="k").start(other, value=1)
        with pytest.raises(KeyTaken):
            await engine.options(key="k").run(WAITS)


async def test_a_key_that_is_used_again_with_other_inputs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with open_engine() as engine:
        with caplog.at_level(logging.WARNING, "refold"):
            assert await engine.options(key="k").run(echo, value=1) == 1
            assert await engine.options(key="k").run(echo, value=1) == 1
            assert not caplog.records
            assert await engine.options(key="k").run(echo, value=2) == 1
        assert [record.message for record in caplog.records] == [
            "key 'k' was used again with other inputs (value), which are not used"
        ]


async def test_a_key_is_free_again_when_its_run_has_ended() -> None:
    async with open_engine() as engine:
        keyed = engine.options(key="k", key_policy="while_running")
        first = await keyed.start(waits, value=1)
        again = await keyed.start(waits, value=1)
        assert again.id == first.id
        await first.signal("go", 7)
        assert (await first.result(), await again.result()) == (7, 7)
        second = await keyed.start(waits, value=2)
        assert second.id != first.id
        await second.cancel()
        with pytest.raises(RunCancelled):
            await second.result()
        third = await keyed.start(waits, value=3)
        assert third.id not in (first.id, second.id)
        assert [row.run for row in await engine.runs(key="k")] == [third.id, second.id, first.id]


async def test_of_many_that_start_a_free_key_together_one_starts_it(tmp_path: Path) -> None:
    db = tmp_path / "r.db"
    async with open_engine(db=db, settings=SHORT) as one, open_engine(db=db, settings=SHORT) as two:
        for _ in range(2):
            starts = [
                engine.options(key="k", key_policy="while_running").start(waits, value=1)
                for engine in (one, two)
                for _ in range(10)
            ]
            handles = await asyncio.gather(*starts)
            assert len({handle.id for handle in handles}) == 1
            await handles[0].signal("go", 1)
            await handles[0].result()
        assert len(await one.runs(key="k")) == 2


async def test_a_start_can_cancel_the_run_that_has_its_key() -> None:
    async with open_engine() as engine:
        keyed = engine.options(key="k", key_policy="while_running", on_taken="cancel_other")
        first = await keyed.start(waits)
        second = await keyed.start(waits)
        assert (await engine.show(first.id)).status == "cancelled"
        assert (await engine.show(second.id)).status in ("running", "waiting")
        await second.signal("go", 1)
        assert await second.result() == 1
        assert await keyed.run(echo, value=5) == 5


async def test_key_policies_that_cannot_be_meant_are_refused() -> None:
    async with open_engine() as engine:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"key": "k", "key_policy": "sometimes"}, "is not one of forever, while_running"),
            ({"key": "k", "on_taken": "ignore"}, "is not one of return, raise, cancel_other"),
            ({"key": "k", "on_taken": "cancel_other"}, 'key_policy="while_running"'),
            ({"on_taken": "raise"}, "need a key"),
        ]
        for options, why in wrong:
            with pytest.raises(InvalidValue, match=why):
                engine.options(**options)
