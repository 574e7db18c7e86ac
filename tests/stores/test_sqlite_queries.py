"""Every query finds its way by an index, and a turn costs a fixed number of statements, however much it writes."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.core.commands import HELD
from refold.core.state import RUNNING
from refold.ports import Abilities
from refold.stores.sqlite import queries
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import NOON, FakeClock, claim, claim_one, commit, issue, letter, note, order, put
from tests.stores.sqlite_files import opened

NAMED: dict[str, str] = {
    name: text
    for name, text in vars(queries).items()
    if name.isupper() and isinstance(text, str) and name not in ("BEGIN", "COMMIT", "ROLLBACK") and name[0] != "_"
}
WHOLE = {
    "LOGS",
    "RAISE_FLOOR",
    "QUEUE_SIZES",
    "SHARE_SIZES",
    "LIMIT_SIZES",
}  # of a rebuild, and to count: they read everything
SORTED = {"DUE_TIMERS", "LETTERS", "RUNS_WITH_LETTERS", "LINES_OF_RUN"}  # a few rows of one run, or few letters


def plan_of(db: apsw.Connection, query: str) -> list[str]:
    count = max([int(n) for n in re.findall(r"\?(\d+)", query)], default=0) or query.count("?")
    return [row[3] for row in db.execute(f"explain query plan {query}", [None] * count)]


@pytest.mark.parametrize("name", NAMED)
def test_a_query_searches_by_an_index_and_sorts_nothing(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as store:
        steps = plan_of(store.file.db, NAMED[name])
    scans = [step for step in steps if step.startswith("SCAN") and "CONSTANT ROW" not in step]
    scans = [step for step in scans if not re.search(r"json_each|wanted VIRTUAL TABLE|SCAN (waiting|\(subquery)", step)]
    assert name in WHOLE or scans == []
    assert name in SORTED | WHOLE or [step for step in steps if "TEMP B-TREE" in step] == []


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("BEST_PRIORITY", "commands_first (namespace=? AND queue=? AND priority<?)"),
        ("NEXT_SHARE", "commands_first (namespace=? AND queue=? AND priority=? AND share>?)"),
        ("NEXT_LANE", "commands_first (namespace=? AND queue=? AND priority=? AND share=? AND lane>?)"),
        (
            "FIRST_IN_LANE",
            "commands_first (namespace=? AND queue=? AND priority=? AND share=? AND lane=? AND turn>?)",
        ),
        (
            "NEXT_IN_LANE",
            "commands_waiting (namespace=? AND run=? AND queue=? AND priority=? AND share=? AND lane=? AND place>?)",
        ),
        ("FRONT", "commands_waiting (namespace=? AND run=? AND queue=? AND priority=? AND share=? AND lane=?)"),
        ("BEST_PRIORITY_OF_RUN", "commands_waiting (namespace=? AND run=? AND queue=? AND priority<?)"),
        (
            "NEXT_LANE_OF_RUN",
            "commands_waiting (namespace=? AND run=? AND queue=? AND priority=? AND share=? AND lane>?)",
        ),
        ("LEASED_OF_LIMIT", "commands_limited (namespace=? AND lim=?)"),
        ("DUE_LATER", "commands_later (namespace=? AND not_before<?)"),
        ("LEASES_OF_WORKER", "commands_leased (namespace=? AND worker=?)"),
        ("LEASES", "commands_leased (namespace=?)"),
        ("DUE_RUNS", "timers_by_due (namespace=? AND due<?)"),
        ("NEXT_DUE", "timers_by_due (namespace=? AND due>?)"),
        ("CHANGED", "runs_by_change (namespace=? AND change>?)"),
        ("LAST_CHANGED", "runs_by_change (namespace=?)"),
        ("FACTS", "PRIMARY KEY (namespace=? AND run=? AND number>?)"),
        ("SOME_FACTS", "PRIMARY KEY (namespace=? AND run=? AND number=?)"),
    ],
)
def test_claim_due_expire_and_lists_use_the_index_made_for_them(tmp_path: Path, name: str, index: str) -> None:
    with opened(tmp_path) as store:
        assert any(index in step for step in plan_of(store.file.db, NAMED[name]))


@pytest.mark.parametrize(
    ("what", "index"),
    [
        ("age", "runs_by_age (namespace=? AND created_at<?)"),
        ("status", "runs_by_status (namespace=? AND status=? AND created_at<?)"),
        ("workflow", "runs_by_workflow (namespace=? AND workflow=? AND created_at<?)"),
        ("name", "runs_by_name (namespace=? AND name=? AND created_at<?)"),
        ("parent", "runs_by_parent (namespace=? AND parent=? AND created_at<?)"),
        ("key", "runs_by_key (namespace=? AND key=? AND created_at<?)"),
        ("label", "runs_by_label (namespace=? AND label=? AND created_at<?)"),
    ],
)
def test_a_list_of_runs_uses_the_index_of_what_was_asked_for(tmp_path: Path, what: str, index: str) -> None:
    with opened(tmp_path) as store:
        steps = plan_of(store.file.db, queries.runs_by(what, "and created_at < ?"))
    assert any(index in step for step in steps), steps


def test_bound_values_do_not_make_sqlite_prepare_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert store.file.db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


@contextmanager
def traced(store: SqliteStore) -> Iterator[Counter[str]]:
    """Statements by what they do; one that is executed for many rows counts once."""
    seen: Counter[str] = Counter()
    last: list[str] = []

    def note_it(_: apsw.Cursor, statement: str, __: Any) -> bool:
        if statement in queries_that_write and last[-1:] == [statement]:
            return True
        last.append(statement)
        seen[names.get(statement, statement)] += 1
        return True

    names = {text: name for name, text in vars(queries).items() if isinstance(text, str)}
    queries_that_write = {text for text in NAMED.values() if not text.lstrip().startswith("select")}
    cursor = store.file.db.cursor()
    before, store.file._cursor = store.file._cursor, cursor
    cursor.exec_trace = note_it
    try:
        yield seen
    finally:
        store.file._cursor = before


def writes(seen: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in seen.items() if name.split("_")[0] in WRITING}


WRITING = {"ADD", "GROW", "MOVE", "CHANGE", "REMOVE", "SET", "CLEAR", "PUT"}


def test_a_step_of_a_chain_writes_what_it_must_and_no_more(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("s1"))
        claim_one(store)
        changes = store.file.db.total_changes()
        with traced(store) as seen, store.turn(["r"]) as turn:
            assert not turn.letters("r") and not turn.due_timers("r")
            assert turn.lease("r", "s1") is not None
            put(turn, "r", note("settled"), note("issued"), commands={"s1": None, "s2": order("s2")})
            assert len(turn.claim(Abilities("w"), 30.0, 1)) == 1
        assert store.file.db.total_changes() - changes == 5  # 2 facts, 1 command out, 1 in, 1 row: as in the raw loop
    assert writes(seen) == {"ADD_FACT": 1, "REMOVE_COMMAND": 1, "ADD_APART": 1, "GROW_RUN": 1}
    assert sum(seen.values()) <= 11


def turn_of_many(store: SqliteStore, size: int, first: int) -> None:
    """Settles as many as it issues and claims, for as many runs."""
    runs = [f"r{n}" for n in range(size)]
    with store.turn(runs) as turn:
        for run in runs:
            put(
                turn,
                run,
                note("a"),
                note("b"),
                commands={f"c{first}": None, f"c{first + 1}": order(f"c{first + 1}"), "held": HELD},
                timers={"t": NOON, "u": None},
                letters=[letter(f"l{first}", run)],
                read_letters=[f"l{first - 1}"],
                blobs={f"h{first}": b"x"},
            )
        turn.claim(Abilities("w"), 30.0, size)


def test_a_turn_writes_each_table_by_one_statement_however_many_runs_it_advances(tmp_path: Path) -> None:
    counts = []
    for size in (2, 50):
        (tmp_path / str(size)).mkdir()
        with opened(tmp_path / str(size)) as store:
            turn_of_many(store, size, 1)
            turn_of_many(store, size, 2)
            with traced(store) as seen:
                turn_of_many(store, size, 3)
            counts.append(writes(seen))
    assert counts[0] == counts[1]
    assert max(counts[1].values()) == 1


def test_a_fan_out_of_any_width_is_claimed_by_a_few_statements(tmp_path: Path) -> None:
    counts = []
    for size in (8, 64):
        (tmp_path / str(size)).mkdir()
        with opened(tmp_path / str(size)) as store:
            issue(store, "r", *(order(f"w{n}") for n in range(size)))
            leases = claim(store, size)
            issue(store, "r", *(order(f"x{n}") for n in range(size)))  # so that some wait in the file
            with traced(store) as seen, store.turn(["r"]) as turn:
                commands = {each.command.id: None for each in leases} | {f"y{n}": order(f"y{n}") for n in range(size)}
                put(turn, "r", note(), commands=commands)
                for _ in range(size):
                    assert len(turn.claim(Abilities("w"), 30.0, 1)) == 1
            counts.append((writes(seen), seen["NEXT_IN_LANE"] + seen["FIRST_IN_LANE"] + seen["BEST_LANE"]))
    assert counts[0][0] == counts[1][0]
    assert max(counts[1][0].values()) <= 2
    assert counts[1][1] <= 10


def test_a_worker_that_finds_nothing_writes_nothing_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("other", queue="other"))
        with traced(store) as seen:
            assert list(claim(store)) == []
        assert "BEGIN" not in seen and sum(seen.values()) == 1


def test_a_turn_that_changes_nothing_costs_no_sync(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        size = (tmp_path / "refold.db-wal").stat().st_size
        with store.turn(["r"]) as turn:
            assert turn.head("r") == 1
        assert list(store.expire(5)) == [] and list(store.extend("w", 30)) == []
        store.due(10)
        assert (tmp_path / "refold.db-wal").stat().st_size == size


def test_a_status_that_stays_leaves_the_lists_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note(), status=RUNNING)
        with traced(store) as seen:
            commit(store, "r", note(), status=RUNNING)
        assert writes(seen) == {"ADD_FACT": 1, "GROW_RUN": 1}
        commit(store, "s", note(), status=RUNNING)
        with traced(store) as seen:
            commit(store, "r", note(), status=RUNNING)
        assert writes(seen) == {"ADD_FACT": 1, "MOVE_RUN": 1, "ADD_TO_FEED": 1}
        with traced(store) as seen:
            commit(store, "r", note(), status="waiting")
        assert writes(seen) == {"ADD_FACT": 1, "CHANGE_RUN": 1, "ADD_TO_FEED": 1}


def test_a_sweep_reads_leases_and_not_what_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        issue(store, "r", *(order(f"a{n}") for n in range(500)))
        claim(store, 3)
        with traced(store) as seen:
            store.expire(5)
        assert seen == {"WORKERS": 1, "LEASES": 1}
        clock.forward(60)
        with traced(store) as seen:
            store.expire(5)
        assert writes(seen) == {"MOVE_COMMAND": 1, "SET_TURN": 1}
