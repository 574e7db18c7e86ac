"""Steps on a real Ray cluster of two nodes on loopback: bodies that fail, a node that is killed, a cancel that kills,
and resources that no node has."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.core.facts import StepIssued, StepSettled
from refold.core.read.why_text import why_text
from refold.errors import RunFailed
from refold.plan import Call, Plan, Retry, Step
from refold.queries.reading import RunReader
from refold.queries.why import run_reasons
from refold.runtime.engine import Engine
from refold.settings import Settings
from refold.wiring import Process, open_process
from tests.cli.program import refold
from tests.executors.ray_bodies import Heavy
from tests.executors.ray_cluster import SECOND, TestCluster, ray_cluster

ONCE = Retry()
BODIES = "tests.executors.ray_bodies"


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with ray_cluster() as cluster:
        yield cluster


@asynccontextmanager
async def joined(cluster: TestCluster, folder: Path, **settings: Any) -> AsyncIterator[Process]:
    quick = Settings(ray=cluster.address, sweep_every=0.1, **settings)
    async with asyncio.timeout(240), open_process(db=folder / "refold.db", settings=quick) as process:
        yield process


def on_ray(body: str, input: Any = None, retry: Retry = ONCE, timeout: float | None = None, **needs: Any) -> Plan:
    settings = {"call": f"{BODIES}:{body}", "isolation": "ray", **needs}
    work = Call(tool="function", settings=settings)
    return Plan(name=body, steps=(Step(name="heavy", work=work, input=input, retry=retry, timeout=timeout),))


async def until(is_so: Callable[[], Any]) -> Any:
    while not (found := is_so()):
        await asyncio.sleep(0.05)
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def facts(engine: Engine, run: str) -> tuple[int, list[Any]]:
    """How often a step was issued, and what came of it."""
    log = [fact for _, _, fact in await engine.history(run)]
    outcomes = [fact.report.outcome for fact in log if isinstance(fact, StepSettled)]
    return sum(isinstance(fact, StepIssued) for fact in log), outcomes


async def test_steps_on_ray_run_where_their_needs_are_and_what_goes_wrong_there_is_told_apart(
    cluster: TestCluster, tmp_path: Path
) -> None:
    """One story on one cluster, because a cluster takes long to start and a process can join only one."""
    async with joined(cluster, tmp_path, slots=1) as process:
        engine = process.engine

        # by a resource, by a label, with lines
        run = await engine.start(on_ray("where", {"a": 1}, resources={"custom": {"special": 1}}))
        result = await run.result()
        assert (result["input"], result["node"]) == ({"a": 1}, SECOND)
        assert [line["text"] for _, line in await engine.logs(run.id) if line["stream"] == "stdout"] == ["one line"]
        run = await engine.start(on_ray("where", 2, placement={"zone": "b"}))
        assert (await run.result())["node"] == SECOND

        # a body that raises has failed, with its own exception, as often as it may be tried
        run = await engine.start(on_ray("fails", "thing", Retry(attempts=2, delay=0.01)))
        with pytest.raises(RunFailed, match="no thing"):
            await run.result()
        issued, outcomes = await facts(engine, run.id)
        assert issued == 2 and {outcome.fault.type for outcome in outcomes} == {"LookupError"}

        # a process that dies is a loss, and not a try
        run = await engine.start(on_ray("dies", {"file": str(tmp_path / "mark")}))
        assert await run.result() == "alive"
        issued, outcomes = await facts(engine, run.id)
        assert issued == 1 and len(outcomes) == 1

        # cancelling kills
        file = tmp_path / "pid"
        run = await engine.start(on_ray("long", {"file": str(file)}))
        pid = int(await until(lambda: file.exists() and file.read_text()))
        await engine.cancel(run.id)
        await until(lambda: not is_running(pid))
        file.unlink()
        run = await engine.start(on_ray("long", {"file": str(file)}, timeout=1.0))
        with pytest.raises(RunFailed, match="time"):
            await run.result()
        await until(lambda: not is_running(int(file.read_text())))
        file.unlink()

        # what no node has: `why` says so, and the try fails when it has waited long enough; no slot is taken meanwhile
        waiting = await engine.start(on_ray("where", 1, resources={"gpus": 3}))
        failing = await engine.start(on_ray("where", 1, resources={"gpus": 2}, pending_timeout=1.0))
        plain = await engine.start(Plan(name="plain", steps=(Step(name="plain", work=Call(tool="noop"), input=1),)))
        await plain.result()
        with pytest.raises(RunFailed, match="gpu 2, 0 of 0 free"):
            await failing.result()
        views = process.engine.store.views
        row = views.summary(waiting.id)
        assert row is not None

        def told() -> bool:
            graph, state = RunReader(views, waiting.id).read()
            now = views.now()
            return any(
                "gpu 3, 0 of 0 free" in why_text(each, now) for each in run_reasons(views, row, graph, state, now)
            )

        await until(told)
        await engine.cancel(waiting.id)

        # a Python step
        assert (await engine.run(Heavy, n=7))["node"] == SECOND

        # a node that is killed is a loss: the step runs again where its needs are
        run = await engine.start(on_ray("long", {"file": str(file)}, resources={"custom": {"special": 1}}))
        first = int(await until(lambda: file.exists() and file.read_text()))
        file.unlink()
        cluster.kill(SECOND)
        cluster.start(SECOND)
        second = int(await until(lambda: file.exists() and file.read_text()))
        assert first != second
        issued, outcomes = await facts(engine, run.id)
        assert (issued, outcomes) == (1, [])
        await engine.cancel(run.id)
        await until(lambda: not is_running(second))


async def test_a_worker_without_a_cluster_says_so(tmp_path: Path) -> None:
    async with asyncio.timeout(60), open_process(db=tmp_path / "refold.db") as process:
        with pytest.raises(RunFailed, match="set REFOLD_RAY"):
            await (await process.engine.start(on_ray("where"))).result()


async def test_a_cluster_that_is_away_is_named_and_the_try_can_be_repeated(tmp_path: Path) -> None:
    settings = Settings(ray="127.0.0.2:1")
    async with asyncio.timeout(60), open_process(db=tmp_path / "refold.db", settings=settings) as process:
        run = await process.engine.start(on_ray("where", retry=Retry(attempts=2, delay=0.01)))
        with pytest.raises(RunFailed, match=r"127.0.0.2:1 cannot be joined"):
            await run.result()
        assert (await facts(process.engine, run.id))[0] == 2


def test_the_doctor_says_what_a_cluster_has_and_that_one_is_away(cluster: TestCluster, tmp_path: Path) -> None:
    there = refold(tmp_path, "doctor", REFOLD_RAY=cluster.address)
    assert "nodes, Ray" in there.out and "CPU" in there.out, there
    away = refold(tmp_path, "doctor", REFOLD_RAY="127.0.0.2:1")
    assert away.code == 1 and "127.0.0.2:1: ConnectionRefusedError" in away.out, away
