"""Items as rows: what became of each, and how fast they go."""

from refold.core.outcomes import SECOND, Fault
from refold.core.plan import Loop, Retry
from refold.core.read.items import LoopSeen, item_rows, items_in
from refold.core.read.loaded import Loaded
from refold.core.read.summary import pace
from refold.testing.core import NOON, failed, started, succeeded
from tests.core.acts import Given, plan, step


def seen(run: Given) -> LoopSeen:
    fan = run.state.steps[0].fan
    assert fan is not None
    return LoopSeen("a", run.state, fan, run.state.steps[0].life == "issued")


def entered(retry: Retry | None = None, **loop: object) -> Given:
    looped = plan(step("a", loop=Loop(items=["x", "y", "z", "w"], max_in_flight=2, **loop), retry=retry or Retry()))  # type: ignore[arg-type]
    run = Given(looped)
    run.when(started(looped))
    return run


def loaded(run: Given) -> Loaded:
    return Loaded(facts={number: fact for number, _, fact in run.log})


def test_each_item_says_what_it_is_and_what_became_of_it() -> None:
    run = entered(Retry(attempts=2), key={"path": ["item"]})
    run.when(succeeded("a", {"n": 1}, item=0))
    run.when(failed("a", "odd", item=1))
    run.when(failed("a", "odd", item=1, attempt=2))
    rows = item_rows(seen(run), range(4), loaded(run))
    assert [(row.item, row.key, row.value, row.status, row.tries) for row in rows] == [
        (0, "x", "x", "completed", 1),
        (1, "y", "y", "failed", 2),
        (2, "z", "z", "running", 1),
        (3, "w", "w", "running", 1),
    ]
    assert (rows[0].result, rows[1].error) == ({"n": 1}, Fault("odd"))


def test_what_was_not_begun_when_the_loop_ended_never_will_be() -> None:
    run = entered(on_item_error="stop")
    assert items_in(seen(run), ["waiting"]) == [2, 3]
    run.when(failed("a", item=0))
    run.when(succeeded("a", item=1))
    assert run.state.life == "failed"
    assert (items_in(seen(run), ["waiting"]), items_in(seen(run), ["cancelled"])) == ([], [2, 3])
    assert items_in(seen(run)) == [0, 1, 2, 3]


def test_the_rate_is_that_of_what_was_done_since_the_loop_was_entered() -> None:
    run = entered()
    run.when(succeeded("a", item=0), after=2)
    speed = pace(seen(run).fan, NOON + 4 * SECOND)
    assert (speed.rate, speed.left, speed.more) == (0.25, 12.0, False)
