"""Agents on the command line: files of bindings, one program for all agents, and simulated replies."""

import json
from pathlib import Path

from tests.cli.program import playbook, refold

REVIEW = """\
step: review
tool:
  kind: agent
  agent: reviewer
  prompt: "Is {{ workload.what }} fine?"
  schema: {type: object, properties: {verdict: {enum: [pass, fail]}}, required: [verdict]}
next:
  arcs: [{step: good, when: "{{ output.data.output.verdict == 'pass' }}"}, {step: bad}]
"""
ENDS = ("step: good\ntool: {kind: noop, result: good}", "step: bad\ntool: {kind: noop, result: bad}")
GIVEN = ("-i", "what=it", "-q")


def test_the_file_of_bindings_next_to_a_playbook_says_who_answers(tmp_path: Path) -> None:
    file = playbook(tmp_path, REVIEW, *ENDS)
    unbound = refold(tmp_path, "run", file, *GIVEN)
    assert unbound.code == 2 and "no tool is bound to the agent `reviewer`" in unbound.err
    answer = 'echo "{\\"verdict\\": \\"$0\\"}"'
    for name, verdict in (("refold-bindings.yaml", "pass"), ("other.yaml", "fail")):
        bound = {"agents": {"review*": {"kind": "shell", "command": ["sh", "-c", answer, verdict]}}}
        (tmp_path / name).write_text(json.dumps(bound))
    assert refold(tmp_path, "run", file, *GIVEN).out == "good\n"
    assert refold(tmp_path, "run", file, *GIVEN, "--bindings", "other.yaml").out == "bad\n"


def test_a_command_answers_for_all_agents_and_gets_the_prompt_on_its_standard_input(tmp_path: Path) -> None:
    file = playbook(tmp_path, REVIEW, *ENDS)
    (tmp_path / "say.sh").write_text('read -r line; test "$line" = "Is it fine?" && echo \'{"verdict": "pass"}\'')
    assert refold(tmp_path, "run", file, *GIVEN, "--agent", "sh say.sh").out == "good\n"
    wrong = refold(tmp_path, "run", file, *GIVEN, "--agent", "sh 'say")
    assert wrong.code == 2 and "is not a command" in wrong.err


def test_replies_of_agents_are_made_up_by_their_schema_in_a_simulation(tmp_path: Path) -> None:
    file = playbook(tmp_path, REVIEW, *ENDS)
    told = refold(tmp_path, "sim", file, "-i", "what=it", "-n", "20", "--agent", "false")
    assert told.code == 0 and "made up: the results of review" in told.out


def test_each_task_of_a_list_reads_why_the_last_try_of_the_step_failed(tmp_path: Path) -> None:
    step = """\
step: a
tool:
  - {name: x, kind: noop, result: "{{ _last_error }}"}
  - {name: y, kind: python, code: "result = context['last_error'] or 1 / 0"}
  - {name: z, kind: noop, result: ["{{ x }}", "{{ y }}", "{{ _last_error }}"]}
retry: {attempts: 2, delay: 0}
"""
    told = refold(tmp_path, "run", playbook(tmp_path, step), "-q", "-i", "what=it", "-o", "json")
    assert json.loads(told.out)["result"]["z"] == ["division by zero"] * 3, told.err
