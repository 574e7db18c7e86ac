"""What a run leaves behind: the result of the step that completed last, and what all of it used up."""

from refold.core.codec import BLOB_ABOVE
from refold.core.commands import child_id
from refold.core.facts import ChildEnded, ItemsSettled, RunEnded
from refold.core.outcomes import Blob, Failed, Fault, Report, Succeeded, TimedOut
from refold.core.plan import Arc, Child, Loop, Retry
from refold.testing.core import NOON, failed, reported, started, succeeded
from tests.core.acts import Given, chain, plan, start, step

FORK = plan(step("s", "a", "b", mode="inclusive"), step("a"), step("b"))


def forked() -> Given:
    run = start(FORK)
    run.when(succeeded("s"))
    return run


def test_the_result_is_that_of_the_step_that_completed_last_by_fact_number() -> None:
    run = forked()
    run.when(succeeded("a", "early"))
    assert run.when(succeeded("b", "late")).state.result == "late"
    assert forked().when(succeeded("b", 1), succeeded("a", 2)).state.result == 2


def test_the_order_in_which_arcs_are_decided_is_not_the_order_of_completion() -> None:
    """`a` has to be evaluated and `b` has not, so `b` settles first; but `a` reported last."""
    fork = plan(step("s", "a", "b", mode="inclusive"), step("a", Arc(to="c", when=False)), step("b"), step("c"))
    run = start(fork)
    run.when(succeeded("s"))
    assert run.when(succeeded("b", "b"), succeeded("a", "a")).state.result == "a"
    run = start(fork)
    run.when(succeeded("s"))
    assert run.when(succeeded("a", "a"), succeeded("b", "b")).state.result == "b"


def test_bypassed_and_skipped_steps_do_not_count() -> None:
    run = start(plan(step("a", "b"), step("b", "c", when=False), step("c", when=False)))
    assert run.when(succeeded("a", 1)).facts[-1] == RunEnded("completed", 1)


def test_a_handled_failure_does_not_count() -> None:
    run = start(plan(step("a", "b"), step("b", Arc(to="c", on="failure")), step("c", when=False)))
    run.when(succeeded("a", 1))
    assert run.when(failed("b")).facts[-1] == RunEnded("completed", 1)


def test_a_run_in_which_no_step_did_anything_has_no_result() -> None:
    empty = plan(step("a", when=False))
    assert Given(empty).when(started(empty)).facts[-1] == RunEnded("completed")


def test_only_a_completed_run_has_a_result() -> None:
    run = start(chain("a", "b"))
    run.when(succeeded("a", 1))
    assert run.when(failed("b")).state.result is None


def test_a_fan_out_that_completed_last_gives_its_list_of_results() -> None:
    run = start(plan(step("a", loop=Loop(items=[1, 2]))))
    assert run.when(succeeded("a", "y", item=1), succeeded("a", "x", item=0)).facts == (
        RunEnded("completed", ["x", "y"]),
    )


def test_results_of_items_are_loaded_from_the_log_where_they_stand() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1, 2], max_in_flight=1))))
    for item in range(3):
        run.when(succeeded("a", item * 10, item=item))
    assert run.state.result == [0, 10, 20]


def test_of_several_visits_the_last_counts() -> None:
    run = start(plan(step("a", Arc(to="a", when={"script": [True, False]}))))
    run.when(succeeded("a", 1))
    assert run.when(succeeded("a", 2, visit=2)).state.result == 2


def test_a_result_above_64_kib_stands_in_a_blob() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1]))))
    big = "x" * (BLOB_ABOVE // 2)
    then = run.when(succeeded("a", big, item=0), succeeded("a", big, item=1))
    ended = then.facts[-1]
    assert isinstance(ended, RunEnded) and ended.result is None and ended.blob is not None
    assert len(run.blobs[ended.blob.hash]) == ended.blob.size > BLOB_ABOVE


def test_a_result_that_stands_in_a_blob_already_is_handed_on_and_read_where_it_is_named() -> None:
    pair = plan(step("a", "b"), step("b", input={"path": ["a"]}))
    run = start(pair)
    blob = Blob("hash", 70_000)
    run.blobs["hash"] = b'{"x":1}'
    assert run.when(reported("a", Succeeded(blob=blob))).commands[0].input == {"x": 1}


def test_what_every_try_used_up_is_added_to_the_run() -> None:
    run = start(
        plan(
            step("a", "b", retry=Retry(attempts=2)),
            step("b", "c", loop=Loop(items=[1, 2])),
            step("c", work=Child(plan="kid")),
        )
    )
    run.when(reported("a", Failed(Fault("error")), usage={"tokens": 5}))
    run.when(reported("a", Succeeded(), attempt=2, usage={"tokens": 7, "cost": 0.5}))
    run.when(ItemsSettled("b", 1, tuple(Report(1, Succeeded(), n, usage={"tokens": 1}) for n in (0, 1))))
    then = run.when(ChildEnded(child_id("run", "c/1"), "c/1", Succeeded(), usage={"tokens": 100, "calls": 1}))
    assert then.state.usage == {"tokens": 114, "cost": 0.5, "calls": 1}


def test_a_timed_out_try_without_usage_adds_nothing() -> None:
    assert start(chain("a")).when(reported("a", TimedOut(1.0))).state.usage == {}


def test_the_times_of_a_run_never_go_back() -> None:
    run = start(chain("a", "b", "c"))
    run.when(succeeded("a"), after=60)
    run.when(succeeded("b"), after=-30)
    then = run.when(succeeded("c"), after=61)
    times = [at for _, at, _ in run.log]
    assert times == sorted(times)
    assert (then.state.started_at, then.state.ended_at) == (NOON, NOON + 61_000_000)
