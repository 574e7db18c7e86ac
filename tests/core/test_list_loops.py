"""Fan-outs over a list: windows, order, what is captured when, and what a failed item does to the rest."""

from typing import Any

from refold.core.commands import child_id
from refold.core.expressions import CannotEvaluate, TemplateScope
from refold.core.facts import ChildEnded, FanOutEntered, ItemsGivenUp, ItemsIssued, ItemsRetried, ItemsSettled, Took
from refold.core.outcomes import Failed, Fault, Report, SetKey, Succeeded
from refold.core.plan import Arc, Child, Loop, Plan, Retry
from refold.testing.core import Scripted, failed, issued, reported, started, succeeded
from tests.core.acts import Given, Then, plan, start, step


def at(*path: str) -> dict[str, object]:
    return {"path": list(path)}


def looped(items: Any, *to: str, input: Any = None, retry: Retry | None = None, **loop: Any) -> Plan:
    return plan(step("a", *to, loop=Loop(items=items, **loop), input=input, retry=retry or Retry()), *map(step, to))


def entered(loop: Plan, **input: Any) -> tuple[Given, Then]:
    run = Given(loop)
    return run, run.when(started(loop, **input))


def ids(then: Then) -> list[str]:
    return [command.id for command in then.commands]


def test_a_window_bounds_how_many_items_are_out_and_is_filled_in_order() -> None:
    run, then = entered(looped(list("abcde"), max_in_flight=2))
    assert then.facts == (FanOutEntered("a", 1, 5, list("abcde")), ItemsIssued("a", 1, 0, 2))
    assert [(command.id, command.item, command.input) for command in then.commands] == [
        ("a/1/0", 0, "a"),
        ("a/1/1", 1, "b"),
    ]
    then = run.when(succeeded("a", item=1))
    assert (then.facts, ids(then), then.gone) == ((ItemsIssued("a", 1, 2, 1),), ["a/1/2"], ("a/1/1",))


def test_an_item_that_waits_for_its_next_try_keeps_its_place_in_the_window() -> None:
    run, _ = entered(looped([0, 1, 2], max_in_flight=2, retry=Retry(attempts=2)))
    then = run.when(failed("a", item=0))
    assert then.facts == (ItemsRetried("a", 1, ((0, 2, 0),)),)


def test_results_stand_in_item_order_whatever_arrives_first() -> None:
    run, _ = entered(looped([10, 20, 30]))
    run.when(succeeded("a", "c", item=2))
    then = run.when(succeeded("a", "b", item=1), succeeded("a", "a", item=0))
    assert then.state.result == ["a", "b", "c"]


def test_those_after_it_read_results_and_status_of_every_item() -> None:
    run, _ = entered(plan(step("a", Arc(to="b", on="failure"), loop=Loop(items=[0, 1])), step("b", input=at("a"))))
    run.when(failed("a", "odd", item=1))
    then = run.when(succeeded("a", "x", item=0))
    assert then.commands[0].input == {
        "results": ["x", None],
        "items": [
            {"status": "completed", "result": "x", "error": None},
            {"status": "failed", "result": None, "error": {"kind": "odd"}},
        ],
        "stats": {"total": 2, "success": 1, "failed": 1},
    }


def test_an_empty_list_is_done_at_once_and_its_result_is_an_empty_list() -> None:
    _, then = entered(looped([], "b"))
    assert then.facts == (FanOutEntered("a", 1, 0, []), issued("b"))
    _, then = entered(looped([]))
    assert (then.state.life, then.state.result) == ("completed", [])


def test_what_is_no_list_is_refused_and_fails_the_visit() -> None:
    for wrong, kind in (("text", "a text"), ({"a": 1}, "a map"), (5, "a number"), (None, "null")):
        _, then = entered(looped(wrong))
        assert then.state.error is not None and then.state.error.fault is not None
        assert (
            then.state.error.fault.message
            == f"{kind} is not a list that step {then.state.error.step!r} could loop over"
        )


def test_a_parallel_loop_captures_what_its_templates_name_once_and_nothing_else() -> None:
    run, then = entered(
        looped(at("all"), input={"k": at("limit", "max"), "v": at("item")}, max_in_flight=1),
        all=[1, 2],
        limit={"max": 9, "x": 0},
    )
    assert then.facts[0] == FanOutEntered("a", 1, 2, [1, 2], capture={"limit": {"max": 9}})
    assert then.commands[0].input == {"k": 9, "v": 1}
    then = run.when(reported("a", Succeeded(), item=0, writes=(SetKey("limit", {"max": 0}),)))
    assert then.commands[0].input == {"k": 9, "v": 2}


def test_a_sequential_loop_runs_one_item_at_a_time_and_captures_for_each() -> None:
    run, then = entered(looped([1, 2], input=[at("n"), at("item")], sequential=True), n=0)
    assert then.facts == (FanOutEntered("a", 1, 2, [1, 2]), ItemsIssued("a", 1, 0, 1, {"n": 0}))
    then = run.when(reported("a", Succeeded(), item=0, writes=(SetKey("n", 5),)))
    assert then.facts == (ItemsIssued("a", 1, 1, 1, {"n": 5}),)
    assert then.commands[0].input == [5, 2]


def test_a_sequential_loop_goes_on_behind_an_item_that_failed() -> None:
    run, _ = entered(looped([1, 2], sequential=True))
    then = run.when(failed("a", item=0))
    assert then.facts == (ItemsGivenUp("a", 1, (0,)), ItemsIssued("a", 1, 1, 1, {}))


def test_an_item_knows_its_name_its_place_and_its_visit() -> None:
    _, then = entered(looped(["x"], input=[at("url"), at("iter"), at("loop"), at("visit")], iterator="url"))
    assert then.commands[0].input == ["x", {"url": "x", "index": 0, "count": 1}, {"index": 0, "count": 1}, 1]


def test_an_item_whose_input_has_no_value_fails_alone() -> None:
    run, then = entered(looped([{"k": 1}, {}, {"k": 3}], input=at("item", "k"), retry=Retry(attempts=5)))
    bad = Report(1, Failed(Fault("expression", "'item.k' is not defined", retryable=False)), 1)
    assert then.facts[1:] == (ItemsIssued("a", 1, 0, 3), ItemsSettled("a", 1, (bad,)), ItemsGivenUp("a", 1, (1,)))
    assert [(command.id, command.input) for command in then.commands] == [("a/1/0", 1), ("a/1/2", 3)]
    then = run.when(succeeded("a", item=0), succeeded("a", item=2))
    assert then.state.error is not None and then.state.error.fault == Fault(
        "items_failed", "1 of 3 items failed: 1", data=[1]
    )


def test_a_name_that_is_nowhere_fails_every_item_and_not_the_entry() -> None:
    _, then = entered(looped([1, 2], input=at("settings", "nope")), settings={})
    assert then.facts[0] == FanOutEntered("a", 1, 2, [1, 2], capture={"settings": {}})
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.data == [0, 1]


def test_all_items_run_before_the_step_fails_and_the_failed_ones_are_listed() -> None:
    run, _ = entered(looped(list(range(15)), max_in_flight=15))
    bad = tuple(Report(1, Failed(Fault("error")), n) for n in range(12))
    then = run.when(ItemsSettled("a", 1, bad))
    assert then.facts == (ItemsGivenUp("a", 1, tuple(range(12))),)
    then = run.when(*(succeeded("a", item=n) for n in range(12, 15)))
    fault = Fault("items_failed", "12 of 15 items failed: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …", data=list(range(12)))
    assert then.facts[0].moves[0] == Took("a", 1, (), {}, fault)  # type: ignore[union-attr]


def test_a_list_above_64_kib_lives_in_a_blob_and_is_loaded_when_it_is_missing() -> None:
    big: list[Any] = ["x" * 1000 for _ in range(100)] + [{}]
    run, then = entered(looped(big, input={"v": at("item"), "deep": at("item")}, max_in_flight=50))
    fact = then.facts[0]
    assert isinstance(fact, FanOutEntered) and fact.items is None and fact.blob is not None
    assert fact.blob.size > 64 * 1024 and fact.blob.hash in run.blobs
    assert then.commands[49].input["v"] == big[49]
    then = run.when(succeeded("a", item=3))  # a later turn, in which nobody has the list at hand
    assert (then.commands[0].id, then.commands[0].input["v"]) == ("a/1/50", big[50])


def test_an_item_without_input_fails_alone_even_if_the_list_had_to_be_loaded_first() -> None:
    big: list[Any] = [{"k": "x" * 1000} for _ in range(100)]
    run, _ = entered(looped([*big, {}, {"k": 1}], input=at("item", "k"), max_in_flight=1))
    for item in range(99):
        run.when(succeeded("a", item=item))
    then = run.when(succeeded("a", item=99))
    assert then.facts[-1] == ItemsIssued("a", 1, 101, 1)
    assert run.state.steps[0].fan is not None and run.state.steps[0].fan.failed == 1


def test_what_is_read_of_a_fan_out_under_way_is_its_visit_before() -> None:
    again = plan(
        step("s", "a", "c", mode="inclusive"),
        step("a", "j", loop=Loop(items=[1, 2])),
        step("c", Arc(to="j", set={"seen": at("a", "results")})),
        step("j", Arc(to="s", when={"script": [True, False]})),
    )
    run = start(again)
    run.when(succeeded("s"))
    run.when(succeeded("a", "x", item=0), succeeded("a", "y", item=1), succeeded("c"))
    run.when(succeeded("j"))
    run.when(succeeded("s", visit=2))
    then = run.when(succeeded("a", "z", item=0, visit=2), succeeded("c", visit=2))
    assert (then.state.ctx, then.state.versions) == ({"seen": ["x", "y"]}, {"seen": 2})


def test_a_loop_of_children_starts_one_run_per_item_inside_the_window() -> None:
    family = plan(
        step("a", work=Child(plan="kid"), loop=Loop(items=[1, 2, 3], max_in_flight=2), input={"n": at("item")})
    )
    run, then = entered(family)
    kids = [child_id("run", f"a/1/{n}") for n in range(3)]
    assert [(letter.to, letter.body.input) for letter in then.letters] == [(kids[0], {"n": 1}), (kids[1], {"n": 2})]  # type: ignore[union-attr]
    assert then.commands == ()
    then = run.when(ChildEnded(kids[1], "a/1/1", Succeeded("two")))
    assert [letter.to for letter in then.letters] == [kids[2]]
    then = run.when(ChildEnded(kids[2], "a/1/2", Succeeded("three")), ChildEnded(kids[0], "a/1/0", Succeeded("one")))
    assert then.state.result == ["one", "two", "three"]


def test_a_child_of_an_item_is_tried_again_as_another_run() -> None:
    family = plan(step("a", work=Child(plan="kid"), loop=Loop(items=[1]), retry=Retry(attempts=2)))
    run, _ = entered(family)
    then = run.when(ChildEnded(child_id("run", "a/1/0"), "a/1/0", Failed(Fault("child_failed"))))
    assert [letter.to for letter in then.letters] == [child_id("run", "a/1/0", 2)]
    assert run.when(ChildEnded(child_id("run", "a/1/0", 2), "a/1/0", Succeeded(1))).state.result == [1]


def test_an_item_without_input_starts_no_child_and_nobody_waits_for_one() -> None:
    family = plan(step("a", work=Child(plan="kid"), loop=Loop(items=[{}, {"k": 2}]), input=at("item", "k")))
    run, then = entered(family)
    assert [letter.to for letter in then.letters] == [child_id("run", "a/1/1")]
    then = run.when(ChildEnded(child_id("run", "a/1/1"), "a/1/1", Succeeded()))
    assert (then.state.life, then.state.orphans) == ("failed", {})


class OnceBad(Scripted):
    """An input that cannot be evaluated at the first time of asking, as if it had taken too long."""

    def __init__(self) -> None:
        self.asked = 0

    def value(self, template: Any, view: TemplateScope) -> Any:
        if template == "late":
            self.asked += 1
            if self.asked == 1:
                raise CannotEvaluate("too late")
        return super().value(template, view)


def test_the_input_of_an_item_is_evaluated_once_in_a_turn() -> None:
    """Whether its child starts and whether it fails follow from one value: it never does neither."""
    child = Child(plan="x")
    loop = plan(step("a", loop=Loop(items=[0]), input="late", work=child))
    run = Given(loop, evaluate=OnceBad())
    then = run.when(started(loop))
    assert then.letters == ()
    assert any(isinstance(fact, ItemsSettled) for fact in then.facts)
    assert then.state.life == "failed"
