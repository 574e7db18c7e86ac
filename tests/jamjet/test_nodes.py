"""Nodes, fleets, budgets and bindings of JamJet files: what the vectors do not show."""

import json
from typing import Any

import pytest

from refold.errors import NotFound
from refold.playbooks.problems import InvalidPlaybook
from refold.testing import engine
from refold.tools.python.tool_calls import dispatch
from tests.jamjet.house import play, read_text
from tests.jamjet.test_defects import FN, agent, graph, played, problems


def judged(scorer: str, on_fail: str = "halt", more: str = "") -> str:
    return graph(f"a: {{{FN}, next: e}}\ne: {{type: eval, scorers: [{scorer}], on_fail: {on_fail}{more}}}")


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        ({"score": 4, "reason": "good"}, True),
        ({"score": 2, "reason": "weak"}, False),
        ("no idea", False),
        ({"score": 9}, False),
    ],
)
def test_a_judge_gives_a_score_and_an_answer_that_cannot_be_read_is_a_failed_judgement(
    answer: Any, passed: bool
) -> None:
    text = judged("{type: llm_judge, model: m, rubric: 'is it good?'}", "log_and_continue")
    done = played(text, answers={"a": [{"x": 1}], "e": [{"content": answer}]})
    assert (done.status, done.result["eval_passed"]) == ("completed", passed)
    assert done.result["eval_action"] == ("pass" if passed else "log")


def test_a_scorer_of_its_own_is_called_with_what_is_judged() -> None:
    text = judged("{type: custom, module: 'app:Length', kwargs: {least: 3}}")
    assert played(text, answers={"e": [{"passed": True}]}).status == "completed"
    assert played(text, answers={"e": [{"passed": False, "message": "too short"}]}).error == ["e", "eval"]


def test_the_cost_and_the_time_of_the_node_before_are_scored() -> None:
    scorers = "[{type: cost, threshold_usd: 0.5}, {type: latency, threshold_ms: 60000}]"
    judge = f"e: {{type: eval, scorers: {scorers}, on_fail: halt}}"
    text = graph(f"a: {{type: model, model: m, prompt: p, next: e}}\n{judge}")
    assert played(text, answers={"a": [{"content": "x", "usd": 0.4}]}).status == "completed"
    assert played(text, answers={"a": [{"content": "x", "usd": 0.6}]}).error == ["e", "eval"]


def test_what_is_judged_can_be_an_expression() -> None:
    text = judged("{type: assertion, check: 'output > 2'}", more=", input_expr: state.n")
    assert played(text, {"n": 3}).status == "completed"
    assert played(text, {"n": 1}).error == ["e", "eval"]


def test_an_edit_that_comes_with_an_approval_is_in_the_state() -> None:
    made = read_text(graph("ask: {type: human_approval, message: 'ok?', next: b}\nb: {tool_ref: f}"))
    with engine() as t:
        t.fake("b", {})
        run = t.start(made, amount={"value": 1, "of": "EUR"})
        run.decide("ask", "approve", by="ann", feedback={"state_patch": {"amount": {"value": 2}}})
        assert run.result() == {"amount": {"value": 2, "of": "EUR"}}


@pytest.mark.parametrize(("asks", "error"), [(False, ["ask", "rejected"]), (True, None)])
def test_silence_can_count_as_a_rejection(asks: bool, error: Any) -> None:
    edges = "[{to: end, condition: \"decision == 'rejected'\"}, {to: b}]" if asks else "[{to: b}]"
    config = "{on_timeout: reject, timeout: {node_seconds: 60}}"
    ask = f"{{id: ask, kind: human_approval, config: {config}, edges: {edges}}}"
    text = f"workflow: {{id: w, nodes: [{ask}, {{id: b, kind: tool, config: {{fn: f}}}}]}}"
    done = played(text, gates={"ask": ["timeout"]})
    assert (done.visits, done.error) == (["ask"], error)


def test_inputs_are_checked_by_the_schema_of_the_state_and_defaults_apply() -> None:
    schema = "{type: object, properties: {n: {type: integer, default: 4}, who: {type: string}}, required: [who]}"
    made = read_text(graph("a: {tool_ref: f}", f", state_schema: {schema}"))
    assert play(made, {"who": "Ada"}, {}).result == {"n": 4, "who": "Ada"}
    with engine() as t, pytest.raises(Exception, match="who"):
        t.run(made, n=1)


def test_a_text_as_the_schema_of_the_state_is_a_warning() -> None:
    made = read_text(graph("a: {tool_ref: f}", ", state_schema: schemas.State"))
    assert [each.code for each in made.warnings] == ["no-effect"]


@pytest.mark.parametrize(
    ("budget", "usage"), [("cost_budget_usd: 0.5", {"usd": 0.6}), ("token_budget: {total_tokens: 10}", {"tokens": 11})]
)
def test_a_budget_that_is_used_up_fails_the_run_or_leads_to_its_node(budget: str, usage: dict[str, float]) -> None:
    nodes = "a: {type: model, model: m, prompt: p, next: b}\nb: {tool_ref: f}"
    answers = {"a": [{"content": "x", "usage": usage}]}
    done = played(graph(nodes) + f"{budget}\n", answers=answers)
    assert (done.status, done.tries["b"]) == ("failed", 0)
    done = played(graph(nodes + "\ntell: {tool_ref: g}") + f"{budget}\non_budget_exceeded: tell\n", answers=answers)
    assert (done.tries["b"], done.tries["tell"]) == (0, 1)


FLEET = """\
defaults: {model: m, limits: {max_iterations: 2, max_cost_usd: 1, timeout_seconds: 60}}
agents:
  writer: {strategy: critic, goal: write}
workflows:
  all:
    start: go
    nodes:
      go: {type: agent, agent_ref: writer, input: {topic: "{{ state.topic }}"}, output_key: written, next: sub}
      sub: {type: subgraph, workflow_ref: small, input: {n: 1}, output: {n: state.n}}
  small:
    nodes:
      one: {type: tool, tool_ref: f}
"""


def test_the_units_of_a_fleet_start_each_other() -> None:
    made = read_text(FLEET, unit="all")
    answers = {"__critic_0__": [{"content": {"passed": True}}], "__finalize__": ["done"], "one": [{}]}
    done = play(made, {"topic": "t"}, {"answers": answers})
    assert done.visits == ["go", "sub"]
    assert done.result["written"]["result"] == "done" and done.result["n"] == 1
    assert read_text(FLEET, unit="writer").plan.name == "writer"


@pytest.mark.parametrize("unit", ["", "nobody"])
def test_a_unit_that_there_is_not_is_refused(unit: str) -> None:
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(FLEET, unit=unit)
    assert [each.code for each in refused.value.problems] == ["unknown-unit"]


def test_a_circle_of_agents_is_refused() -> None:
    limits = "{max_iterations: 1, max_cost_usd: 1, timeout_seconds: 9}"
    unit = "  {}: {{strategy: react, goal: g, model: m, limits: {}, uses: ['agent:{}']}}\n"
    text = "agents:\n" + unit.format("a", limits, "b") + unit.format("b", limits, "a")
    assert "circle" in [each.code for each in problems(text)]


@pytest.mark.parametrize("strategy", ["plan-and-execute", "react", "critic", "reflection", "consensus", "debate"])
def test_each_strategy_runs_to_its_end(strategy: str) -> None:
    done = played(agent(strategy), answers={"__finalize__": ["the end"]})
    assert (done.status, done.result["result"]) == ("completed", "the end")
    first = done.facts and read_text(agent(strategy)).plan.steps[0]
    assert first and "The goal: g" in first.input["input"]["messages"]["$messages"]["prompt"]


def test_a_model_is_sent_tools_and_its_calls_are_in_the_state() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    text = graph("a: {type: model, model: m, prompt: p, tools: [{name: add, input_schema: {type: object}}]}")
    made = read_text(text)
    with engine() as t:
        t.fake("a", {"text": "", "finish_reason": "tool_calls", "tool_calls": [call]})
        state = t.run(made)
        [called] = t.calls("a")
    assert called.config["options"]["tools"][0]["function"]["name"] == "add"
    assert state["last_model_tool_calls"] == [{"id": "c1", "name": "add", "arguments": {"a": 2}}]
    assert state["last_model_finish_reason"] == "tool_calls"


async def test_tools_that_a_model_asks_for_are_run_by_the_map_of_the_inputs() -> None:
    calls = [{"id": "1", "name": "join", "arguments": {"a": "x"}}, {"id": "2", "name": "none", "arguments": {}}]
    found = await dispatch([{"role": "user", "content": "?"}], calls, "", {"join": "posixpath:join"})
    asked, first, second = found["messages"][1:]
    assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"a": "x"}
    assert first == {"role": "tool", "tool_call_id": "1", "name": "join", "content": "x"}
    assert "no tool 'none'" in second["content"]


def test_the_card_of_an_agent_is_fetched_and_kept() -> None:
    node = "{id: find, kind: agent_discovery, config: {agent_url: 'http://127.0.0.1:9/'}}"
    made = read_text(f"workflow: {{id: w, nodes: [{node}]}}")
    with engine() as t:
        t.fake("find", {"status_code": 200, "data": {"name": "helper"}, "text": None})
        assert t.run(made) == {"discovered_agent": {"name": "helper"}}
        [called] = t.calls("find")
    assert called.config["url"] == "http://127.0.0.1:9/.well-known/agent.json"


def test_predicates_that_were_lost_when_a_file_was_compiled_are_a_warning() -> None:
    kind = {"type": "python_fn", "module": "app", "function": "f", "output_schema": ""}
    nodes = {name: {"id": name, "kind": kind} for name in "abc"}
    edges = [{"from": "a", "to": "b"}, {"from": "a", "to": "c"}]
    ir = {"workflow_id": "w", "version": "1.0.0", "start_node": "a", "nodes": nodes, "edges": edges}
    assert [each.code for each in read_text(json.dumps(ir)).warnings] == ["lost-condition"]


def test_variables_of_the_environment_are_read_and_those_in_addresses_are_in_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = "{id: a, kind: mcp_tool, config: {server_url: '${TOOLS_URL}/mcp', tool: t, input: {who: '${WHO}'}}}"
    text = f"workflow: {{id: w, nodes: [{node}]}}"
    monkeypatch.setenv("WHO", "Ada")
    [missing] = problems(text)
    assert (missing.code, missing.place.line) == ("bad-value", 1) and "TOOLS_URL" in missing.message
    monkeypatch.setenv("TOOLS_URL", "http://127.0.0.1:8")
    [step] = read_text(text).plan.steps
    assert "127.0.0.1:8" not in repr(step) and step.input["input"] == {"who": "Ada"}
    with engine() as t:
        t.fake("a", {"text": "{}", "result": {}})
        t.run(read_text(text))
        [called] = t.calls("a")
    assert called.config["endpoint"] == "http://127.0.0.1:8/mcp"


def test_models_and_tools_of_files_beside_are_known() -> None:
    files = {
        "models.yaml": b"models: {smart: {provider: p, model: large, temperature: 0.1}}",
        "tools.yaml": b"find: {kind: http, reference: 'http://127.0.0.1:8/find'}",
    }

    def load(file: str) -> bytes:
        if file not in files:
            raise NotFound(file)
        return files[file]

    text = graph("a: {type: model, model: smart, prompt: p, next: b}\nb: {tool_ref: find}")
    model, tool = (step.work.tasks[0] for step in read_text(text, load=load).plan.steps)  # type: ignore[union-attr]
    assert (model.keys["model"], model.keys["temperature"]) == ("large", 0.1)
    assert (tool.kind, tool.keys["url"]) == ("http", "http://127.0.0.1:8/find")
    files["tools.yaml"] = b"find: {kind: telepathy, reference: x}"
    with pytest.raises(InvalidPlaybook, match=r"tools\.yaml:1:14"):
        read_text(text, load=load)
