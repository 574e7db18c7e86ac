"""Defects of JamJet's authoring that do not come along: for each a file that shows that it is absent."""

from typing import Any

import pytest

from refold.playbooks.problems import InvalidPlaybook, Problem
from tests.jamjet.house import Played, play, read_text

FN = "type: python_fn, module: app, function: f"


def played(text: str, state: dict[str, Any] | None = None, **given: Any) -> Played:
    return play(read_text(text), state or {}, given)


def problems(text: str) -> list[Problem]:
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(text)
    return [each for each in refused.value.problems if each.severity == "error"]


def graph(nodes: str, head: str = "") -> str:
    return f"workflow: {{id: w, version: 0.1.0{head}}}\nnodes:\n" + "".join(
        f"  {line}\n" for line in nodes.splitlines()
    )


def test_the_list_form_compiles_to_its_nodes() -> None:
    text = "workflow: {id: w, nodes: [{id: a, kind: tool, config: {fn: f}, edges: [{to: b}]}, {id: b, kind: tool}]}"
    assert played(text).visits == ["a", "b"]


def test_the_key_of_an_output_is_kept() -> None:
    assert played(graph("a: {tool_ref: f, output_key: k}"), answers={"a": [7]}).result == {"k": 7}


@pytest.mark.parametrize("word", ["system", "system_prompt"])
def test_the_system_message_and_the_prompt_reach_the_model(word: str) -> None:
    made = read_text(
        graph(f'a: {{type: model, model: m, {word}: "Be {{{{ state.how }}}}", prompt: "{{{{ state.q }}}}?"}}')
    )
    sent: list[Any] = []

    def answer(called: Any) -> str:
        sent.append(called.config["messages"])
        return "ok"

    from refold.testing import engine

    with engine() as t:
        t.fake("a", answer)
        t.run(made, how="brief", q="why")
    assert sent == [[{"role": "system", "content": "Be brief"}, {"role": "user", "content": "why?"}]]


def test_arguments_and_servers_of_a_tool_are_kept() -> None:
    node = graph("a: {type: tool, server: brave, tool: search, arguments: {q: '{{ state.q }}', n: state.n}}")
    [step] = read_text(node).plan.steps
    assert step.work.tasks[0].kind == "mcp"  # type: ignore[union-attr]
    assert step.work.tasks[0].keys["tool"] == "search"  # type: ignore[union-attr]
    assert step.input["input"] == {"q": "{{ state.q }}", "n": {"$value": "state.n"}}


def test_tries_that_stand_in_a_node_are_made() -> None:
    text = graph("a: {tool_ref: f, retry: {max_attempts: 3, backoff: constant, delay_ms: 10}}")
    done = played(text, answers={"a": [{"fail": "x"}, {"fail": "x"}, {}]})
    assert (done.status, done.tries["a"]) == ("completed", 3)


def test_a_single_check_of_an_assertion_is_made() -> None:
    text = graph(
        f"a: {{{FN}, next: e}}\ne: {{type: eval, scorers: [{{type: assertion, check: output.ok}}], on_fail: halt}}"
    )
    assert played(text, answers={"a": [{"ok": False}]}).error == ["e", "eval"]


def test_an_assertion_that_is_not_understood_is_refused_and_does_not_pass() -> None:
    wrong = "{type: assertion, checks: ['output ~ 3']}"
    text = graph(f"a: {{{FN}, next: e}}\ne: {{type: eval, scorers: [{wrong}], on_fail: halt}}")
    assert [each.code for each in problems(text)] == ["bad-expression"]
    odd = graph(f"a: {{{FN}, next: e}}\ne: {{type: eval, scorers: [{{type: telepathy}}], on_fail: halt}}")
    assert [each.code for each in problems(odd)] == ["bad-value"]


@pytest.mark.parametrize(("value", "length"), [("text", 4), ([1, 2], 2), ({"a": 1}, 1)])
def test_lengths_are_those_of_texts_lists_and_maps(value: Any, length: int) -> None:
    text = graph(f"a: {{{FN}, next: [{{to: b, when: 'len(output.x) == {length}'}}, {{else: c}}]}}\nb: {{}}\nc: {{}}")
    assert played(text, answers={"a": [{"x": value}]}).visits == ["a", "b"]


def test_the_address_and_the_time_of_an_agent_are_kept() -> None:
    text = graph("a: {type: a2a_task, agent_uri: 'http://127.0.0.1:9/a2a', skill: s, timeout_seconds: 7}")
    [step] = read_text(text).plan.steps
    assert step.timeout == 7.0
    assert step.work.tasks[0].keys["url"] == "http://127.0.0.1:9/a2a"  # type: ignore[union-attr]


def test_waits_in_hours_and_their_ways_out_are_kept() -> None:
    text = graph("a: {type: wait, event: paid, timeout_hours: 2, on_timeout: c, next: b}\nb: {}\nc: {}")
    done = played(text)
    assert done.visits == ["a", "c"]
    assert done.state.at - done.state.started_at >= 2 * 3600 * 1_000_000


@pytest.mark.parametrize(("decision", "way"), [("approve", "yes"), ("reject", "no")])
def test_both_ways_out_of_an_approval_are_kept(decision: str, way: str) -> None:
    text = graph("ask: {type: human_approval, on_approved: 'yes', on_rejected: 'no'}\n'yes': {}\n'no': {}")
    assert played(text, gates={"ask": [decision]}).visits == ["ask", way]


def test_names_in_next_all_lead_on_and_else_leads_where_it_says() -> None:
    assert played(graph("a: {next: [b, c]}\nb: {}\nc: {}")).visits == ["a", ["b", "c"]]
    assert played(graph("a: {next: [{to: b, when: state.x}, {else: c}]}\nb: {}\nc: {}")).visits == ["a", "c"]


@pytest.mark.parametrize("word", ["conditions", "branches"])
def test_a_condition_node_starts_one_of_its_branches(word: str) -> None:
    text = graph(f"g: {{type: branch, {word}: [{{if: state.n > 1, next: a}}], default: b}}\na: {{}}\nb: {{}}")
    assert played(text, {"n": 2}).visits == ["g", "a"]
    assert played(text, {"n": 1}).visits == ["g", "b"]


@pytest.mark.parametrize("condition", ["state.a ===", "state.a = 1", "frobnicate(state.a)", "state.a.trim()", "a == 1"])
def test_a_condition_that_cannot_be_read_is_an_error_and_not_false(condition: str) -> None:
    text = graph(f'g: {{type: condition, conditions: [{{if: "{condition}", next: a}}], default: end}}\na: {{}}')
    [problem] = problems(text)
    assert problem.code == "bad-expression"
    line = text.splitlines()[problem.place.line - 1]
    assert problem.place.line == 3 and line.index(condition) <= problem.place.column - 1 <= line.index(condition) + len(
        condition
    )


def test_mappings_are_rendered_and_keep_their_types() -> None:
    text = graph("a: {tool_ref: f, input: {n: '{{ state.n }}', word: 'n is {{ state.n }}', list: [$state.n, 2]}}")
    given: list[Any] = []
    from refold.testing import engine

    with engine() as t:
        t.fake("a", lambda called: given.append(called.input) or {})  # type: ignore[func-returns-value]
        t.run(read_text(text), n=5)
    assert given == [{"n": 5, "word": "n is 5", "list": [5, 2]}]


def agent(strategy: str, more: str = "", rounds: int = 3) -> str:
    limits = f"{{max_iterations: {rounds}, max_cost_usd: 0.5, timeout_seconds: 60}}"
    return f"agent: {{id: a, strategy: {strategy}, goal: g, model: m, limits: {limits}{more}}}"


def thought(action: str, **input: Any) -> dict[str, Any]:
    return {"content": {"thought": "…", "action": action, "input": input}}


def test_react_stops_at_finish_and_runs_the_tool_that_the_model_names() -> None:
    answers = {
        "__think_0__": [thought("add", a=1, b=2)],
        "__act_0__": [3],
        "__observe_0__": [{"content": {"observation": "3"}}],
        "__think_1__": [thought("FINISH")],
        "__finalize__": ["three"],
    }
    done = played(agent("react", ", tools: [add]"), answers=answers)
    guard = "__react_guard_0__"
    assert done.visits == [
        "__think_0__",
        guard,
        "__act_0__",
        "__observe_0__",
        "__think_1__",
        "__react_guard_1__",
        "__finalize__",
    ]
    assert done.result["result"] == "three"


def test_a_plan_ends_where_it_ends_and_a_verdict_is_read_by_what_follows() -> None:
    more = ", strategy_config: {verifier_model: strict}"
    made = read_text(agent("plan-and-execute", more))
    prompts = {
        step.name: step.input["input"]["messages"]["$messages"]["prompt"] for step in made.plan.steps if step.input
    }
    assert "__verify_0_result__" in prompts["__step_1__"]
    answers = {"__plan__": [{"content": {"steps": ["one"]}}], "__verify_0__": [{"content": {"passed": True}}]}
    done = play(made, {}, {"answers": answers})
    assert done.visits[-2:] == ["__cost_guard_1__", "__finalize__"]
    assert "__step_1__" in done.skipped


def test_the_most_steps_of_a_plan_count() -> None:
    text = agent("plan-and-execute", ", strategy_config: {max_steps: 1}")
    assert "__step_1__" not in {step.name for step in read_text(text).plan.steps}


@pytest.mark.parametrize(("more", "status"), [("", "failed"), (", on_limit_exceeded: return_partial", "completed")])
def test_the_cost_is_counted_and_an_end_by_a_limit_is_a_failure(more: str, status: str) -> None:
    text = agent("react", more)
    done = played(text, answers={"__think_0__": [{"content": {"action": "look"}, "usd": 0.6}]})
    assert done.status == status
    assert done.visits[-1] == "__limit_exceeded__"


def test_times_in_words_and_other_spellings_are_read() -> None:
    policy = "p: {max_attempts: 2, backoff: fixed, base_delay: 2s, max_delay: 1m, retryable_errors: [timeout]}"
    text = graph("a: {retry_policy: p, timeout: 5m}") + f"retry_policies:\n  {policy}\n"
    [step] = read_text(text).plan.steps
    assert (step.retry.delay, step.retry.max_delay, step.timeout) == (2.0, 60.0, 300.0)


def test_a_version_with_build_metadata_is_read() -> None:
    ir = """{"workflow_id": "w", "version": "0.1.0+3f2a", "start_node": "a", "edges": [], "nodes": {"a": {"id": "a",
      "kind": {"type": "tool", "tool_ref": "t", "input_mapping": {}, "output_schema": ""}}}}"""
    assert read_text(ir).metadata["version"] == "0.1.0+3f2a"


def test_one_policy_has_one_meaning() -> None:
    text = graph("a: {retry_policy: io_default, next: b}\nb: {retry_policy: io_default}")
    assert {step.retry.attempts for step in read_text(text).plan.steps} == {5}


def test_only_the_start_begins_and_it_gets_the_inputs() -> None:
    ir = """{"workflow_id": "w", "version": "1.0.0", "start_node": "b", "nodes": {
      "a": {"id": "a", "kind": {"type": "tool", "tool_ref": "t", "input_mapping": {}, "output_schema": ""}},
      "b": {"id": "b", "kind": {"type": "tool", "tool_ref": "t", "input_mapping": {}, "output_schema": ""}}},
      "edges": [{"from": "b", "to": "end"}, {"from": "a", "to": "end"}]}"""
    assert [each.code for each in problems(ir)] == ["unreachable"]
    assert played(graph("a: {tool_ref: f}"), {"n": 1}).result == {"n": 1}


@pytest.mark.parametrize(
    "kind", ["java_fn", "memory_retrieval", "agent_tool", "coordinator", "agent_discovery", "policy"]
)
def test_a_kind_that_is_not_run_is_refused_with_what_to_do(kind: str) -> None:
    [problem] = problems(graph(f"a: {{type: {kind}}}"))
    assert (problem.code, problem.place) == ("unsupported-node", (3, 13)) and problem.hint


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        (graph("a: {tool_reff: f}"), "unknown-key", 3, 7),
        (graph("a: {next: b}"), "unknown-step", 3, 13),
        (graph("a: {timeout: soon}"), "bad-value", 3, 16),
        (graph("a: {retry: {max_attempts: 0}}"), "bad-value", 3, 29),
        (graph("a: {retry_policy: patient}"), "unknown-policy", 3, 21),
        (graph("a: {next: [1]}"), "wrong-type", 3, 14),
        (graph("a: {type: telepathy}"), "unknown-node", 3, 13),
        (graph("a: {}\nb: {}"), "unreachable", 4, 3),
        (graph("a: {next: b}\nb: {next: a}"), "circle", 3, 3),
        (graph("a: {}", ", start: z"), "unknown-step", 1, 42),
        (graph("a: {type: model, model: m, prompt: '{{ state.x | frob }}'}"), "bad-expression", 3, 52),
        (graph("a: {type: model, model: m, prompt: 'Hi {{ name }}'}"), "bad-expression", 3, 45),
        ("policy: {blocked_tools: []}\n", "not-a-workflow", 1, 1),
        ("agents:\n  a: {strategy: react}\n", "missing-key", 2, 6),
    ],
)
def test_a_mistake_is_shown_at_its_token(text: str, code: str, line: int, column: int) -> None:
    first = problems(text)[0]
    assert (first.code, first.place.line, first.place.column) == (code, line, column), first


def test_everything_that_is_not_bound_is_said_at_once() -> None:
    from refold.playbooks.bindings import Bindings

    text = graph(
        "a: {tool_ref: f, next: b}\nb: {type: model, model: m, prompt: p, next: c}\nc: {type: agent, agent_ref: x}"
    )
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(text, Bindings())
    assert [each.code for each in refused.value.problems] == ["unknown-tool", "unknown-model", "unknown-agent"]
    assert all("refold-bindings.yaml" in each.hint for each in refused.value.problems)


def test_a_way_that_cannot_be_taken_is_not_dropped_in_silence() -> None:
    ways = "[{to: b, when: 'output.x'}, {else: c}, {else: b}]"
    [second] = problems(graph(f"a: {{{FN}, next: {ways}}}\nb: {{{FN}}}\nc: {{{FN}}}"))
    assert second.code == "bad-value" and "second `else`" in second.message
    made = read_text(graph(f"a: {{type: condition, conditions: [{{if: 'state.x', next: b}}], next: b}}\nb: {{{FN}}}"))
    [warned] = made.warnings
    assert (warned.code, warned.place.line) == ("no-effect", 3) and "`default`" in warned.hint


def test_a_budget_that_is_negative_is_reported_once() -> None:
    [refused] = problems(graph(f"a: {{{FN}}}", head=", cost_budget_usd: -5"))
    assert refused.code == "bad-value"
