"""Given what a run has done, when something happens, then this follows; what differs is shown with the history."""

from pathlib import Path

import pytest

from refold import testing
from refold.errors import Conflict, InvalidValue
from tests.testing.flows import LIST, ORDER, Crawl, Done, Page, Patient, playbook


def test_steps_are_handed_out_and_done_only_as_far_as_the_test_says() -> None:
    with testing.engine() as t:
        given = t.given(Crawl).input(pages=9).has_done("begin", [Page(n=3), Page(n=4)])
        given.then(issued=["fetch", "fetch"], status="running")
        given.when(runs="fetch").then(emitted=Done(n=9), issued={"fetch": Page(n=4)})
        given.when(outcome={"fetch": Done(n=1)}).then(emitted=[Done(n=1)], issued="join")
        given.when(runs="join").then(result=[1, 9], status="completed")


def test_events_can_be_on_their_way() -> None:
    with testing.engine() as t:
        t.given(Crawl).event(Page(n=5)).then(issued={"fetch": Page(n=5)})


def test_a_step_that_fails_is_tried_again_after_its_delay() -> None:
    with testing.engine() as t:
        given = t.given(Crawl).event(Page(n=5)).when(outcome={"fetch": ConnectionError("away")})
        given.then(waits_for="backoff fetch", issued=[]).when(time="5s").then(issued="fetch")
        given.when(outcome={"fetch": ConnectionError("away")}).when(time="1m")
        given.when(outcome={"fetch": ConnectionError("still away")}).then(failed="still away")


def test_time_answers_and_signals_come_to_a_step_that_runs() -> None:
    with testing.engine() as t:
        given = t.given(Patient).when(runs="ask").then(waits_for="timer ask")
        given.when(time="7d").then(waits_for="answer 'ask/1/1'")
        given.when(answer="yes").then(waits_for=["signal 'word'", "2027-01-25"])
        given.when(signal="word", value={"n": 1}).then(result=["yes", {"n": 1}])


def test_a_playbook_goes_on_from_what_it_has_done(tmp_path: Path) -> None:
    with testing.engine() as t:
        given = t.given(playbook(tmp_path, ORDER), id=3).has_done("fetch", {"data": {"total": 4}})
        given.then(issued={"price": {"total": 4}}).when(runs="price").then(waits_for="timer cool")
        given.when(time="7d").then(waits_for="gate approve")
        given.when(decision={"approve": "reject"}).then(failed="approve")


def test_items_of_a_loop_have_results_of_their_own(tmp_path: Path) -> None:
    with testing.engine() as t:
        given = t.given(playbook(tmp_path, LIST)).has_done("send", "all", item=0).has_done("send", "one", item=1)
        given.then(issued="send").when(outcome={"send": "three"}).then(issued="both")
        assert given.run.steps()["send"]["result"] == ["all", "one", "three"]


def test_what_differs_is_shown_with_the_history() -> None:
    with testing.engine() as t:
        given = t.given(Crawl).event(Page(n=5))
        with pytest.raises(AssertionError) as differs:
            given.then(issued={"fetch": Page(n=6)})
        assert str(differs.value).splitlines()[:4] == [
            "issued:",
            "  expected  {'fetch': Page(n=6)}",
            "  but it is {'fetch': Page(n=5)}",
            "history of run given1:",
        ]
        assert "begin/1 succeeded" in str(differs.value)


@pytest.mark.parametrize(
    ("follows", "shown"),
    [
        ({"result": 1}, "the run is running"),
        ({"waits_for": "gate x"}, "but it is"),
        ({"failed": "away"}, "but it is 'running'"),
        ({"emitted": [Done(n=1)]}, r"but it is \[Page\(n=5\)\]"),
        ({"status": "failed"}, "but it is 'running'"),
        ({"issued": ["fetch", "join"]}, r"but it is \['fetch'\]"),
    ],
)
def test_each_expectation_can_fail(follows: dict[str, object], shown: str) -> None:
    with testing.engine() as t, pytest.raises(AssertionError, match=shown):
        t.given(Crawl).event(Page(n=5)).then(**follows)  # type: ignore[arg-type]


def test_what_cannot_be_said_is_refused(tmp_path: Path) -> None:
    with testing.engine() as t:
        with pytest.raises(InvalidValue, match="Crawl has no such step"):
            t.given(Crawl).has_done("fecth")
        with pytest.raises(InvalidValue, match="only Python workflows have events"):
            t.given(playbook(tmp_path, ORDER)).event(Page(n=1))
        given = t.given(Crawl).event(Page(n=1))
        with pytest.raises(AssertionError, match=r"step 'join' is not handed out; those that are: fetch/1"):
            given.when(outcome={"join": None})
        with pytest.raises(Conflict, match="this one has started"):
            given.input(pages=1)
