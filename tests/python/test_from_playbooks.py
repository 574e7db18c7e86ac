"""Playbooks that start workflows written in Python, with the real program: run, killed, resumed, checked, simulated."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from refold.python.load import load
from refold.testing import engine
from tests.cli.program import noop, playbook, refold, started, until

MODULE = """
import os
from refold import Context, Event, StartEvent, StopEvent, Workflow, flow, step
from refold.stages import Pipeline, Stage

def mark(text):
    with open("marks", "a") as marks:
        marks.write(text + "\\n")

class Begin(StartEvent):
    count: int

class Page(Event):
    n: int

class Total(StopEvent):
    total: int
    pair: tuple

class Crawl(Workflow):
    @step
    async def begin(self, ev: Begin) -> Page:
        mark("begin")
        return Page(n=ev.count)

    @step
    async def fetch(self, ctx: Context, ev: Page) -> Total:
        await ctx.call(mark, "call")
        mark("fetch")
        while os.path.exists("hold"):
            await ctx.sleep(0.05)
        return Total(total=ev.n * 2, pair=(1, 2))

@flow
async def greet(ctx, who, greeting="hello"):
    return f"{greeting} {who}"

@flow
async def same(ctx, value):
    return value

@flow
async def picky(ctx, who):
    raise ValueError(f"not {who}")

line = Pipeline("line", [Stage("first", greet)])
"""

CHANGED = MODULE.replace("class Crawl(Workflow):", "class Crawl(Workflow):\n    timeout = 60")

CRAWL = """
step: crawl
tool: {kind: playbook, path: "shop:Crawl"}
input: {count: "{{ 2 + 2 }}"}
next: told
"""
TOLD = 'step: told\ntool: {kind: noop, result: "{{ crawl.total }} {{ crawl.pair[1] }}"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("shop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def marks(folder: Path) -> list[str]:
    file = folder / "marks"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def child_of(folder: Path, run: str) -> dict[str, Any]:
    reasons = refold(folder, "runs", "why", run, "-o", "json").data["reasons"]
    return dict(next(each for each in reasons if each["kind"] == "child"))


def kill_in_the_child(folder: Path, *arguments: str) -> None:
    """A real process, while the child of the run is at work."""
    folder.joinpath("hold").touch()
    with started(folder, "run", *arguments, "-q") as process:
        until(lambda: "fetch" in marks(folder))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    folder.joinpath("hold").unlink()


def test_a_playbook_starts_a_class_and_reads_its_result_as_plain_data(folder: Path) -> None:
    done = refold(folder, "run", playbook(folder, CRAWL, TOLD), "-q")
    assert (done.code, done.out) == (0, "8 2\n"), done.err
    assert marks(folder) == ["begin", "call", "fetch"]


def test_each_item_of_a_loop_is_a_run_of_a_flow(folder: Path) -> None:
    play = playbook(folder, 'step: each\nloop: {in: [Ada, Grace], iterator: who, workflow: "shop:greet"}')
    done = refold(folder, "run", play, "-q")
    assert (done.code, done.data) == (0, ["hello Ada", "hello Grace"]), done.err


def test_a_playbook_runs_a_pipeline_as_a_step_and_a_flow_as_one_of_several_tasks(folder: Path) -> None:
    line = 'step: a\ntool: {kind: playbook, path: "shop:line"}\ninput: {who: Ada}\nnext: b'
    tasks = (
        "step: b\ntool:\n  - {name: first, kind: noop, result: Grace}\n"
        '  - {name: then, kind: playbook, path: "shop:greet", input: {who: "{{ first }}"}}\nnext: c'
    )
    both = 'step: c\ntool: {kind: noop, result: "{{ a.output }}, {{ b.then }}"}'
    done = refold(folder, "run", playbook(folder, line, tasks, both), "-q")
    assert (done.code, "hello Ada, hello Grace" in done.out) == (0, True), done.err + done.out


def test_a_module_is_found_where_the_playbook_stands_or_where_one_is(folder: Path) -> None:
    plays = folder / "plays"
    plays.mkdir()
    playbook(plays, CRAWL, TOLD)
    assert refold(folder, "run", "plays/play.yaml", "-q").out == "8 2\n"
    folder.joinpath("shop.py").rename(plays / "shop.py")
    assert refold(folder, "run", "plays/play.yaml", "-q").out == "8 2\n"
    assert '"total": 6' in refold(folder, "run", "plays/shop:Crawl", "-i", "count=3", "-q").out


def test_killed_in_the_middle_of_the_child_both_go_on(folder: Path) -> None:
    kill_in_the_child(folder, playbook(folder, CRAWL, TOLD), "--name", "play")
    done = refold(folder, "runs", "resume", "play", "--code", "shop:Crawl", "-q")
    assert (done.code, done.out) == (0, "8 2\n"), done.err
    assert marks(folder).count("begin") == marks(folder).count("call") == 1
    shown = refold(folder, "runs", "show", "play", "-o", "json").data
    assert shown["steps"]["crawl"]["status"] == "completed"


def test_without_its_code_a_run_is_not_resumed_and_says_what_is_missing(folder: Path) -> None:
    folder.joinpath("plays").mkdir()
    folder.joinpath("shop.py").rename(folder / "plays" / "shop.py")
    playbook(folder / "plays", CRAWL, TOLD)
    kill_in_the_child(folder, "plays/play.yaml", "--name", "play")
    done = refold(folder, "runs", "resume", "play")
    assert done.code == 3
    assert "the code of Crawl (plan " in done.err and "not here: give it with --code plays/shop:Crawl" in done.err
    child = child_of(folder, "play")["run"]
    assert "give it with --code plays/shop:Crawl" in refold(folder, "runs", "resume", child).err
    assert refold(folder, "runs", "resume", "play", "--code", "plays/shop:Crawl", "-q").out == "8 2\n"


def test_what_is_over_needs_no_code_any_more(folder: Path) -> None:
    last = "step: last\ntool: {kind: wait, signal: go}\nnext: told"
    play = playbook(folder, CRAWL.replace("told", "last"), last, TOLD)
    with started(folder, "run", play, "--name", "play", "-q"):
        until(lambda: "last" in refold(folder, "runs", "why", "play").out)
    assert refold(folder, "runs", "signal", "play", "go").code == 0
    assert refold(folder, "runs", "resume", "play", "-q").out == "8 2\n"


def test_whoever_interrupts_it_is_told_how_to_go_on(folder: Path) -> None:
    folder.joinpath("hold").touch()
    with started(folder, "run", playbook(folder, CRAWL, TOLD), "--name", "play") as process:
        until(lambda: "fetch" in marks(folder))
        process.send_signal(signal.SIGINT)
        assert "refold runs resume play --code shop:Crawl" in process.communicate(timeout=60)[1]


def test_what_looks_like_a_stored_value_is_data(folder: Path) -> None:
    given = """[{$refold: [tuple, [1]]}, {$refold: 1, b: {$refold: [bytes, AA==]}}]"""
    play = playbook(folder, f'step: a\ntool: {{kind: playbook, path: "shop:same"}}\ninput: {{value: {given}}}')
    done = refold(folder, "run", play, "-q")
    assert done.code == 0, done.err
    assert done.data == [{"$refold": ["tuple", [1]]}, {"$refold": 1, "b": {"$refold": ["bytes", "AA=="]}}]


def test_a_run_that_was_left_says_how_it_is_executed(folder: Path) -> None:
    below = playbook(folder, CRAWL, TOLD, name="below.yaml")
    play = playbook(folder, f"step: a\ntool: {{kind: playbook, path: {below}}}")
    left = refold(folder, "run", play, "--name", "play", "--detach")
    assert "refold runs resume play --code shop:Crawl" in left.err
    assert "give it with --code shop:Crawl" in refold(folder, "runs", "resume", "play").err
    assert refold(folder, "runs", "resume", "play", "--code", "shop:Crawl", "-q").out == "8 2\n"


def test_code_that_has_changed_is_told_with_what_to_migrate(folder: Path) -> None:
    kill_in_the_child(folder, playbook(folder, CRAWL, TOLD), "--name", "play")
    folder.joinpath("shop.py").write_text(CHANGED, encoding="utf-8")
    child = child_of(folder, "play")["run"]
    done = refold(folder, "runs", "resume", "play", "--code", "shop:Crawl")
    assert (done.code, "`refold runs migrate play.crawl --to shop:Crawl` moves the run to it" in done.err) == (3, True)
    assert refold(folder, "runs", "migrate", child, "--to", "shop:Crawl").code == 0
    assert refold(folder, "runs", "resume", "play", "--code", "shop:Crawl", "-q").out == "8 2\n"


def test_code_that_has_changed_before_it_was_started_comes_with_the_playbook(folder: Path) -> None:
    play = playbook(folder, "step: first\ntool: {kind: wait, signal: go}\nnext: crawl", CRAWL, TOLD)
    assert refold(folder, "run", play, "--name", "play", "--detach", "-q").code == 0
    folder.joinpath("shop.py").write_text(CHANGED, encoding="utf-8")
    done = refold(folder, "runs", "resume", "play", "--code", "shop:Crawl")
    assert (done.code, "`refold runs migrate play --to FILE`, with the playbook of play" in done.err) == (3, True)
    assert refold(folder, "runs", "migrate", "play", "--to", play).code == 0
    assert refold(folder, "runs", "signal", "play", "go").code == 0
    assert refold(folder, "runs", "resume", "play", "--code", "shop:Crawl", "-q").out == "8 2\n"


def test_a_child_that_fails_is_a_failure_of_the_step(folder: Path) -> None:
    play = playbook(folder, 'step: a\ntool: {kind: playbook, path: "shop:picky"}\ninput: {who: Ada}')
    done = refold(folder, "run", play)
    assert (done.code, "not Ada" in done.err) == (1, True), done.err


def test_an_input_that_only_the_run_knows_is_told_by_name_at_the_start(folder: Path) -> None:
    play = playbook(folder, CRAWL.replace("2 + 2", "'four'"), TOLD)
    done = refold(folder, "run", play)
    assert (done.code, "input `count`: int is declared, and this is a str" in done.err) == (1, True), done.err


@pytest.mark.parametrize(
    ("path", "module", "why"),
    [
        ("nowhere:Crawl", "", "there is no module 'nowhere' here or among the installed ones"),
        ("shop:Crawly", "", "module 'shop' has no 'Crawly': did you mean `Crawl`?"),
        ("shop:mark", "", "shop:mark: is a function and no workflow; `@refold.flow` makes a workflow of it"),
        ("other:Crawl", "\n1 / 0", "its module cannot be imported: ZeroDivisionError: division by zero ("),
        ("other:Crawl", "import sys\nsys.exit(3)", "its module cannot be imported: SystemExit: 3 ("),
        ("other:Crawl", "x = = 1", "its module cannot be imported: SyntaxError: invalid syntax (other.py, line 1)"),
        ("other:Bare", "import refold\nclass Bare(refold.Workflow): pass", "workflow 'Bare' has no steps"),
    ],
)
def test_code_that_cannot_be_had_is_a_problem_with_its_place(folder: Path, path: str, module: str, why: str) -> None:
    if module:
        folder.joinpath(path.partition(":")[0] + ".py").write_text(module)
    play = playbook(folder, noop("a", "b"), f'step: b\ntool: {{kind: playbook, path: "{path}"}}')
    for command in ("run", "validate", "graph"):
        done = refold(folder, command, play)
        assert done.code == 2
        assert "play.yaml:9:34: error[unreadable-child]: " in done.err and why in done.err, done.err
    assert "^" * (len(path) + 2) in done.err and "hint: " in done.err
    assert not folder.joinpath("refold.db").exists()


def test_two_modules_of_one_name_are_not_taken_for_each_other(folder: Path) -> None:
    folder.joinpath("other").mkdir()
    folder.joinpath("other", "shop.py").write_text(MODULE, encoding="utf-8")
    other = 'step: told\ntool: {kind: playbook, path: "other/shop:greet", input: {who: Ada}}'
    done = refold(folder, "validate", playbook(folder, CRAWL, other))
    assert done.code == 2
    assert "other/shop.py: another module 'shop' is in use, that of" in done.err
    assert "give one of them another name" in done.err


def test_it_is_checked_drawn_and_described_without_being_run(folder: Path) -> None:
    play = playbook(folder, CRAWL, TOLD)
    assert "ok, 2 steps" in refold(folder, "validate", play).out
    assert "crawl  child" in refold(folder, "graph", play).out
    assert "play: 2 steps would run" in refold(folder, "run", play, "--dry-run").out
    assert refold(folder, "validate", playbook(folder, CRAWL.replace("count", "n"), TOLD)).code == 2
    assert marks(folder) == []


def test_it_is_run_on_the_bench_and_simulated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = playbook(folder, CRAWL, TOLD)
    simulated = refold(folder, "sim", play, "-n", "10", "-o", "json")
    assert (simulated.code, simulated.data["broken"]) == (0, None), simulated.err
    assert simulated.data["undisturbed"] == "completed with '8 2'"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(load.__globals__["sys"].modules, "shop", raising=False)
    with engine() as bench:
        assert bench.run(play) == "8 2"
        assert [call.step for call in bench.calls()] == ["begin", "fetch", "told"]


def test_nothing_of_python_workflows_is_loaded_for_a_playbook_that_names_none(folder: Path) -> None:
    below = playbook(folder, noop("leaf", result="1"), name="below.yaml")
    play = playbook(folder, f"step: a\ntool: {{kind: playbook, path: {below}}}")
    done = refold(folder, "run", play, "-q", PYTHONPROFILEIMPORTTIME="1")
    assert (done.code, done.out) == (0, "1\n")
    assert "refold.playbooks.children" in done.err
    assert not any(f"refold.python.{name}" in done.err for name in ("workflow", "definition", "context", "load"))
