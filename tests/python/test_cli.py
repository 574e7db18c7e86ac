"""Python workflows on the command line."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tests.cli.program import noop, playbook, refold, started, until

MODULE = """
import os
from refold import Collect, Context, ErrorEvent, Event, InputRequestEvent, InputResponseEvent, StartEvent, StopEvent
from refold import Workflow, flow, step

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

class Asks(Workflow):
    @step
    async def decide(self, ctx: Context, ev: StartEvent) -> StopEvent:
        said = await ctx.ask("Ship it?", metadata={"to": "Bergen"}, timeout="1h")
        return StopEvent(result=[said, await ctx.ask("How many?", id="count")])

class Approved(InputResponseEvent):
    yes: bool
    why: str = ""

class Approve(InputRequestEvent, answer=Approved):
    amount: int

class Pays(Workflow):
    @step
    async def propose(self, ev: StartEvent) -> Approve:
        return Approve(request_id="a1", prompt="Pay?", amount=30)

    @step
    async def pay(self, ev: Approved) -> StopEvent:
        return StopEvent(result=[ev.yes, ev.why])

@flow
async def asks_below(ctx):
    return await ctx.run_child(Asks, key="below")

@flow
def ends(ctx, n):
    return n

class Picky(Workflow):
    @step(queue="gpu")
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="taken")

@flow
async def greet(ctx, name):
    return f"hello {name}"

other = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("shop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def gates(folder: Path) -> list[dict[str, Any]]:
    """None while there is no database."""
    done = refold(folder, "gates", "list", "-o", "json")
    return list(done.data) if done.code == 0 else []


def test_a_class_is_run_with_inputs(folder: Path) -> None:
    done = refold(folder, "run", "shop:Crawl", "-i", "count=3")
    assert done.code == 0, done.err
    assert '"sum": 3' in done.out


def test_a_flow_is_run_with_inputs(folder: Path) -> None:
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
    assert "refold runs resume later --code shop:Crawl" in left.err
    why = refold(folder, "runs", "why", "later", "-o", "json").data
    assert why["reasons"][0]["kind"] == "no_worker"
    assert why["reasons"][0]["note"].startswith("Crawl ")
    done = refold(folder, "runs", "resume", "later", "--code", "shop:Crawl")
    assert done.code == 0, done.err
    assert '"sum": 3' in done.out


def test_a_class_is_drawn(folder: Path) -> None:
    drawing = refold(folder, "graph", "shop:Crawl").out
    assert [name for name in ("StartEvent", "begin", "fetch", "mend", "join") if name not in drawing] == []
    assert "Broken" in drawing
    assert '-->|"if Page"|' in refold(folder, "graph", "shop:Crawl", "--mermaid").out


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("nowhere:Crawl", 3, "there is no module 'nowhere'"),
        ("shop.py:Crawl", 3, "a module is named without .py: shop:Crawl"),
        ("shop:Crawly", 3, "did you mean"),
        ("shop:other", 2, "is an int and no workflow"),
        ("shop:Unfit", 2, "has no steps"),
    ],
)
def test_what_cannot_be_run_is_said(folder: Path, target: str, code: int, why: str) -> None:
    done = refold(folder, "run", target)
    assert (done.code, why in done.err) == (code, True), done.err


def test_a_run_whose_code_is_not_given_says_so_at_once(folder: Path) -> None:
    assert refold(folder, "run", "shop:Crawl", "-i", "count=3", "--name", "later", "--detach", "-q").code == 0
    done = refold(folder, "runs", "resume", "later")
    assert done.code == 3
    assert "the code of Crawl (plan " in done.err and ") is not here: give it with --code shop:Crawl" in done.err
    other = refold(folder, "runs", "resume", "later", "--code", "shop:Asks")
    assert (other.code, "give it with --code shop:Crawl" in other.err) == (3, True)
    folder.joinpath("shop.py").write_text(
        MODULE.replace("n=3", "n=20"), encoding="utf-8"
    )  # longer: cached bytecode is out of date
    changed = refold(folder, "runs", "resume", "later", "--code", "shop:Crawl")
    assert changed.code == 3
    assert "`refold runs migrate later --to shop:Crawl` moves the run to it" in changed.err


def test_one_that_failed_is_not_reopened_where_its_code_is_not(folder: Path) -> None:
    folder.joinpath("broken").touch()
    assert refold(folder, "run", "shop:Fragile", "--name", "fragile", "-q").code == 1
    again = refold(folder, "runs", "retry", "fragile")
    assert (again.code, "give it with --code shop:Fragile" in again.err) == (3, True), again.err
    assert refold(folder, "runs", "show", "fragile", "-o", "json").data["status"] == "failed"


def test_code_that_another_process_has_is_waited_for(folder: Path) -> None:
    with started(folder, "run", "shop:Asks", "--name", "open", "-q"):
        until(lambda: gates(folder))
        with started(folder, "runs", "resume", "open") as second:
            assert second.stderr is not None
            assert "continuing open" in second.stderr.readline()
            assert "its code is not here; its steps are run by run-" in second.stderr.readline()


def test_a_child_whose_code_nobody_has_ends_the_waiting(folder: Path) -> None:
    with started(folder, "run", "shop:asks_below", "--name", "above", "-q"):
        until(lambda: gates(folder))
    changed = MODULE.replace("class Asks(Workflow):", "class Asks(Workflow):\n    timeout = 3600")
    folder.joinpath("shop.py").write_text(changed, encoding="utf-8")
    assert refold(folder, "gates", "answer", "above", "decide", "yes").code == 0
    done = refold(folder, "runs", "resume", "above", "--code", "shop:asks_below")
    assert done.code == 3, done.err
    assert "decide waits: no live worker has the code of plan" in done.err
    assert "refold runs resume above --code shop:asks_below --code MODULE:CLASS" in done.err


def test_a_queue_of_its_own_is_served_unless_somebody_says_otherwise(folder: Path) -> None:
    assert refold(folder, "run", "shop:Picky", "-q").out == "taken\n"
    told = {"REFOLD_QUEUES": "default, other"}
    with started(folder, "run", "shop:Picky", "--name", "picky", **told) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "waits" in line)
        assert "only waits: no live worker serves the queue: gpu" in said
        [reason] = refold(folder, "runs", "why", "picky", "-o", "json").data["reasons"]
        assert (reason["kind"], reason["note"]) == ("no_queue", "gpu")
        assert "no live worker serves the queue: gpu" in refold(folder, "runs", "show", "picky").out


def test_the_queue_of_a_playbooks_step_is_served_too(folder: Path) -> None:
    play = playbook(folder, noop("only", result="1") + "\nqueue: gpu")
    assert refold(folder, "run", play, "-q").out == "1\n"


def test_questions_stand_among_the_gates_and_are_answered_there(folder: Path) -> None:
    assert refold(folder, "gates", "list", "-o", "json").code == 3  # there is no database yet
    with started(folder, "run", "shop:Asks", "--name", "open", "-q") as process:
        until(lambda: gates(folder))
        [first] = gates(folder)
        assert [first[key] for key in ("name", "step", "type", "prompt", "metadata")] == [
            "open",
            "decide",
            "question",
            "Ship it?",
            {"to": "Bergen"},
        ]
        assert first["deadline"].endswith("Z")
        listed = refold(folder, "gates", "list").out.splitlines()[1]
        assert first["gate"] in listed and listed.endswith("Ship it?")
        assert refold(folder, "gates", "show", "open", "-o", "json").data == first
        assert "prompt     Ship it?" in refold(folder, "gates", "show", "open").out
        assert refold(folder, "gates", "approve", "open").code == 4
        wrong = refold(folder, "gates", "answer", "open", "nothing", "1")
        assert (wrong.code, f"open: {first['gate']}" in wrong.err) == (3, True), wrong.err
        forgotten = refold(folder, "gates", "answer", "open", "decide")
        assert (forgotten.code, "its answer is missing" in forgotten.err) == (2, True), forgotten.err
        assert refold(folder, "gates", "answer", "open", "decide", "-i", "ok=true").code == 0
        until(lambda: [each["gate"] for each in gates(folder)] == ["count"])
        assert refold(folder, "gates", "answer", "open", "count", "3", "-o", "json").data["value"] == 3
        assert process.stdout is not None and json.decode(process.stdout.read()) == [{"ok": True}, 3]


def test_a_run_that_asks_one_question_is_answered_without_its_id(folder: Path) -> None:
    with started(folder, "run", "shop:Asks", "--name", "open", "-q") as process:
        until(lambda: gates(folder))
        assert refold(folder, "gates", "answer", "open", "-i", "ok=true").code == 0
        until(lambda: [each["gate"] for each in gates(folder)] == ["count"])
        assert refold(folder, "gates", "answer", "open", "3").code == 0
        assert process.stdout is not None and json.decode(process.stdout.read()) == [{"ok": True}, 3]
    assert "asks nothing" in refold(folder, "gates", "answer", "open", "3").err


def test_a_file_of_code_is_no_playbook_and_the_message_says_how_a_workflow_is_named(folder: Path) -> None:
    done = refold(folder, "run", "shop.py")
    assert (done.code, done.err) == (
        2,
        "error: shop.py: is Python code and no playbook; a workflow of it is named shop:NAME\n",
    )


def test_a_run_that_is_left_at_a_question_says_how_it_is_answered(folder: Path) -> None:
    left = refold(folder, "run", "shop:Asks", "--name", "left", "--until-waiting")
    assert (left.code, "to answer: refold gates answer left " in left.err) == (0, True), left.err
    wrong = refold(folder, "gates", "approve", "left").err
    assert "run left has no gates; `refold gates answer left ID VALUE` answers a question" in wrong


def test_the_command_that_executes_a_run_names_its_code(folder: Path) -> None:
    assert refold(folder, "run", "shop:Asks", "--name", "left", "--detach", "-q").code == 0
    shown = refold(folder, "runs", "show", "left")
    assert "refold runs resume left --code shop:Asks, or a worker with this code" in shown.err, shown.err


def test_a_returned_request_is_a_question_whose_answer_is_checked_by_its_fields(folder: Path) -> None:
    with started(folder, "run", "shop:Pays", "--name", "pays", "-q") as process:
        until(lambda: gates(folder))
        [asked] = gates(folder)
        assert [asked[key] for key in ("gate", "step", "prompt", "event")] == ["a1", "propose", "Pay?", "Approve"]
        assert asked["data"]["amount"] == 30 and asked["fields"] == {"response": False, "yes": True, "why": False}
        shown = refold(folder, "gates", "show", "pays").out
        assert "event      Approve" in shown and "amount = 30" in shown and "yes  (required)" in shown
        [row] = refold(folder, "runs", "list", "-o", "json").data
        assert row["status"] == "waiting"
        assert "waits for the answer of a person to 'a1'" in refold(folder, "runs", "why", "pays").out
        for wrong, why in (
            (["yes"], "a map of the fields of Approved"),
            (["-i", "no=1"], "lacks 'yes' and has 'no'"),
            (["-i", "yes=maybe"], "yes: 'maybe' is not a boolean"),
        ):
            refused = refold(folder, "gates", "answer", "pays", "a1", *wrong)
            assert (refused.code, why in refused.err) == (2, True), refused.err
        assert refold(folder, "gates", "answer", "pays", "propose", "-i", "yes=true", "-i", "why=cheap").code == 0
        assert process.stdout is not None and json.decode(process.stdout.read()) == [True, "cheap"]


@pytest.mark.parametrize("detach", [(), ("--detach",), ("--dry-run",)])
def test_wrong_inputs_are_refused_before_anything_is_written(folder: Path, detach: tuple[str, ...]) -> None:
    done = refold(folder, "run", "shop:ends", "-i", "m=1", *detach)
    assert (done.code, "input `m`: `ends` has no such input; known: `n`" in done.err) == (2, True), done.err
    done = refold(folder, "run", "shop:ends", *detach)
    assert (done.code, "input `n`: `ends` needs it, and it is not given" in done.err) == (2, True), done.err
    assert not detach or not folder.joinpath("refold.db").exists()
    assert refold(folder, "run", "shop:ends", "-i", "n=1", "-q").out == "1\n"
