"""Workflow data: one canonical form, one hash, and everything that makes a plan unfit to run."""

from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.core.graph import analyse
from refold.core.plan import (
    VISIT_LIMIT,
    Arc,
    Call,
    Gate,
    Loop,
    Plan,
    Retry,
    Step,
    Wait,
    bare_key,
    canonical,
    normalised,
    plan_hash,
    read_plan,
)
from refold.errors import InvalidPlan
from tests.core.acts import plan, step

ONE = plan(step("a"))


def problems(unfit: Plan) -> tuple[str, ...]:
    with pytest.raises(InvalidPlan) as refused:
        analyse(unfit)
    return refused.value.problems


def test_the_canonical_form_has_sorted_keys_and_leaves_defaults_out() -> None:
    arc = Arc(to="a", when={"z": 1, "b": 2}, on="failure")
    assert canonical(plan(step("a", arc, timeout=1.5, mode="inclusive"))) == (
        b'{"name":"plan","steps":[{"arcs":[{"on":"failure","to":"a","when":{"b":2,"z":1}}],'
        b'"mode":"inclusive","name":"a","timeout":1.5}]}'
    )


def test_the_order_in_which_keys_were_written_is_not_in_the_hash() -> None:
    one, other = plan(step("a", set={"x": 1, "y": 2})), plan(step("a", set={"y": 2, "x": 1}))
    assert plan_hash(one) == plan_hash(other)


def test_a_plan_that_is_started_has_its_keys_in_the_order_of_the_stored_one() -> None:
    written = plan(Step(name="a", work=Call(tool="t", settings={"z": 1, "a": {"y": 2, "b": 3}})))
    started, data = normalised(written)
    assert repr(started) == repr(read_plan(data)) != repr(written)


def test_the_order_of_steps_and_of_arcs_is_in_the_hash() -> None:
    a, b = step("a", "b", "c"), step("a", "c", "b")
    assert plan_hash(plan(a, step("b"), step("c"))) != plan_hash(plan(b, step("b"), step("c")))
    assert plan_hash(plan(a, step("b"), step("c"))) != plan_hash(plan(a, step("c"), step("b")))


@pytest.mark.parametrize(
    "spelt_out",
    [
        {"retry": Retry(attempts=1, delay=0.0)},
        {"work": Call(tool="".join(["no", "op"]), settings={})},
        {"visit_limit": int(str(VISIT_LIMIT))},
        {"queue": "".join([])},
        {"join": "all", "mode": "exclusive", "set": {}, "arcs": ()},
    ],
)
def test_a_default_that_is_spelt_out_is_the_default(spelt_out: dict[str, Any]) -> None:
    assert plan_hash(plan(Step(name="a", **spelt_out))) == plan_hash(ONE)


def test_a_default_inside_the_work_is_left_out_too() -> None:
    gate = Gate(options=tuple(["approve", "reject"]))
    assert plan_hash(plan(step("a", work=gate))) == plan_hash(plan(step("a", work=Gate())))
    assert plan_hash(plan(step("a", work=gate))) != plan_hash(ONE)


def test_a_whole_number_of_seconds_is_the_same_as_the_fraction_it_equals() -> None:
    whole, fraction = plan(step("a", timeout=5)), plan(step("a", timeout=5.0))
    assert plan_hash(whole) == plan_hash(fraction) == plan_hash(read_plan(canonical(whole)))


@pytest.mark.parametrize(
    "other",
    [
        plan(step("b")),
        plan(step("a"), timeout=1.0),
        plan(step("a", "a")),
        plan(step("a", work=Call(tool="shell"))),
        plan(step("a", work=Wait(seconds=1))),
        plan(step("a", loop=Loop(items=[1]))),
        plan(step("a"), defaults={"n": 1}),
        plan(step("a", input=False)),
    ],
)
def test_whatever_a_plan_says_is_in_its_hash(other: Plan) -> None:
    assert plan_hash(other) != plan_hash(ONE)


@for_all(
    st.builds(
        Step,
        name=st.text("abc", min_size=1),
        timeout=st.none() | st.integers(1, 9) | st.floats(0.5, 9),
        retry=st.builds(
            Retry, attempts=st.integers(1, 3), delay=st.integers(0, 2), on=st.just(("lost",)) | st.just(())
        ),
        work=st.builds(Call)
        | st.builds(Gate, options=st.just(("approve", "reject")))
        | st.builds(Wait, seconds=st.just(1)),
        priority=st.integers(-1, 1),
        input=st.none() | st.dictionaries(st.text("xy"), st.integers() | st.text(max_size=2)),
    )
)
def test_a_plan_that_was_stored_is_the_plan_it_was(one: Step) -> None:
    there_and_back = read_plan(canonical(plan(one)))
    assert there_and_back == plan(one)
    assert canonical(there_and_back) == canonical(plan(one))


def test_a_plan_with_an_unknown_key_is_not_read() -> None:
    with pytest.raises(ValueError, match="unknown field `whne`"):
        read_plan(b'{"name":"p","steps":[{"name":"a","whne":1}]}')


@pytest.mark.parametrize(
    ("unfit", "message"),
    [
        (plan(), "workflow 'plan' has no steps"),
        (plan(step("a"), step("a")), "two steps are called 'a'"),
        (plan(step("a", "b")), "step 'a' leads to 'b', which does not exist"),
        (plan(step("a"), entry="b"), "there is no step 'b'"),
        (plan(step("a"), always=("b",)), "there is no step 'b'"),
        (plan(step("a"), on_fail=("b",)), "there is no step 'b'"),
        (plan(step("a"), final_step="b"), "there is no step 'b'"),
        (plan(step("a"), always=("a",)), "the entry 'a' is a finalizer"),
        (plan(step("a", "b"), step("b"), always=("b",)), "arc 'a' -> 'b': a finalizer has no arcs"),
        (plan(step("a"), step("b", "a"), always=("b",)), "arc 'b' -> 'a': a finalizer has no arcs"),
        (plan(step("a"), step("b"), always=("b",), final_step="b"), "'b' is a finalizer twice"),
        (plan(step("a"), step("b"), always=("b", "b")), "'b' is a finalizer twice"),
        (plan(step("a/b")), "'a/b' is not a name for a step: it must not be empty or contain '/' or '#'"),
        (plan(step("a#b")), "'a#b' is not a name for a step: it must not be empty or contain '/' or '#'"),
        (plan(step("")), "'' is not a name for a step: it must not be empty or contain '/' or '#'"),
        (plan(step("a", "b"), step("b", join=2)), "step 'b' waits for 2 sources but has 1"),
        (plan(step("a", "b", "b"), step("b", join=2)), "step 'b' waits for 2 sources but has 1"),
        (plan(step("a", join=0)), "step 'a' waits for 0 sources; at least 1 is needed"),
        (plan(step("a", retry=Retry(attempts=0))), "step 'a' has 0 attempts; at least 1 is needed"),
        (plan(step("a", visit_limit=0)), "step 'a' has a visit limit of 0; at least 1 is needed"),
        (plan(step("a", loop=Loop(items=[], max_in_flight=0))), "step 'a' has max_in_flight 0; at least 1 is needed"),
        (plan(step("a"), timeout=-1.0), "the timeout of workflow 'plan' is -1 s; it must lie between 0 and 100 years"),
        (plan(step("a", timeout=1e305)), "the timeout of step 'a' is 1e+305 s; it must lie between 0 and 100 years"),
        (
            plan(step("a", retry=Retry(delay=1e12))),
            "the retry delay of step 'a' is 1e+12 s; it must lie between 0 and 100 years",
        ),
        (
            plan(step("a", retry=Retry(max_delay=-2))),
            "the longest retry delay of step 'a' is -2 s; it must lie between 0 and 100 years",
        ),
        (
            plan(step("a", work=Gate(timeout=1e12))),
            "the gate of step 'a' is 1e+12 s; it must lie between 0 and 100 years",
        ),
        (plan(step("a", work=Gate(), loop=Loop(items=[]))), "step 'a' loops over a gate, which has no items"),
        (plan(step("a", work=Wait(seconds=1), loop=Loop(items=[]))), "step 'a' loops over a wait, which has no items"),
    ],
)
def test_an_unfit_plan_is_refused_with_the_reason(unfit: Plan, message: str) -> None:
    assert problems(unfit) == (message,)


def test_all_that_is_wrong_with_a_plan_is_told_at_once() -> None:
    assert problems(plan(step("a", "x", visit_limit=0), step("a"), entry="y")) == (
        "step 'a' has a visit limit of 0; at least 1 is needed",
        "two steps are called 'a'",
        "there is no step 'y'",
        "step 'a' leads to 'x', which does not exist",
    )


def test_the_entry_may_ask_for_more_sources_than_it_has_because_it_is_entered_without_asking() -> None:
    assert analyse(plan(step("a", join=2))).entry == 0


@pytest.mark.parametrize(
    ("key", "bare"),
    [("ctx.n", "n"), ("iter.n", "n"), ("step.n", "n"), ("n", "n"), ("a.n", "a.n"), ("ctx.ctx.n", "ctx.n")],
)
def test_a_scope_before_a_key_is_only_a_spelling(key: str, bare: str) -> None:
    assert bare_key(key) == bare
