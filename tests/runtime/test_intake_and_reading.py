"""Mail to runs that nobody executes here, and looking at runs without a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import Blob, Succeeded
from refold.core.plan import canonical, plan_hash
from refold.core.read.loaded import Loaded
from refold.errors import Conflict, Corrupt, InvalidValue, NotFound
from refold.plan import Arc, Call, Child, Loop, Plan, Step
from refold.ports import Abilities, Done, Store
from refold.queries.reading import RunReader, graph_of, with_values
from refold.runtime.keys import run_of_key
from refold.runtime.mail import Cancel, Pause, Resume, Settle
from refold.runtime.mailroom import Intake
from refold.wiring import open_intake

PLAN = Plan(name="p", steps=(Step(name="a", work=Call(tool="t"), arcs=(Arc(to="b"),)), Step(name="b")))
KID = Plan(name="kid", steps=(Step(name="k", work=Call(tool="t")),))
BOSS = Plan(name="boss", steps=(Step(name="c", work=Child(plan=plan_hash(KID))),))
LOOP = Plan(name="loop", steps=(Step(name="a", work=Call(tool="t"), loop=Loop(items=[1, 2, 3], max_in_flight=3)),))


@contextmanager
def intake(folder: Path) -> Iterator[tuple[Intake, Store]]:
    with open_intake(folder / "refold.db") as opened:
        yield opened


def settle(taken: Intake, store: Store, result: Any) -> None:
    """What a worker would do."""
    with store.turn([]) as turn:
        (lease,) = turn.claim(Abilities("w"), 30.0, 1)
    taken.send(lease.run, Settle(lease, Done(Succeeded(result))))


def status(store: Store, run: str) -> str:
    row = store.summary(run)
    assert row is not None
    return row.status


def test_a_run_is_started_and_steered_without_being_executed(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, store):
        assert taken.start(PLAN, {"n": 1}, "r", "named")
        assert status(store, "r") == "running"
        taken.send("r", Pause("ann"))
        assert status(store, "r") == "paused"
        taken.send("r", Resume())
        taken.send("r", Cancel("enough"))
        assert status(store, "r") == "cancelled"
        with pytest.raises(Conflict, match="cancelled"):
            taken.send("r", Pause())
        with pytest.raises(NotFound):
            taken.send("none", Pause())


def test_a_key_has_one_run_and_an_id_cannot_be_used_twice(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, _):
        run = run_of_key("k")
        assert taken.start(PLAN, {}, run, key="k") is True
        assert taken.start(PLAN, {}, run, key="k") is False
        assert taken.start(PLAN, {}, "r") is True
        with pytest.raises(Conflict):
            taken.start(PLAN, {}, "r")
        with pytest.raises(InvalidValue, match="input"):
            taken.start(PLAN, {"n": float("nan")}, "s")


def test_letters_that_follow_are_read_too(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, store):
        store.put_plan(plan_hash(KID), canonical(KID))
        taken.start(BOSS, {}, "r")
        (kid,) = [row.run for row in store.views.runs().rows if row.parent]
        taken.send("r", Pause())
        assert status(store, kid) == "paused"
        taken.send("r", Cancel())
        assert (status(store, kid), status(store, "r")) == ("cancelled", "cancelled")


def test_a_reading_goes_on_where_it_was(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, store):
        taken.start(PLAN, {}, "r", "named")
        reading = RunReader(store.views, "r")
        graph, state = reading.read()
        assert (graph.plan.name, state.name, state.seq) == ("p", "named", len(store.facts("r")))
        before = state.seq
        settle(taken, store, 7)
        _, state = reading.read()
        assert state.seq == len(store.facts("r")) > before
        assert state.steps[0].result == 7


def test_a_reading_begins_with_the_snapshot_and_gives_the_same(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, store):
        taken.start(PLAN, {}, "r")
        taken.turns.look("r")
        taken.turns.snapshot("r")
        assert store.snapshot("r") is not None
        settle(taken, store, 7)
        _, with_snapshot = RunReader(store.views, "r").read()
        store.put_snapshot("r", b"")
        _, without = RunReader(store.views, "r").read()
        assert with_snapshot == without


def test_a_run_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with intake(tmp_path) as (_, store), pytest.raises(NotFound, match="there is no run r"):
        RunReader(store.views, "r").read()


def test_values_in_blobs_are_loaded_when_they_are_asked_for(tmp_path: Path) -> None:
    large = "x" * 100_000
    with intake(tmp_path) as (taken, store):
        taken.start(PLAN, {}, "r")
        settle(taken, store, large)
        _, state = RunReader(store.views, "r").read()
        blob = state.steps[0].blob
        assert blob is not None

        def value(loaded: Loaded) -> Any:
            return loaded.blob(blob)

        assert with_values(store.views, "r", value) == large


def test_a_fact_or_a_value_or_a_plan_that_is_not_in_the_file_is_named(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, store):
        taken.start(PLAN, {}, "r")
        with pytest.raises(Corrupt, match=r"table facts, key \('r', 99\): the row is missing"):
            with_values(store.views, "r", lambda loaded: loaded.fact(99))
        with pytest.raises(Corrupt, match=r"table blobs, key \('r', 'hash'\): the row is missing"):
            with_values(store.views, "r", lambda loaded: loaded.blob(Blob("hash", 1)))
        with pytest.raises(Corrupt, match=r"table plans, key \('hash'\): the row is missing"):
            graph_of(store.views, "hash")


def test_an_error_of_whoever_computes_is_not_taken_for_one_of_the_file(tmp_path: Path) -> None:
    with intake(tmp_path) as (taken, store):
        taken.start(PLAN, {}, "r")
        with pytest.raises(ZeroDivisionError):
            with_values(store.views, "r", lambda loaded: 1 / len(loaded.blobs))
