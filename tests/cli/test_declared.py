"""What a playbook declares, on the command line: refused runs, and problems as editors read them."""

from pathlib import Path

from tests.cli.program import refold

PLAY = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: declared}
inputs: {city: {type: string, required: true}}
workflow:
  - step: a
    tool: {kind: noop, result: "{{ ctiy }}"}
"""


def test_a_run_that_is_not_given_what_it_needs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(PLAY.replace("ctiy", "city"))
    for more in ([], ["--dry-run"], ["--detach"]):
        done = refold(tmp_path, "run", "play.yaml", *more)
        assert done.code == 2 and "input `city`: `declared` needs it" in done.err, more
    assert refold(tmp_path, "runs", "list", "-o", "json").data == []


def test_problems_have_all_that_an_editor_needs(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(PLAY)
    assert refold(tmp_path, "validate", "play.yaml", "-o", "json").data == [
        {
            "file": "play.yaml",
            "line": 7,
            "column": 36,
            "end_column": 40,
            "severity": "error",
            "code": "unknown-name",
            "message": "`ctiy` is not defined here",
            "hint": "did you mean `city`?",
        }
    ]
