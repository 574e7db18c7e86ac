"""Files of a project: where they are found, what they become, and that none is read from outside."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from refold.playbooks.bindings import how_to_bind
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.wf.schemas import read_schema
from refold.testing import engine
from refold.wiring.playbook_files import playbook
from tests.cli.in_process import here
from tests.cli.program import refold
from tests.wf.programs import Program, lay_out, problems, run, warnings

AGENT = "---\nrole: actor\ncan_commit: true\nmodel: small\ntools: all\n---\nWork on {{what}}.\n"


def placed(path: str, text: str, tmp_path: Path, call: str = "call plan") -> Any:
    program = Program(text=f"workflow main {{ inputs {{ what }} {call} }}", files={path: text}, inputs={"what": "it"})
    return run(program, tmp_path / "p").asked[0]


@pytest.mark.parametrize(
    "path",
    [
        ".conductor/workflows/main/agents/plan.md",
        ".conductor/agents/plan.md",
        ".claude/agents/plan.md",
        "agents/plan.md",
    ],
)
def test_an_agent_is_found_by_its_name_and_its_text_is_the_prompt(path: str, tmp_path: Path) -> None:
    asked = placed(path, AGENT, tmp_path)
    assert asked["prompt"].startswith("Work on it.\n\nWhen you are done")
    assert (asked["role"], asked["can_commit"], asked["model"]) == ("actor", True, "small")


def test_an_agent_is_found_in_plugins_and_by_its_path(tmp_path: Path) -> None:
    asked = placed("plugs/agents/plan.md", "In {{what}}", tmp_path / "a", 'call plan { plugin_dirs = ["plugs"] }')
    assert asked["prompt"].startswith("In it")
    asked = placed("deep/er/plan.md", "By path", tmp_path / "b", 'call "deep/er/plan.md"')
    assert (asked["agent"], asked["prompt"][:7]) == ("plan", "By path")


def test_the_first_place_counts(tmp_path: Path) -> None:
    files = {".conductor/agents/plan.md": "second", ".conductor/workflows/main/agents/plan.md": "first"}
    done = run(Program(text="workflow main { call plan }", files=files), tmp_path / "p")
    assert done.asked[0]["prompt"].startswith("first")


def test_what_stands_before_an_agent_is_warned_of_if_it_is_not_read(tmp_path: Path) -> None:
    program = Program(text="workflow main { inputs { what } call plan }", files={"agents/plan.md": AGENT})
    assert warnings(program, tmp_path / "p") == [("agent-file", 1, 38)]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ('call "/etc/a.md"', "bad-path"),
        ('call "../a.md"', "bad-path"),
        ('call "missing.md"', "unknown-agent"),
        ('call "plan"', "unknown-agent"),
        ('call a { with = "../x.md" }', "bad-path"),
        ("call a { with = missing }", "unknown-snippet"),
        ('call a { output = "out/x.yaml" }', "bad-path"),
        ('call a { with = "out/secret.md" }', "bad-path"),
        ('call "out/secret.md"', "bad-path"),
        ('call a { plugin_dirs = ["../x"] }', "bad-path"),
    ],
)
def test_no_path_leaves_the_project(call: str, code: str, tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "p"
    outside.mkdir()
    for name in ("secret.md", "x.yaml"):
        (outside / name).write_text("fields: {}")
    program = Program(text=f"workflow main {{ {call} }}")
    lay_out(program, project)
    (project / "out").symlink_to(outside)
    with pytest.raises(InvalidPlaybook) as caught:
        playbook(project / "main.wf")
    assert [each.code for each in caught.value.problems if each.severity == "error"] == [code]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"fields": {"a": "text"}}, "`text` is not a type"),
        ({"fields": {"a": "number"}, "markers": {"m": "a ~ 3"}}, "means nothing"),
        ({"markers": {}}, "a map with `fields`"),
        ({"fields": {"a": {"type": "number", "items": "string"}}}, "`items` belong to an array"),
    ],
)
def test_a_schema_that_cannot_be_read_names_its_own_place(schema: Any, why: str, tmp_path: Path) -> None:
    program = Program(text="workflow main { call a { output = verdict } }", schemas={"verdict": schema})
    assert problems(program, tmp_path / "p") == [("bad-schema", 1, 35)]
    with here(tmp_path / "p"):
        done = refold(tmp_path / "p", "validate", "main.wf")
    assert ".conductor/schemas/verdict.yaml:1:" in done.err and why in done.err


def test_a_schema_may_say_what_it_is_and_describe_its_fields_in_full() -> None:
    text = """
name: verdict
description: What a reviewer says
fields:
  note: {type: string, description: in one line}
  about: {type: string, description: string}
"""
    fields = read_schema(text, "verdict.yaml")["fields"]
    assert fields["note"] == {"type": "string", "desc": "in one line"}
    assert list(fields["about"]["fields"]) == ["type", "description"]  # two fields


def test_the_command_line_validates_draws_and_runs_a_file(tmp_path: Path) -> None:
    script = 'script s { run = "echo {{plan.context}} {{ticket_id}}" }'
    text = f"workflow main {{\n  call plan\n  {script}\n  inputs {{ ticket_id }}\n}}\n"
    folder = tmp_path / "p"
    lay_out(Program(text=text, files={"agents/plan.md": "Plan {{ticket_id}}."}), folder)
    (folder / "refold-bindings.yaml").unlink()
    checked = refold(folder, "validate", "main.wf")
    assert checked.code == 0 and "main.wf:2:8: warning[unbound]" in checked.err
    refused = refold(folder, "run", "main.wf", "-i", "ticket_id=7")
    assert (
        refused.code == 2 and "nothing answers for the agent `plan`" in refused.err and "  |        ^^^^" in refused.err
    )
    assert "plan" in refold(folder, "graph", "main.wf").out
    (folder / "agent.sh").write_text("echo '<<<FLOW_OUTPUT>>>{\"context\": \"'$(head -c 7)'\"}<<<END_FLOW_OUTPUT>>>'\n")
    done = refold(folder, "run", "main.wf", "-i", "ticket_id=7", "--agent", f"sh {folder}/agent.sh")
    assert done.code == 0, done.err
    assert done.data["steps"]["s"]["context"] == "Plan 7. 7\n"


def test_an_identity_gives_scripts_and_agents_its_variables_and_shows_no_secret(tmp_path: Path) -> None:
    text = """workflow main {
      inputs { who }
      script s { run = "sh s.sh {{who}}"  as = developer  env = { A = "<{{who}}>" } }
      call a { as = developer }
    }"""
    script = 'printf "%s|%s|%s|%s" "${#TOKEN}" "$A" "$CONDUCTOR_WHO" "$1"\n'
    bindings = {"identities": {"developer": {"env": {"TOKEN": {"secret": "dev_token"}}}}}
    agent = {
        "kind": "shell",
        "command": ["sh", "-c", 'echo "<<<FLOW_OUTPUT>>>{\\"context\\": \\"${#TOKEN}\\"}<<<END_FLOW_OUTPUT>>>"'],
    }
    file = lay_out(Program(text=text, files={"s.sh": script}, bindings=bindings), tmp_path / "p", {"*": agent})
    with engine(secrets={"dev_token": "sesame-open-12345"}) as t:
        t.allow("agent")
        started = t.start(str(file), who="it's me")
        steps = started.result()["steps"]
        assert steps["s"]["context"] == "17|<it's me>|it's me|it's me"
        assert steps["a"]["context"] == "17"
        assert "sesame" not in started.story(100)


def test_the_identity_of_a_call_reaches_the_other_workflow_and_those_that_it_calls(tmp_path: Path) -> None:
    show = "script {0} {{ run = \"printf '%s' $WHO\" {1} }}"
    text = f"""workflow main {{
      {show.format("own", "")}
      call workflow kid {{ as = developer }}
      call workflow other
      script all {{ run = "printf '%s' {{{{prior_contexts}}}}" }}
    }}"""
    kid = f"""workflow kid {{
      {show.format("theirs", "")}
      {show.format("mine", "as = reviewer")}
      call asked
      call workflow deep
    }}"""
    deep = f"workflow deep {{ {show.format('deepest', '')} always {{ {show.format('last', '')} }} }}"
    other = "workflow other { call workflow deep2 }"
    deep2 = f"workflow deep2 {{ {show.format('nobody', '')} }}"
    bindings = {"identities": {name: {"env": {"WHO": name}} for name in ("developer", "reviewer")}}
    tell = 'echo "<<<FLOW_OUTPUT>>>{\\"context\\": \\"$WHO\\"}<<<END_FLOW_OUTPUT>>>"'
    agent = {"kind": "shell", "command": ["sh", "-c", tell]}
    others = [kid, deep, other, deep2]
    file = lay_out(Program(text=text, others=others, bindings=bindings), tmp_path / "p", {"*": agent})
    with engine() as t:
        t.allow("agent", "shell")
        steps = t.run(str(file))["steps"]
    said = {each["step"]: each["context"] for each in json.loads(steps["all"]["context"])}
    assert said == {
        "own": "",
        "theirs": "developer",
        "mine": "reviewer",
        "asked": "developer",
        "deep": "developer",
        "kid": "developer",
        "deep2": "",
        "other": "",
    }


def test_an_identity_that_nobody_has_is_told_at_the_call_of_the_workflow(tmp_path: Path) -> None:
    program = Program(text="workflow main { call workflow kid { as = ghost } }", others=["workflow kid { call a }"])
    file = lay_out(program, tmp_path / "p")
    assert [(each.code, each.place) for each in playbook(file).unbound] == [("unbound", (1, 31))]


def printed(value: Any) -> dict[str, Any]:
    return {"exit_code": 0, "stdout": json.dumps(value), "stderr": "", "truncated": 0}


def test_gates_of_pull_requests_ask_the_program_gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    text = "workflow main { gate pr_checks { } gate pr_approval { min_approvals = 2 } }"
    file = lay_out(Program(text=text), tmp_path / "p")
    approved = {"author": {"login": "ann"}, "state": "APPROVED"}
    ben, cid = ({**approved, "author": {"login": name}} for name in ("ben", "cid"))
    about = {"author": {"login": "ann"}, "reviewDecision": "APPROVED"}
    with engine() as t:
        checks = [[], [{"state": "PENDING"}], [{"state": "SUCCESS"}, {"state": "SKIPPED"}]]
        t.fake("pr_checks", [printed(each) for each in checks])
        reviews = [[approved, ben, ben], [approved, ben, {**ben, "state": "CHANGES_REQUESTED"}, cid], [ben, cid]]
        t.fake("pr_approval", [printed({**about, "reviews": each}) for each in reviews])
        started = t.start(str(file))
        t.advance("10m")
        assert started.status == "completed"
        assert [call.step for call in t.calls()] == ["pr_checks"] * 3 + ["pr_approval"] * 3
        assert t.calls()[0].config["command"][:3] == ["gh", "pr", "checks"]


def test_the_shortest_way_to_bind_a_gate_asks_a_program_until_it_succeeds(tmp_path: Path) -> None:
    bound = json.loads(json.dumps(yaml.safe_load(how_to_bind("gates", "ready").split("`")[1])))["gates"]["ready"]
    bound["check"]["command"] = ["sh", "-c", 'test "$WHO" = ann && test -e done || { touch done; exit 1; }']
    bindings = {"gates": {"ready": bound}, "identities": {"ann": {"env": {"WHO": "ann"}}}}
    program = Program(text="workflow main { gate ready { timeout = 5m as = ann } }", bindings=bindings)
    file = lay_out(program, tmp_path / "p")
    with engine() as t, here(tmp_path):
        t.allow("shell")
        started = t.start(str(file))
        assert started.status == "waiting"
        t.advance("1m")
        assert started.status == "completed"


def test_all_names_that_nothing_answers_for_are_told_at_once_in_all_files(tmp_path: Path) -> None:
    text = """workflow main {
      call a { as = developer }
      call a
      gate deployed { as = reviewer }
      call workflow kid
      foreach all { over = tickets max_parallel = 1 workflow = "lost" }
    }"""
    others = [
        "workflow kid { call b call workflow deep }",
        "workflow deep { call c }",
        "workflow lost { gate d { } call e }",
    ]
    files = {f".conductor/agents/{name}.md": "Do it" for name in "abce"}
    file = lay_out(Program(text=text, others=others, files=files), tmp_path / "p")
    (file.parent / "refold-bindings.yaml").unlink()
    with pytest.raises(InvalidPlaybook) as refused:
        playbook(file)
    told = "\n".join(each.message for each in refused.value.problems)
    names = ["agent `a`", "agent `b`", "agent `c`", "agent `e`", "gate `deployed`", "gate `d`", "items `tickets`"]
    for name in [*names, "identity `developer`", "identity `reviewer`"]:
        assert told.count(name) == 1, (name, told)
    hints = [each.hint for each in refused.value.problems if "for the agent `b`" in each.message]
    assert hints and "agents: {b:" in hints[0]
