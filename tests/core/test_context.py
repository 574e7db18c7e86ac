"""Context writes: carried by a completion, applied once, in completion order, and never from a failed try."""

from itertools import pairwise

from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.core.facts import ItemsSettled
from refold.core.outcomes import (
    AddTo,
    AppendTo,
    DeleteKey,
    Failed,
    Fault,
    Parked,
    PutIf,
    Report,
    SetKey,
    Succeeded,
    TimedOut,
    Write,
)
from refold.core.plan import Loop, Retry
from refold.testing.core import reported, succeeded
from tests.core.acts import Given, chain, plan, start, step

FORK = plan(step("s", "a", "b", mode="inclusive"), step("a"), step("b"))


def forked() -> Given:
    run = start(FORK)
    run.when(succeeded("s"))
    return run


def wrote(*writes: Write) -> Given:
    run = start(chain("a", "b"))
    run.when(reported("a", Succeeded(), writes=writes))
    return run


def test_every_kind_of_write_does_what_its_name_says() -> None:
    state = wrote(
        SetKey("x", 1),
        SetKey("y", [1]),
        AddTo("x", 2.5),
        AddTo("new", 1),
        AppendTo("y", {"z": 2}),
        AppendTo("list", 0),
        PutIf("p", 0, "first"),
        SetKey("gone", 1),
        DeleteKey("gone"),
        DeleteKey("never there"),
    ).state
    assert state.ctx == {"x": 3.5, "new": 1, "y": [1, {"z": 2}], "list": [0], "p": "first"}


def test_every_write_moves_the_version_of_its_key_even_a_deletion() -> None:
    writes = (SetKey("x", 1), AddTo("x", 1), DeleteKey("x"), SetKey("x", 2), PutIf("y", 0, 1), AppendTo("z", 1))
    assert wrote(*writes).state.versions == {"x": 4, "y": 1, "z": 1}


def test_what_cannot_be_added_to_or_appended_to_is_replaced() -> None:
    writes = (
        SetKey("x", "text"),
        AddTo("x", 2),
        SetKey("y", True),
        AddTo("y", 2),
        SetKey("z", "text"),
        AppendTo("z", 1),
    )
    assert wrote(*writes).state.ctx == {"x": 2, "y": 2, "z": [1]}


def test_an_appended_list_is_a_new_list_so_that_what_others_read_does_not_change() -> None:
    run = wrote(SetKey("x", [1]))
    before = run.state.ctx["x"]
    run.when(reported("b", Succeeded(), writes=(AppendTo("x", 2),)))
    assert (before, run.state.ctx["x"]) == ([1], [1, 2])


def test_writes_are_applied_in_the_order_in_which_steps_completed() -> None:
    run = forked()
    run.when(
        reported("b", Succeeded(), writes=(AppendTo("x", "b"), SetKey("last", "b"))),
        reported("a", Succeeded(), writes=(AppendTo("x", "a"), SetKey("last", "a"))),
    )
    assert run.state.ctx == {"x": ["b", "a"], "last": "a"}


def test_a_failed_try_leaves_nothing_and_the_next_one_writes_once() -> None:
    run = start(plan(step("a", retry=Retry(attempts=3))))
    add = (AddTo("n", 1),)
    run.when(reported("a", Failed(Fault("error")), writes=add))
    run.when(reported("a", TimedOut(5), attempt=2, writes=add))
    assert run.state.ctx == {}
    assert run.when(reported("a", Succeeded(), attempt=3, writes=add)).state.ctx == {"n": 1}


def test_a_parked_try_writes_nothing() -> None:
    run = start(chain("a"))
    assert run.when(reported("a", Parked(signal="go"), writes=(SetKey("x", 1),))).state.ctx == {}


def items(window: int, sequential: bool = False) -> Given:
    return start(plan(step("a", loop=Loop(items=[0, 1, 2], max_in_flight=window, sequential=sequential))))


def wrote_item(item: int) -> Report:
    return Report(1, Succeeded(item), item, writes=(AppendTo("x", item), SetKey("last", item)))


def test_items_of_a_parallel_loop_write_in_item_order_when_the_loop_ends() -> None:
    run = items(window=3)
    run.when(ItemsSettled("a", 1, (wrote_item(2), wrote_item(0))))
    assert run.state.ctx == {}
    run.when(ItemsSettled("a", 1, (wrote_item(1),)))
    assert run.state.ctx == {"x": [0, 1, 2], "last": 2}


def test_items_of_a_sequential_loop_write_at_once() -> None:
    run = items(window=3, sequential=True)
    run.when(ItemsSettled("a", 1, (wrote_item(0),)))
    assert run.state.ctx == {"x": [0], "last": 0}


def test_items_that_succeeded_have_written_even_if_others_failed() -> None:
    run = items(window=3)
    run.when(ItemsSettled("a", 1, (wrote_item(2), wrote_item(0), Report(1, Failed(Fault("error")), 1))))
    assert (run.state.life, run.state.ctx) == ("failed", {"x": [0, 2], "last": 2})


@for_all(st.permutations(range(6)), st.lists(st.integers(1, 6), max_size=3))
def test_the_order_of_arrival_of_items_is_never_in_the_context(order: list[int], cuts: list[int]) -> None:
    run = start(plan(step("a", loop=Loop(items=list(range(6)), max_in_flight=6))))
    edges = [0, *sorted(cuts), 6]
    for begin, end in pairwise(edges):
        if begin < end:
            run.when(ItemsSettled("a", 1, tuple(wrote_item(item) for item in order[begin:end])))
    assert run.state.ctx == {"x": [0, 1, 2, 3, 4, 5], "last": 5}
    assert run.state.result == [0, 1, 2, 3, 4, 5]
