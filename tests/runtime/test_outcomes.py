"""What a body came to is recorded, whatever it looks like, and the body does not run again because of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from refold.core.facts import Fact, StepSettled
from refold.core.outcomes import AddTo, Failed, Fault, Outcome, PutIf, SetKey, Succeeded
from refold.core.plan import Arc, Call, Plan, Retry, Step
from refold.playbooks.playbook import read
from refold.ports import Done, ToolCall
from refold.settings import Settings
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: play}\n"
NOETL = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: play, path: play}\n"


class Played(Struct):
    status: str
    result: Any
    step: str
    fault: Fault | None
    usage: dict[str, Any]
    facts: list[Fact]

    def outcomes(self, step: str) -> list[Outcome]:
        """Of each try of a step, as the log has it."""
        return [fact.report.outcome for fact in self.facts if isinstance(fact, StepSettled) and fact.step == step]


def play(plan: Plan | str, tools: dict[str, Any] | None = None, db: Path | None = None) -> Played:
    known = read(plan, "play.yaml", CATALOG).plan if isinstance(plan, str) else plan

    async def run() -> Played:
        settings = Settings(processes=1, lease_for=30.0, sweep_every=0.05, poll=0.05)
        async with open_engine(tools, settings=settings, db=db) as engine:
            id = (await engine.start(known)).id
            async with asyncio.timeout(60):
                await engine.wait(id)
            shown = await engine.show(id)
            error = shown.error
            facts = [fact for _, _, fact in await engine.history(id)]
            step, fault = (error.step, error.fault) if error is not None else ("", None)
            return Played(shown.status, shown.result, step, fault, dict(shown.state.usage), facts)

    return asyncio.run(run())


def once(tool: Callable[[ToolCall], Any], attempts: int = 5) -> tuple[Played, int]:
    """One step that may be tried often, and how many bodies ran."""
    bodies: list[int] = []

    async def body(call: ToolCall) -> Any:
        bodies.append(call.command.attempt)
        value = tool(call)
        return await value if asyncio.iscoroutine(value) else value

    plan = Plan(name="p", steps=(Step(name="a", work=Call(tool="odd"), retry=Retry(attempts=attempts)),))
    return play(plan, {"odd": body}), len(bodies)


def noted(folder: Path) -> str:
    """Code that notes each time it runs, for a YAML text in double quotes."""
    return f"with open({str(folder / 'ran')!r}, 'a') as file: file.write('x')\\nresult = 1"


class Text(str):
    """A text that is none for JSON."""


class Spiteful:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("leave me alone")


class SpitefulMap(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("leave me alone")


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


ODD: dict[str, tuple[Any, str]] = {
    "a class made of text": ({"a": [Text("x")]}, "result.a[0]: a Text is not a JSON value"),
    "a number that cannot be written": ([10**5000], "result[0]: a number of more than 4,300 digits"),
    "a circle": (circle(), "nested deeper than"),
    "a lone surrogate": ({"a": "\ud800"}, "result.a: a lone surrogate is not text"),
    "not a number": ({"a": float("nan")}, "result.a: nan cannot be represented in JSON"),
    "an object": ({"a": object()}, "result.a: a object is not a JSON value"),
    "a spiteful object": ({"a": Spiteful()}, "RuntimeError while it was looked at"),
    "a spiteful map": (SpitefulMap(), "RuntimeError while it was looked at: leave me alone"),
    "usage that is a number": (Done(Succeeded(1), usage=5), "usage: it must be a map of amounts"),  # type: ignore[arg-type]
    "usage below nothing": (Done(Succeeded(1), usage={"a": -1}), "usage.a: -1 is not an amount"),
    "usage of no name": (Done(Succeeded(1), usage={1: 2}), "usage: the key 1 is not a string"),  # type: ignore[dict-item]
    "usage that is text": (Done(Succeeded(1), usage={"a": "b"}), "usage.a"),  # type: ignore[dict-item]
    "writes that are a list": (Done(Succeeded(1), writes=[]), "writes: a list is not a tuple"),  # type: ignore[arg-type]
    "a write that is none": (Done(Succeeded(1), writes=(5,)), "writes: a int is not a write"),  # type: ignore[arg-type]
    "a write of an object": (Done(Succeeded(1), writes=(SetKey("k", object()),)), "context.k: a object is not a JSON"),
    "a write of no key": (Done(Succeeded(1), writes=(SetKey(5),)), "context: the key 5 is not a string"),  # type: ignore[arg-type]
    "a sum with text": (Done(Succeeded(1), writes=(AddTo("k", "x"),)), "context.k: 'x' is not a number"),  # type: ignore[arg-type]
    "a version that is none": (Done(Succeeded(1), writes=(PutIf("k", "x"),)), "context.k: 'x' is not a version"),  # type: ignore[arg-type]
    "an event that is none": (Done(Succeeded(1), events=(5,)), "events: a int is not an event"),  # type: ignore[arg-type]
    "a beginning that is not a moment": (Done(Succeeded(1), started_at="x"), "started_at: 'x' is not a moment"),  # type: ignore[arg-type]
    "an outcome that is none": (Done(5), "outcome: "),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", ODD)
def test_a_report_that_cannot_be_stored_fails_its_step_once_by_name(kind: str) -> None:
    value, why = ODD[kind]
    played, bodies = once(lambda call: value)
    assert (played.status, played.step, bodies) == ("failed", "a", 1)
    assert played.fault is not None and played.fault.kind == "invalid_value"
    assert why in played.fault.message


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_data_that_looks_like_a_mark_is_a_result_like_any_other(isolation: str) -> None:
    marks = "{'$usage': 5, '$result': 1, 'usage': 2, 'result': 3, '$sealed': 'x', '$refold': ['int', '0x1']}"
    text = f'workflow: [{{step: a, tool: {{kind: python, isolation: {isolation}, code: "result = {marks}"}}}}]'
    played = play(HEAD + text)
    assert played.status == "completed"
    assert played.result == {
        **{"$usage": 5, "$result": 1, "usage": 2, "result": 3},
        **{"$sealed": "x", "$refold": ["int", "0x1"]},
    }
    assert played.usage == {}


@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize(
    ("usage", "why"),
    [("5", "must be a map of amounts"), ("{'a': 'b'}", "usage.a"), ("[1]", "must be a map of amounts")],
)
def test_usage_that_cannot_be_counted_fails_its_step_once(tmp_path: Path, isolation: str, usage: str, why: str) -> None:
    text = f"""\
workflow:
  - step: a
    retry: {{attempts: 3}}
    tool:
      kind: python
      isolation: {isolation}
      code: |
        with open({str(tmp_path / "ran")!r}, "a") as file: file.write("x")
        context["usage"] = {usage}
        result = 1
"""
    played = play(HEAD + text)
    assert (played.status, played.step) == ("failed", "a")
    assert played.fault is not None and played.fault.kind == "invalid_value" and why in played.fault.message
    assert (tmp_path / "ran").read_text() == "x"


CYCLE: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}


def test_an_output_schema_that_refers_to_itself_fails_its_step_once() -> None:
    """`refold validate` refuses it in a playbook; a plan in code is not read by it."""
    ran: list[str] = []

    async def note(call: ToolCall) -> Any:
        ran.append(call.command.id)
        return {"n": 1}

    step = Step(name="a", work=Call(tool="note"), retry=Retry(attempts=5), result=CYCLE)
    played = play(Plan(name="cycle", steps=(step,)), {"note": note})
    assert (played.status, played.step) == ("failed", "a")
    assert played.fault is not None and played.fault.kind == "schema"
    assert "refers to itself without an end" in played.fault.message
    assert ran == ["a/1"]


BAD = ["{{ {workload.x: 1} }}", "{{ (workload.n)[1:2] }}", "{{ workload.n.a.b }}"]


@pytest.mark.parametrize("expression", BAD)
def test_an_error_in_the_input_of_a_step_fails_that_step_and_not_the_one_before(
    tmp_path: Path, expression: str
) -> None:
    code = noted(tmp_path)
    text = f"""\
workload: {{x: {{}}, n: 1}}
workflow:
  - step: a
    tool: {{kind: python, isolation: inline, code: "{code}"}}
    next: b
  - step: b
    input: {{y: "{expression}"}}
    tool: {{kind: noop}}
"""
    played = play(HEAD + text)
    assert (played.status, played.step) == ("failed", "b")
    assert played.fault is not None and played.fault.kind == "expression" and "{{" in played.fault.message
    assert played.outcomes("a") == [Succeeded(1)]
    assert (tmp_path / "ran").read_text() == "x"


@pytest.mark.parametrize("expression", BAD)
def test_an_error_in_a_condition_fails_the_visit_that_ended_and_leaves_its_outcome_in_the_log(
    tmp_path: Path, expression: str
) -> None:
    code = noted(tmp_path)
    text = f"""\
workload: {{x: {{}}, n: 1}}
workflow:
  - step: a
    tool: {{kind: python, isolation: inline, code: "{code}"}}
    next: {{arcs: [{{step: b, on: both, when: "{expression}"}}]}}
  - step: b
    tool: {{kind: noop}}
"""
    played = play(HEAD + text)
    assert (played.status, played.step) == ("failed", "a")
    assert played.fault is not None and played.fault.kind == "expression"
    assert played.outcomes("a") == [Succeeded(1)]
    assert (tmp_path / "ran").read_text() == "x"


def test_an_error_in_a_condition_can_be_handled_by_an_arc_that_listens_to_failures() -> None:
    text = """\
workload: {x: {}}
workflow:
  - step: a
    tool: {kind: noop}
    next: {arcs: [{step: b, when: "{{ {workload.x: 1} }}"}, {step: c, on: failure}]}
  - {step: b, tool: {kind: noop}}
  - {step: c, tool: {kind: noop, result: handled}}
"""
    assert play(HEAD + text).result == "handled"


def test_a_format_that_wants_more_values_fails_the_step_of_a_noetl_file() -> None:
    text = """\
workload: {}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: end}]}
  - step: end
    input: {y: "{{ '{} {}'.format(1) }}"}
    tool: {kind: noop}
"""
    played = play(NOETL + text)
    assert (played.status, played.step) == ("failed", "end")
    assert played.fault is not None and played.fault.kind == "expression"


class Panic(BaseException):
    """As Rust raises it."""


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, Panic, StopIteration, MemoryError])
def test_an_exception_of_any_class_is_a_failed_try_of_its_step(kind: type[BaseException]) -> None:
    def tool(call: ToolCall) -> Any:
        raise kind("no")

    played, bodies = once(tool, attempts=3)
    assert (played.status, played.step, bodies) == ("failed", "a", 3)
    assert [type(each) for each in played.outcomes("a")] == [Failed] * 3


def test_a_body_that_cancels_its_own_task_has_failed_and_is_counted() -> None:
    async def tool(call: ToolCall) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    played, bodies = once(tool, attempts=3)
    assert (played.status, played.step, bodies) == ("failed", "a", 3)
    assert played.fault is not None and played.fault.kind == "cancelled_itself"


def test_a_cancel_scope_that_a_body_leaves_open_harms_neither_its_report_nor_the_next_step() -> None:
    ended: list[str] = []

    async def leaks(call: ToolCall) -> str:
        await asyncio.timeout(0.05).__aenter__()
        return "done"

    async def waits(call: ToolCall) -> str:
        await asyncio.sleep(0.3)
        ended.append(call.command.step)
        return "waited"

    arcs = (Arc(to="b"),)
    plan = Plan(
        name="p",
        steps=(Step(name="a", work=Call(tool="leaks"), arcs=arcs), Step(name="b", work=Call(tool="waits"))),
    )
    played = play(plan, {"leaks": leaks, "waits": waits})
    assert (played.status, played.result, ended) == ("completed", "waited", ["b"])


def test_a_body_that_stops_the_event_loop_has_failed_and_the_process_goes_on() -> None:
    async def tool(call: ToolCall) -> Any:
        asyncio.get_running_loop().stop()

    played, bodies = once(tool, attempts=2)
    assert (played.status, played.step, bodies) == ("failed", "a", 2)
    assert played.fault is not None and "must not stop the event loop" in played.fault.message


def test_a_callback_of_a_body_cannot_stop_the_event_loop_either() -> None:
    async def tool(call: ToolCall) -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        loop.call_soon(loop.stop)
        await asyncio.sleep(0.01)
        return "on"

    assert once(tool)[0].result == "on"


def test_the_event_loop_is_as_it_was_when_an_engine_is_closed() -> None:
    async def run() -> bool:
        loop = asyncio.get_running_loop()
        async with open_engine():
            await asyncio.sleep(0)
        return "stop" in vars(loop)

    assert asyncio.run(run()) is False


def test_a_context_that_grows_deeper_with_every_pass_fails_by_name() -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop}
    next: {arcs: [{step: a, set: {ctx.deep: "{{ [ctx.deep | default(0)] }}"}, when: "{{ visit < 1000 }}"}]}
"""
    played = play(HEAD + text)
    assert (played.status, played.step) == ("failed", "a")
    assert played.fault is not None and "nested deeper than 200" in played.fault.message
    assert len(played.outcomes("a")) == 201
