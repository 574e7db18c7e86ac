"""Views: what any thread may read, on connections of its own, and only what is committed."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from msgspec import structs

from refold.core.facts import RunMigrated, StepFault
from refold.core.outcomes import Fault
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.core.state import COMPLETED, FAILED, RUNNING
from refold.errors import NotFound
from refold.ports import MOST_SCANNED, Abilities, Leased, Queue, RunChanges, RunFilter, RunPage, Store
from refold.queries.runs import list_runs
from tests.contracts.stores import (
    LEASE,
    NOON,
    PLAN_BYTES,
    PLAN_HASH,
    FakeClock,
    change,
    claim_one,
    commit,
    issue,
    note,
    order,
    put,
)

T = TypeVar("T")
SECOND = 1_000_000
BEFORE = (0, 0)  # the position before every change


def elsewhere(read: Callable[[], T]) -> T:
    """What another thread reads; it must not have to wait."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(read()), daemon=True)
    thread.start()
    thread.join(20.0)
    assert not thread.is_alive(), "the reader waits"
    return results[0]


def start(store: Store, run: str, at: int = NOON, workflow: str = "contract", status: str = RUNNING) -> None:
    row = Summary(run, workflow, PLAN_HASH, status, created_at=at)
    commit(store, run, note(), summary=row)


def names(page: RunPage) -> list[str]:
    return [row.run for row in page.rows]


def test_the_list_of_runs_comes_in_parts_that_follow_each_other(store: Store) -> None:
    for n in range(7):
        start(store, f"r{n}", NOON + n // 2)
    first = store.views.runs(limit=3)
    start(store, "new", NOON + 100)
    second = store.views.runs(after=first.after, limit=3)
    third = store.views.runs(after=second.after, limit=3)
    assert names(first) + names(second) + names(third) == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]
    assert (first.more, second.more, third.more) == (True, True, False)
    assert names(store.views.runs(after=third.after)) == []


def test_runs_are_chosen_by_status_and_workflow(store: Store) -> None:
    for n in range(6):
        start(store, f"r{n}", NOON + n, "even" if n % 2 == 0 else "odd", FAILED if n < 4 else RUNNING)
    views = store.views
    assert names(views.runs(RunFilter(FAILED))) == ["r3", "r2", "r1", "r0"]
    assert names(views.runs(RunFilter(workflow="odd"))) == ["r5", "r3", "r1"]
    page = views.runs(RunFilter(FAILED, "even"), limit=1)
    assert names(page) == ["r2"]
    assert names(views.runs(RunFilter(FAILED, "even"), page.after)) == ["r0"]
    assert names(views.runs(RunFilter(COMPLETED))) == []


def test_a_part_of_the_list_reads_a_limited_number_of_rows(store: Store) -> None:
    with store.turn([]) as turn:
        for n in range(MOST_SCANNED + 5):
            row = Summary(f"r{n:05}", "rare" if n == 0 else "common", PLAN_HASH, RUNNING, created_at=NOON)
            put(turn, row.run, note(), summary=row)
    wanted = RunFilter(RUNNING, "common", name="")
    page, runs, pages = store.views.runs(wanted, limit=MOST_SCANNED * 2), set[str](), 1
    runs |= set(names(page))
    while page.more:
        page = store.views.runs(wanted, page.after, MOST_SCANNED * 2)
        runs, pages = runs | set(names(page)), pages + 1
    assert (len(runs), pages) == (MOST_SCANNED + 4, 2)
    assert [row.run for row in list_runs(store.views, RunFilter(workflow="rare"), 5)] == ["r00000"]
    assert len(store.views.runs(limit=MOST_SCANNED * 2).rows) == MOST_SCANNED
    assert store.views.count(RunFilter(workflow="common")) == (MOST_SCANNED + 4, False)


def test_runs_are_chosen_by_name_key_labels_and_time(store: Store) -> None:
    for n in range(6):
        labels = {"team": "data" if n % 2 else "shop", "tier": str(n % 3)}
        row = Summary(f"r{n}", "w", PLAN_HASH, RUNNING, f"name{n % 3}", f"key{n}", created_at=NOON + n, labels=labels)
        commit(store, row.run, note(), summary=row)
    views = store.views
    assert names(views.runs(RunFilter(name="name1"))) == ["r4", "r1"]
    assert names(views.runs(RunFilter(key="key2"))) == ["r2"]
    assert names(views.runs(RunFilter(labels=(("team", "data"),)))) == ["r5", "r3", "r1"]
    assert names(views.runs(RunFilter(labels=(("team", "data"), ("tier", "0"))))) == ["r3"]
    assert names(views.runs(RunFilter(labels=(("team", "none"),)))) == []
    assert names(views.runs(RunFilter(since=NOON + 2, until=NOON + 4))) == ["r3", "r2"]
    assert names(views.runs(RunFilter(RUNNING, "w", labels=(("team", "shop"),), until=NOON + 3))) == ["r2", "r0"]
    assert names(views.runs(RunFilter(name="name1", key="key1"))) == ["r1"]
    assert names(views.runs(RunFilter(name="", workflow="w"))) == []
    assert views.runs(RunFilter(labels=(("team", "data"),)), limit=1).rows[0].labels == {"team": "data", "tier": "2"}
    assert views.count(RunFilter(labels=(("team", "data"),), since=NOON + 2)) == (2, False)
    assert views.count(RunFilter(name="name1", workflow="w")) == (2, False)


def test_runs_are_found_by_the_run_that_started_them_and_by_their_error(store: Store) -> None:
    broken = StepFault("one", 1, "unhandled failure", Fault("exit", "The disk is full"))
    for n, parent in enumerate(("", "r0", "r0", "r1")):
        row = Summary(f"r{n}", "w", "hash", FAILED if n == 2 else RUNNING, parent=parent, created_at=NOON + n)
        commit(store, f"r{n}", note(), summary=structs.replace(row, error=broken if n == 2 else None))
    views = store.views
    assert names(views.runs(RunFilter(parent=""))) == ["r0"]
    assert names(views.runs(RunFilter(parent="r0"))) == ["r2", "r1"]
    assert names(views.runs(RunFilter(RUNNING, parent="r0"))) == ["r1"]
    assert names(views.runs(RunFilter(error="disk IS"))) == ["r2"]
    assert names(views.runs(RunFilter(RUNNING, error="disk"))) == []
    counted = RunFilter(parent="r0"), RunFilter(error="disk"), RunFilter(parent="", error="disk")
    assert [views.count(each) for each in counted] == [(2, False), (1, False), (0, False)]


@pytest.mark.parametrize("text", ["full_disk", "100% of it", 'a "quoted" word', "größte Datei", "\\", "É"])
def test_an_error_is_found_by_any_part_of_its_text(store: Store, text: str) -> None:
    message = f'No room: FULL_DISK at 100% of it, a "quoted" word, \\ and the Größte Datei É of name {text}'
    for n, why in enumerate((message, "no room: full-disk at 1000 of it and fullxdisk")):
        broken = StepFault("one", 1, "unhandled failure", Fault("exit", why))
        row = Summary(f"r{n}", "w", PLAN_HASH, FAILED, created_at=NOON + n, error=broken)
        commit(store, row.run, note(), summary=row)
    assert names(store.views.runs(RunFilter(error=text.lower()))) == ["r0"]


def test_several_conditions_that_many_runs_fit_one_by_one_are_checked_together(store: Store) -> None:
    for n in range(40):
        workflow, status, team = ("a", "b")[n % 2], (RUNNING, FAILED)[n // 2 % 2], ("x", "y")[n // 4 % 2]
        row = Summary(f"r{n:02}", workflow, PLAN_HASH, status, created_at=NOON + n, name="n", labels={"team": team})
        commit(store, row.run, note(), summary=row)

    def found(**more: Any) -> list[str]:
        wanted, rows, after = RunFilter(**more), list[str](), None
        while True:
            part = store.views.runs(wanted, after, 3)
            rows += names(part)
            after = part.after
            if not part.more:
                return rows

    both = found(workflow="a", status=FAILED)
    assert both == [f"r{n:02}" for n in range(39, -1, -1) if n % 2 == 0 and n // 2 % 2 == 1]
    with_label = found(workflow="a", status=FAILED, labels=(("team", "y"),), name="n", parent="")
    assert with_label == [run for run in both if int(run[1:]) // 4 % 2 == 1]
    assert found(workflow="a", status=FAILED, labels=(("team", "x"), ("team", "y"))) == []


def test_a_side_stream_is_read_from_its_end(store: Store) -> None:
    commit(store, "r", note(), lines=["a", "b", "c"])
    views = store.views
    assert list(views.last_lines("r", limit=2)) == [(3, "c"), (2, "b")]
    assert list(views.last_lines("r", 2)) == [(1, "a")]
    assert list(views.last_lines("r", 1)) == list(views.last_lines("no")) == []


def test_a_list_by_label_comes_in_parts(store: Store) -> None:
    for n in range(5):
        row = Summary(f"r{n}", "w", PLAN_HASH, RUNNING, created_at=NOON, labels={"team": "data"})
        commit(store, row.run, note(), summary=row)
    wanted = RunFilter(labels=(("team", "data"),))
    first = store.views.runs(wanted, limit=3)
    second = store.views.runs(wanted, first.after, 3)
    assert (names(first), first.more) == (["r4", "r3", "r2"], True)
    assert (names(second), second.more) == (["r1", "r0"], False)


def test_a_run_that_is_removed_is_not_found_by_its_label_again(store: Store) -> None:
    row = Summary("r", "w", PLAN_HASH, COMPLETED, "n", "k", created_at=NOON, labels={"team": "data"})
    commit(store, "r", note(), summary=row)
    with store.turn(["r"]) as turn:
        turn.remove("r")
    for wanted in (RunFilter(labels=(("team", "data"),)), RunFilter(name="n"), RunFilter(key="k")):
        assert (names(store.views.runs(wanted)), store.views.count(wanted)) == ([], (0, False))


def test_a_migrated_run_is_found_by_its_new_workflow(store: Store) -> None:
    start(store, "r", workflow="old")
    commit(store, "r", RunMigrated("new plan"), summary=Summary("r", "new", PLAN_HASH, RUNNING, created_at=NOON))
    assert names(store.views.runs(RunFilter(workflow="new"))) == ["r"]
    assert names(store.views.runs(RunFilter(workflow="old"))) == []


def test_runs_that_changed_since_a_position_are_told_once_each_in_their_order(store: Store) -> None:
    assert store.views.changed() == store.views.changed(BEFORE) == RunChanges(BEFORE)
    for run in ("a", "b", "c"):
        start(store, run)
    first = store.views.changed(BEFORE)
    assert list(first.heads.items()) == [("a", 1), ("b", 1), ("c", 1)]
    assert store.views.changed(first.position) == RunChanges(first.position)
    present = store.views.changed().position
    assert store.views.changed(present) == RunChanges(present)
    for _ in range(2):
        commit(store, "b", note(), summary=Summary("b", "contract", PLAN_HASH, RUNNING, created_at=NOON))
    commit(store, "a", note(), summary=Summary("a", "contract", PLAN_HASH, FAILED, created_at=NOON))
    later = store.views.changed(first.position)
    assert list(later.heads.items()) == [("b", 3), ("a", 2)]
    assert store.views.changed(later.position).heads == {}
    assert list(store.views.changed(BEFORE).heads.items()) == [("c", 1), ("b", 3), ("a", 2)]


def test_changes_come_in_parts(store: Store) -> None:
    for n in range(5):
        start(store, f"r{n}")
    position, runs = BEFORE, list[str]()
    while (part := store.views.changed(position, limit=2)).heads:
        position = part.position
        runs += part.heads
    assert runs == [f"r{n}" for n in range(5)]
    commit(store, "r4", note(), summary=Summary("r4", "contract", PLAN_HASH, RUNNING, created_at=NOON))
    assert store.views.changed(position).heads == {"r4": 2}, "also the run that changed last"


def test_no_position_is_used_twice_after_a_run_was_removed(store: Store) -> None:
    start(store, "stays")
    start(store, "goes", status=COMPLETED)
    position = store.views.changed().position
    with store.turn(["goes"]) as turn:
        turn.remove("goes")
    assert store.views.changed(position).heads == {}
    start(store, "new")
    assert list(store.views.changed(position).heads) == ["new"], "a reader at the old position would miss it"


def test_no_position_is_used_twice_after_what_follows_from_the_logs_was_forgotten(store: Store) -> None:
    start(store, "r")
    position = store.views.changed().position
    with store.turn([]) as turn:
        turn.forget()
    start(store, "new")
    assert list(store.views.changed(position).heads) == ["new"]


def test_runs_are_counted_up_to_a_number(store: Store) -> None:
    for n in range(5):
        start(store, f"r{n}", status=FAILED if n < 2 else RUNNING, workflow="a" if n else "b")
    views = store.views
    assert views.count() == (5, False)
    assert views.count(most=5) == (5, False)
    assert views.count(most=4) == (4, True)
    assert views.count(RunFilter(FAILED)) == (2, False)
    assert views.count(RunFilter(FAILED), 1) == (1, True)
    assert views.count(RunFilter(workflow="a"), 3) == (3, True)
    assert views.count(RunFilter(FAILED, "b")) == (1, False)


def test_a_view_reads_what_a_turn_has_committed(store: Store) -> None:
    commit(store, "r", note("one"), note("two"), plan=PLAN_BYTES, blobs={"h": b"data"}, lines=["a", {"text": "b"}])
    store.put_snapshot("r", b"snapshot")
    views = store.views
    assert list(views.facts("r")) == list(store.facts("r"))
    assert [n for n, _, _ in views.facts("r", 1)] == [2] and [n for n, _, _ in views.facts("r", 0, 1)] == [1]
    assert [n for n, _, _ in views.some_facts("r", [2, 9, 0])] == [2]
    assert views.summary("r") == store.summary("r")
    assert (views.blob("r", "h"), views.snapshot("r"), views.plan(PLAN_HASH)) == (b"data", b"snapshot", PLAN_BYTES)
    assert list(views.lines("r")) == [(1, "a"), (2, {"text": "b"})]
    assert (list(views.facts("no")), views.summary("no"), views.snapshot("no"), views.plan("no")) == (
        [],
        None,
        None,
        None,
    )
    with pytest.raises(NotFound, match="has no blob"):
        views.blob("r", "no")


def test_a_reader_on_another_thread_sees_nothing_of_a_turn_before_its_end(store: Store) -> None:
    issue(store, "r", order("a/1"), order("a/2"), lines=["old"])
    dead = DeadLetter("r", "a", 1, "f", "python", "error", "no disk", NOON)

    def seen() -> tuple[object, ...]:
        views = store.views
        rows = {row.run: row.status for row in views.runs().rows}
        leases = [lease.command for lease in views.leases()]
        return rows, len(views.facts("r")), list(views.lines("r")), leases, list(views.dead()), views.queues()

    before = elsewhere(seen)
    with store.turn(["r", "s"]) as turn:
        put(turn, "r", note(), status=FAILED, lines=["new"], dead=[dead])
        put(turn, "s", note())
        turn.claim(Abilities("w"), LEASE, 1)
        assert elsewhere(seen) == before
    after = elsewhere(seen)
    assert after[:4] == ({"r": FAILED, "s": RUNNING}, 2, [(1, "old"), (2, "new")], ["a/1"])
    assert after[4] == [dead]


def test_a_reader_sees_nothing_of_a_turn_that_failed(store: Store) -> None:
    issue(store, "r", order("a/1"))
    with pytest.raises(RuntimeError), store.turn(["r", "s"]) as turn:
        put(turn, "r", note(), status=FAILED, commands={"a/1": None})
        put(turn, "s", note())
        raise RuntimeError
    views = store.views
    assert [(row.run, row.status) for row in views.runs().rows] == [("r", RUNNING)]
    assert len(views.facts("r")) == 1 and list(views.facts("s")) == []
    assert [queue.waiting for queue in views.queues()] == [1]


def test_many_threads_read_at_once(store: Store) -> None:
    for n in range(3):
        start(store, f"r{n}")
    barrier, counts = threading.Barrier(8), list[int]()

    def read() -> None:
        barrier.wait(20.0)
        counts.extend(len(store.views.runs().rows) for _ in range(5))

    threads = [threading.Thread(target=read, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert counts == [3] * 40


def test_lines_are_found_by_the_text_in_them(store: Store) -> None:
    lines = [{"text": "disk full"}, 'say "hello"', {"text": "all well"}, ["disk"]]
    commit(store, "r", note(), lines=lines * 400)
    views = store.views
    assert [n for n, _ in views.lines("r", search="disk", limit=4)] == [1, 4, 5, 8]
    assert [n for n, _ in views.lines("r", after=1590, search="disk")] == [1592, 1593, 1596, 1597, 1600]
    assert len(views.lines("r", search='"hello"')) == 400
    assert list(views.lines("r", search="nothing")) == list(views.lines("no", search="disk")) == []


def test_plans_are_found_by_the_beginning_of_their_hash(store: Store) -> None:
    store.put_plan(PLAN_HASH, PLAN_BYTES)
    assert list(store.views.plans(PLAN_HASH[:6])) == [PLAN_HASH]
    assert list(store.views.plans("")) == [PLAN_HASH] and list(store.views.plans("no such")) == []


def test_queues_say_what_waits_what_is_leased_and_since_when(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a/1", queue="slow"), order("a/2"))
    clock.elapse(5)
    later = order("b/3", not_before=clock.at + 60 * SECOND)
    issue(store, "s", order("b/1"), order("b/2"), later, order("b/4"))
    change(store, "s", "b/2", None)
    claim_one(store, queues=("default",))
    assert [(queue.name, queue.waiting, queue.leased) for queue in store.views.queues()] == [
        ("default", 3, 1),
        ("slow", 1, 0),
    ]
    default, slow = store.views.queues()
    assert slow == Queue("slow", 1, 0, slow.oldest)
    assert slow.oldest is not None and abs(slow.oldest - NOON) < 1000
    assert default.oldest is not None and 0 <= default.oldest - (NOON + 5 * SECOND) < 1000


def test_workers_are_known_from_their_first_claim_or_by_name_before_it(store: Store, clock: FakeClock) -> None:
    assert list(store.views.workers()) == []
    store.enrol(Abilities("early", ("q",), frozenset({"http"})))
    issue(store, "r", order("a/1"))
    claim_one(store, worker="busy")
    early, busy = sorted(store.views.workers(), key=lambda worker: -len(worker.can.worker))
    assert (early.can, early.leases, early.beat_at) == (Abilities("early", ("q",), frozenset({"http"})), 0, 0)
    assert (busy.can.worker, busy.leases, busy.beat_at) == ("busy", 1, NOON)
    clock.elapse(1)
    store.extend("busy", LEASE)
    assert [worker.beat_at for worker in store.views.workers()] == [NOON + SECOND, 0]
    store.enrol(Abilities("early", None, None))
    assert [worker.can for worker in store.views.workers() if worker.can.worker == "early"] == [
        Abilities("early", None, None)
    ]
    assert store.forget_workers() == 0, "they are running"


def test_leases_are_listed_for_all_runs_or_for_one(store: Store) -> None:
    for run in ("r", "s"):
        issue(store, run, order("a/1"))
    lease = claim_one(store, worker="w", runs=frozenset({"r"}))
    claim_one(store, worker="v", runs=frozenset({"s"}))
    held = Leased("r", "a/1", "w", NOON + round(LEASE * SECOND), True, NOON)
    assert store.views.leases("r") == [held]
    assert sorted(each.run for each in store.views.leases()) == ["r", "s"]
    assert list(store.views.leases("no")) == []
    store.hand_back(lease)
    assert list(store.views.leases("r")) == []


def test_a_lease_that_was_given_up_belongs_to_no_worker(store: Store) -> None:
    issue(store, "r", order("a/1"))
    store.hand_back(claim_one(store, worker="w"), lost=True)
    assert [(each.command, each.worker, each.is_alive) for each in store.views.leases()] == [("a/1", "", False)]


def test_a_removed_run_is_gone_from_the_views(store: Store) -> None:
    commit(store, "r", note(), status=COMPLETED, lines=["a"], blobs={"h": b"x"})
    with store.turn(["r"]) as turn:
        turn.remove("r")
    views = store.views
    assert names(views.runs()) == [] and views.summary("r") is None
    assert list(views.facts("r")) == [] and list(views.lines("r")) == []


def test_what_follows_from_the_logs_can_be_forgotten_and_written_again(store: Store) -> None:
    issue(store, "r", order("a/1"), timers={"t": NOON})
    late = claim_one(store)
    store.put_snapshot("r", b"snapshot")
    commit(store, "s", note(), status=FAILED, dead=[DeadLetter("s", "a", 1, "f", "t", "error", "m", NOON)])
    with store.turn([]) as turn:
        assert sorted(turn.forget()) == ["r", "s"]
        row = Summary("r", "contract", PLAN_HASH, RUNNING, created_at=NOON)
        put(turn, "r", summary=row, commands={"a/1": order("a/1")})
    views = store.views
    assert names(views.runs()) == ["r"] and list(views.dead()) == [] and views.snapshot("r") is None
    assert len(views.facts("r")) == 1 and len(views.facts("s")) == 1, "the logs stay"
    assert store.due(10)[0] == []
    assert claim_one(store).generation > late.generation


def test_what_was_forgotten_comes_back_with_a_turn_that_fails(store: Store) -> None:
    issue(store, "r", order("a/1"), timers={"t": NOON})
    with pytest.raises(RuntimeError), store.turn([]) as turn:
        turn.forget()
        raise RuntimeError
    assert names(store.views.runs()) == ["r"] and store.due(10)[0] == ["r"]
    assert claim_one(store).command.id == "a/1"


def test_a_store_says_how_it_is_and_how_much_it_holds(store: Store) -> None:
    issue(store, "r", order("a/1"), timers={"t": NOON}, lines=["one", "two"])
    sizes = store.views.sizes()
    assert (sizes["runs"], sizes["facts"], sizes["commands"], sizes["timers"], sizes["streams"]) == (1, 1, 1, 1, 2)
    health = store.views.health(thorough=True)
    assert health.is_writable and health.damage == ()


def test_views_show_the_time_of_the_store(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note())
    clock.elapse(3)
    assert store.views.now() == store.now() == NOON + 3 * SECOND


def test_a_store_alone_sees_no_foreign_writes(store: Store) -> None:
    before = store.foreign_writes()
    commit(store, "r", note())
    assert store.foreign_writes() == before
