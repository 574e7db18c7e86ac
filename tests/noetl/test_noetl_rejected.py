"""What NoETL files may not say: each is an error with a place, and with what to write instead."""

import pytest

from refold.playbooks.noetl.kinds import FOREIGN
from refold.tools.catalog import CATALOG
from tests.noetl.house import errors, problems

REJECTED = {
    "root vars": ("vars: {a: 1}\nworkflow: [{step: a}]", "old-key", "workload"),
    "step type": ("workflow: [{step: a, type: python}]", "old-key", "kind"),
    "step case": ("workflow: [{step: a, case: []}]", "old-key", "arcs"),
    "step retry": ("workflow: [{step: a, retry: {max: 3}}]", "old-key", "rules"),
    "step sink": ("workflow: [{step: a, sink: {}}]", "old-key", "step"),
    "step eval": ("workflow: [{step: a, eval: []}]", "old-key", "arcs"),
    "step expr": ("workflow: [{step: a, expr: x}]", "old-key", "arcs"),
    "step set_vars": ("workflow: [{step: a, set_vars: {}}]", "old-key", "set"),
    "step vars": ("workflow: [{step: a, vars: {}}]", "old-key", "set"),
    "arc cond": ("workflow: [{step: a, next: {arcs: [{step: a, cond: x}]}}]", "old-key", "when"),
    "rule eval": (
        "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{eval: x, then: {do: fail}}]}}}}]",
        "old-key",
        "when",
    ),
    "rule expr": (
        "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{expr: x, then: {do: fail}}]}}}}]",
        "old-key",
        "when",
    ),
    "tool eval": (
        "workflow: [{step: a, tool: {kind: noop, eval: [{expr: x, do: retry}]}}]",
        "old-key",
        "rules",
    ),
    "workbook sink": ("workbook: [{name: x, tool: {kind: noop}, sink: {}}]\nworkflow: [{step: a}]", "old-key", "step"),
    "two steps of one name": ("workflow: [{step: a}, {step: a}]", "duplicate-step", ""),
    "an unknown key of a step": ("workflow: [{step: a, nxt: {}}]", "unknown-key", "next"),
    "an unknown key of a loop": (
        "workflow: [{step: a, loop: {in: [1], iteratr: n}, tool: {kind: noop}}]",
        "unknown-key",
        "iterator",
    ),
    "an unknown key of next": ("workflow: [{step: a, next: {arcs: [], arc: x}}]", "unknown-key", "arcs"),
    "an unknown key of an arc": ("workflow: [{step: a, next: {arcs: [{step: a, whn: x}]}}]", "unknown-key", "when"),
    "an unknown key of a rule": (
        "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{whne: x, then: {do: fail}}]}}}}]",
        "unknown-key",
        "when",
    ),
    "an unknown mode": ("workflow: [{step: a, next: {spec: {mode: both}, arcs: []}}]", "bad-choice", "inclusive"),
    "an unknown on_no_match": (
        "workflow: [{step: a, next: {spec: {on_no_match: x}, arcs: []}}]",
        "bad-choice",
        "quiet",
    ),
    "an unknown kind": ("workflow: [{step: a, tool: {kind: pyton, code: x}}]", "unknown-tool", "python"),
    "a tool that is a text": ("workflow: [{step: a, tool: python}]", "wrong-type", "kind"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_rejected_is_named_with_its_replacement(name: str) -> None:
    text, code, hint = REJECTED[name]
    found = [each for each in problems(text) if each.severity == "error"]
    assert [each.code for each in found] == [code]
    assert hint in f"{found[0].hint} {found[0].message}" and found[0].place.line >= 4


@pytest.mark.parametrize("kind", sorted(FOREIGN.keys() - CATALOG.keys()))
def test_a_kind_of_noetl_that_is_not_here_is_an_error_that_says_so(kind: str) -> None:
    found = errors(f"workflow: [{{step: a, tool: {{kind: {kind}, action: x}}}}]")
    assert found == [("unsupported-tool", f"`{kind}` is a tool of NoETL that Refold has not")]


def test_every_kind_that_is_accepted_can_be_run_and_the_other_way_round() -> None:
    """One registry for both."""
    for kind in CATALOG:
        found = [code for code, _ in errors(f"workflow: [{{step: a, tool: {{kind: {kind}}}}}]")]
        assert "unknown-tool" not in found and "unsupported-tool" not in found


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "workflow:\n  - {step: a, type: x}\n  - {step: b, next: {arcs: [{step: c}]}}\n  - {stp: d}\n"
    found = [(each.code, each.place.line) for each in problems(text) if each.severity == "error"]
    assert [line for _, line in found] == sorted(line for _, line in found) and len(found) >= 3
