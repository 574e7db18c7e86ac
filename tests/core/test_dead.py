"""Dead letters: what failed for good and was not handled, by its reason."""

from refold.core.commands import child_id
from refold.core.facts import ChildEnded
from refold.core.outcomes import Failed, Fault, TimedOut
from refold.core.plan import Arc, Call, Child, Gate, Loop, Retry
from refold.core.read.dead_letters import DeadLetter, dead_letters, fingerprint, normalised
from refold.core.read.loaded import Loaded
from refold.testing.core import NOON, failed, reported, succeeded
from tests.core.acts import Given, plan, start, step


def dead(run: Given) -> list[DeadLetter]:
    loaded = Loaded()
    loaded.facts.update({number: fact for number, _, fact in run.log})
    return list(dead_letters(run.graph, run.state, loaded))


def test_a_step_that_failed_for_good_is_one_when_the_run_is_over() -> None:
    run = start(plan(step("a", work=Call(tool="http"), retry=Retry(attempts=2)), step("tidy"), always=("tidy",)))
    run.when(failed("a", "timeout", message="no answer"))
    run.when(failed("a", "timeout", attempt=2, message="no answer"))
    assert dead(run) == [], "it is still ending"
    run.when(succeeded("tidy"))
    mark = fingerprint("http", Fault("timeout", "no answer"))
    assert dead(run) == [DeadLetter("run", "a", 1, mark, "http", "timeout", "no answer", NOON, "plan")]


def test_a_failure_that_is_handled_is_none() -> None:
    run = start(plan(step("a", Arc(to="b", on="failure")), step("b")))
    run.when(failed("a"))
    run.when(succeeded("b"))
    assert (run.state.life, dead(run)) == ("completed", [])


def test_items_that_failed_for_one_reason_are_one() -> None:
    run = start(plan(step("a", work=Call(tool="http"), loop=Loop(items=[1, 2, 3, 4]))))
    run.when(succeeded("a", item=0))
    run.when(failed("a", "status", item=1, message="got 502 from host 17"))
    run.when(reported("a", TimedOut(3.0), item=2))
    run.when(failed("a", "status", item=3, message="got 503 from host 4"))
    assert [(each.kind, each.count, each.items) for each in dead(run)] == [("status", 2, (1, 3)), ("timeout", 1, (2,))]


def test_children_gates_and_a_run_without_a_failed_step_have_none() -> None:
    run = start(plan(step("a", work=Child(plan="kid"))))
    run.when(ChildEnded(child_id("run", "a/1"), "a/1", Failed(Fault("child_failed"))))
    assert (run.state.life, dead(run)) == ("failed", [])
    run = start(plan(step("a", work=Gate())))
    run.when(reported("a", Failed(Fault("rejected", retryable=False))))
    assert (run.state.life, dead(run)) == ("failed", [])
    limited = start(plan(step("a", "a", visit_limit=1)))
    limited.when(succeeded("a"))
    assert (limited.state.life, dead(limited)) == ("failed", [])


def test_a_finalizer_that_failed_is_one_too() -> None:
    run = start(plan(step("a"), step("tidy"), always=("tidy",)))
    run.when(succeeded("a"))
    run.when(failed("tidy", "full"))
    assert (run.state.life, [each.step for each in dead(run)]) == ("completed", ["tidy"])


def test_what_differs_from_one_failure_to_the_next_makes_no_other_reason() -> None:
    said = [
        "no row 17 in table users",
        "no row 4 in table users\n  at line 9",
        "no  row 12.5 in table users",
    ]
    assert {normalised(each) for each in said} == {"no row # in table users"}
    ids = ["object at 0x7f12ab has gone", "object at 0x99 has gone"]
    assert len({fingerprint("python", Fault("error", each)) for each in ids}) == 1
    uuids = ["run 5f2b1c9a-aaaa-4bbb-8ccc-0123456789ab", "run 00000000-aaaa-4bbb-8ccc-aaaaaaaaaaaa"]
    assert len({fingerprint("python", Fault("error", each)) for each in uuids}) == 1
    one = fingerprint("python", Fault("error", "no disk"))
    assert one != fingerprint("shell", Fault("error", "no disk"))
    assert one != fingerprint("python", Fault("timeout", "no disk"))
    assert one != fingerprint("python", Fault("error", "no net"))
