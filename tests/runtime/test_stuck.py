"""An internal error while a run is decided: what its bodies came to is kept, it is tried again, and others go on."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.core.decide.decision import Decision
from refold.core.expressions import Values, unknown
from refold.core.facts import Fact, ItemsSettled, StepIssued, StepSettled
from refold.core.graph import prepare
from refold.core.outcomes import SECOND, AddTo, Failed, Parked, PutIf, SetKey, Succeeded
from refold.core.plan import Arc, Call, Loop, Plan, Step
from refold.errors import Conflict, LeaseLost, NotFound, Unavailable
from refold.ports import Abilities, Done, Lease, Store
from refold.runtime.archive import export_run, import_run
from refold.runtime.mail import Cancel, DecideGate, Look, Mail, Note, Settle, Signal, Start
from refold.runtime.rebuild import rebuild
from refold.runtime.turn import LONGEST_PAUSE, Delivery, Turns
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import STORES, FakeClock, opened

ARCS = (Arc(to="b"),)
PLAN = Plan(name="p", steps=(Step(name="a", work=Call(tool="t"), arcs=ARCS), Step(name="b", work=Call(tool="t"))))
START = Start(prepare(PLAN))
CAN = Abilities("w")


class Broken(Decision):
    """Raises when a fact of a class is said, for as long as the test wants it."""

    def record_fact(self, fact: Fact) -> None:
        if isinstance(fact, BREAKS):
            raise ERROR
        super().record_fact(fact)


BREAKS: tuple[type, ...] = ()
ERROR: BaseException = KeyError("step")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with opened(request.param, tmp_path, clock) as store:
        yield store


@pytest.fixture
def turns(store: Store, monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr("tests.runtime.test_stuck.BREAKS", ())
    monkeypatch.setattr("tests.runtime.test_stuck.ERROR", KeyError("step"))
    return new_turns(store)


def new_turns(store: Store) -> Turns:
    ids = iter(range(1000))
    turns = Turns(store, Values(), lambda: 0.5, lambda: f"turn{next(ids)}")
    turns.decision = Broken
    return turns


def broken_by(*kinds: type, error: BaseException | None = None) -> None:
    global BREAKS, ERROR
    BREAKS, ERROR = kinds, error or KeyError("step")


def claimed(store: Store) -> Lease | None:
    with store.turn([]) as turn:
        return next(iter(turn.claim(CAN, 30, 1)), None)


def commit(turns: Turns, run: str, *mail: Any) -> list[Delivery]:
    posts = [Delivery(run, each) for each in mail]
    turns.commit(posts)
    return posts


def begun(turns: Turns, store: Store, run: str = "r") -> Lease:
    commit(turns, run, START)
    lease = claimed(store)
    assert lease is not None
    return lease


def both(turns: Turns, store: Store) -> tuple[Lease, Lease]:
    """Two commands of one run, and `other` is set in its context."""
    step = Step(name="x", work=Call(tool="t"), arcs=(Arc(to="y"), Arc(to="z")), mode="inclusive")
    more = (Step(name="y", work=Call(tool="t")), Step(name="z", work=Call(tool="t")))
    plan = Plan(name="q", steps=(step, *more))
    commit(turns, "r", Start(prepare(plan)))
    lease = claimed(store)
    assert lease is not None
    commit(turns, "r", Settle(lease, Done(Succeeded(0), writes=(SetKey("other", "text"),))))
    one, other = claimed(store), claimed(store)
    assert one is not None and other is not None
    return one, other


def outcomes(store: Store, run: str = "r") -> list[Any]:
    return [fact.report.outcome for _, _, fact in store.facts(run) if isinstance(fact, StepSettled)]


def stuck_text(store: Store, run: str = "r") -> str:
    row = store.summary(run)
    assert row is not None
    return row.stuck


@pytest.mark.parametrize("kind", [StepIssued, StepSettled])
@pytest.mark.parametrize("error", [KeyError("step"), SystemExit(3), GeneratorExit(), RecursionError("deep")])
def test_a_report_whose_turn_raises_is_kept_and_folded_once_the_error_is_gone(
    turns: Turns, store: Store, clock: FakeClock, kind: type, error: BaseException
) -> None:
    lease = begun(turns, store)
    broken_by(kind, error=error)
    [post] = commit(turns, "r", Settle(lease, Done(Succeeded(7)), CAN))
    assert post.error is None, "the worker has reported"
    assert claimed(store) is None, "nobody runs it again"
    assert stuck_text(store).startswith(f"internal error: {type(error).__name__}")
    broken_by()
    clock.forward(1)
    commit(turns, "r", Look())
    assert outcomes(store) == [Succeeded(7)]
    assert stuck_text(store) == ""
    again = claimed(store)
    assert again is not None and again.command.id == "b/1"


def test_another_process_that_does_not_have_the_error_goes_on_at_once(
    turns: Turns, store: Store, clock: FakeClock
) -> None:
    lease = begun(turns, store)
    broken_by(StepIssued)
    commit(turns, "r", Settle(lease, Done(Succeeded(7))))
    broken_by()
    commit(new_turns(store), "r", Look())
    assert (outcomes(store), stuck_text(store)) == ([Succeeded(7)], "")
    commit(turns, "r", Look())  # the first one finds out, though its time has not come
    assert stuck_text(store) == ""
    lease = claimed(store)  # type: ignore[assignment]
    [post] = commit(turns, "r", Settle(lease, Done(Succeeded(8))))
    assert (post.error, outcomes(store)) == (None, [Succeeded(7), Succeeded(8)])


def test_it_is_tried_again_after_one_second_then_two_and_at_last_every_five_minutes(
    turns: Turns, store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = begun(turns, store)
    broken_by(StepIssued)
    commit(turns, "r", Settle(lease, Done(Succeeded(7))))
    pauses = []
    for _ in range(11):
        pauses.append((turns.stuck["r"].until - clock.at) // SECOND)
        caplog.clear()
        clock.forward(pauses[-1] - 0.1)
        commit(turns, "r", Look())
        assert not caplog.records, "it is not its time yet"
        clock.forward(0.1)
        commit(turns, "r", Look())
        [record] = caplog.records
        assert record.name == "refold.runtime" and record.levelno == logging.ERROR
        assert record.exc_info is not None and record.exc_info[0] is KeyError
        assert record.fields["run"] == "r"  # type: ignore[attr-defined]
        assert "run r is stuck: internal error: KeyError: 'step' (in record_fact, test_stuck.py:" in record.getMessage()
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_stuck_run_disturbs_no_other_in_the_same_commit(turns: Turns, store: Store, clock: FakeClock) -> None:
    one, other = begun(turns, store, "r"), begun(turns, store, "s")

    class Picky(Broken):
        def record_fact(self, fact: Fact) -> None:
            if self.state.run == "r" and isinstance(fact, StepIssued):
                raise KeyError("step")
            Decision.record_fact(self, fact)

    turns.decision = Picky
    posts = [Delivery("r", Settle(one, Done(Succeeded(1)), CAN)), Delivery("s", Settle(other, Done(Succeeded(2)), CAN))]
    turns.commit(posts)
    assert [post.error for post in posts] == [None, None]
    assert (outcomes(store, "r"), outcomes(store, "s")) == ([], [Succeeded(2)])
    nexts = [post.next for post in posts if post.next is not None]
    assert [(each.run, each.command.id) for each in nexts] == [("s", "b/1")]


def test_whoever_waits_for_an_answer_learns_of_the_error_and_a_body_asks_again(
    turns: Turns, store: Store, clock: FakeClock
) -> None:
    lease = begun(turns, store)
    broken_by(StepIssued, StepSettled)
    posts = commit(turns, "r", Settle(lease, Done(Succeeded(1))), Signal("s"), Note(lease, "k", Succeeded(1)))
    assert posts[0].error is None
    assert isinstance(posts[1].error, KeyError)
    assert isinstance(posts[2].error, Unavailable)


def test_a_report_that_is_kept_is_not_kept_twice(turns: Turns, store: Store, clock: FakeClock) -> None:
    lease = begun(turns, store)
    broken_by(StepIssued)
    first, second = commit(turns, "r", Settle(lease, Done(Succeeded(1))), Settle(lease, Done(Succeeded(2))))
    assert {type(each.error) for each in (first, second)} == {type(None), LeaseLost}
    [third] = commit(turns, "r", Settle(lease, Done(Succeeded(3))))
    assert isinstance(third.error, LeaseLost)


def test_a_stuck_run_takes_a_report_while_it_waits_without_deciding(
    turns: Turns, store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = both(turns, store)
    broken_by(StepSettled)
    commit(turns, "r", Settle(one, Done(Succeeded(1), lines=("out",))))
    caplog.clear()
    [post] = commit(turns, "r", Settle(other, Done(Succeeded(2))))
    assert (post.error, caplog.records) == (None, [])
    assert [line for _, line in store.views.lines("r")] == ["out"]
    broken_by()
    clock.forward(2)
    commit(turns, "r", Look())
    assert outcomes(store) == [Succeeded(0), Succeeded(1), Succeeded(2)]
    row = store.summary("r")
    assert row is not None and row.status == "completed"


@pytest.mark.parametrize(
    ("writes", "kind"),
    [((PutIf("k", 5, 1),), "stale_write"), ((SetKey("k", "text"), AddTo("other", 1)), "refused")],
)
def test_writes_that_do_not_fit_when_a_kept_report_is_read_fail_its_step(
    turns: Turns, store: Store, clock: FakeClock, writes: Any, kind: str
) -> None:
    one, other = both(turns, store)
    broken_by(StepSettled)
    commit(turns, "r", Settle(one, Done(Succeeded(1))))
    commit(turns, "r", Settle(other, Done(Succeeded(2), writes=writes)))
    broken_by()
    clock.forward(1)
    commit(turns, "r", Look())
    last = outcomes(store)[-1]
    assert isinstance(last, Failed) and last.fault.kind == kind


REFUSED = {"a start": START, "a decision": DecideGate("a", "approve"), "a cancel": Cancel("no", "", "b/1")}


@pytest.mark.parametrize("mail", REFUSED.values(), ids=[*REFUSED])
@pytest.mark.parametrize("kept", [False, True])
def test_mail_that_is_refused_behind_reports_of_items_leaves_them_in_the_log(
    turns: Turns, store: Store, clock: FakeClock, mail: Mail, kept: bool
) -> None:
    plan = Plan(name="loop", steps=(Step(name="a", work=Call(tool="t"), loop=Loop(items=[1, 2, 3], max_in_flight=3)),))
    commit(turns, "r", Start(prepare(plan)))
    leases = [claimed(store) for _ in range(3)]
    reports = [Settle(lease, Done(Succeeded(n))) for n, lease in enumerate(leases) if lease is not None]
    if kept:
        broken_by(ItemsSettled)
        commit(turns, "r", *reports)
        assert stuck_text(store)
        broken_by()
        clock.forward(1)
        reports = []
    *settled, refused = commit(turns, "r", *reports, mail)
    assert [post.error for post in settled] == [None] * len(reports)
    assert isinstance(refused.error, Conflict | NotFound)
    assert stuck_text(store) == ""
    row = store.summary("r")
    assert row is not None and row.status == "completed"


def test_a_report_that_parks_is_kept_too(turns: Turns, store: Store, clock: FakeClock) -> None:
    lease = begun(turns, store)
    broken_by(StepSettled)
    commit(turns, "r", Settle(lease, Done(Parked(signal="go", progress={"half": True}))))
    assert claimed(store) is None
    broken_by()
    clock.forward(1)
    commit(turns, "r", Look())
    assert outcomes(store) == [Parked(signal="go", progress={"half": True})]
    commit(turns, "r", Signal("go"))
    again = claimed(store)
    assert again is not None and again.command.progress == {"half": True}


def test_a_rebuild_does_not_free_a_command_whose_report_is_kept(tmp_path: Path, clock: FakeClock) -> None:
    with opened("sqlite", tmp_path, clock) as store:
        assert isinstance(store, SqliteStore)
        turns = new_turns(store)
        broken_by()
        lease = begun(turns, store)
        broken_by(StepIssued)
        commit(turns, "r", Settle(lease, Done(Succeeded(7))))
        assert rebuild(store, Values()) == {"r": None}
        assert claimed(store) is None
        broken_by()
        commit(new_turns(store), "r", Look())
        assert outcomes(store) == [Succeeded(7)]


def test_a_stuck_run_that_is_carried_elsewhere_takes_its_kept_reports_along(
    turns: Turns, store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    lease = begun(turns, store)
    broken_by(StepIssued)
    commit(turns, "r", Settle(lease, Done(Succeeded(7))))
    broken_by()
    data = export_run(store, "r", {})
    with opened("sqlite", tmp_path / "other", clock) as other:
        ids = iter(range(1000))
        import_run(other, data, Values(), unknown, lambda: f"id{next(ids)}")
        assert claimed(other) is None
        commit(new_turns(other), "r", Look())
        assert outcomes(other) == [Succeeded(7)]


def test_a_command_whose_report_is_kept_is_not_freed_when_its_lease_runs_out(
    turns: Turns, store: Store, clock: FakeClock
) -> None:
    lease = begun(turns, store)
    broken_by(StepIssued)
    commit(turns, "r", Settle(lease, Done(Succeeded(7))))
    clock.forward(1000)
    assert list(store.extend("w", 30)) == []
    assert list(store.expire(5)) == []
    assert claimed(store) is None
