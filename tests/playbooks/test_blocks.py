"""Blocks: what they do on the engine."""

import asyncio
from typing import Any

import pytest

from refold.core.outcomes import Fault
from refold.errors import RunFailed
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook
from refold.ports import Tool, ToolCall
from refold.templates import Templates
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: blocks}\n"
BAD = '{kind: assert, that: false, message: "{{ run.name }} is bad"}'


class Run:
    """A run that is over: which steps were worked on, what came of it, and what `get` gives."""

    def __init__(self, text: str, **input: Any) -> None:
        self.trace: list[str] = []
        self.result: Any = None
        self.fault: Fault | None = None
        self.failed_at = ""
        self.playbook = read(HEAD + text, "play.yaml", CATALOG)
        asyncio.run(self._run(input))

    async def _work(self, call: ToolCall) -> Any:
        self.trace.append(call.command.step)
        return call.input["input"]

    async def _run(self, input: dict[str, Any]) -> None:
        async with open_engine({"shell": self._work}, evaluate=Templates()) as engine:
            try:
                self.result = await asyncio.wait_for(engine.run(self.playbook.plan, input), 60)
            except RunFailed as failed:
                self.failed_at, self.fault = failed.error.step, failed.error.fault


def shell(*names: str) -> str:
    return "[" + ", ".join(f"{{step: {name}, tool: {{kind: shell, script: x}}}}" for name in names) + "]"


def told(text: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidPlaybook) as refused:
        read(HEAD + text, "play.yaml", CATALOG)
    return [(each.code, each.message) for each in refused.value.problems]


def places(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(InvalidPlaybook) as refused:
        read(HEAD + text, "play.yaml", CATALOG)
    assert all(each.hint for each in refused.value.problems)
    return [(each.code, *each.place) for each in refused.value.problems]


def warned(text: str) -> Playbook:
    return read(HEAD + text, "play.yaml", CATALOG)


def test_a_while_block_asks_before_each_pass() -> None:
    text = """\
workload: {n: 0}
workflow:
  - while: "{{ visit <= n }}"
    do: %s
  - {step: after, tool: {kind: shell, script: x}}
"""
    assert Run(text % shell("a", "b"), n=2).trace == ["a", "b", "a", "b", "after"]
    assert Run(text % shell("a", "b")).trace == ["after"]


def test_an_until_block_asks_after_each_pass() -> None:
    text = 'workflow:\n  - {until: "{{ visit >= 2 }}", do: ' + shell("a") + "}\n"
    assert Run(text).trace == ["a", "a"]


def test_the_first_condition_that_holds_decides_and_else_is_for_the_rest() -> None:
    text = f"""\
workload: {{n: 0}}
workflow:
  - if: "{{{{ n > 5 }}}}"
    then: {shell("high")}
    elif:
      - {{if: "{{{{ n > 2 }}}}", then: {shell("middle")}}}
      - {{if: "{{{{ n > 1 }}}}", then: {shell("low")}}}
    else: {shell("none_of_them")}
  - {{step: after, tool: {{kind: shell, script: x}}}}
"""
    assert [Run(text, n=n).trace[0] for n in (9, 3, 2, 0)] == ["high", "middle", "low", "none_of_them"]
    assert Run(text).trace[1:] == ["after"]


def test_a_loop_that_goes_on_for_too_long_fails_and_says_so() -> None:
    text = 'workflow:\n  - {while: "{{ visit > 0 }}", name: spin, max_iterations: 3, do: ' + shell("a") + "}\n"
    run = Run(text)
    assert run.trace == ["a"] * 3
    assert run.failed_at == "spin.limit" and run.fault is not None and run.fault.kind == "max_iterations"
    assert "`spin` has gone through 3 passes" in run.fault.message


def test_a_loop_may_be_told_to_go_on_when_its_passes_are_used_up() -> None:
    text = (
        'workflow:\n  - {while: "{{ visit > 0 }}", max_iterations: 3, on_max: continue, do: %s}\n'
        "  - {step: after, tool: {kind: shell, script: x}}\n"
    )
    assert Run(text % shell("a")).trace == ["a", "a", "a", "after"]


def test_a_loop_without_a_limit_of_its_own_has_a_thousand_passes() -> None:
    playbook = warned('workflow:\n  - {while: "{{ visit > 0 }}", do: ' + shell("a") + "}\n")
    steps = {step.name: step for step in playbook.plan.steps}
    assert steps["while_1.pass"].arcs[0].when == "{{ ctx['while_1.passes'] < 1000 }}"
    assert steps["a"].visit_limit == 10_000 * 1000  # each time that the block is come to


def test_the_passes_of_a_loop_inside_a_loop_are_counted_anew() -> None:
    inner = '{until: "{{ visit > 99 }}", max_iterations: 2, on_max: continue, do: ' + shell("a") + "}"
    text = 'workflow:\n  - {until: "{{ visit >= 3 }}", do: [' + inner + ", " + shell("b")[1:] + "}\n"
    assert Run(text).trace == ["a", "a", "b"] * 3


STUCK = """\
workload: {values: [1, 2, 2, 3, 3, 3, 3]}
workflow:
  - until: "{{ visit > 9 }}"
    name: refine
    stuck_after: %s
    %s
    do:
      - {step: mark, tool: {kind: shell, script: x}}
      - {step: get, tool: {kind: noop, result: "{{ workload.values[visit - 1] }}"}, set: {ctx.got: "{{ output.data }}"}}
"""


@pytest.mark.parametrize("watched", ["", 'stuck_on: "{{ ctx.got }}"'])
@pytest.mark.parametrize(("most", "passes"), [(1, 3), (2, 6), (3, 7)])
def test_a_loop_whose_passes_change_nothing_is_stuck(watched: str, most: int, passes: int) -> None:
    run = Run(STUCK % (most, watched))
    assert run.failed_at == "refine.stuck" and run.fault is not None and run.fault.kind == "stuck"
    assert run.fault.message.startswith("`refine` is stuck: ")
    assert run.trace == ["mark"] * passes


def test_a_loop_that_ends_with_a_block_must_say_what_it_watches() -> None:
    text = (
        'workflow:\n  - {until: "{{ visit > 1 }}", stuck_after: 2,\n'
        '     do: [{if: "{{ visit > 0 }}", then: [{step: a}]}]}\n'
    )
    assert places(text) == [("missing-key", 5, 32)]


def test_branches_run_side_by_side_and_what_follows_waits_for_all() -> None:
    text = f"""\
workflow:
  - parallel: both
    branches: {{left: {shell("l1", "l2")}, right: {shell("r1")}}}
  - {{step: after, tool: {{kind: noop, result: "{{{{ both }}}}"}}}}
"""
    run = Run(text)
    assert sorted(run.trace) == ["l1", "l2", "r1"]
    assert run.result == {"succeeded": ["left", "right"], "failed": [], "errors": {"left": None, "right": None}}


FAILING = """\
workflow:
  - parallel: review
    branches:
      lint: [{step: lint, tool: %s}, {step: never, tool: {kind: shell, script: x}}]
      types: [{step: mypy, tool: %s}]
      tests: [{step: build, tool: {kind: shell, script: x}}, {step: check, tool: {kind: shell, script: x}}]
    %s
  - {step: after, tool: {kind: shell, script: x}}
"""


def test_all_branches_end_before_the_block_fails_and_it_names_those_that_failed() -> None:
    run = Run(FAILING % (BAD, BAD, "desc: all must go well"))
    assert run.trace == ["build", "check"]
    assert run.failed_at == "review" and run.fault is not None and run.fault.kind == "branches_failed"
    said = "2 of 3 branches of `review` failed: lint (`lint`:  is bad); types (`mypy`:  is bad)"
    assert run.fault.message == said
    assert run.fault.data["failed"] == ["lint", "types"]
    assert run.fault.data["errors"]["lint"]["kind"] == "assert"


def test_a_block_goes_on_if_enough_branches_went_well() -> None:
    assert Run(FAILING % (BAD, BAD, "min_success: 1")).trace == ["build", "check", "after"]
    run = Run(FAILING % (BAD, BAD, "min_success: 2"))
    assert run.fault is not None and "failed, and 2 must go well:" in run.fault.message


WAITING = """\
workflow:
  - parallel: race
    fail_fast: true
    %s
    branches:
      slow: [{step: nap, tool: {kind: wait, seconds: 1h}}, {step: never, tool: {kind: shell, script: x}}]
      bad: [{step: before, tool: {kind: shell, script: x}}, {step: bad, tool: %s}]
      worse: [{step: worse, tool: %s}]
  - {step: after, tool: {kind: shell, script: x}}
"""
GOOD = "{kind: shell, script: x}"


def test_fail_fast_stops_the_other_branches_with_the_first_failure() -> None:
    run = Run(WAITING % ("desc: nobody waits for an hour", BAD, GOOD))
    assert run.failed_at == "race" and run.fault is not None
    assert run.fault.message == "1 of 3 branches of `race` failed: bad (`bad`:  is bad)"
    assert "never" not in run.trace and "after" not in run.trace


def test_fail_fast_cancels_what_is_being_worked_on() -> None:
    text = (WAITING % ("", BAD, GOOD)).replace("{kind: wait, seconds: 1h}", "{kind: python, code: 'sleep'}")
    cancelled = []

    async def sleeping(call: ToolCall) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(call.command.step)
            raise

    async def running() -> None:
        tools: dict[str, Tool] = {"python": sleeping, "shell": quick}
        async with open_engine(tools, evaluate=Templates()) as engine:
            with pytest.raises(RunFailed, match="1 of 3 branches of `race` failed"):
                await asyncio.wait_for(engine.run(warned(text).plan, {}), 60)

    asyncio.run(running())
    assert cancelled == ["nap"]


async def quick(call: ToolCall) -> None:
    return None


def test_fail_fast_waits_until_too_few_branches_can_go_well() -> None:
    run = Run(WAITING % ("min_success: 2", BAD, BAD))
    assert run.failed_at == "race" and run.fault is not None
    assert run.fault.data["failed"] == ["bad", "worse"]


def test_with_fail_fast_a_block_that_may_lose_a_branch_goes_on_without_it() -> None:
    text = (WAITING % ("min_success: 2", BAD, GOOD)).replace("seconds: 1h", "seconds: 0")
    assert Run(text).trace[-1] == "after"
    assert Run((WAITING % ("", GOOD, GOOD)).replace("seconds: 1h", "seconds: 0")).trace[-1] == "after"


def test_an_error_arc_of_a_block_handles_whatever_fails_inside() -> None:
    handled = "{step: mend, on: failure, set: {ctx.why: '{{ error.kind }}'}}"
    text = f"""\
workflow:
  - while: "{{{{ visit < 3 }}}}"
    do: [{{step: a, tool: {BAD}}}]
    next: {{arcs: [{handled}]}}
  - {{step: after, tool: {{kind: shell, script: x}}}}
  - {{step: mend, tool: {{kind: noop, result: "{{{{ ctx.why }}}}"}}}}
"""
    run = Run(text)
    assert (run.failed_at, run.result, run.trace) == ("", "assert", [])
    parallel = FAILING % (BAD, BAD, f"next: {{arcs: [{handled}]}}") + (
        '  - {step: mend, tool: {kind: noop, result: "{{ ctx.why }}"}}\n'
    )
    assert Run(parallel).result == "branches_failed"


def test_a_condition_without_a_value_fails_its_branch_and_not_the_run() -> None:
    text = """\
workflow:
  - parallel: both
    min_success: 1
    branches:
      left: [{if: "{{ workload.nosuch }}", then: [{step: a}]}]
      right: [{step: b}]
  - {step: after, tool: {kind: noop, result: "{{ both.errors.left.step }}"}}
"""
    assert Run(text).result == "if_1.choose"


def test_a_step_goes_on_to_the_item_behind_it_unless_it_takes_an_arc_of_its_own() -> None:
    text = """\
workload: {n: 0}
workflow:
  - if: "{{ visit == 1 }}"
    then:
      - step: a
        tool: {kind: shell, script: x}
        next: {arcs: [{step: c, when: "{{ n > 0 }}"}]}
      - {step: b, tool: {kind: shell, script: x}}
      - {step: c, tool: {kind: shell, script: x}}
"""
    assert Run(text).trace == ["a", "b", "c"]
    assert Run(text, n=1).trace == ["a", "c"]
    inclusive = text.replace("next: {arcs", "next: {spec: {mode: inclusive}, arcs")
    assert Run(inclusive).trace == ["a", "b", "c"]
    assert Run(inclusive, n=1).trace == ["a", "c"]


def test_a_block_may_choose_what_follows_it() -> None:
    text = """\
workload: {n: 0}
workflow:
  - if: "{{ n > 0 }}"
    name: first
    then: [{step: a, tool: {kind: shell, script: x}}]
    next: {arcs: [{step: last, when: "{{ n > 1 }}"}]}
  - {step: middle, tool: {kind: shell, script: x}, next: last}
  - {step: last, tool: {kind: shell, script: x}}
"""
    assert Run(text, n=2).trace == ["a", "last"]
    assert Run(text, n=1).trace == ["a", "middle", "last"]


def test_arcs_and_the_entry_can_name_a_block() -> None:
    text = """\
executor: {spec: {entry_step: again}}
workflow:
  - {step: a, tool: {kind: shell, script: x}, next: {arcs: [{step: again, when: "{{ visit < 2 }}"}]}}
  - until: "{{ visit > 0 }}"
    name: again
    do: [{step: b, tool: {kind: shell, script: x}}]
    next: a
"""
    assert Run(text).trace == ["b", "a", "b", "a"]


def test_finalizers_behind_a_block_do_not_follow_it() -> None:
    text = """\
always: [z]
workflow:
  - {while: "{{ visit < 2 }}", do: [{step: a, tool: {kind: shell, script: x}}]}
  - {step: z, tool: {kind: shell, script: x}}
"""
    assert Run(text).trace == ["a", "z"]


def test_a_block_of_a_thousand_branches_runs() -> None:
    branches = ", ".join(f"b{number}: [{{step: a{number}}}]" for number in range(1000))
    run = Run(f"workflow: [{{parallel: wide, branches: {{{branches}}}}}]")
    assert len(run.result["succeeded"]) == 1000
