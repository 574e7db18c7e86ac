"""Files as people publish them, with their spellings and their servers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import Succeeded
from refold.core.pipeline import Task
from refold.errors import NotFound, RunFailed
from refold.playbooks.bindings import Bindings
from refold.playbooks.problems import InvalidPlaybook
from refold.ports import Done
from refold.testing import engine
from tests.cli.in_process import command, here
from tests.jamjet.house import LLM, play, read_text
from tests.jamjet.test_defects import FN, graph, played, problems
from tests.tools.web import Asked, Site, says, served

REMOTE = "ask: {{type: a2a_task, agent_uri: '{}/a2a', skill: look, input: {{q: state.q}}, output_key: found{}}}"


def remote(answers: list[Mapping[str, Any]], more: str = "", nodes: str = "") -> tuple[Any, list[Any]]:
    """Run a task of a remote agent that gives these answers; return the state, or the failure, and what was sent."""
    site = Site()

    def answer(asked: Asked) -> Any:
        return says({"jsonrpc": "2.0", "id": "1", **answers[min(len(site.asked), len(answers)) - 1]})

    site["/a2a"] = answer
    with served(site) as url, engine() as t:
        t.allow("http")
        started = t.start(read_text(graph(REMOTE.format(url, more) + nodes)), q="why")
        t.advance("1m")
        try:
            found: Any = started.result()
        except RunFailed as error:
            found = error
    return found, [json.loads(each.body) for each in site.asked]


def task(state: str, *parts: Any) -> dict[str, Any]:
    return {"result": {"id": "t", "status": {"state": state}, "artifacts": [{"parts": list(parts)}]}}


def test_a_task_of_a_remote_agent_is_sent_once_and_asked_for_until_it_ends() -> None:
    state, sent = remote([task("submitted"), task("working"), task("completed", {"type": "data", "data": {"n": 3}})])
    assert state == {"q": "why", "found": {"n": 3}}
    assert [each["method"] for each in sent] == ["tasks/send", "tasks/get", "tasks/get"]
    assert sent[0]["params"]["message"]["parts"] == [{"type": "data", "data": {"q": "why"}}]
    assert sent[0]["params"]["skill"] == "look"
    assert len({each["params"]["id"] for each in sent}) == 1


def test_a_remote_agent_that_refuses_or_asks_back_fails_the_node_or_leads_where_the_file_says() -> None:
    refused, _ = remote([{"error": {"code": -32601, "message": "no such skill"}}])
    assert isinstance(refused, RunFailed) and "no such skill" in str(refused)
    asked, _ = remote([task("input-required")])
    assert isinstance(asked, RunFailed) and "input-required" in str(asked)
    state, _ = remote([task("input-required")], ", on_input_required: more", "\nmore: {type: end}")
    assert state["found"]["status"] == {"state": "input-required"}


def test_a_remote_agent_that_is_not_there_is_a_failure_of_the_connection() -> None:
    with engine() as t:
        t.allow("http")
        started = t.start(read_text(graph(REMOTE.format("http://127.0.0.1:1", ""))), q="why")
        t.advance("1m")
        error = started.state().error
    assert error is not None and error.fault is not None
    assert error.fault.kind == "connection", error


def test_a_node_that_only_chooses_looks_at_the_output_of_the_node_before_it() -> None:
    ways = "[{if: \"output.verdict == 'pass'\", next: b}]"
    text = graph(
        f"a: {{{FN}, output_key: k, next: g}}\ng: {{type: branch, conditions: {ways}, default: c}}\nb: {{}}\nc: {{}}"
    )
    assert played(text, answers={"a": [{"verdict": "pass"}]}).visits == ["a", "g", "b"]
    assert played(text, answers={"a": [{"verdict": "fail"}]}).visits == ["a", "g", "c"]


def test_what_a_function_of_a_join_returns_is_its_result() -> None:
    text = graph(
        f"p: {{type: parallel, branches: [a, b]}}\na: {{{FN}, next: j}}\nb: {{{FN}, next: j}}\n"
        "j: {type: join, wait_for: [b, a], merge: {custom: {function_ref: 'app:merge'}}, next: ["
        "{to: c, when: output.result.n == 2}, {else: d}]}\nc: {}\nd: {}"
    )
    done = played(text, answers={"j": [{"n": 2}]})
    assert done.visits == ["p", ["a", "b"], "j", "c"]
    assert "n" not in done.result


def test_what_scorers_say_is_in_the_state() -> None:
    scorers = "[{type: assertion, checks: ['output.n > 2', 'output.n > 1']}, {type: assertion, check: output.n}]"
    text = graph(f"a: {{{FN}, next: e}}\ne: {{type: eval, scorers: {scorers}, on_fail: log_and_continue}}")
    assert played(text, answers={"a": [{"n": 2}]}).result["eval_results"] == [
        {"scorer": "assertion", "passed": False, "score": None, "message": "not true: output.n > 2"},
        {"scorer": "assertion", "passed": True, "score": None, "message": ""},
    ]


@pytest.mark.parametrize(("written", "version"), [("1.0", "1.0"), ("2", "2"), ('"0.1.0"', "0.1.0")])
def test_a_version_may_be_a_number(written: str, version: str) -> None:
    assert read_text(f"workflow: {{id: w, version: {written}}}\nnodes: {{a: {{}}}}").metadata["version"] == version
    limits = "{max_iterations: 1, max_cost_usd: 1, timeout_seconds: 9}"
    agent = f"agent: {{id: a, version: {written}, strategy: critic, goal: g, model: m, limits: {limits}}}"
    assert read_text(agent).metadata["version"] == version


def test_json_may_be_indented_with_tabs_and_write_characters_in_two_escapes() -> None:
    kind = {
        "type": "model",
        "model_ref": "m",
        "prompt_ref": "Say \U0001f600 / \u00e9 {{ state.x }}",
        "output_schema": "",
    }
    ir = {
        "workflow_id": "w",
        "version": "1.0.0",
        "start_node": "a",
        "nodes": {"a": {"id": "a", "kind": kind}},
        "edges": [{"from": "a", "to": "end", "condition": None}],
    }
    text = json.dumps(ir, indent="\t")
    assert "\\ud83d\\ude00" in text
    [step] = read_text(text).plan.steps
    assert step.input["input"]["messages"]["$messages"]["prompt"] == kind["prompt_ref"]
    flat = json.dumps({**ir, "start_node": "\U0001f600"})
    [problem] = problems(flat)
    assert flat[problem.place.column - 1 :].startswith('"\\ud83d\\ude00"')


def test_a_json_schema_may_be_written_as_a_text() -> None:
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    kind = {"type": "model", "model_ref": "m", "prompt_ref": "p", "output_schema": schema}
    nodes = {"a": {"id": "a", "kind": kind, "labels": {}}}
    ir = {
        "workflow_id": "w",
        "version": "1.0.0",
        "state_schema": schema,
        "start_node": "a",
        "nodes": nodes,
        "edges": [],
    }
    made = read_text(json.dumps({**ir, "state_schema": schema}))
    assert [(each.name, each.required) for each in made.plan.inputs] == [("n", True)] and not made.warnings
    [step] = made.plan.steps
    assert step.work.tasks[0].keys["json"] == json.loads(schema)  # type: ignore[union-attr]
    assert step.patch["$patch"]["json"] is True


def test_an_input_that_no_file_declares_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("workflow: {id: w}\nnodes: {a: {type: condition, next: end}}\n")
    with here(tmp_path):
        done = command("run", "w.yaml", "-i", "n=1")
    assert (done.code, json.loads(done.out)) == (0, {"n": 1})
    assert "no input" not in done.err


def test_loops_through_edges_of_nodes_end_where_a_condition_says() -> None:
    text = graph(f"a: {{{FN}, next: [{{to: a, when: 'output.n < 3'}}, {{else: b}}]}}\nb: {{}}")
    done = play(read_text(text), {}, {"answers": {"a": [{"n": 1}, {"n": 2}, {"n": 3}]}})
    assert done.visits == ["a", "a", "a", "b"]


def test_what_a_file_says_besides_is_a_warning_and_ways_that_nobody_would_follow_are_an_error() -> None:
    more = "x-common: {a: 1}\nowner: me\n"
    made = read_text(graph("a: {}", ", author: me, tags: [x]") + more)
    assert [(each.code, each.place.line) for each in made.warnings] == [("unknown-key", 1)] * 2 + [("unknown-key", 5)]
    [problem] = problems(graph("a: {}") + "edges: [{from: a, to: end}]\n")
    assert (problem.code, problem.place.line) == ("unknown-key", 4)


def test_variables_of_the_environment_of_a_server_are_read_in_the_worker_and_are_in_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = "{transport: stdio, command: serve, args: ['--for', '${WHO}'], env: {TOKEN: '${SERVE_TOKEN}'}}"
    text = graph("a: {type: mcp_tool, server: s, tool: t}") + f"mcp: {{servers: {{s: {server}}}}}\n"
    monkeypatch.setenv("WHO", "Ada")
    [missing] = problems(text)
    assert (missing.code, missing.place) == ("bad-value", (3, 31)) and "SERVE_TOKEN" in missing.message
    monkeypatch.setenv("SERVE_TOKEN", "sesame-open-12345")
    made = read_text(text)
    assert "sesame" not in repr(made.plan)
    with engine() as t:
        t.fake("a", {"text": "{}", "result": {}})
        t.run(made)
        [called] = t.calls("a")
    assert called.config["command"] == ["serve", "--for", "Ada"]
    assert called.config["env"] == {"TOKEN": "sesame-open-12345"}


def test_the_tries_of_a_node_count_the_classes_that_it_names() -> None:
    text = graph("a: {tool_ref: f, retry: {max_attempts: 3, delay_ms: 1, retryable_on: [timeout]}}")
    done = played(text, answers={"a": [{"fail": "timeout"}, {"fail": "odd"}, {}]})
    assert (done.status, done.tries["a"]) == ("failed", 2)


@pytest.mark.parametrize("classes", ["ValueError", "app.errors.Busy", "{custom: odd}", "io_error", "server_error"])
def test_classes_of_failures_are_known_words_exceptions_or_custom(classes: str) -> None:
    text = graph(f"a: {{tool_ref: f, retry: {{max_attempts: 3, retryable_on: [{classes}]}}}}")
    assert played(text, answers={"a": [{}]}).status == "completed"


@pytest.mark.parametrize("classes", ["time_out", "odd", "valueError", "'rate limit'", "7"])
def test_a_class_of_failures_that_nobody_knows_is_named(classes: str) -> None:
    [problem] = problems(graph(f"a: {{tool_ref: f, retry: {{max_attempts: 3, retryable_on: [{classes}]}}}}"))
    assert (problem.code, problem.place.line) == ("bad-value", 3)
    assert "did you mean `timeout`?" in problem.hint or classes != "time_out"


LIMITS = "{max_iterations: 1, max_cost_usd: 1, timeout_seconds: 9}"
AGENTS = f"""\
defaults: {{model: m, limits: {LIMITS}}}
agents:
  scout: {{strategy: react, goal: look}}
  writer: {{strategy: critic, goal: write}}
"""


def test_the_agents_of_a_file_beside_are_known() -> None:
    files = {"agents.yaml": AGENTS.encode()}

    def load(file: str) -> bytes:
        if file not in files:
            raise NotFound(file)
        return files[file]

    text = graph(
        "a: {type: agent, agent_ref: scout, output_key: s, next: b}\nb: {type: agent, agent: writer, output_key: w}"
    )
    done = play(read_text(text, load=load), {}, {"answers": {"__finalize__": ["the end"]}})
    assert (done.visits, done.result["s"]["result"], done.result["w"]["result"]) == (["a", "b"], "the end", "the end")
    assert "__draft_output__" in done.result["w"] and "__think_0_output__" in done.result["s"]
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(graph("a: {type: agent, agent_ref: nobody}"), Bindings(models={"*": LLM}), load=load)
    assert [(each.code, each.place) for each in refused.value.problems] == [("unknown-agent", (3, 31))]
    files["agents.yaml"] = b"agents: {scout: {strategy: react}}"
    with pytest.raises(InvalidPlaybook, match=r"agents\.yaml:1:17"):
        read_text(graph("a: {type: agent, agent_ref: scout}"), load=load)


def test_whoever_is_bound_is_read_by_its_kind(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(
        graph(
            "a: {type: tool, tool_ref: t, input: {q: '{{ state.q }}'}, output_key: seen, next: b}\n"
            "b: {type: agent, agent_ref: helper, input: {prompt: 'Say {{ state.q }}'}, output_key: told, next: c}\n"
            "c: {type: model, model: m, prompt: 'Hello {{ state.q }}', output_key: said}"
        )
    )
    bindings = {
        "tools": {"t": {"kind": "shell", "command": ["cat"], "stdin": "{{ input | tojson }}"}},
        "agents": {"helper": {"kind": "shell", "command": ["cat"], "stdin": "{{ prompt }}"}},
        "models": {"m": {"kind": "shell", "command": ["cat"], "stdin": "{{ input.messages[0].content }}"}},
    }
    (tmp_path / "refold-bindings.yaml").write_text(json.dumps(bindings))
    with here(tmp_path):
        done = command("run", "w.yaml", "-q", "-i", "q=hey")
    state = json.loads(done.out)
    assert (state["seen"], state["told"], state["said"]) == ({"q": "hey"}, "Say hey", "Hello hey")


ASKED = """a: {type: agent, agent_ref: helper, input: {goal: 'Is {{ state.q }} fine?'}, output_key: told,
    output_schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}}"""


def test_a_reply_of_a_bound_agent_that_does_not_fit_its_schema_is_fed_back_a_bounded_number_of_times() -> None:
    code = "def main(goal, prompt, retry_error):\n    return {'ok': bool(retry_error)} if retry_error else goal"
    bound = Bindings(agents={"helper": Task(name="helper", kind="python", settings={"code": code})})
    with engine() as running:
        running.allow("agent", "python")
        assert running.run(read_text(graph(ASKED), bound).plan, {"q": "it"}) == {"q": "it", "told": {"ok": True}}
        never = Task(name="helper", kind="python", settings={"code": "def main(prompt):\n    return 'perhaps'"})
        with pytest.raises(RunFailed, match="asked 3 times"):
            running.run(read_text(graph(ASKED), Bindings(agents={"helper": never})).plan, {"q": "it"})


HELPER = Task(name="helper", kind="python", settings={"code": "def main(q, prompt):\n    return {'said': q}"})


def test_a_binding_of_the_name_of_an_agent_wins_over_a_file_of_that_name() -> None:
    text = graph("a: {type: agent, agent_ref: flow, input: {q: '{{ state.q }}'}, output_key: told}")
    files = {"flow.yaml": text.encode()}

    def load(file: str) -> bytes:
        if file not in files:
            raise NotFound(file)
        return files[file]

    with engine() as running:
        running.allow("python")
        plan = read_text(text, Bindings(agents={"flow": HELPER}), load=load).plan
        assert running.run(plan, {"q": "it"}) == {"q": "it", "told": {"said": "it"}}


AGAIN = "a: {type: tool, tool_ref: t, next: b}\nb: {type: agent, agent_ref: flow, next: end}"
AS_A_CHILD = "a: {type: subgraph, workflow_ref: flow, input: {}, output: {}, next: end}"
MAYBE = """\
a: {type: condition, conditions: [{if: 'state.n > 0', next: b}], default: end}
b: {type: agent, agent_ref: flow, input: {n: 0}, output_key: told}"""


@pytest.mark.parametrize(("nodes", "place"), [(AGAIN, (4, 31)), (AS_A_CHILD, (3, 37))])
def test_a_file_that_starts_itself_whatever_happens_is_refused(nodes: str, place: tuple[int, int]) -> None:
    text = graph(nodes)
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(text, load=lambda file: {"flow.yaml": text.encode()}.get(file) or _missing(file))
    assert [(each.code, each.place) for each in refused.value.problems] == [("circle", place)]


def test_a_file_may_start_itself_behind_a_condition() -> None:
    text = graph(MAYBE)
    made = read_text(text, load=lambda file: {"flow.yaml": text.encode()}.get(file) or _missing(file))
    with engine() as running:
        assert running.run(made.plan, {"n": 1}) == {"n": 1, "told": {"n": 0}}


def _missing(file: str) -> bytes:
    raise NotFound(file)


SCHEMA = "output_schema: {type: object, properties: {n: {type: integer}}, required: [n]}"
GIVES = Task(name="t", kind="python", settings={"code": "def main(n):\n    return {'n': n}"})
ECHOES = Task(name="t", kind="shell", keys={"command": ["cat"], "stdin": "{{ input | tojson }}"})


@pytest.mark.parametrize(
    ("node", "bindings"),
    [
        (f"a: {{type: tool, tool_ref: t, input: {{n: '{{{{ state.n }}}}'}}, {SCHEMA}}}", Bindings(tools={"t": GIVES})),
        (f"a: {{type: tool, tool_ref: t, input: {{n: '{{{{ state.n }}}}'}}, {SCHEMA}}}", Bindings(tools={"t": ECHOES})),
        (
            f"a: {{type: a2a_task, remote_agent: r, skill: s, input: {{n: '{{{{ state.n }}}}'}}, {SCHEMA}}}",
            Bindings(remote_agents={"r": GIVES}),
        ),
        (f"a: {{type: python_fn, module: copy, function: copy, {SCHEMA}}}", Bindings()),
    ],
)
def test_a_result_that_does_not_fit_the_schema_of_its_node_fails_it(node: str, bindings: Bindings) -> None:
    plan = read_text(graph(node), bindings).plan
    with engine() as running:
        running.allow("python", "shell")
        assert running.run(plan, {"n": 3}) == {"n": 3}
        with pytest.raises(RunFailed, match=r"does not fit its schema: result\.n: 'three' is not of type 'integer'"):
            running.run(plan, {"n": "three"})


def test_the_data_of_a_tool_of_a_server_is_held_against_the_schema_of_its_node() -> None:
    node = "a: {type: mcp_tool, server: s, tool: t, input: {}, output_key: k, " + SCHEMA + "}"
    plan = read_text(graph(node)).plan
    with engine() as running:
        running.fake("mcp", {"text": '{"n": 3}', "result": {}})
        assert running.run(plan, {}) == {"k": {"n": 3}}
    with engine() as running:
        running.fake("mcp", {"text": "three", "result": {}})
        with pytest.raises(RunFailed, match="does not fit its schema: result: 'three' is not of type 'object'"):
            running.run(plan, {})


def test_the_result_of_a_remote_agent_is_held_against_the_schema_of_its_node() -> None:
    more = ", " + SCHEMA
    fits, _ = remote([task("completed", {"type": "data", "data": {"n": 3}})], more)
    assert fits == {"q": "why", "found": {"n": 3}}
    misfit, _ = remote([task("completed", {"type": "data", "data": {"n": "three"}})], more)
    assert isinstance(misfit, RunFailed) and "result.n: 'three' is not of type 'integer'" in str(misfit)
    asked, _ = remote([task("input-required")], more)
    assert isinstance(asked, RunFailed) and "input-required" in str(asked)


def test_a_simulation_makes_up_results_that_fit_the_schemas_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(
        graph(
            f"a: {{type: mcp_tool, server: s, tool: t, input: {{}}, {SCHEMA}, next: b}}\n"
            f"b: {{type: a2a_task, agent_uri: 'http://127.0.0.1:9/a', skill: t, input: {{}}, {SCHEMA}, next: c}}\n"
            f"c: {{type: python_fn, module: copy, function: copy, {SCHEMA}}}"
        )
    )
    (tmp_path / "refold-bindings.yaml").write_text('servers: {s: {endpoint: "http://127.0.0.1:9/mcp"}}')
    with here(tmp_path):
        done = command("sim", "w.yaml", "--seeds", "1")
    assert "undisturbed: completed" in done.out, done.out


def test_metadata_beside_a_workflow_is_a_warning_and_makes_it_no_playbook() -> None:
    made = read_text(graph("a: {}") + "metadata: {author: me}\n")
    assert (made.plan.language, [each.code for each in made.warnings]) == ("jamjet", ["unknown-key"])


CATALOG = """\
tools:
  look: {description: Look something up, input_schema: {type: object}}
agents:
  one:
    strategy: react
    goal: g
    model: m
    limits: {max_iterations: 2, max_cost_usd: 1, timeout_seconds: 9}
    uses: [tool:look]
"""


def test_a_tool_of_which_a_fleet_has_only_a_description_is_the_one_that_is_bound() -> None:
    plan = read_text(CATALOG, unit="one").plan
    assert "- look: Look something up" in plan.steps[0].input["input"]["messages"]["$messages"]["prompt"]
    think = [{"content": {"action": "look"}}]
    played = play(read_text(CATALOG, unit="one"), {}, {"answers": {"__think_0__": think, "__act_0__": [7]}})
    assert played.visits[:3] == ["__think_0__", "__react_guard_0__", "__act_0__"]
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(CATALOG, Bindings(models={"*": LLM}), unit="one")
    assert [each.code for each in refused.value.problems] == ["unknown-tool"]
    assert "tools: {look:" in refused.value.problems[0].hint


def test_a_node_of_type_end_may_be_called_end() -> None:
    played_ = played(graph(f"a: {{{FN}, next: end}}\nend: {{type: end}}"))
    assert (played_.status, played_.visits) == ("completed", ["a"])
    [refused] = problems(graph("a: {}\nend: {type: tool}"))
    assert refused.code == "wrong-id"


def test_the_goal_of_an_agent_reads_keys_of_the_state_by_their_bare_names() -> None:
    limits = "{max_iterations: 1, max_cost_usd: 1, timeout_seconds: 9}"
    goal = "Find {{ topic }}, {{ state.depth }}"
    text = f"agent: {{id: a, strategy: react, goal: '{goal}', model: m, limits: {limits}}}"
    with engine() as t:
        t.fake("__think_0__", {"content": "x"})
        t.fake("__finalize__", {"content": "x"})
        t.run(read_text(text), topic="birds", depth="deeply")
        [called] = t.calls("__think_0__")
    assert "The goal: Find birds, deeply" in str(called.input)


def test_an_input_may_be_a_list_of_texts() -> None:
    text = graph("a: {}", head=", state_schema: {names: 'list[str]', about: 'dict[str, int]'}")
    schemas = {each.name: each.schema for each in read_text(text).plan.inputs}
    assert schemas == {"names": {"type": "array", "items": {"type": "string"}}, "about": {"type": "object"}}
    [refused] = problems(graph("a: {}", head=", state_schema: {names: 'list[word]'}"))
    assert refused.code == "bad-value"


def test_a_tool_that_the_model_of_an_agent_chooses_gets_its_arguments_and_nothing_else() -> None:
    site = Site()
    site["/look"] = lambda asked: says({"n": 3})
    with served(site) as url, engine() as t:
        bound = Task(name="look", kind="http", keys={"url": f"{url}/look"})
        t.allow("http")
        t.fake("__think_0__", {"content": json.dumps({"action": "look", "input": {"query": "why"}})})
        for name in ("__observe_0__", "__think_1__", "__finalize__"):
            t.fake(name, {"content": "x"})
        made = read_text(CATALOG, Bindings(models={"*": LLM}, tools={"look": bound}), unit="one")
        result = t.run(made)
    assert [json.loads(each.body) for each in site.asked] == [{"query": "why"}]
    assert result["__act_0_output__"] == {"n": 3}


def test_a_model_that_many_nodes_of_an_agent_ask_is_reported_once() -> None:
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(CATALOG, Bindings(), unit="one")
    assert sorted(each.code for each in refused.value.problems) == ["unknown-model", "unknown-tool"]


def test_a_run_whose_budget_is_used_up_is_paused_if_the_file_says_so() -> None:
    model = "{type: model, model: m, prompt: p"
    head = ", token_budget: {total_tokens: 5}, on_budget_exceeded: pause"
    with engine() as t:
        t.fake("a", Done(Succeeded({"content": "x"}), usage={"tokens": 9}))
        t.fake("b", {"content": "y"})
        started = t.start(read_text(graph(f"a: {model}, next: b}}\nb: {model}}}", head=head)))
        assert started.status == "paused"
        assert [each.step for each in t.calls()] == ["a"]
    [refused] = problems(graph("a: {}", head=", cost_budget_usd: 1, on_budget_exceeded: stop"))
    assert (refused.code, refused.place.line) == ("unknown-step", 1)
