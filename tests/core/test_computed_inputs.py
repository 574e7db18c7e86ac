"""Inputs that a workflow computes from those that are given, once, at the start of a run."""

from typing import Any

import pytest

from refold.core.decide.inputs import merged, started_with
from refold.core.expressions import CannotEvaluate
from refold.core.plan import Plan, Step
from refold.templates import Templates

CHAINABLE = Templates("chainable")


def computed(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    plan = Plan(name="p", steps=(Step(name="a"),), defaults=defaults, computed=True)
    return started_with(plan, "run-7", given, CHAINABLE)


def test_maps_are_merged_deeply_and_lists_are_replaced() -> None:
    under = {"db": {"host": "a", "port": 1, "tags": [1]}, "n": 1}
    assert merged(under, {"db": {"port": 2, "tags": [2]}, "m": 3}) == {
        "db": {"host": "a", "port": 2, "tags": [2]},
        "n": 1,
        "m": 3,
    }
    assert computed({"db": {"host": "a", "port": 1}}, {"db": {"port": 2}}) == {"db": {"host": "a", "port": 2}}


def test_defaults_read_what_is_given_each_other_and_the_run() -> None:
    defaults = {
        "url": "http://{{ host }}/{{ workload.path }}",
        "path": "v{{ input.version }}",
        "host": "here",
        "job": "{{ job.uuid }}",
        "id": "{{ execution_id }}",
    }
    assert computed(defaults, {"version": 2, "host": "there"}) == {
        "url": "http://there/v2",
        "path": "v2",
        "host": "there",
        "job": "run-7",
        "id": "run-7",
        "version": 2,
    }


def test_what_is_given_is_data_and_never_rendered() -> None:
    assert computed({"a": "{{ 1 + 1 }}"}, {"a": "{{ 7 * 7 }}", "b": {"c": "{{ 7 * 7 }}"}}) == {
        "a": "{{ 7 * 7 }}",
        "b": {"c": "{{ 7 * 7 }}"},
    }


def test_inputs_that_need_each_other_are_refused_with_the_way() -> None:
    with pytest.raises(CannotEvaluate, match=r"workload\.a needs itself: a -> b -> a"):
        computed({"a": "{{ b }}", "b": "{{ a }}"}, {})
    assert computed({"a": "{{ b }}", "b": "{{ a }}"}, {"b": 1}) == {"a": 1, "b": 1}


def test_an_error_names_the_input() -> None:
    with pytest.raises(CannotEvaluate, match=r"workload\.n: .*zero"):
        computed({"n": "{{ 1 // 0 }}"}, {})


def test_a_workflow_that_computes_nothing_keeps_what_is_given() -> None:
    plan = Plan(name="p", steps=(Step(name="a"),), defaults={"a": "{{ 1 }}"})
    assert started_with(plan, "r", {"b": 2}, CHAINABLE) == {"b": 2}


def test_only_noetls_language_has_names_for_the_run() -> None:
    plan = Plan(name="p", steps=(Step(name="a"),), defaults={"id": "{{ execution_id }}"}, computed=True)
    assert started_with(plan, "run-7", {}, CHAINABLE) == {"id": "run-7"}
    with pytest.raises(CannotEvaluate, match=r"workload\.id: .*execution_id"):
        started_with(plan, "run-7", {}, Templates("strict"))
