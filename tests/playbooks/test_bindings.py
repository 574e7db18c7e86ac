"""Files of bindings: which tool answers for a name, and what is reported before a run."""

from pathlib import Path
from typing import Any

import pytest

from docs.build.bindings_page import page
from refold.core.plan import Call
from refold.playbooks.bindings import Bindings, command_for_agents, how_to_bind, with_agent, with_environment
from refold.playbooks.bindings_file import bindings_for, project_of, read_bindings
from refold.playbooks.language.bindings import TABLES
from refold.playbooks.language.tables import Key
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.sources.catalog import CATALOG as SOURCES
from refold.tools.catalog import CATALOG

ROOT = Path(__file__).parent.parent.parent

TEXT = """\
agents:
  plan: {kind: llm, base_url: "http://localhost/v1", model: "{{ model | default('small') }}", prompt: "{{ prompt }}"}
  "review-*": {kind: python, entry: "my_agents:review"}
  "*": {kind: shell, command: [ask], stdin: "{{ prompt }}", env: {KEY: {secret: ask_key}}}
gates:
  pr_checks: {check: {kind: shell, command: [gh]}, approved: "{{ output.data.stdout == 'ok' }}", every: 2m}
items:
  tickets: {source: {kind: jsonl, path: tickets.jsonl}, id: "{{ item.number }}", after: "{{ item.blocked_by }}"}
models:
  "claude-*": {kind: llm, base_url: "http://models/v1", price: {prompt: 0.5}}
tools: {search: {kind: python, entry: "my_tools:search"}}
servers: {brave: {command: [npx, server]}, far: {url: "https://mcp.example"}}
remote_agents: {research: {kind: http, url: "https://agents.example/a2a"}}
identities: {developer: {env: {GH_TOKEN: {secret: dev_token}}}}
variables: {repo_name: acme/shop}
"""
PLAY = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: one}
workflow:
  - step: a
    tool: {kind: agent, agent: writer, prompt: x}
    next: b
  - step: b
    tool: [{name: ask, kind: agent, agent: judge, prompt: x}]
"""


def bindings(text: str = TEXT) -> Bindings:
    return read_bindings(text, "refold-bindings.yaml", CATALOG, lambda: SOURCES)


def problems(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(InvalidPlaybook) as caught:
        bindings(text)
    return [(each.code, *each.place) for each in caught.value.problems]


def test_a_name_is_looked_up_exactly_then_by_pattern_then_as_a_star() -> None:
    found = bindings()
    kinds = [task.kind if (task := found.agent(name)) else None for name in ("plan", "review-code", "review", "x")]
    assert kinds == ["llm", "python", "shell", "shell"]
    assert found.model("claude-9") is not None and found.model("gpt") is None
    assert Bindings().agent("plan") is None


def test_every_section_is_read() -> None:
    found = bindings()
    gate, items = found.gate("pr_checks"), found.item_source("tickets")
    assert gate is not None and (gate.check.kind, gate.rejected, gate.every) == ("shell", False, 120.0)
    assert items is not None and (items.source.kind, items.id, items.ref) == ("jsonl", "{{ item.number }}", None)
    assert found.server("brave") == {"command": ["npx", "server"]}
    assert found.server("far") == {"endpoint": "https://mcp.example"}
    assert found.variables == {"repo_name": "acme/shop"}
    remote, tool = found.remote_agent("research"), found.tool("search")
    assert remote is not None and remote.kind == "http" and tool is not None
    assert tool.settings == {"entry": "my_tools:search"}


def test_a_secret_becomes_a_template_that_only_the_worker_renders() -> None:
    task = bindings().agent("x")
    assert task is not None and task.keys["env"] == {"KEY": "{{ secrets['ask_key'] }}"}
    assert bindings().identity("developer") == {"GH_TOKEN": "{{ secrets['dev_token'] }}"}


def test_the_environment_of_an_identity_is_weaker_than_that_of_the_tool() -> None:
    task = bindings().agent("x")
    assert task is not None
    assert with_environment(task, {"KEY": "1", "OTHER": "2"}).keys["env"] == {
        "KEY": "{{ secrets['ask_key'] }}",
        "OTHER": "2",
    }
    far = bindings().agent("plan")
    assert far is not None and with_environment(far, {"KEY": "1"}) is far


def test_a_command_for_all_agents_leaves_those_that_are_bound_by_name() -> None:
    found = with_agent(bindings(), command_for_agents(["claude", "-p"]))
    star, plan = found.agent("anyone"), found.agent("plan")
    assert star is not None and star.keys == {"command": ["claude", "-p"], "stdin": "{{ prompt }}"}
    assert plan is not None and plan.kind == "llm"


def test_everything_that_is_wrong_with_a_file_is_reported_at_once_with_its_place() -> None:
    text = """\
agents:
  a: {kind: shell, command: [x], stdin: "{{ promt }}"}
  b: {kind: gate}
  c: {kind: shell, command: [x], stdin: "{{ 1 + }}"}
  d: {kind: shll, command: [x]}
gates: {pr: {approved: "{{ true }}"}}
servers: {s: {}, t: [x]}
identities: {me: {}}
variables: {x: "{{ y }}"}
agentz: {}
"""
    assert problems(text) == [
        ("unknown-name", 2, 45),
        ("bad-tool", 3, 13),
        ("bad-template", 4, 49),
        ("unknown-tool", 5, 13),
        ("missing-key", 6, 13),
        ("missing-key", 7, 14),
        ("wrong-type", 7, 21),
        ("missing-key", 8, 18),
        ("templated-default", 9, 16),
        ("unknown-key", 10, 1),
    ]


def test_all_agents_that_are_not_bound_are_reported_before_the_run_with_the_shortest_way_to_bind_them() -> None:
    with pytest.raises(InvalidPlaybook) as caught:
        read(PLAY, "play.yaml", CATALOG)
    found = caught.value.problems
    assert [(each.code, *each.place) for each in found] == [("unknown-agent", 6, 32), ("unknown-agent", 9, 44)]
    assert "agents: {writer: {kind: shell" in found[0].hint and "--agent" in found[0].hint


def test_the_tool_that_is_bound_becomes_part_of_the_plan() -> None:
    plan = read(PLAY, "play.yaml", CATALOG, bindings=bindings).plan
    work = plan.steps[0].work
    assert isinstance(work, Call) and work.settings["bound"]["kind"] == "shell"


def test_a_tool_can_be_written_in_the_step_in_place_of_a_name() -> None:
    text = PLAY.replace("agent: writer", "by: {kind: python, code: return prompt}").replace(
        "agent: judge", "by: {kind: nope}"
    )
    with pytest.raises(InvalidPlaybook) as caught:
        read(text, "play.yaml", CATALOG)
    assert [each.code for each in caught.value.problems] == ["unknown-tool"]


def test_the_project_of_a_file_is_the_nearest_folder_with_its_marks(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_of(str(inner / "x.wf")) == str(inner)
    (tmp_path / "a" / ".conductor").mkdir()
    assert project_of(str(inner / "x.wf")) == str(tmp_path / "a")
    (tmp_path / "a" / "refold-bindings.yaml").write_text('agents: {"*": {kind: shell, command: [cat]}}')
    found = bindings_for(str(inner / "x.wf"), CATALOG, lambda file: Path(file).read_bytes())
    assert found.agent("x") is not None


@pytest.mark.parametrize("section", ["agents", "gates", "items", "models", "tools", "servers", "remote_agents"])
def test_the_hint_for_a_name_that_is_not_bound_is_a_valid_binding(section: str) -> None:
    line: Any = how_to_bind(section, "code review").split("`")[1]
    assert bindings(line)


def test_the_page_on_bindings_is_printed_from_the_tables() -> None:
    assert (ROOT / "docs/reference/bindings.md").read_text() == page(), "python -m docs.build.bindings_page prints it"


def test_the_example_on_the_page_is_valid() -> None:
    found = bindings(page().split("```yaml\n")[1].split("```")[0])
    assert found.agent("anyone") is not None


@pytest.mark.parametrize("key", TABLES["bindings"].keys, ids=lambda key: key.name)
def test_each_example_of_a_section_is_a_valid_file(key: Key) -> None:
    assert bindings(f"{key.name}: {key.example}") != bindings("{}")
