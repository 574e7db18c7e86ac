"""Rules about what follows a try of a task, in NoETL files."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from refold.core.facts import StepSettled
from refold.core.outcomes import Parked
from refold.core.pipeline import TaskPipeline
from tests.noetl.house import House, Played, errors, reading, warnings
from tests.tools.web import Answer, Site, says

Web = tuple[Site, str]


def parked(seen: Played) -> list[Parked]:
    reports = (fact.report.outcome for fact in seen.facts if isinstance(fact, StepSettled))
    return [outcome for outcome in reports if isinstance(outcome, Parked)]


def fails_until(file: Path, tries: int) -> str:
    """A command that fails until it has been tried so often."""
    return f"echo x >> {file}; test $(wc -l < {file}) -ge {tries}"


def with_rules(rules: str, tool: str = "kind: shell, command: exit 3") -> str:
    return f"workflow: [{{step: a, tool: {{{tool}, spec: {{policy: {{rules: {rules}}}}}}}}}]"


def test_without_a_policy_an_error_fails_and_success_goes_on(house: House) -> None:
    assert house.play("workflow: [{step: a, tool: {kind: shell, command: exit 3}}]").status == "failed"
    assert house.play("workflow: [{step: a, tool: {kind: shell, command: 'true'}}]").status == "completed"


def test_rules_on_a_single_tool_are_evaluated_top_down_and_the_first_match_wins(house: House) -> None:
    rules = (
        "[{when: \"{{ output.status == 'ok' }}\", then: {do: fail}}, {when: true, then: {do: continue, "
        "set: {ctx.n: 2}}}, {else: {do: fail}}]"
    )
    seen = house.play(with_rules(rules))
    assert (seen.status, seen.ctx) == ("completed", {"n": 2})


@pytest.mark.parametrize("rule", ["{else: {do: continue}}", "{else: {then: {do: continue}}}", "{then: {do: continue}}"])
def test_else_acts_with_and_without_then_and_a_rule_without_a_condition_always_matches(house: House, rule: str) -> None:
    assert house.play(with_rules(f"[{rule}]")).status == "completed"


def test_when_no_rule_matches_an_error_fails_and_success_goes_on(house: House) -> None:
    never = '[{when: "{{ false }}", then: {do: retry}}]'
    assert house.play(with_rules(never)).status == "failed"
    assert house.play(with_rules(never, "kind: noop")).status == "completed"


@pytest.mark.parametrize(("word", "status"), [("continue", "completed"), ("fail", "failed")])
def test_on_unmatched_overrides_what_happens_then(house: House, word: str, status: str) -> None:
    for tool in ("kind: shell, command: exit 3", "kind: noop"):
        policy = f'{{on_unmatched: {word}, rules: [{{when: "{{{{ false }}}}", then: {{do: retry}}}}]}}'
        seen = house.play(f"workflow: [{{step: a, tool: {{{tool}, spec: {{policy: {policy}}}}}}}]")
        assert seen.status == status


def test_a_condition_of_a_rule_that_raises_fails_the_step(house: House) -> None:
    seen = house.play(with_rules('[{when: "{{ 1 / 0 }}", then: {do: continue}}]', "kind: noop"))
    assert seen.status == "failed" and seen.fault.kind == "expression" and "a_task" in seen.fault.message


def test_continue_after_an_error_swallows_it(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: bad, kind: shell, command: exit 3, spec: {policy: {rules: [{else: {do: continue}}]}}}
      - {name: good, kind: noop, result: {prev: "{{ _prev }}", bad: "{{ bad }}"}}
"""
    seen = house.play(text)
    assert seen.status == "completed" and seen.result["good"] == {"prev": None, "bad": None}


def test_attempts_count_total_tries_and_then_the_task_fails(house: House, tmp_path: Path) -> None:
    file = tmp_path / "tries"
    rules = "[{when: \"{{ output.status == 'error' }}\", then: {do: retry, attempts: 3, delay: 0}}]"
    seen = house.play(with_rules(rules, f'kind: shell, command: "{fails_until(file, 9)}"'))
    assert seen.status == "failed" and seen.fault.kind == "exit" and file.read_text() == "x\n" * 3


def test_the_default_is_three_tries_without_a_wait(house: House, tmp_path: Path) -> None:
    file = tmp_path / "tries"
    seen = house.play(with_rules("[{else: {do: retry}}]", f'kind: shell, command: "{fails_until(file, 9)}"'))
    assert file.read_text() == "x\n" * 3 and parked(seen) == []


def test_a_retry_that_helps_goes_on(house: House, tmp_path: Path) -> None:
    file = tmp_path / "tries"
    rules = (
        "[{when: \"{{ output.status == 'error' }}\", then: {do: retry, attempts: '5', delay: '0.01', backoff: fixed}}]"
    )
    seen = house.play(with_rules(rules, f'kind: shell, command: "{fails_until(file, 3)}"'))
    assert seen.status == "completed" and len(parked(seen)) == 2


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        ("delay: 0.1, backoff: none", []),
        ("delay: 0.1, backoff: linear", [0.1, 0.2, 0.3]),
        ("delay: 0.1, backoff: exponential", [0.1, 0.2, 0.4]),
        ("delay: 0.1, backoff: fixed", [0.1, 0.1, 0.1]),
        ("delay: 0.1", [0.1, 0.1, 0.1]),
    ],
)
def test_the_wait_before_the_next_try_grows_as_it_is_written(
    house: House, tmp_path: Path, words: str, waits: list[float]
) -> None:
    """Waits are parked outcomes: durable, and held by no worker."""
    rules = f"[{{when: \"{{{{ output.status == 'error' }}}}\", then: {{do: retry, attempts: 4, {words}}}}}]"
    seen = house.play(with_rules(rules, f'kind: shell, command: "{fails_until(tmp_path / "n", 9)}"'))
    times = [at for fact, at in zip(seen.facts, seen.times, strict=True) if isinstance(fact, StepSettled)]
    found = [(outcome.until or 0) - at for outcome, at in zip(parked(seen), times, strict=False)]
    assert len(found) == len(waits)
    for wait, expected in zip(found, waits, strict=True):
        assert expected * 1e6 - 60_000 <= wait <= expected * 1e6  # it is counted from the end of the try


def test_attempts_and_delay_may_be_templates(house: House, tmp_path: Path) -> None:
    file = tmp_path / "n"
    rules = '[{else: {do: retry, attempts: "{{ most }}", delay: "{{ 0 }}"}}]'
    house.play("workload: {most: 2}\n" + with_rules(rules, f'kind: shell, command: "{fails_until(file, 9)}"'))
    assert file.read_text() == "x\n" * 2


JUMP = """\
workflow:
  - step: a
    tool:
      - {name: count, kind: noop, result: "{{ (n | default(0)) + 1 }}", set: {n: "{{ output }}"}}
      - name: check
        kind: noop
        result: {n: "{{ n }}"}
        spec: {policy: {rules: [{when: "{{ n < 3 }}", then: {do: jump, to: TO}}, {else: {do: break}}]}}
      - {name: never, kind: shell, command: exit 9}
"""


@pytest.mark.parametrize("to", ["count", "previous", "prev", "_previous", '"@previous"'])
def test_jump_goes_to_a_label_and_break_ends_the_pipeline_well(house: House, to: str) -> None:
    seen = house.play(JUMP.replace("TO", to))
    assert seen.status == "completed" and seen.result == {"count": 3, "check": {"n": 3}}


def test_an_unknown_label_an_unknown_action_and_a_policy_without_rules_are_errors() -> None:
    assert [code for code, _ in errors(JUMP.replace("TO", "nowhere"))] == ["unknown-task"]
    assert [code for code, _ in errors(with_rules("[{else: {do: explode}}]"))] == ["bad-choice"]
    assert [code for code, _ in errors(with_rules("[{else: {do: jump}}]"))] == ["missing-key"]
    policy = "workflow: [{step: a, tool: {kind: noop, spec: {policy: {on_unmatched: fail}}}}]"
    assert [code for code, _ in errors(policy)] == ["missing-key"]


def test_fail_fails_the_step_with_the_tasks_error(house: House) -> None:
    seen = house.play(with_rules("[{when: \"{{ output.error.kind == 'exit' }}\", then: {do: fail}}]"))
    assert seen.status == "failed" and seen.fault.kind == "exit"


def test_fail_after_success_fails_the_step_and_says_that_a_rule_does(house: House) -> None:
    seen = house.play(with_rules("[{else: {do: fail}}]", "kind: noop"))
    assert seen.status == "failed" and seen.fault.kind == "policy" and "a_task" in seen.fault.message


def test_fail_in_a_loop_fails_only_that_iteration(house: House) -> None:
    text = """\
workflow:
  - step: a
    spec: {policy: {failure: {mode: best_effort}}}
    loop: {in: [1, 2, 3], iterator: n}
    tool: {kind: noop, result: "{{ n }}", spec: {policy: {rules: [{when: "{{ n == 2 }}", then: {do: fail}}]}}}
"""
    assert house.play(text).result["results"] == [1, None, 3]


@pytest.mark.parametrize("word", ["before", "after", "finally", "mode", "choose", "while", "until"])
def test_reserved_words_of_a_policy_are_refused_with_what_to_write_instead(word: str) -> None:
    text = (
        f"workflow: [{{step: a, tool: {{kind: noop, spec: {{policy: {{rules: [{{else: {{do: fail}}}}], "
        f"{word}: x}}}}}}}}]"
    )
    assert [code for code, _ in errors(text)] == ["old-key"]


def test_what_only_retry_or_jump_reads_is_a_warning_elsewhere() -> None:
    assert [code for code, _ in warnings(with_rules("[{else: {do: fail, attempts: 3, to: x}}]"))] == ["no-effect"] * 2


def test_the_runs_of_a_pipeline_are_capped_and_the_cap_fails_the_step(house: House) -> None:
    text = "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {do: jump, to: a_task}}]}}}}]"
    plan = reading(text).plan
    step = plan.steps[0]
    assert isinstance(step.work, TaskPipeline)
    capped = structs.replace(step, work=structs.replace(step.work, most_runs=50))
    shown = house.do(house.run(structs.replace(plan, steps=(capped,))))
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert shown.error.fault.kind == "runaway" and "50" in shown.error.fault.message


ENVELOPE = """\
workload: {url: x}
workflow:
  - step: a
    tool:
      kind: http
      url: "{{ url }}"
      spec: {policy: {rules: [{else: {do: continue, set: {ctx.seen: RULE}}}]}}
"""


def seen_by_rules(house: House, url: str, rule: str) -> Any:
    return house.play(ENVELOPE.replace("RULE", rule), {"url": url}).ctx["seen"]


def test_rules_see_status_data_http_and_meta_of_a_good_answer(house: House, site: Web) -> None:
    web, address = site
    body = b'{"next": 2, "data": {"total": 5}}'
    web["/a"] = Answer(200, {"content-type": "application/json", "x-page": "7"}, body)
    rule = (
        '["{{ output.status }}", "{{ output.data.status_code }}", "{{ output.data.data.next }}", '
        '"{{ output.data.next }}",'
        ' "{{ output.http.status }}", "{{ output.http.headers[\'x-page\'] }}", "{{ output.error }}", '
        '"{{ output.meta.attempt }}",'
        ' "{{ output.meta.duration_ms > 0 }}", "{{ output.meta.ts > 1000000000 }}", "{{ output.ref }}"]'
    )
    assert seen_by_rules(house, f"{address}/a", rule) == ["ok", 200, 2, 2, 200, "7", {}, 1, True, True, None]


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "client_error", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (429, "rate_limit", True),
        (500, "server_error", True),
        (503, "server_error", True),
        (302, None, None),
    ],
)
def test_rules_see_http_status_kind_code_and_a_true_retryable(
    house: House, site: Web, status: int, kind: str | None, retryable: bool | None
) -> None:
    web, address = site
    web["/a"] = says({"why": "x"}, status, **({"retry-after": "0"} if status == 429 else {}))
    rule = (
        '["{{ output.status }}", "{{ output.error.kind }}", "{{ output.error.retryable }}", "{{ output.error.code }}",'
        ' "{{ output.http.status }}", "{{ output.error.status_code }}", "{{ output.error.status }}",'
        ' "{{ output.error.http_status }}", "{{ output.data.data.why }}", "{{ output.error.message | length > 3 }}"]'
    )
    found = seen_by_rules(house, f"{address}/a", rule)
    if kind is not None:
        assert found == ["error", kind, retryable, f"HTTP_{status}", status, status, status, status, "x", True]
    else:
        assert found[0] == "error" and found[4] == 302


def test_connection_errors_reach_rules_and_can_be_retried(house: House, site: Web) -> None:
    rule = (
        '["{{ output.status }}", "{{ output.error.kind }}", "{{ output.error.retryable }}", "{{ output.error.code }}"]'
    )
    assert seen_by_rules(house, "http://127.0.0.1:9/", rule) == ["error", "connection", True, "CONN_REFUSED"]
    rules = (
        "[{when: \"{{ output.error.kind == 'connection' and output.error.retryable }}\", then: {do: retry, "
        "attempts: 2, delay: 0.01}}]"
    )
    seen = house.play(with_rules(rules, 'kind: http, url: "http://127.0.0.1:9/"'))
    assert seen.status == "failed" and len(parked(seen)) == 1 and seen.fault.kind == "connection"


def test_retry_after_is_honoured_and_read(house: House, site: Web) -> None:
    web, address = site
    answers = [says({}, 429, **{"retry-after": "1"}), says({"ok": 1})]
    web["/a"] = lambda asked: answers[min(len(web.asked) - 1, 1)]
    rules = '[{when: "{{ output.error.retry_after == 1 }}", then: {do: retry, attempts: 2, delay: 0.01}}]'
    seen = house.play(with_rules(rules, f'kind: http, url: "{address}/a"'))
    assert seen.status == "completed" and len(parked(seen)) == 1
    assert web.asked[0].headers["idempotency-key"] == web.asked[1].headers["idempotency-key"]


def test_rules_see_the_exception_and_traceback_of_python(house: House) -> None:
    rules = (
        "[{when: \"{{ output.py.exception == 'KeyError' and 'Traceback' in output.py.traceback"
        " and output.error.exception_type == 'KeyError' and 'gone' in output.error.message"
        ' and not output.http and output.pg.code is none }}", then: {do: continue, set: {ctx.seen: true}}}]'
    )
    seen = house.play(with_rules(rules, "kind: python, code: \"raise KeyError('gone')\""))
    assert seen.ctx == {"seen": True}


def test_a_bad_configuration_and_a_template_error_become_outcomes_that_rules_see(house: House) -> None:
    rules = "[{when: \"{{ output.error.kind == 'expression' }}\", then: {do: continue, set: {ctx.seen: true}}}]"
    assert house.play(with_rules(rules, 'kind: noop, result: "{{ 1 / 0 }}"')).ctx == {"seen": True}
    other = (
        "[{when: \"{{ output.status == 'error' }}\", then: {do: continue, "
        'set: {ctx.why: "{{ output.error.message }}"}}}]'
    )
    assert "url" in house.play(with_rules(other, 'kind: http, url: "{{ nothing }}"')).ctx["why"]


def test_a_time_limit_of_a_task_is_a_retryable_timeout(house: House) -> None:
    rules = (
        "[{when: \"{{ output.error.kind == 'timeout' and output.error.retryable }}\", then: {do: continue, "
        "set: {ctx.seen: true}}}]"
    )
    for limit in ("timeout: 0.2", 'timeout: "200ms"', "timeout_seconds: 0.2", "timeout: {connect: 0.1, read: 0.1}"):
        assert house.play(with_rules(rules, f"kind: shell, command: sleep 20, {limit}")).ctx == {"seen": True}
    spec = (
        f"workflow: [{{step: a, tool: {{kind: shell, command: sleep 20, spec: {{timeout: 0.2, "
        f"policy: {{rules: {rules}}}}}}}}}]"
    )
    assert house.play(spec).ctx == {"seen": True}


def test_the_sets_of_a_rule_are_rendered_against_the_state_before_the_block(house: House) -> None:
    rules = '[{else: {do: continue, set: {ctx.a: "{{ ctx.b }}", ctx.b: "{{ ctx.a }}"}}}]'
    text = f"""\
workflow:
  - {{step: s, set: {{ctx.a: 1, ctx.b: 2}}, next: {{arcs: [{{step: a}}]}}}}
  - {{step: a, tool: {{kind: noop, spec: {{policy: {{rules: {rules}}}}}}}}}
"""
    assert house.play(text).ctx == {"a": 2, "b": 1}


def test_the_set_of_a_task_is_done_after_each_try_and_before_its_rules(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      kind: shell
      command: exit 3
      set: {ctx.how: "{{ output.status }}", ctx.kind: "{{ output.error.kind }}", ctx.data: "{{ output }}"}
      spec: {policy: {rules: [{when: "{{ ctx.how == 'error' }}", then: {do: continue}}]}}
"""
    seen = house.play(text)
    assert seen.status == "completed" and seen.ctx == {"how": "error", "kind": "exit", "data": None}


def test_a_set_that_cannot_be_rendered_after_a_failed_try_does_not_hide_the_error(house: House) -> None:
    tool = 'kind: shell, command: exit 3, set: {n: "{{ output.data.n + 1 }}"}'
    seen = house.play(
        with_rules("[{when: \"{{ output.error.kind == 'exit' }}\", then: {do: continue, set: {ctx.x: 1}}}]", tool)
    )
    assert seen.ctx == {"x": 1}
    good = house.play('workflow: [{step: a, tool: {kind: noop, result: {}, set: {n: "{{ 1 / 0 }}"}}}]')
    assert good.status == "failed" and good.fault.kind == "expression"


def test_an_answer_that_is_no_json_is_read_as_text(house: House, site: Web) -> None:
    web, address = site
    web["/a"] = Answer(200, {"content-type": "text/plain"}, b"hello")
    assert seen_by_rules(house, f"{address}/a", '"{{ output.data.data }}"') == "hello"
