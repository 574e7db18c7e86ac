"""Playbooks and inputs that once hung the engine in a call that no signal ends: each ends, by itself and by signals."""

import signal
from pathlib import Path

import pytest

from tests.cli.program import HEAD, refold, started, until

ENDS = 300.0  # seconds, on a machine that is busy with other things; what hung took hours

pytestmark = pytest.mark.timeout(1_000)

ZEROS = "{{ ('%' ~ '0' * 200000) | format(1) }}"
DOUBLING = """$defs: {a: {allOf: [{properties: {x: {$ref: '#/$defs/a'}}}, {properties: {x: {$ref: '#/$defs/a'}}}]}}
        $ref: '#/$defs/a'"""
CODE = "value = 1\nfor _ in range(60): value = {'x': value}\nresult = value"

STEPS = {
    "a format of zeros": f'tool: {{kind: shell, command: [echo, "{ZEROS}"]}}',
    "a pattern that backtracks": """tool: {kind: python, code: "result = 'a' * 100 + '!'"}
    output: {schema: {type: string, pattern: '^(a+)+$'}}""",
    "a schema whose work doubles": f"""tool:
      kind: python
      code: |
        {CODE.replace(chr(10), chr(10) + 8 * " ")}
    output:
      schema:
        {DOUBLING}""",
    "a schema without end": """tool: {kind: python, code: "result = 1"}
    output: {schema: {properties: {a: {$ref: '#/properties/a'}}, anyOf: [{$ref: '#/properties/b'}]}}""",
}

BEFORE = """  - {step: first, tool: {kind: noop}, next: [before, slow]}
  - step: slow
    tool: {kind: shell, command: [sh, -c, 'touch begun; while test ! -f go; do sleep 0.02; done']}
  - step: before
    tool: {kind: shell, command: [sh, -c, 'while test ! -f begun; do sleep 0.02; done; touch near']}
    next: hostile
"""


def written(folder: Path, step: str, slow: bool) -> str:
    hostile = f"  - step: hostile\n    {step}\n"
    text = BEFORE + hostile if slow else hostile
    (folder / "play.yaml").write_text(HEAD + text)
    return "play.yaml"


@pytest.mark.parametrize("name", STEPS)
def test_a_run_with_hostile_text_ends_with_a_failure_of_its_step(tmp_path: Path, name: str) -> None:
    with started(tmp_path, "run", written(tmp_path, STEPS[name], slow=False), "--name", "mine") as process:
        _, err = process.communicate(timeout=ENDS)
    assert process.returncode in (1, 2), err
    assert "Traceback" not in err and "internal" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", [name for name in STEPS if name != "a schema without end"])
def test_a_signal_ends_a_run_with_hostile_text(tmp_path: Path, name: str, number: signal.Signals) -> None:
    with started(tmp_path, "run", written(tmp_path, STEPS[name], slow=True), "--name", "mine") as process:
        until((tmp_path / "near").exists, ENDS)
        process.send_signal(number)
        _, err = process.communicate(timeout=ENDS)
    assert process.returncode == 128 + number, err


def test_inputs_with_a_pattern_that_backtracks_are_refused_at_once(tmp_path: Path) -> None:
    inputs = "inputs: {word: {type: string, pattern: '^(a+)+$'}}\n"
    (tmp_path / "play.yaml").write_text(inputs + HEAD + "  - {step: a, tool: {kind: noop}}\n")
    with started(tmp_path, "run", "play.yaml", "--input", "word=" + "a" * 100 + "!") as process:
        _, err = process.communicate(timeout=ENDS)
    assert process.returncode == 2 and "does not match" in err


def ladder(steps: int) -> str:
    arcs = [
        ", ".join(
            f"{{step: s{to}{when}}}"
            for to, when in ((s - 1, ", when: '{{ visit < 3 }}'"), (s + 1, ""))
            if 0 <= to < steps
        )
        for s in range(steps)
    ]
    return HEAD + "".join(
        f"  - {{step: s{s}, tool: {{kind: noop}}, next: {{arcs: [{each}]}}}}\n" for s, each in enumerate(arcs)
    )


FILES = {
    "a ladder of back arcs": ladder(2_000),
    "a default with a pattern that backtracks": "inputs: {word: {pattern: '^(a+)+$'}}\nworkload: {word: "
    + "a" * 100
    + "!}\n"
    + HEAD
    + "  - {step: a, tool: {kind: noop}}\n",
    "a condition of escaped quotes": HEAD
    + "  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b, when: \"{{ '"
    + "\\\\'" * 60_000
    + ' }}"}]}}\n  - {step: b, tool: {kind: noop}}\n',
    "a condition with a format of zeros": HEAD
    + f'  - {{step: a, tool: {{kind: noop}}, next: {{arcs: [{{step: b, when: "{ZEROS}"}}]}}}}\n'
    + "  - {step: b, tool: {kind: noop}}\n",
    "a pattern that looks around": HEAD
    + "  - {step: a, tool: {kind: noop}, output: {schema: {pattern: '^(?=a)(a+)+$'}}}\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_validated_and_signals_end_that(tmp_path: Path, name: str) -> None:
    (tmp_path / "play.yaml").write_text(FILES[name])
    with started(tmp_path, "validate", "play.yaml") as process:
        out, err = process.communicate(timeout=ENDS)
    assert process.returncode in (0, 2) and "Traceback" not in out + err, err[-2000:]
    for number, codes in ((signal.SIGTERM, (143, -15)), (signal.SIGINT, (130, -2))):
        with started(tmp_path, "validate", "play.yaml") as process:
            process.send_signal(number)
            process.communicate(timeout=ENDS)
        assert process.returncode in (*codes, 0, 2)


def test_a_pattern_that_cannot_be_used_is_told_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(FILES["a pattern that looks around"])
    done = refold(tmp_path, "validate", "play.yaml")
    assert done.code == 2
    assert "play.yaml:5:62: error[bad-schema]" in done.err + done.out
    assert (
        "it looks around" in done.err + done.out and "hint: patterns are matched in bounded time" in done.err + done.out
    )
