"""The vectors of the language of `.wf` files, each run by the engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.wf.programs import Program, problems, run, warnings

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "wf.json").read_text())["cases"]


def program_of(case: dict[str, Any]) -> Program:
    given = case.get("given", {})
    return Program(
        text=case["text"],
        others=case.get("others", ()),
        schemas=case.get("schemas", {}),
        inputs=case.get("inputs", {}),
        **given,
    )


ERRORS = [case for case in CASES if "error" in case["want"] or "errors" in case["want"]]
RUNS = [case for case in CASES if "status" in case["want"] and "kill" not in case]


@pytest.mark.parametrize("case", ERRORS, ids=[each["name"] for each in ERRORS])
def test_errors_have_their_code_and_their_place(case: dict[str, Any], tmp_path: Path) -> None:
    want = case["want"]
    errors = want.get("errors") or [[want["error"], *want["at"]]]
    if "at" not in want and "errors" not in want:
        errors = [[want["error"]]]
    found = problems(program_of(case), tmp_path / "project")
    assert [[code, line, column] for code, line, column in found] == errors


@pytest.mark.parametrize("case", RUNS, ids=[each["name"] for each in RUNS])
def test_programs_do_what_they_say(case: dict[str, Any], tmp_path: Path) -> None:
    want = case["want"]
    done = run(program_of(case), tmp_path / "project")
    found = {key: getattr(done, key) for key in want if key not in ("names", "warnings")}
    assert found == {key: value for key, value in want.items() if key not in ("names", "warnings")}, done.why
    if "names" in want:
        assert want["names"] in done.names[0]
    if "warnings" in want:
        places = [[line, column] for _, line, column in warnings(program_of(case), tmp_path / "again")]
        assert places == want["warnings"]
