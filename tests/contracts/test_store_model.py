"""Any sequence of turns, claims, reports, heartbeats and sweeps leaves a store as a tiny model of it says."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from refold.core.commands import HELD
from refold.core.outcomes import SECOND
from refold.core.state import PAUSED, RUNNING
from refold.errors import Conflict
from refold.ports import Abilities, Lease, StoreTurn
from tests.contracts.model import LEASE_FOR, Draft, Model, Row, seen
from tests.contracts.stores import STORES, FakeClock, letter, note, opened, order

RUNS = ("r", "s", "t", "")
WORKERS = ("w", "v", "")
QUEUES = ("x", "y")
TOOLS = ("http", "shell")

choices = st.integers(0, 5)  # among the newest leases, or the commands claimed most often
waits = st.sampled_from([0.0, 1.0, 5.000001, 20.0, 31.0, 31.0, -10.0])
edits = st.one_of(
    st.tuples(
        st.just("issue"),
        st.fixed_dictionaries(
            {
                "queue": st.sampled_from([*QUEUES[:1] * 3, *QUEUES]),
                "priority": st.sampled_from([0, 0, 0, 1, -1]),
                "tool": st.sampled_from([*TOOLS[:1] * 3, *TOOLS]),
                "timeout": st.sampled_from([None, 5.0, 45.0]),
                "prefer": st.sampled_from(["", "", "", *WORKERS[:2]]),
            }
        ),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 20]),
    ),
    st.tuples(st.just("again"), choices, st.sampled_from([0, 20])),
    st.tuples(st.just("hold"), choices),
    st.tuples(st.just("remove"), choices),
    st.tuples(st.just("timer"), st.sampled_from("abc"), st.none() | st.integers(-5, 40)),
    st.tuples(st.just("letter"), st.sampled_from(RUNS), st.sampled_from("klm")),
    st.tuples(st.just("read"), st.integers(0, 3)),
    st.tuples(st.just("status"), st.sampled_from([PAUSED, RUNNING])),
)
drafts = st.tuples(
    st.sampled_from(RUNS), st.integers(0, 3), st.lists(edits, max_size=4), st.sampled_from([0, 0, 0, 1, -1])
)
turns = st.lists(drafts, min_size=1, max_size=3, unique_by=lambda draft: draft[0])
abilities = st.builds(
    Abilities,
    worker=st.sampled_from(WORKERS),
    queues=st.sampled_from([QUEUES, None, QUEUES[::-1], QUEUES[:1]]),
    tools=st.sampled_from([None, None, frozenset(TOOLS[:1])]),
    runs=st.sampled_from([None, None, frozenset(RUNS[:2])]),
)


class Mishap(Exception):
    pass


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.closing = ExitStack()
        self.clock = FakeClock()
        folder = self.closing.enter_context(tempfile.TemporaryDirectory())
        self.store = self.closing.enter_context(opened(kind, Path(folder), self.clock))
        for worker in WORKERS:  # so that the store knows that they are alive
            self.store.enrol(Abilities(worker))
        self.model = Model(RUNS)
        self.number = 0

    def teardown(self) -> None:
        self.closing.close()

    @initialize(first=turns)
    def begin(self, first: list[Any]) -> None:
        self.take_turn(first, None, 0, False)

    @rule(turn=turns, then=st.none() | abilities, limit=st.integers(0, 4), fails=st.sampled_from([False, False, True]))
    def take_turn(self, turn: list[Any], then: Abilities | None, limit: int, fails: bool) -> None:
        """Each run writes with a right or a wrong expected head; then somebody claims; then all of it may fail."""
        planned = [(self.draft(run, facts, edits), off) for run, facts, edits, off in turn]
        leases: Sequence[Lease] = ()
        try:
            with self.store.turn([draft.run for draft, _ in planned]) as store_turn:
                assert store_turn.now == self.model.now
                for draft, off in planned:
                    self.write(store_turn, draft, off)
                if then is not None:
                    leases = store_turn.claim(then, LEASE_FOR, limit)
                if fails:
                    raise Mishap
        except Mishap:
            return
        for draft, off in planned:
            if not off:
                self.model.apply(draft)
        if then is not None:
            self.model.claim(leases, then, limit)

    @rule(can=abilities, limit=st.integers(1, 6), seconds=waits)
    def claim(self, can: Abilities, limit: int, seconds: float) -> None:
        self.wait(seconds)
        with self.store.turn([]) as turn:
            leases = turn.claim(can, LEASE_FOR, limit)
        self.model.claim(leases, can, limit)

    @rule(which=choices, facts=st.integers(0, 2))
    def settle(self, which: int, facts: int) -> None:
        """A report counts if its lease is still the one: its command goes, in one commit with its facts."""
        for lease in self.some_lease(which):
            draft = self.draft(lease.run, facts, [])
            draft.commands[lease.command.id] = None
            with self.store.turn([lease.run]) as turn:
                held = turn.lease(lease.run, lease.command.id)
                accepted = held is not None and held.generation == lease.generation
                if accepted:
                    draft.write(turn, turn.head(lease.run))
            assert accepted == self.model.is_current(lease)
            if accepted:
                self.model.apply(draft)

    @rule(which=choices)
    def hand_back(self, which: int) -> None:
        for lease in self.some_lease(which):
            current = self.model.is_current(lease)
            assert self.store.hand_back(lease) == current
            if current:
                self.model.rows[lease.run, lease.command.id].free()

    @rule(which=choices)
    def publish(self, which: int) -> None:
        for lease in self.some_lease(which):
            self.number += 1
            current = self.model.is_current(lease)
            assert self.store.publish(lease, [f"line {self.number}"]) == current
            if current:
                self.model.lines[lease.run].append(f"line {self.number}")

    @rule(worker=st.sampled_from(WORKERS), seconds=waits)
    def extend(self, worker: str, seconds: float) -> None:
        self.wait(seconds)
        self.model.extend(worker)
        kept = sorted((seen(lease) for lease in self.store.extend(worker, LEASE_FOR)), key=repr)
        assert kept == sorted((row.lease() for row in self.model.held_by(worker)), key=repr)

    @rule(allowed=st.integers(0, 2), seconds=waits)
    def expire(self, allowed: int, seconds: float) -> None:
        self.wait(seconds)
        assert sorted(self.store.expire(allowed), key=repr) == sorted(self.model.expire(allowed), key=repr)

    @invariant()
    def every_log_is_numbered_without_a_gap(self) -> None:
        for run, log in self.model.logs.items():
            assert list(self.store.facts(run)) == [(n, at, fact) for n, (at, fact, _) in enumerate(log, 1)]
            assert [self.store.turn_of(run, n) for n in range(1, len(log) + 1)] == [turn for _, _, turn in log]
            row = self.store.summary(run)
            assert (None if row is None else row.status) == self.model.status.get(run)

    @invariant()
    def every_command_is_held_by_whom_the_model_says(self) -> None:
        with self.store.turn(RUNS) as turn:
            for run in RUNS:
                rows = [row for row in self.model.rows.values() if row.run == run]
                assert turn.head(run) == len(self.model.logs[run])
                assert turn.claimed(run) == {row.command.id for row in rows if row.worker is not None}
                assert [seen(turn.lease(run, row.command.id)) for row in rows] == [row.lease() for row in rows]
            for lease in self.model.given:
                held = turn.lease(lease.run, lease.command.id)
                assert (held is not None and held.generation == lease.generation) == self.model.is_current(lease)

    @invariant()
    def letters_timers_and_lines_are_what_was_written(self) -> None:
        timers = self.model.timers.items()
        with self.store.turn(RUNS) as turn:
            for run in RUNS:
                texts = self.model.letters[run].items()
                assert list(turn.letters(run)) == [letter(key, run, text) for key, text in texts]
                due = [self.model.timers[run, key] for key in turn.due_timers(run)]
                assert due == sorted(at for (owner, _), at in timers if owner == run and at <= self.model.now)
        for run in RUNS:
            assert list(self.store.views.lines(run)) == list(enumerate(self.model.lines[run], 1))

    @invariant()
    def due_runs_are_those_with_letters_or_due_timers(self) -> None:
        status, now = self.model.status, self.model.now
        runs, next_due = self.store.due(100)
        rings = {run for (run, _), at in self.model.timers.items() if at <= now and status[run] != PAUSED}
        assert len(set(runs)) == len(runs)
        assert set(runs) == rings | {run for run in RUNS if self.model.letters[run]}
        future = {(run, at) for (run, _), at in self.model.timers.items() if at > now}
        assert next_due in {None, *(at for _, at in future)}
        for run, at in future:
            assert status[run] == PAUSED or (next_due is not None and next_due <= at)

    def wait(self, seconds: float) -> None:
        self.clock.forward(seconds)
        self.model.now = max(self.model.now, self.clock.at)

    def some_lease(self, which: int) -> list[Lease]:
        return self.model.given[: len(self.model.given) - which][-1:]

    def write(self, turn: StoreTurn, draft: Draft, off: int) -> None:
        head = len(self.model.logs[draft.run])
        if not off:
            draft.write(turn, head)
            return
        with pytest.raises(Conflict):
            draft.write(turn, head + off)

    def draft(self, run: str, facts: int, edits: list[Any]) -> Draft:
        self.number += 1
        said = [note(f"fact {self.number}", n) for n in range(facts)] or [note("start")] * (not self.model.logs[run])
        draft = Draft(run, f"turn {self.number}", said, self.model.status.get(run, RUNNING))
        for kind, *details in edits:
            getattr(self, f"draft_{kind}")(draft, *details)
        return draft

    def draft_issue(self, draft: Draft, fields: dict[str, Any], count: int, delay: int) -> None:
        not_before = self.model.now + delay * SECOND if delay else 0
        for _ in range(count):
            self.number += 1
            prefer_until = self.model.now + 3 * SECOND if fields["prefer"] else 0
            command = order(f"c{self.number}", not_before=not_before, prefer_until=prefer_until, **fields)
            draft.commands[f"c{self.number}"] = command

    def draft_again(self, draft: Draft, which: int, delay: int) -> None:
        for row in self.some_row(draft, which):
            old = row.command
            draft.commands[old.id] = order(
                old.id,
                attempt=old.attempt + 1,
                queue=old.queue,
                priority=old.priority,
                tool=old.tool,
                timeout=old.timeout,
                not_before=self.model.now + delay * SECOND,
            )

    def draft_hold(self, draft: Draft, which: int) -> None:
        for row in self.some_row(draft, which):
            draft.commands[row.command.id] = HELD

    def draft_remove(self, draft: Draft, which: int) -> None:
        for row in self.some_row(draft, which):
            draft.commands[row.command.id] = None

    def draft_timer(self, draft: Draft, key: str, seconds: int | None) -> None:
        draft.timers[key] = None if seconds is None else self.model.now + seconds * SECOND

    def draft_letter(self, draft: Draft, to: str, key: str) -> None:
        draft.letters.append((to, key, f"{key} of {draft.turn}"))

    def draft_read(self, draft: Draft, count: int) -> None:
        draft.read = list(self.model.letters[draft.run])[:count]

    def draft_status(self, draft: Draft, status: str) -> None:
        draft.status = status

    def some_row(self, draft: Draft, which: int) -> Iterator[Row]:
        rows = [row for key, row in self.model.rows.items() if key[0] == draft.run and key[1] not in draft.commands]
        yield from sorted(rows, key=lambda row: -row.generation)[which:][:1]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.timeout(1200)  # with a server and on a busy machine
def test_a_store_behaves_like_its_model(kind: str) -> None:
    agrees_with_the_model(kind, examples=200)


@pytest.mark.proof
@pytest.mark.parametrize("kind", STORES)
def test_a_store_behaves_like_its_model_for_long(kind: str) -> None:
    agrees_with_the_model(kind, examples=1_000)


def agrees_with_the_model(kind: str, examples: int) -> None:
    class Machine(StoreMachine):
        machines: ClassVar[int] = 0

        def __init__(self) -> None:
            super().__init__(kind)
            Machine.machines += 1

    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=40))
    assert Machine.machines >= examples
