"""The 33 cases of JamJet files: what is refused and where, and how the others end."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.playbooks.problems import InvalidPlaybook
from tests.jamjet.house import play, read_text

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "jamjet.json").read_text())["cases"]
REFUSED = [case for case in CASES if "refused" in case["want"]]
PLAYED = [case for case in CASES if "refused" not in case["want"]]


@pytest.mark.parametrize("case", REFUSED, ids=[case["name"] for case in REFUSED])
def test_a_file_is_refused_with_its_reason_at_its_node(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlaybook) as refused:
        read_text(case["text"])
    errors = [each for each in refused.value.problems if each.severity == "error"]
    assert [each.code for each in errors] == [case["want"]["refused"]]
    assert f"`{case['want']['node']}`" in errors[0].message
    assert 1 <= errors[0].place.line <= case["text"].count("\n") + 1


@pytest.mark.parametrize("case", PLAYED, ids=[case["name"] for case in PLAYED])
def test_a_file_ends_as_the_case_says(case: dict[str, Any]) -> None:
    played = play(read_text(case["text"]), case.get("state", {}), case.get("given", {}))
    want = case["want"]
    assert played.visits == want["visits"], played.run.story()
    assert played.status == want["status"]
    assert played.status == "failed" or played.skipped == sorted(want.get("skipped", []))
    assert played.error == want.get("error")
    assert played.gates == want.get("gates", [])
    for node, tries in want.get("tries", {}).items():
        assert played.tries[node] == tries
    if "state" in want:
        assert played.result == want["state"]
    for key, value in want.get("keys", {}).items():
        assert played.result[key] == value


def test_all_cases_are_there() -> None:
    assert len(CASES) == 33
