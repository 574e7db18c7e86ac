"""Python workflows on the command line."""

from pathlib import Path

import pytest

from tests.cli.program import refold

MODULE = """
import os
from refold import Collect, Context, ErrorEvent, Event, StartEvent, StopEvent, Workflow, flow, step

class Page(Event):
    n: int

class Done(Event):
    n: int

class Broken(ErrorEvent):
    pass

class Crawl(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(ev.count)]

    @step(on_error=Broken)
    async def fetch(self, ctx: Context, ev: Page) -> Done:
        if os.path.exists("broken"):
            raise ValueError("broken")
        return Done(n=ev.n)

    @step
    async def mend(self, ev: Broken) -> StopEvent:
        raise RuntimeError("cannot be mended")

    @step(collect=Collect(Done, n=3))
    async def join(self, done: list[Done]) -> StopEvent:
        return StopEvent(result={"sum": sum(each.n for each in done), "exact": (1,)})

class Fragile(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        if os.path.exists("broken"):
            raise ValueError("broken")
        return StopEvent(result="mended")

class Unfit(Workflow):
    pass

@flow
async def greet(ctx, name):
    return f"hello {name}"

other = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("shop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def test_run_a_class_with_inputs(folder: Path) -> None:
    done = refold(folder, "run", "shop:Crawl", "-i", "count=3")
    assert done.code == 0, done.err
    assert '"sum": 3' in done.out


def test_run_a_flow(folder: Path) -> None:
    assert refold(folder, "run", "shop:greet", "-i", "name=Ada", "--quiet").out == "hello Ada\n"


def test_a_failed_run_is_shown_and_goes_on_with_its_code(folder: Path) -> None:
    folder.joinpath("broken").touch()
    failed = refold(folder, "run", "shop:Fragile", "--name", "fragile")
    assert (failed.code, "broken" in failed.err) == (1, True)
    shown = refold(folder, "runs", "show", "fragile", "-o", "json").data
    assert shown["steps"]["only"]["status"] == "failed"
    folder.joinpath("broken").unlink()
    again = refold(folder, "runs", "retry", "fragile", "--code", "shop:Fragile", "--quiet")
    assert (again.code, again.out) == (0, "mended\n"), again.err


def test_leave_a_run_and_execute_it_later(folder: Path) -> None:
    left = refold(folder, "run", "shop:Crawl", "-i", "count=3", "--name", "later", "--detach")
    assert left.code == 0, left.err
    why = refold(folder, "runs", "why", "later", "-o", "json").data
    assert why["reasons"][0]["kind"] == "no_worker"
    assert why["reasons"][0]["note"].startswith("Crawl ")
    done = refold(folder, "runs", "resume", "later", "--code", "shop:Crawl")
    assert done.code == 0, done.err
    assert '"sum": 3' in done.out


def test_draw_a_class(folder: Path) -> None:
    drawing = refold(folder, "graph", "shop:Crawl").out
    assert [name for name in ("StartEvent", "begin", "fetch", "mend", "join") if name not in drawing] == []
    assert "Broken" in drawing
    assert '-->|"if Page"|' in refold(folder, "graph", "shop:Crawl", "--mermaid").out


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("nowhere:Crawl", 3, "there is no module 'nowhere'"),
        ("shop:Crawly", 3, "did you mean"),
        ("shop:other", 2, "is a int and no workflow"),
        ("shop:Unfit", 2, "has no steps"),
    ],
)
def test_what_cannot_be_run_is_said(folder: Path, target: str, code: int, why: str) -> None:
    done = refold(folder, "run", target)
    assert (done.code, why in done.err) == (code, True), done.err
