"""`refold feed` and `engine.feed`: every fact of every run, each once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import refold
from refold.plan import Call, Plan, Step
from tests.cli.program import playbook, shell, started, until
from tests.cli.program import refold as command

WORK = Plan(name="work", steps=(Step(name="work", work=Call(tool="note"), input="done"),))


async def note(call: Any) -> Any:
    return call.input


def lines(folder: Path, *options: str) -> list[dict[str, Any]]:
    done = command(folder, "feed", *options)
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def test_the_feed_prints_the_logs_of_all_runs_and_continues_at_a_cursor(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "true"))
    for name in ("a", "b"):
        assert command(tmp_path, "run", file, "--name", name, "-q").code == 0
    everything = lines(tmp_path)
    runs = list(dict.fromkeys(each["run"] for each in everything))
    for run in runs:
        log = [json.loads(line) for line in command(tmp_path, "runs", "history", run, "-o", "jsonl").out.splitlines()]
        own = [
            {key: each[key] for key in each if key not in ("run", "cursor")}
            for each in everything
            if each["run"] == run
        ]
        assert own == log
    assert lines(tmp_path, "--from", everything[2]["cursor"]) == everything[3:]
    assert lines(tmp_path, "--from", "now") == [] and lines(tmp_path, "--limit", "2") == everything[:2]
    refused = command(tmp_path, "feed", "--from", "nonsense")
    assert refused.code == 2 and "is not a cursor of this database" in refused.err


def test_a_reader_who_follows_sees_what_another_process_writes(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "true"))
    assert command(tmp_path, "run", file, "--name", "a", "-q").code == 0
    before = len(lines(tmp_path))
    with started(tmp_path, "feed", "--follow", "--from", "now", "--limit", "2") as reader:
        until(lambda: command(tmp_path, "run", file, "-q").code == 0 and reader.poll() is not None)
        assert reader.wait(60) == 0
    assert len(lines(tmp_path)) > before


async def test_the_feed_of_an_engine_waits_for_facts_to_come(tmp_path: Path) -> None:
    async with asyncio.timeout(60), refold.open_engine({"note": note}, db=tmp_path / "refold.db") as engine:
        await engine.options(run="first").start(WORK)
        await engine.wait("first")
        seen = [each async for each in engine.feed()]
        assert [each.number for each in seen] == [number for number, _, _ in await engine.history("first")]

        async def next_fact() -> tuple[str, int]:
            async for each in engine.feed(seen[-1].cursor, follow=True):
                return each.run, each.number
            raise AssertionError("a reader who follows does not end")

        coming = asyncio.create_task(next_fact())
        await engine.options(run="second").start(WORK)
        assert await coming == ("second", 1)
        assert [each async for each in engine.feed("now")] == []


def test_code_without_async_reads_the_feed() -> None:
    with refold.open_engine({"note": note}) as engine:
        assert engine.start(WORK).result() == "done"
        assert [each.number for each in engine.feed()] == [1, 2, 3, 4]
