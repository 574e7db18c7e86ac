"""The names an expression can read: what goes before what, and that only what is named is looked up."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate, Missing
from refold.core.facts import Fact, RunStarted
from refold.core.outcomes import Blob, SetKey, Succeeded
from refold.core.plan import Loop
from refold.core.read.loaded import Loaded
from refold.core.read.template_scope import RunScope, capture, with_sets
from refold.core.state import RunState
from refold.testing.core import failed, reported, succeeded
from tests.core.acts import Given, plan, step

PLAN = plan(step("s", "a", "n", mode="inclusive"), step("a"), step("n"), defaults={"d": "default"})


def view_of(*facts: Fact, extra: Mapping[str, Any] | None = None, **input: Any) -> RunScope:
    run = Given(PLAN, run="the run")
    run.when(RunStarted("hash", input, name="named"))
    for fact in facts:
        run.when(fact)
    return RunScope(run.graph, run.state, Loaded(), extra or {})


S_DONE = reported("s", Succeeded("of s"), writes=(SetKey("x", "ctx"),))


def test_context_goes_before_results_and_these_before_the_input() -> None:
    a_done = reported("a", Succeeded("result"), writes=(SetKey("a", "ctx"),))
    assert view_of(x="input")["x"] == "input"
    assert view_of(S_DONE, succeeded("a", "result"), a="input")["a"] == "result"
    assert view_of(S_DONE, a_done, a="input")["a"] == "ctx"
    assert view_of(S_DONE, x="input")["x"] == "ctx"


def test_what_the_moment_adds_goes_before_everything() -> None:
    assert view_of(S_DONE, extra={"x": "now"}, x="input")["x"] == "now"
    assert view_of(extra={"visit": 3}, visit="input")["visit"] == 3


@pytest.mark.parametrize("name", ["input", "workload", "ctx", "steps", "run"])
def test_reserved_names_cannot_be_hidden_by_context_or_input(name: str) -> None:
    hides = reported("s", Succeeded(), writes=(SetKey(name, "hidden"),))
    hidden: dict[str, Any] = {name: "hidden"}
    assert view_of(hides, **hidden)[name] != "hidden"


def test_reserved_names_hold_what_they_say() -> None:
    view = view_of(S_DONE, n=1)
    assert view["input"] == view["workload"] == {"d": "default", "n": 1}
    assert view["ctx"] == {"x": "ctx"}
    assert (view["run"]["id"], view["run"]["name"]) == ("the run", "named")
    assert dict(view["run"])["counts"] == {"total": 3, "completed": 1, "issued": 2}
    assert view["run"]["failures"] == []
    assert dict(view["steps"]) == {"s": "of s"}


def test_a_step_without_a_result_is_not_defined_and_leaves_its_name_to_the_input() -> None:
    assert view_of(S_DONE, n="input")["n"] == "input"
    with pytest.raises(CannotEvaluate, match="'n' is not defined"):
        view_of(S_DONE)["n"]
    with pytest.raises(KeyError):
        view_of(S_DONE)["steps"]["n"]
    with pytest.raises(KeyError):
        view_of(S_DONE)["steps"]["nobody"]


def test_a_result_of_none_is_a_result() -> None:
    assert view_of(succeeded("s", None), s="input")["s"] is None


def test_a_failed_step_has_no_result() -> None:
    assert "a" not in view_of(S_DONE, failed("a"))["steps"]


def test_a_value_in_a_blob_is_asked_for_only_when_its_name_is_read() -> None:
    view = view_of(reported("s", Succeeded(blob=Blob("far away", 70_000))), n=1)
    assert view["n"] == 1
    assert list(view["steps"]) == ["s"]
    with pytest.raises(Missing) as missing:
        view["s"]
    assert missing.value.blobs == {"far away"}


def test_results_of_items_are_asked_for_by_the_facts_that_hold_them() -> None:
    looped = plan(step("a", "b", loop=Loop(items=[0, 1])), step("b"))
    run = Given(looped)
    run.when(RunStarted("hash"))
    run.when(succeeded("a", "x", item=0))
    run.when(succeeded("a", "y", item=1))
    value = RunScope(run.graph, run.state, Loaded(), {})["a"]
    assert value["stats"] == {"total": 2, "success": 2, "failed": 0}
    with pytest.raises(Missing) as missing:
        value["results"]
    loaded = Loaded(facts={number: run.log[number - 1][2] for number in missing.value.facts})
    assert RunScope(run.graph, run.state, loaded, {})["a"]["results"] == ["x", "y"]


class Touchy(Mapping[str, Any]):
    """Counts what is read of it, and breaks if it is read as a whole."""

    def __init__(self, **values: Any) -> None:
        self.values_, self.read = values, list[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.append(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("read as a whole")

    def __len__(self) -> int:
        return len(self.values_)


def test_only_the_named_paths_are_looked_up() -> None:
    deep, other = Touchy(x=1, y=2), Touchy()
    top = Touchy(deep=deep, other=other)
    view = RunScope(view_of().graph, RunState(run="run", ctx={"top": top}), Loaded(), {})
    assert capture(view, [("top", "deep", "x"), ("top", "nobody"), ("elsewhere",)], frozenset()) == {
        "top": {"deep": {"x": 1}}
    }
    assert (top.read, deep.read, other.read) == (["nobody", "deep"], ["x"], [])


CTX = {"a": {"b": {"c": 1, "d": 2}, "e": 3}, "l": [{"x": 1}], "t": "text"}


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ([("a",)], {"a": CTX["a"]}),
        ([("a", "b", "c")], {"a": {"b": {"c": 1}}}),
        ([("a", "e"), ("a", "b", "d")], {"a": {"e": 3, "b": {"d": 2}}}),
        ([("a", "b", "c"), ("a", "b")], {"a": {"b": {"c": 1, "d": 2}}}),
        ([("a",), ("a", "b", "none")], {"a": CTX["a"]}),
        ([("a", "none")], {"a": {}}),
        ([("a", "none", "deeper")], {"a": {}}),
        ([("l", "0", "x")], {"l": [{"x": 1}]}),
        ([("t", "upper")], {"t": "text"}),
        ([("nobody", "x")], {}),
        ([("item", "a"), ("t",)], {"t": "text"}),
    ],
)
def test_a_capture_holds_what_its_paths_name_and_nothing_else(paths: list[tuple[str, ...]], found: Any) -> None:
    state = RunState(
        run="run", ctx={"a": {"b": {"c": 1, "d": 2}, "e": 3}, "l": [{"x": 1}], "t": "text", "item": {"a": 1}}
    )
    view = RunScope(view_of().graph, state, Loaded(), {})
    assert capture(view, paths, frozenset({"item"})) == found


class Sealed(dict[str, Any]):
    """Breaks if somebody writes into it."""

    def __setitem__(self, name: str, value: Any) -> None:
        raise AssertionError("written into")


def test_a_capture_never_writes_into_what_it_looks_at() -> None:
    sealed = Sealed(d=1)
    ctx = {"a": {"b": {"c": sealed}}}
    view = RunScope(view_of().graph, RunState(run="run", ctx=ctx), Loaded(), {})
    assert capture(view, [("a", "b", "c", "d"), ("a", "b", "c"), ("a",)], frozenset()) == {"a": {"b": {"c": {"d": 1}}}}
    assert ctx["a"]["b"]["c"] is sealed


def test_what_is_about_to_be_set_is_read_as_if_it_were_set() -> None:
    view = view_of(S_DONE, extra={"visit": 1}, n=1)
    later = with_sets(view, {"x": "new", "visit": "hidden", "n": 2})
    assert (later["x"], later["n"], later["visit"]) == ("new", 2, 1)
    assert dict(later["ctx"]) == {"x": "new", "visit": "hidden", "n": 2}
    assert (view["x"], view["n"]) == ("ctx", 1)
