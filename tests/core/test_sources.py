"""Loops over a source: pages that are asked for when little is left, taken, tried again and given up."""

from typing import Any

from msgspec import structs

from refold.core.facts import (
    Fact,
    FanOutEntered,
    ItemsCancelled,
    ItemsIssued,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
    RunReopened,
)
from refold.core.outcomes import SECOND, Blob, Failed, Fault, Outcome, Report, Succeeded
from refold.core.plan import PATIENT, Child, Loop, Plan, Retry, Source
from refold.core.read.loaded import Loaded, item_of_key, key_of
from refold.core.read.summary import status_of
from refold.core.read.why import reasons
from refold.testing.core import NOON, failed, started, succeeded
from tests.core.acts import Given, Then, plan, step

SETTINGS = {"path": {"path": ["file"]}}


def pulled(page: int = 2, retry: Retry | None = None, work: Any = None, **loop: Any) -> Plan:
    source = Source(kind="csv", settings=SETTINGS, page=page, retry=retry or PATIENT)
    more = {} if work is None else {"work": work}
    return plan(step("a", loop=Loop(source=source, **loop), **more))


def entered(loop: Plan) -> tuple[Given, Then]:
    run = Given(loop)
    return run, run.when(started(loop, file="x.csv"))


def came(page: int, items: Any, cursor: Any = None, attempt: int = 1) -> Fact:
    return brought(page, Succeeded({"items": items, "cursor": cursor}), attempt)


def brought(page: int, outcome: Outcome, attempt: int = 1) -> Fact:
    return PageCame("a", 1, page, Report(attempt, outcome))


def begun(then: Then) -> list[tuple[Any, Any]]:
    return [(command.item, command.input) for command in then.commands if command.item is not None]


def why(then: Then) -> str:
    assert then.state.error is not None and then.state.error.fault is not None
    return then.state.error.fault.message


def test_a_worker_is_asked_for_the_first_page_when_the_loop_is_entered() -> None:
    _, then = entered(pulled())
    assert then.facts == (FanOutEntered("a", 1, 0, source={"path": "x.csv"}), PageAsked("a", 1, 1))
    (command,) = then.commands
    assert (command.id, command.tool, command.item) == ("a/1/page1", "source", None)
    assert command.input == {
        "kind": "csv",
        "settings": {"path": "x.csv"},
        "cursor": None,
        "most": 2,
        "owner": "run/a/1",
    }


def test_items_of_a_page_are_handed_out_and_the_next_is_asked_for_when_the_window_would_run_dry() -> None:
    run, _ = entered(pulled(max_in_flight=2))
    then = run.when(came(1, ["x", "y", "z"], cursor=3))
    assert then.facts == (PageTaken("a", 1, 1, 3, 3), ItemsIssued("a", 1, 0, 2), PageAsked("a", 1, 2))
    assert begun(then) == [(0, "x"), (1, "y")]
    assert [command.input["cursor"] for command in then.commands if command.item is None] == [3]
    assert begun(run.when(succeeded("a", item=0))) == [(2, "z")]
    then = run.when(came(2, ["w"]))
    assert then.facts == (PageTaken("a", 1, 2, 1),)  # the window is full, and there are no more pages
    run.when(succeeded("a", 1, item=1), succeeded("a", 2, item=2))
    then = run.when(succeeded("a", 3, item=3))
    assert (then.state.life, then.state.result) == ("completed", [None, 1, 2, 3])
    assert run.replayed() == run.state


def test_a_full_window_asks_for_nothing() -> None:
    run, _ = entered(pulled(max_in_flight=2))
    then = run.when(came(1, list(range(10)), cursor=10))
    assert not any(isinstance(fact, PageAsked) for fact in then.facts)
    for item in range(6):
        assert not any(isinstance(fact, PageAsked) for fact in run.when(succeeded("a", item=item)).facts)
    assert PageAsked("a", 1, 2) in run.when(succeeded("a", item=6)).facts


def test_a_source_without_items_is_done_at_once() -> None:
    run, _ = entered(pulled())
    then = run.when(came(1, []))
    assert (then.state.life, then.state.result) == ("completed", [])


def test_a_page_may_be_empty_and_more_may_follow() -> None:
    run, _ = entered(pulled())
    assert run.when(came(1, [], cursor=5)).facts == (PageTaken("a", 1, 1, 0, 5), PageAsked("a", 1, 2))


def test_a_page_that_fails_is_asked_for_again_by_the_policy_of_the_source() -> None:
    run, _ = entered(pulled(retry=Retry(attempts=2, delay=3.0)))
    then = run.when(brought(1, Failed(Fault("connection"))))
    assert then.facts == (PageAsked("a", 1, 1, 2, NOON + 3 * SECOND),)
    assert begun(run.when(came(1, ["x"], attempt=2))) == [(0, "x")]


def test_a_source_that_fails_for_good_fails_the_step_when_what_came_before_is_through() -> None:
    run, _ = entered(pulled(retry=Retry(), max_in_flight=2))
    run.when(came(1, ["x"], cursor=1))
    then = run.when(brought(2, Failed(Fault("connection", "no way"))))
    assert then.facts == (PagesGivenUp("a", 1, 2, Fault("connection", "no way")),)
    then = run.when(succeeded("a", item=0))
    assert (then.state.life, why(then)) == ("failed", "no way")
    assert run.replayed() == run.state


def test_a_run_that_failed_because_of_its_source_goes_on_where_that_stopped() -> None:
    run, _ = entered(pulled(retry=Retry(), max_in_flight=2))
    run.when(came(1, ["x"], cursor=1))
    run.when(succeeded("a", item=0))
    assert run.when(brought(2, Failed(Fault("connection")))).state.life == "failed"
    then = run.when(RunReopened(again=("a",)))
    (command,) = then.commands
    assert (command.id, command.input["cursor"]) == ("a/2/page3", 1)
    then = run.when(PageCame("a", 2, 3, Report(1, Succeeded({"items": ["y"], "cursor": None}))))
    assert begun(then) == [(1, "y")]
    assert run.when(succeeded("a", item=1, visit=2)).state.life == "completed"
    assert run.replayed() == run.state


def test_what_is_no_page_fails_the_source() -> None:
    pages: tuple[Any, ...] = (None, [], {"items": 3})
    for wrong in pages:
        run, _ = entered(pulled())
        then = run.when(brought(1, Succeeded(wrong)))
        assert (then.state.life, "did not return a page" in why(then)) == ("failed", True)


def test_keys_are_known_over_all_pages() -> None:
    run, _ = entered(pulled(key={"path": ["item"]}))
    run.when(came(1, ["x", "y", "x"], cursor=3))
    then = run.when(came(2, ["y", "z"]))
    assert then.facts[0] == PageTaken("a", 1, 2, 1, left_out=(0,), keys=("z",))
    assert begun(then) == [(2, "z")]


def test_an_item_is_found_by_its_key_on_any_page() -> None:
    run, _ = entered(pulled(key={"path": ["item"]}))
    run.when(came(1, ["x", "y", "x"], cursor=3))
    run.when(came(2, ["y", "z", "w"]))
    fan = run.state.steps[0].fan
    assert fan is not None
    loaded = Loaded({number: fact for number, _, fact in run.log})
    assert [item_of_key(fan, loaded, key) for key in ("x", "y", "z", "w", "v")] == [0, 1, 2, 3, None]
    assert [key_of(fan, loaded, item) for item in range(4)] == ["x", "y", "z", "w"]


def test_the_item_behind_those_left_out_is_the_right_one() -> None:
    run, _ = entered(pulled(key={"path": ["item"]}))
    assert begun(run.when(came(1, ["x", "x", "y", "x", "z"]))) == [(0, "x"), (1, "y"), (2, "z")]


def test_an_order_over_a_source_begins_when_all_items_are_known() -> None:
    order: dict[str, Any] = {"key": {"path": ["item", "id"]}, "after": {"path": ["item", "needs"]}}
    run, _ = entered(pulled(**order))
    then = run.when(came(1, [{"id": "b", "needs": ["a"]}], cursor=1))
    assert begun(then) == [] and then.facts[-1] == PageAsked("a", 1, 2)
    then = run.when(came(2, [{"id": "a", "needs": []}]))
    assert [item for item, _ in begun(then)] == [1]
    assert [item for item, _ in begun(run.when(succeeded("a", item=1)))] == [0]
    assert run.replayed() == run.state


def test_a_loop_that_halts_does_not_wait_for_its_source() -> None:
    run, _ = entered(pulled(on_item_error="halt", max_in_flight=4))
    run.when(came(1, ["x", "y"], cursor=2))
    then = run.when(failed("a", item=0))
    assert ItemsCancelled("a", 1, (1,), halts="item 0 failed", page=2) in then.facts
    assert "a/1/page2" in then.gone and then.state.life == "failed"


def test_a_page_in_a_blob_is_loaded_when_its_items_are_handed_out() -> None:
    run, _ = entered(pulled())
    hash = "0" * 64
    run.blobs[hash] = b'{"items":["large"],"cursor":null}'
    then = run.when(brought(1, Succeeded(None, Blob(hash, 33))))
    assert begun(then) == [(0, "large")]


def test_items_of_a_source_can_be_runs_of_their_own() -> None:
    run, _ = entered(pulled(work=Child(plan="other")))
    then = run.when(came(1, [{"n": 1}]))
    assert [structs.asdict(letter.body)["input"] for letter in then.letters] == [{"n": 1}]
    assert [command.id for command in then.commands] == []


def test_a_page_that_comes_when_the_run_is_ending_is_left() -> None:
    from refold.core.facts import CancelAsked

    run, _ = entered(pulled())
    run.claimed = frozenset({"a/1/page1"})
    assert run.when(CancelAsked()).state.life == "cancelled"
    assert run.replayed() == run.state


def test_a_page_for_items_that_are_runs_is_tried_again_like_any_other() -> None:
    run, _ = entered(pulled(work=Child(plan="other"), retry=Retry(attempts=2, delay=3.0)))
    then = run.when(brought(1, Failed(Fault("connection"))))
    assert then.facts == (PageAsked("a", 1, 1, 2, NOON + 3 * SECOND),)
    assert then.timers == {} and [command.not_before for command in then.commands] == [NOON + 3 * SECOND]
    assert [reason.kind for reason in reasons(run.graph, run.state, NOON)] == ["backoff"]
    assert status_of(run.graph, run.state, NOON + 4 * SECOND) == "running"
    assert len(run.when(came(1, [{"n": 1}], attempt=2)).letters) == 1
