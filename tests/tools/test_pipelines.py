"""Tools in a list, and rules about tries, in playbooks of Refold's own language; run by the engine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from refold.core.facts import Fact, StepSettled
from refold.core.faults import fault_text
from refold.core.outcomes import Parked
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.settings import Settings
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: play}\n"


class Played(Struct):
    status: str
    result: Any
    fault: Any
    ctx: dict[str, Any]
    facts: list[Fact]
    warnings: list[str]
    lines: list[Any]


def play(text: str, input: dict[str, Any] | None = None, folder: Path | None = None) -> Played:
    book = read(HEAD + text, "play.yaml", CATALOG)

    async def run() -> Played:
        settings = Settings(processes=1, key_file=str(folder / "keys") if folder is not None else "")
        async with open_engine(settings=settings) as engine:
            id = (await engine.start(book.plan, input)).id
            async with asyncio.timeout(60):
                await engine.wait(id)
            shown = await engine.show(id)
            facts = [fact for _, _, fact in await engine.history(id)]
            fault = shown.error.fault if shown.error is not None else None
            warnings = [each.code for each in book.warnings]
            lines = [line for _, line in engine.store.views.lines(id)]
            return Played(shown.status, shown.result, fault, dict(shown.state.ctx), facts, warnings, lines)

    return asyncio.run(run())


def parked(played: Played) -> list[Parked]:
    outcomes = [fact.report.outcome for fact in played.facts if isinstance(fact, StepSettled)]
    return [each for each in outcomes if isinstance(each, Parked)]


def test_tasks_run_in_order_and_read_those_before_them() -> None:
    text = """\
workload: {n: 2}
workflow:
  - step: a
    input: {m: "{{ workload.n }}"}
    tool:
      - {name: one, kind: noop, result: {x: "{{ m + 1 }}"}}
      - {name: two, kind: noop, input: {m: 10}, result: {y: "{{ one.x + m + _prev.x }}"}}
      - {kind: noop, result: {z: "{{ results.one.x }}", t: "{{ _task }}"}}
"""
    last = {"z": 3, "t": "task_2"}
    assert play(text).result == {"x": 3, "y": 16, **last, "one": {"x": 3}, "two": {"y": 16}, "task_2": last}


def test_what_is_no_map_is_not_merged() -> None:
    text = "workflow: [{step: a, tool: [{name: one, kind: noop, result: {x: 1}}, {name: two, kind: noop, result: 2}]}]"
    assert play(text).result == {"one": {"x": 1}, "two": 2}


def test_a_task_sets_what_later_tasks_and_later_steps_read() -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: one, kind: noop, result: {x: 1}, set: {mine: "{{ output.x }}", ctx.ours: "{{ output.data.x + 1 }}"}}
      - {name: two, kind: noop, result: {seen: ["{{ mine }}", "{{ ctx.ours }}"]}}
    next: b
  - {step: b, tool: {kind: noop, result: ["{{ a.seen }}", "{{ ctx.ours }}"]}}
"""
    played = play(text)
    assert (played.result, played.ctx) == ([[1, 2], 2], {"ours": 2})


FLAKY = """\
workflow:
  - step: a
    tool:
      kind: python
      isolation: inline
      input: {n: "{{ _attempt }}"}
      code: "return 1 / (n > 2) * n"
      spec: {policy: {rules: [{when: "{{ output.py.exception == 'ZeroDivisionError' }}", then: {RULE}}]}}
"""


def test_a_rule_tries_again_and_nobody_waits_meanwhile() -> None:
    played = play(FLAKY.replace("RULE", "do: retry, attempts: 5, backoff: linear, delay: 0.05"))
    assert (played.status, played.result) == ("completed", 3.0)
    parked = [
        fact for fact in played.facts if isinstance(fact, StepSettled) and isinstance(fact.report.outcome, Parked)
    ]
    assert len(parked) == 2
    assert parked[0].report.outcome.reason.startswith("try 2 of task 'a_task'")  # type: ignore[union-attr]


def test_tries_are_counted_with_the_first_and_then_it_has_failed() -> None:
    played = play(FLAKY.replace("RULE", "do: retry, attempts: 2, backoff: none"))
    assert (played.status, played.fault.type) == ("failed", "ZeroDivisionError")
    assert "Traceback" in played.fault.traceback
    assert not [
        fact for fact in played.facts if isinstance(fact, StepSettled) and isinstance(fact.report.outcome, Parked)
    ]


@pytest.mark.parametrize(
    ("action", "status", "result"),
    [
        ("do: continue", "completed", {"bad": None, "last": 2}),
        ("do: break", "completed", {"bad": None}),
        ("do: fail", "failed", None),
        ("do: jump, to: last", "completed", {"bad": None, "last": 2}),
    ],
)
def test_what_follows_an_error_is_what_the_rule_says(action: str, status: str, result: Any) -> None:
    text = f"""\
workflow:
  - step: a
    tool:
      - {{name: bad, kind: noop, result: "{{{{ 1 // 0 }}}}", spec: {{policy: {{rules: [{{else: {{{action}}}}}]}}}}}}
      - {{name: last, kind: noop, result: 2}}
"""
    played = play(text)
    found = played.result
    assert played.status == status
    assert found == result or (found | {"bad": None}) == result


def test_a_loop_of_jumps_ends_when_a_rule_says_so() -> None:
    text = """\
workflow:
  - step: a
    tool:
      - name: page
        kind: noop
        result: {n: "{{ (n | default(0)) + 1 }}"}
        set: {n: "{{ output.n }}", ctx.all: "{{ (ctx.all | default([])) + [output.n] }}"}
        spec: {policy: {rules: [{when: "{{ output.data.n < 3 }}", then: {do: jump, to: page}}]}}
"""
    played = play(text)
    assert (played.result["n"], played.ctx) == (3, {"all": [1, 2, 3]})


def test_a_wait_between_tasks_holds_no_worker() -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: one, kind: noop, result: 1}
      - {name: nap, kind: wait, seconds: 0.05}
      - {name: two, kind: noop, result: "{{ one + 1 }}"}
"""
    assert play(text).result == {"one": 1, "nap": {"by": "timer", "value": None}, "two": 2}


def test_a_template_that_has_no_value_fails_the_step_with_its_key() -> None:
    played = play('workflow: [{step: a, tool: [{name: t, kind: noop, result: {deep: "{{ {}.x }}"}}]}]')
    assert played.fault.kind == "expression" and "task 't': result" in played.fault.message


def test_items_of_a_loop_have_pipelines_of_their_own() -> None:
    text = """\
workflow:
  - step: a
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
    tool:
      - {name: one, kind: noop, result: {sq: "{{ n * n }}", at: "{{ iter.index }}"}}
      - {name: two, kind: noop, result: {all: "{{ [one.sq, one.at, n] }}"}}
"""
    assert [each["all"] for each in play(text).result] == [[1, 0, 1], [4, 1, 2], [9, 2, 3]]


def test_a_task_that_runs_too_long_has_timed_out_and_rules_see_it() -> None:
    text = """\
workflow:
  - step: a
    tool:
      - name: slow
        kind: shell
        command: [sleep, "30"]
        spec:
          timeout: 0.2s
          policy:
            rules: [{when: "{{ output.error.kind == 'timeout' and output.error.retryable }}", then: {do: break}}]
"""
    assert play(text).status == "completed"


def test_a_secret_reaches_the_tool_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REFOLD_SECRET_TOKEN", "hush-hush-1234")
    text = """\
workflow:
  - step: a
    input: {t: {secret: token}}
    tool: {kind: python, isolation: inline, code: "return [len(t), t == u]", input: {u: "{{ secrets.token }}"}}
"""
    played = play(text, folder=tmp_path)
    assert played.result == [14, True]
    assert not any("hush" in repr(fact) for fact in played.facts)


def test_a_secret_result_is_stored_sealed_and_opened_for_tools(tmp_path: Path) -> None:
    text = """\
workflow:
  - step: login
    tool: {kind: python, isolation: inline, code: "return {'token': 'made-of-' + 'nothing', 'n': 7}"}
    output: {secret: true}
    next: use
  - step: use
    input: {t: "{{ login.token }}"}
    tool: {kind: python, isolation: inline, code: "return [len(t), n]", input: {n: "{{ login.n }}"}}
"""
    played = play(text, folder=tmp_path)
    assert played.result == [15, 7]
    assert not any("made-of-nothing" in repr(fact) for fact in played.facts)
    assert any("$sealed" in repr(fact) for fact in played.facts)


SEALED = """\
workflow:
  - step: login
    tool:
      - {name: one, kind: python, isolation: inline, code: "return {'token': 'made-of-' + 'nothing', 'n': 7}"}
      - name: two
        kind: python
        isolation: inline
        input: {t: "{{ one.token }}", n: "{{ _attempt }}"}
        code: |
          if n < TRIES:
              raise LookupError(f"there is no {t}")
          return [len(t), n]
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0.01}}]}}
    output: {secret: true}
    next: use
  - {step: use, tool: {kind: python, isolation: inline, code: "return n", input: {n: "{{ login.two }}"}}}
"""


def test_what_a_secret_step_has_so_far_is_sealed_while_it_waits_and_opened_when_it_continues(tmp_path: Path) -> None:
    played = play(SEALED.replace("TRIES", "2"), folder=tmp_path)
    assert played.result == [15, 2]
    (wait,) = parked(played)
    assert wait.progress["attempt"] == 2 and not {"labels", "prev", "vars"} & wait.progress.keys()
    assert not any("made-of-nothing" in repr(fact) for fact in played.facts)


def test_a_failure_of_a_secret_step_shows_nothing_of_what_its_tasks_have_given(tmp_path: Path) -> None:
    played = play(SEALED.replace("TRIES", "9"), folder=tmp_path)
    assert played.status == "failed" and played.fault is not None
    assert played.fault.message == "there is no ***" and played.fault.data["task"] == "two"
    assert played.fault.data["source"].startswith("raise LookupError")
    assert [each.reason for each in parked(played)] == ["try 2 of task 'two': there is no ***"]
    assert not any("made-of-nothing" in repr(fact) for fact in played.facts)


def test_what_a_secret_step_prints_is_counted_and_not_shown(tmp_path: Path) -> None:
    text = """\
workflow:
  - step: login
    tool: {kind: python, isolation: inline, code: "print('made-of-nothing'); print('and more'); return 1"}
    output: {secret: true}
"""
    said = repr(play(text, folder=tmp_path).lines)
    assert "2 lines are not shown" in said and "made-of-nothing" not in said


def test_what_a_failed_program_of_a_secret_step_has_said_is_not_shown(tmp_path: Path) -> None:
    text = """\
workflow:
  - step: login
    tool: {kind: shell, script: "echo made-of-nothing; echo not-to-be-shown >&2; exit 3"}
    output: {secret: true}
"""
    played = play(text, folder=tmp_path)
    assert played.fault is not None
    assert played.fault.message == "the script ended with exit code 3: ***" and played.fault.code == 3
    assert played.fault.data == {"exit_code": 3, "stdout": "***", "stderr": "***", "truncated": 0}
    outcomes = [repr(fact.report) for fact in played.facts if isinstance(fact, StepSettled)]
    assert not any("not-to-be" in each or "made-of" in each for each in outcomes)


@pytest.mark.parametrize("tool", ["", "- "], ids=["one tool", "a list"])
def test_a_secret_result_is_checked_by_its_schema_before_it_is_sealed(tmp_path: Path, tool: str) -> None:
    text = """\
workflow:
  - step: login
    tool:
      TOOL{name: one, kind: python, isolation: inline, code: "return {'token': 'made-of-' + 'nothing'}"}
    output: {secret: true, schema: {type: object, properties: {token: {TYPE}}, required: [token]}}
    next: use
  - {step: use, tool: {kind: python, isolation: inline, code: "return len(t)", input: {t: "{{ login.token }}"}}}
""".replace("TOOL", tool)
    assert play(text.replace("TYPE", "type: string"), folder=tmp_path).result == 15
    played = play(text.replace("TYPE", "type: integer"), folder=tmp_path)
    assert played.status == "failed" and played.fault is not None and played.fault.kind == "schema"
    assert "at `properties.token.type`" in played.fault.message
    assert not any("made-of-nothing" in repr(fact) for fact in played.facts)
    played = play(text.replace("TYPE", "not: {const: made-of-nothing}"), folder=tmp_path)
    assert played.fault is not None and "made-of-nothing" not in str(played.fault)


def test_a_condition_cannot_read_what_is_sealed() -> None:
    text = """\
workflow:
  - step: login
    tool: {kind: noop, result: {token: 1}}
    output: {secret: true}
    next: {arcs: [{step: b, when: "{{ output.data.token == 1 }}"}]}
  - {step: b, when: "{{ login.token }}", tool: {kind: noop}}
"""
    with pytest.raises(InvalidPlaybook) as said:
        read(HEAD + text, "play.yaml", CATALOG)
    assert [each.code for each in said.value.problems] == ["sealed-result", "sealed-result"]


KEYS = """\
workload: {who: ann}
keychain:
  - {name: shop, kind: env, map: {token: SHOP_TOKEN}}
  - {name: made, kind: static, map: {user: "{{ workload.who }}", pass: "{{ keychain.shop.token }}"}}
workflow:
  - step: a
    tool: {kind: python, isolation: inline, code: "return [len(t), u, p == t]", input: INPUT}
"""
INPUT = '{t: "{{ keychain.shop.token }}", u: "{{ keychain.made.user }}", p: "{{ keychain.made.pass }}"}'


def test_entries_of_the_keychain_are_fetched_for_the_tool_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "open-sesame-99")
    played = play(KEYS.replace("INPUT", INPUT))
    assert played.result == [14, "ann", True]
    assert not any("open-sesame" in repr(fact) for fact in played.facts)


def test_an_entry_that_is_not_there_is_told_before_the_run() -> None:
    with pytest.raises(InvalidPlaybook) as said:
        read(HEAD + KEYS.replace("INPUT", INPUT.replace("made.user", "mad.user")), "play.yaml", CATALOG)
    assert [(each.code, each.hint) for each in said.value.problems] == [("unknown-entry", "did you mean `made`?")]


def test_a_try_of_the_step_begins_with_the_first_task() -> None:
    text = """\
workflow:
  - step: a
    retry: {attempts: 2}
    tool:
      - {name: one, kind: noop, result: "{{ (n | default(0)) + 1 }}", set: {n: "{{ output }}", ctx.n: "{{ output }}"}}
      - name: two
        kind: python
        isolation: inline
        code: 1 / 0
        spec: {policy: {rules: [{else: {do: retry, attempts: 2, delay: 0.01}}]}}
"""
    played = play(text)
    assert (played.status, len(parked(played))) == ("failed", 2)
    assert [each.progress["vars"] for each in parked(played)] == [{"n": 1}, {"n": 1}]
    assert [each.progress["of"] for each in parked(played)] == [1, 2]


def test_a_failure_names_its_task_if_there_are_several() -> None:
    played = play("workflow: [{step: a, tool: [{kind: noop}, {name: bad, kind: assert, that: false}]}]")
    assert played.fault.data["task"] == "bad" and fault_text(played.fault).startswith("task 'bad': ")
    assert "task" not in fault_text(play("workflow: [{step: a, tool: {kind: assert, that: false, set: {x: 1}}}]").fault)


def test_data_that_looks_sealed_is_neither_opened_nor_taken_for_a_damaged_secret(tmp_path: Path) -> None:
    text = """\
workflow:
  - step: login
    tool: {kind: python, isolation: inline, code: "return 'made-of-' + 'nothing'"}
    output: {secret: true}
    next: fetch
  - step: fetch
    tool:
      kind: python
      isolation: inline
      code: |
        one = {'$sealed': '0123456789abcdef.' + 'A' * 60}
        return {'one': one, 'two': {'$sealed': 'x'}, 'three': {'$sealed': 1}}
    next: use
  - step: use
    input: {t: "{{ login }}", f: "{{ fetch }}", g: "{{ fetch.one }}"}
    tool: {kind: python, isolation: inline, code: "return [len(t), f, g]"}
"""
    one = {"$sealed": "0123456789abcdef." + "A" * 60}
    played = play(text, folder=tmp_path)
    assert played.fault is None
    assert played.result == [15, {"one": one, "two": {"$sealed": "x"}, "three": {"$sealed": 1}}, one]


def test_items_of_a_secret_loop_are_opened_and_large_secrets_too(tmp_path: Path) -> None:
    text = """\
workflow:
  - step: keys
    loop: {in: [3, 100000], iterator: n}
    tool: {kind: python, isolation: inline, code: "return 'k' * n", input: {n: "{{ n }}"}}
    output: {secret: true}
    next: big
  - step: big
    tool: {kind: python, isolation: inline, code: "return 'b' * 100000"}
    output: {secret: true}
    next: use
  - step: use
    input: {b: "{{ big }}", k: "{{ keys.results }}"}
    tool: {kind: python, isolation: inline, code: "return [len(b), [len(each) for each in k]]"}
"""
    played = play(text, folder=tmp_path)
    assert played.result == [100000, [3, 100000]], played.fault
