"""Children that a body starts by a durable call: which result is asked for, and those that nobody waits for."""

from refold.core.commands import LetterStart, child_id
from refold.core.facts import CallSettled, Parent, RunEnded, RunStarted
from refold.core.outcomes import Awaited, Succeeded, Suspended
from refold.core.plan import Loop
from refold.testing.core import reported, succeeded
from tests.core.acts import Given, chain, plan, start, step

KID = child_id("run", "a/1#kid")


def suspended(call: Awaited, progress: object = None) -> object:
    return reported("a", Suspended((call,), progress))


def test_what_was_achieved_is_kept_while_the_body_waits() -> None:
    run = start(chain("a"))
    run.when(suspended(Awaited("nap", until=1), {"at": 2}))  # type: ignore[arg-type]
    then = run.when(CallSettled("a/1", "nap", Succeeded({"by": "timer"})))
    assert then.commands[0].progress == {"at": 2}
    then = run.when(suspended(Awaited("nap2", until=1)))  # type: ignore[arg-type]
    assert run.state.open["a/1"].progress == {"at": 2}


def test_a_child_that_nobody_waits_for_is_started_and_the_body_goes_on() -> None:
    run = start(chain("a"))
    then = run.when(suspended(Awaited("kid", child="hash", input={"x": 1}, detached=True)))  # type: ignore[arg-type]
    (letter,) = then.letters
    assert letter.to == KID and isinstance(letter.body, LetterStart)
    assert letter.body.parent == Parent("run", "a/1", "kid", detached=True)
    assert then.commands[0].recorded == {"kid": Succeeded({"run": KID})}
    assert run.state.children == {} and run.state.orphans == {}
    assert run.when(succeeded("a")).state.life == "completed"


def test_such_a_child_tells_nobody_that_it_ended() -> None:
    run = Given(chain("a"), run=KID)
    run.when(RunStarted("hash", {}, parent=Parent("boss", "a/1", "kid", detached=True)))
    assert run.when(succeeded("a")).letters == ()


def test_a_child_gives_the_result_of_the_step_that_is_asked_for() -> None:
    for want, result in (("a", 1), ("b", 2), ("", 2), ("nobody", None)):
        run = Given(chain("a", "b"), run=KID)
        run.when(RunStarted("hash", {}, parent=Parent("boss", "x/1", "kid", want)))
        run.when(succeeded("a", 1))
        then = run.when(succeeded("b", 2))
        assert then.facts[-1] == RunEnded("completed", result)


def test_of_a_loop_that_is_its_whole_value() -> None:
    run = Given(plan(step("a", "b", loop=Loop(items=[1])), step("b")), run=KID)
    run.when(RunStarted("hash", {}, parent=Parent("boss", "x/1", "kid", "a")))
    run.when(succeeded("a", "x", item=0))
    then = run.when(succeeded("b", 2))
    assert then.state.result["results"] == ["x"]
