"""Leases of a second or less against bodies that are long, busy or stuck, with real threads and processes."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from refold.core.outcomes import Cancelled, Failed, Succeeded, TimedOut
from refold.core.plan import Call
from refold.errors import RunCancelled, RunFailed
from refold.plan import Arc, Plan, Step
from refold.ports import ToolCall
from refold.settings import Settings
from refold.worker.leases import Beat
from tests.alive import living, noted_in, within
from tests.worker.houses import SHORT, Town, calls, settled

# By time alone it would notice nothing before a test has given up.
SLOW_TO_NOTICE = Settings(lease_for=3600.0, sweep_every=3600.0, poll=3600.0, process_grace=0.1)
SECOND_LONG = structs.replace(SHORT, lease_for=1.0)  # long enough for a machine on which much else goes on


@pytest.mark.parametrize("isolation", ["inline", "process"])
async def test_a_busy_step_of_three_leases_runs_once_and_keeps_its_lease(tmp_path: Path, isolation: str) -> None:
    ran = tmp_path / "ran"
    town = Town()
    async with town.house("one", SECOND_LONG) as one, town.house("two", SECOND_LONG):
        run = (await one.engine.start(calls("noted", {"file": str(ran), "seconds": 3.1}, isolation))).id
        report = (await settled(one.engine, run)).report
    assert ran.read_text().count("\n") == 1
    assert (report.outcome, report.generation, report.losses) == (Succeeded("done"), 1, 0)


async def test_a_blocked_event_loop_keeps_its_leases(tmp_path: Path) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    town = Town()
    async with town.far_house("blocked", SECOND_LONG) as blocked:
        starting = asyncio.create_task(blocked.start(calls("block_the_loop", {"file": str(ran), "until": str(go)})))
        assert await asyncio.to_thread(within, 60.0, ran.exists)
        async with town.house("watches", SECOND_LONG) as watches:  # its sweep would take an expired lease back
            await asyncio.sleep(3.1)
            go.touch()
            report = (await settled(watches.engine, await starting)).report
    assert ran.read_text() == "began\n"
    assert (report.worker, report.generation, report.losses) == ("blocked", 1, 0)


async def test_a_lease_that_is_lost_cancels_a_coroutine_and_its_cleanup_runs_to_its_end() -> None:
    began: list[float] = []
    cleaned: list[float] = []
    beats: list[Beat] = []
    told: list[int] = []

    async def hang(call: ToolCall) -> Any:
        began.append(time.monotonic())
        if len(began) > 1:
            return "by the next"
        try:
            await asyncio.sleep(3600)
        finally:
            told.append(len(beats))
            await asyncio.sleep(0.35)  # longer than three heartbeats
            cleaned.append(time.monotonic())

    town = Town()
    async with town.house("one", tools={"hang": hang}) as one:
        run = (await one.engine.start(Plan(name="p", steps=(Step(name="a", work=Call(tool="hang")),)))).id
        while not began:
            await asyncio.sleep(0.01)
        [held] = one.worker.keeper.held.values()
        hear = one.worker.keeper.hear
        one.worker.keeper.hear = lambda beat: (beats.append(beat), hear(beat))[1]  # type: ignore[method-assign, func-returns-value]
        lost = time.monotonic()
        await one.desk.hand_back(held.lease)  # as if the store had taken it back; it is free for the next
        assert await one.engine.result(run) == "by the next"
        assert await asyncio.to_thread(within, 60.0, lambda: bool(cleaned)), "the cleanup was not left alone"
    [end] = cleaned
    assert end - lost >= 0.35, "it was told once"
    assert told[0] <= 2, "it was told at the next heartbeat; one may have been under way"


async def test_a_lease_that_is_lost_kills_a_process(tmp_path: Path) -> None:
    town = Town()
    async with town.house("one") as one:
        await one.engine.start(calls("hang", str(tmp_path), "process"))
        pids = set(await asyncio.to_thread(noted_in, tmp_path, 4))
        [held] = one.worker.keeper.held.values()
        one.worker._stopping = True  # it is not to take it again
        await one.desk.hand_back(held.lease)
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set())


async def test_a_timeout_kills_a_process_and_fails_the_step(tmp_path: Path) -> None:
    town = Town()
    async with town.house("one") as one:
        await one.engine.run(calls("pid", None, "process"))  # the process is warm
        for limit in (1.5, 6.0, 24.0):  # a busy machine needs longer to begin with it
            folder = tmp_path / str(limit)
            folder.mkdir()
            run = (await one.engine.start(calls("hang", str(folder), "process", timeout=limit))).id
            assert (await settled(one.engine, run)).report.outcome == TimedOut(limit)
            if len(list(folder.iterdir())) >= 4:
                break
        pids = set(noted_in(folder, 4))
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set())


async def test_cancel_in_the_same_process_ends_running_work_at_once(tmp_path: Path) -> None:
    town = Town()
    async with town.house("one", SLOW_TO_NOTICE) as one:
        run = (await one.engine.start(calls("hang", str(tmp_path), "process"))).id
        pids = set(await asyncio.to_thread(noted_in, tmp_path, 4))
        await one.engine.cancel(run)
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set()), "long before a heartbeat"
        with pytest.raises(RunCancelled):
            await one.engine.result(run)


async def test_cancel_of_one_command_in_the_same_process_ends_its_body_at_once(tmp_path: Path) -> None:
    town = Town()
    async with town.house("one", SLOW_TO_NOTICE) as one:
        run = (await one.engine.start(calls("hang_later", str(tmp_path)))).id
        await asyncio.to_thread(noted_in, tmp_path, 1)
        await one.engine.cancel(run, "stuck", command="a/1")
        assert await asyncio.to_thread(within, 60.0, (tmp_path / "cleaned up").exists)
        assert (await settled(one.engine, run)).report.outcome == Cancelled("stuck")


async def test_cancel_in_another_process_reaches_running_work_within_a_heartbeat(tmp_path: Path) -> None:
    town = Town()
    async with town.house("one") as one, town.house("elsewhere", serves=False) as elsewhere:
        run = (await one.engine.start(calls("hang_later", str(tmp_path)))).id
        await asyncio.to_thread(noted_in, tmp_path, 1)
        await elsewhere.engine.cancel(run)
        assert await asyncio.to_thread(within, 60.0, (tmp_path / "cleaned up").exists)


async def test_a_step_whose_process_dies_is_tried_again_by_its_policy(tmp_path: Path) -> None:
    town = Town()
    async with town.house("one") as one:
        with pytest.raises(RunFailed) as caught:
            await one.engine.run(calls("exit_hard", 9, "process"))
        assert (caught.value.error.fault.kind, caught.value.error.fault.code) == ("process_died", 9)


async def test_stop_hands_back_at_once_and_another_worker_finishes(tmp_path: Path) -> None:
    town = Town()
    async with town.house("leaves", SLOW_TO_NOTICE) as leaves:
        run = (await leaves.engine.start(calls("wait_for", str(tmp_path), "process"))).id
        assert await asyncio.to_thread(within, 60.0, lambda: any(tmp_path.iterdir()))
        await asyncio.wait_for(leaves.stop(), 60)  # the lease would be held for an hour
        [old] = [int(each.name) for each in tmp_path.iterdir()]
        assert living([old]) == set(), "the body that was handed back does not go on"
        (tmp_path / "go").touch()
        async with town.house("stays") as stays:
            report = (await settled(stays.engine, run)).report
    assert (report.worker, report.attempt, report.losses, report.generation) == ("stays", 1, 0, 2)


async def test_stop_lets_a_step_finish_within_the_grace_and_takes_nothing_new(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    [first] = calls("noted", {"file": str(ran), "seconds": 0.5}, arcs=(Arc(to="b"),)).steps
    second = Step(name="b", work=Call(tool="function", settings={"call": "tests.executors.bodies:pid"}))
    town = Town()
    async with town.house("leaves") as leaves:
        run = (await leaves.engine.start(Plan(name="two", steps=(first, second)))).id
        assert await asyncio.to_thread(within, 60.0, ran.exists)
        await leaves.stop(grace=60.0)
        shown = await leaves.engine.show(run)
        assert (shown.steps["a"]["status"], shown.status) == ("completed", "running")
        assert town.store.leases == {}, "the next command waits for somebody else"
        async with town.house("stays") as stays:
            assert await asyncio.wait_for(stays.engine.result(run), 60) == os.getpid()
    assert ran.read_text().count("\n") == 1


async def test_a_thread_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    town = Town()
    async with town.house("leaves") as leaves:
        await leaves.engine.start(calls("wait_for", str(tmp_path)))
        assert await asyncio.to_thread(within, 60.0, lambda: any(tmp_path.iterdir()))
        await asyncio.wait_for(leaves.stop(), 60)  # the thread waits for ever
        assert town.store.leases == {}
    (tmp_path / "go").touch()


async def test_a_worker_runs_as_many_commands_as_it_has_slots(tmp_path: Path) -> None:
    town = Town()
    settings = Settings(lease_for=0.3, sweep_every=0.05, poll=0.05, slots=3)
    async with town.house("one", settings) as one:
        for _ in range(5):
            await one.engine.start(calls("hang_later", str(tmp_path)))
        held = one.worker.keeper.held
        async with asyncio.timeout(60):
            while len(held) < 3:
                await asyncio.sleep(0.005)
            first = {lease.lease.run for lease in held.values()}
            await one.engine.cancel(min(first))
            while len(held) < 3 or {lease.lease.run for lease in held.values()} == first:
                assert len(held) <= 3
                await asyncio.sleep(0.005)
        assert len(held) == 3, "a slot that falls free is filled"


async def test_user_code_is_called_by_name_wherever_it_runs() -> None:
    town = Town()
    async with town.house("one") as one:
        for isolation in ("inline", "process"):
            for body in ("echo", "echo_later"):
                assert await one.engine.run(calls(body, {"n": 1}, isolation)) == {"n": 1}
            assert (await one.engine.run(calls("pid", None, isolation)) == os.getpid()) is (isolation == "inline")


@pytest.mark.parametrize("isolation", ["inline", "process"])
async def test_a_result_that_is_no_json_fails_the_step_with_its_path(isolation: str) -> None:
    town = Town()
    async with town.house("one") as one:
        run = (await one.engine.start(calls("not_json", None, isolation))).id
        outcome = (await settled(one.engine, run)).report.outcome
        assert isinstance(outcome, Failed)
        assert outcome.fault.kind == "invalid_value"
        assert outcome.fault.message.startswith("result.rows[1].when: ")


@pytest.mark.parametrize(
    ("settings", "kind", "why"),
    [
        ({}, "invalid_settings", "`call` must be 'module:function'"),
        ({"call": 5}, "invalid_settings", "`call` must be 'module:function'"),
        ({"call": "a:b", "isolation": "moon"}, "invalid_settings", "must be one of 'inline', 'process', not 'moon'"),
        ({"call": "a:b", "isolation": ["inline"]}, "invalid_settings", "must be one of 'inline', 'process'"),
        ({"call": "no.such:f"}, "no_function", "there is no module 'no.such'"),
    ],
)
async def test_settings_that_name_no_function_fail_the_step_by_name(settings: Any, kind: str, why: str) -> None:
    town = Town()
    async with town.house("one", SHORT) as one:
        step = Step(name="a", work=Call(tool="function", settings=settings))
        with pytest.raises(RunFailed) as caught:
            await one.engine.run(Plan(name="p", steps=(step,)))
        fault = caught.value.error.fault
        assert (fault.kind, fault.retryable) == (kind, False)
        assert why in fault.message
