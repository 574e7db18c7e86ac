"""`runs migrate` on the command line: by a hash, a file or a class; refused by step, or told what happened."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from refold.cli.words import now
from refold.core.plan import Plan, Step, canonical, plan_hash
from refold.queries.workers import abilities
from refold.stores.sqlite.store import SqliteStore
from tests.cli.program import Done, noop, playbook, refold, started, until

WAITS = "step: wait\ntool: {kind: wait, signal: go}\nnext: last"


def waiting(folder: Path) -> None:
    """A run that waits between its first and its last step, where nobody works."""
    playbook(folder, noop("first", "wait"), WAITS, noop("last", result="old"))
    with started(folder, "run", "play.yaml", "--name", "ship"):
        until(lambda: status(folder) == "waiting")


def status(folder: Path) -> str:
    store = SqliteStore(folder / "refold.db", now)
    try:
        return next((row.status for row in store.views.called("ship")), "")
    finally:
        store.close()


def served(folder: Path) -> bool:
    store = SqliteStore(folder / "refold.db", now)
    try:
        return bool(abilities(store.views))
    finally:
        store.close()


def migrate(folder: Path, to: str, *more: str) -> Done:
    return refold(folder, "runs", "migrate", "ship", "--to", to, *more)


def finished(folder: Path) -> Done:
    refold(folder, "runs", "signal", "ship", "go")
    return refold(folder, "runs", "resume", "ship", "--quiet")


def test_a_waiting_run_follows_the_playbook_as_it_is_now(tmp_path: Path) -> None:
    waiting(tmp_path)
    playbook(tmp_path, noop("first", "wait"), WAITS, noop("last", "more", result="new"), noop("more", result="newer"))
    dry = migrate(tmp_path, "play.yaml", "--dry-run")
    assert (dry.code, dry.out) == (0, ""), dry.err
    assert "ship would follow plan" in dry.err
    assert "step more is new in the plan" in dry.err
    before = refold(tmp_path, "runs", "history", "ship").out
    assert "migrated" not in before, "nothing was changed"
    done = migrate(tmp_path, "play.yaml")
    assert done.code == 0, done.err
    assert "ship follows plan" in done.err
    assert "run migrated to plan" in refold(tmp_path, "runs", "history", "ship").out
    assert refold(tmp_path, "db", "rebuild").code == 0
    end = finished(tmp_path)
    assert (end.code, end.out) == (0, "newer\n"), end.err


def test_what_stands_in_the_way_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    waiting(tmp_path)
    playbook(tmp_path, noop("first", "pause"), "step: pause\ntool: {kind: wait, signal: go}", name="other.yaml")
    done = migrate(tmp_path, "other.yaml")
    assert done.code == 4
    assert "step wait: wait/1 is open, and the new plan has no such step" in done.err
    assert "step first: it was visited, and its arcs would be others" in done.err
    assert "migrated" not in refold(tmp_path, "runs", "history", "ship").out


def test_a_plan_is_meant_by_the_beginning_of_its_hash(tmp_path: Path) -> None:
    waiting(tmp_path)
    playbook(tmp_path, noop("first", "wait"), WAITS, noop("last", result="new"), name="new.yaml")
    refold(tmp_path, "run", "new.yaml", "--detach", "--quiet")
    hash = refold(tmp_path, "run", "new.yaml", "--dry-run", "-o", "json").data["plan"]
    done = migrate(tmp_path, hash[:8], "-o", "json")
    assert done.code == 0, done.err
    assert (done.data["to"]["plan"], done.data["restarted"], done.data["dry_run"]) == (hash, [], False)
    assert migrate(tmp_path, hash).code == 4, "it follows that plan already"
    assert finished(tmp_path).out == "new\n"


def alike() -> dict[str, Plan]:
    """Two plans whose hashes begin with the same characters."""
    met: dict[str, dict[str, Plan]] = {}
    for n in count():
        plan = Plan(name=f"plan{n}", steps=(Step(name="a"),))
        met.setdefault(plan_hash(plan)[:2], {})[plan_hash(plan)] = plan
        if len(met[plan_hash(plan)[:2]]) == 2:
            return met[plan_hash(plan)[:2]]
    raise AssertionError


def test_a_plan_that_is_not_there_or_not_one_is_said(tmp_path: Path) -> None:
    waiting(tmp_path)
    none = migrate(tmp_path, "0" * 64)
    assert none.code == 3
    assert "--to FILE or --to MODULE:CLASS" in none.err
    found = alike()
    store = SqliteStore(tmp_path / "refold.db", now)
    for plan in found.values():
        store.put_plan(plan_hash(plan), canonical(plan))
    store.close()
    several = migrate(tmp_path, next(iter(found))[:2])
    assert several.code == 4
    told = ("may mean several plans", *found, *(plan.name for plan in found.values()))
    assert [line for line in told if line not in several.err] == []


def test_a_run_that_is_over_is_told_how_to_go_on(tmp_path: Path) -> None:
    playbook(tmp_path, noop("only"))
    refold(tmp_path, "run", "play.yaml", "--name", "ship", "--quiet")
    done = migrate(tmp_path, "play.yaml")
    assert (done.code, "is completed, and only one that is under way is migrated" in done.err) == (4, True)


MODULE = """
from refold import Context, Event, StartEvent, StopEvent, Workflow, step

class Page(Event):
    n: int

class Crawl(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Page:
        return Page(n=1)

    @step{policy}
    async def fetch(self, ctx: Context, ev: Page) -> StopEvent:
        {body}
        return StopEvent(result="{result}")
"""


@pytest.mark.parametrize("by", ["hash", "class"])
def test_new_code_and_an_old_run_of_a_python_workflow(tmp_path: Path, by: str) -> None:
    module = tmp_path / "shop.py"
    module.write_text(MODULE.format(policy="", body='await ctx.wait_for("go")', result="old"), encoding="utf-8")
    with started(tmp_path, "run", "shop:Crawl", "--name", "ship"):
        until(lambda: status(tmp_path) == "waiting")
    refold(tmp_path, "runs", "signal", "ship", "go")
    module.write_text(MODULE.format(policy="(timeout=9)", body="pass", result="new"), encoding="utf-8")
    hash = refold(tmp_path, "run", "shop:Crawl", "--dry-run", "-o", "json").data["plan"]
    with server(tmp_path):
        until(lambda: served(tmp_path))
        why = refold(tmp_path, "runs", "why", "ship").out
        assert f"workers have {hash[:12]}: migrate with `refold runs migrate ship --to {hash[:12]}`" in why
        assert "no live worker has the code" in refold(tmp_path, "runs", "show", "ship").out
        done = migrate(tmp_path, hash[:12] if by == "hash" else "shop:Crawl")
        assert done.code == 0, done.err
        until(lambda: status(tmp_path) == "completed")
    assert refold(tmp_path, "runs", "show", "ship", "-o", "json").data["result"] == "new"


SERVE = """
import asyncio
from refold import open_engine
from refold.settings import Settings
from shop import Crawl

async def serve():
    async with open_engine(db="refold.db", settings=Settings(poll=0.1, sweep_every=0.1)) as engine:
        await engine.register(Crawl)
        await asyncio.sleep(3600)

asyncio.run(serve())
"""


@contextmanager
def server(folder: Path) -> Iterator[None]:
    """A worker of another process that has the code as it is now."""
    (folder / "serve.py").write_text(SERVE, encoding="utf-8")
    with subprocess.Popen([sys.executable, "serve.py"], cwd=folder) as process:
        try:
            yield
        finally:
            process.kill()


def test_all_runs_of_a_workflow_are_listed_and_moved_together(tmp_path: Path) -> None:
    playbook(tmp_path, noop("first", "last"), noop("last", result="old"))
    for name in ("one", "two"):
        assert refold(tmp_path, "run", "play.yaml", "--name", name, "--detach", "--quiet").code == 0
    playbook(tmp_path, noop("first", "between"), noop("between", "last"), noop("last", result="new"))
    listed = refold(tmp_path, "runs", "migrate", "--all", "--to", "play.yaml", "--dry-run")
    assert [line.split(" would follow plan ")[0] for line in listed.err.splitlines()[::2]] == ["two", "one"]
    assert "step between is new in the plan" in listed.err
    moved = refold(tmp_path, "runs", "migrate", "--all", "--to", "play.yaml")
    assert moved.code == 0
    assert moved.err.count(" follows plan ") == 2
    assert "follows another plan" in refold(tmp_path, "runs", "migrate", "--all", "--to", "play.yaml").err
    assert refold(tmp_path, "runs", "resume", "one", "--quiet").out == "new\n"


def test_a_run_that_stays_is_named_and_the_exit_code_says_so(tmp_path: Path) -> None:
    playbook(tmp_path, noop("first", "last"), noop("last"))
    refold(tmp_path, "run", "play.yaml", "--name", "one", "--detach", "--quiet")
    playbook(tmp_path, noop("begin"))
    done = refold(tmp_path, "runs", "migrate", "--all", "--to", "play.yaml")
    assert done.code == 4
    assert done.err.startswith("one stays on plan")
    assert "step first: first/1 is open, and the new plan has no such step" in done.err


@pytest.mark.parametrize("arguments", [[], ["one", "--all"]])
def test_one_run_or_all_of_them_are_named(tmp_path: Path, arguments: list[str]) -> None:
    done = refold(tmp_path, "runs", "migrate", *arguments, "--to", "play.yaml")
    assert done.code == 2
    assert "name a RUN, or give --all" in done.err
