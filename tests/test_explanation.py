"""The drawings of how a run works come from the life tables, and the tables tell what really happens."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.core.facts import PassBegan, Skipped, StepIssued, StepSettled, Took
from refold.core.fold import apply as fold
from refold.core.fold.apply import RUN_LIFE, STEP_LIFE, Life
from refold.core.graph import Graph
from refold.core.state import RunState
from tests.ticks import run_core

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "how-a-run-works.md"
CASES = json.loads((ROOT / "tests" / "vectors" / "routing.json").read_text())["cases"]


def drawn(table: Life, begins: str) -> list[str]:
    """As Mermaid: an arrow from each life to each that a fact may leave, with the fact in words."""
    lines = ["stateDiagram-v2", f"    [*] --> {begins}"]
    told: dict[tuple[str, str], list[str]] = {}
    for kind, (follows, leaves) in table.items():
        words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()
        for before in sorted(follows):
            for after in leaves:
                if _can_be(kind.__name__, before, after):
                    told.setdefault((before, after), []).append(words)
    return lines + [f"    {before} --> {after}: {', '.join(words)}" for (before, after), words in told.items()]


def _can_be(kind: str, before: str, after: str) -> bool:
    """What was bypassed stays so, also when its arcs are taken, and nothing else becomes so then."""
    return kind != "Took" or (before == "bypassed") == (after == "bypassed")


@pytest.mark.parametrize(("table", "begins"), [(RUN_LIFE, "initial"), (STEP_LIFE, "pending")], ids=["run", "step"])
def test_the_page_shows_the_table(table: Life, begins: str) -> None:
    lines = drawn(table, begins)
    shown = re.findall(r"```mermaid\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.S)
    assert "\n".join(lines) in shown, "\n".join(lines)


def test_what_facts_leave_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[type, str, str]] = set()

    def watched(apply: Callable[[Graph, RunState, Any], None]) -> Callable[[Graph, RunState, Any], None]:
        def applied(graph: Graph, state: RunState, fact: Any) -> None:
            names = fact.steps if isinstance(fact, Skipped) else [getattr(fact, "step", None)]
            places = [graph.index[name] for name in names if name is not None]
            before = [state.steps[s].life for s in places]
            apply(graph, state, fact)
            seen.update((type(fact), old, state.steps[s].life) for s, old in zip(places, before, strict=True))

        return applied

    for table in (fold._MOVES, fold._APPLY):
        for kind, apply in list(table.items()):
            if kind in STEP_LIFE and kind is not PassBegan:
                monkeypatch.setitem(table, kind, watched(apply))
    for case in CASES:
        run_core(case["workflow"])
    assert {kind for kind, _, _ in seen} >= {StepIssued, StepSettled, Took, Skipped}
    strange = {each for each in seen if each[1] not in STEP_LIFE[each[0]][0] or each[2] not in STEP_LIFE[each[0]][1]}
    assert strange == set()
