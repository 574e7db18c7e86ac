"""PostgreSQL behind a pooler that shares sessions by transactions: found by test, and nothing of a session is used."""

import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from refold.errors import Ambiguous
from refold.ports import ANYTHING, Ring
from refold.stores.postgres.store import PostgresStore
from tests.cli.program import noop, playbook, refold, shell, started, until
from tests.contracts.stores import FakeClock, claimed_ids, commit, issue, note, order, postgres_url
from tests.pooler import Pooler, pooler
from tests.postgres_server import server_url

SETTINGS = "select current_setting('statement_timeout'), current_setting('plan_cache_mode')"
LOCKS = "select count(*) from pg_locks where locktype = 'advisory' and granted"
NAMED = "select count(*) from pg_prepared_statements"


@pytest.fixture(params=["last", "rounds"])
def between(request: pytest.FixtureRequest) -> Iterator[Pooler]:
    with pooler(urlsplit(server_url()).port or 0, in_rounds=request.param == "rounds") as made:
        yield made


def through(between: Pooler, url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{between.port}"))


def test_a_pooler_is_found_by_test_and_a_direct_connection_is_not_one(between: Pooler, tmp_path: Path) -> None:
    shared, direct = PostgresStore(through(between, postgres_url(tmp_path))), PostgresStore(postgres_url(tmp_path))
    commit(shared, "r", note())
    assert (shared.session.is_shared, direct.session.is_shared) == (True, False)
    assert len(direct.facts("r")) == len(shared.facts("r")) == 1
    shared.close()
    direct.close()


def test_nothing_of_a_session_is_used_and_turns_have_their_settings(between: Pooler, tmp_path: Path) -> None:
    url = through(between, postgres_url(tmp_path))
    first, second = PostgresStore(url), PostgresStore(url)
    first.listen(lambda rings: None)
    for number in range(5):
        for store in (first, second):
            commit(store, f"r{number}", note(f"{id(store)}"))
            assert store.views.summary(f"r{number}") is not None
        assert len(second.facts(f"r{number}")) == 2
    assert between.moves > 0 or not between.in_rounds
    for _ in range(5):
        with first.turn(["r1"]) as turn:
            turn.head("r1")
            assert first.session.rows(SETTINGS) == [("10s", "force_generic_plan")]
    with psycopg.connect(through(between, server_url()), autocommit=True) as connection:
        for _ in range(5):
            assert connection.execute(SETTINGS, prepare=False).fetchone() == ("0", "auto")
            assert connection.execute(NAMED, prepare=False).fetchone() == (0,)
    assert first.bell.is_deaf and not first.bell.is_held
    first.close()
    second.close()


def test_a_process_behind_a_pooler_sees_what_others_have_written_when_it_asks(between: Pooler, tmp_path: Path) -> None:
    store, other = PostgresStore(through(between, postgres_url(tmp_path))), PostgresStore(postgres_url(tmp_path))
    asked: set[Ring] = set()
    store.listen(asked.update)
    number = count()

    def is_noticed() -> bool:
        commit(other, f"r{next(number)}", note())
        return ANYTHING in asked

    until(is_noticed)
    heard: set[Ring] = set()
    other.listen(heard.update)
    issue(store, "r", order("a/1"))
    until(lambda: Ring("work", "default") in heard)
    store.close()
    other.close()


def test_a_way_around_the_pooler_is_used_for_rings_and_for_the_life_lock(between: Pooler, tmp_path: Path) -> None:
    direct = quote(server_url(), safe="")
    url = f"{through(between, postgres_url(tmp_path))}&refold_direct_url={direct}"
    store, other = PostgresStore(url), PostgresStore(postgres_url(tmp_path))
    heard: set[Ring] = set()
    assert store.listen(heard.update)
    assert store.session.is_shared and store.bell.is_held
    other.listen(lambda rings: None)
    issue(other, "r", order("a/1"))
    until(lambda: Ring("work", "default") in heard)
    assert claimed_ids(store) == ["a/1"]
    store.close()
    other.close()


def test_a_commit_that_broke_behind_a_pooler_is_never_called_undone(
    between: Pooler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    store = PostgresStore(through(between, postgres_url(tmp_path)), clock, clock.steady)
    commit(store, "r", note())
    turn = store.turn_of("r", 1)
    assert turn is not None
    store.session._note_lost()
    assert store.was_applied("r", 1, turn)
    store.session._note_lost()
    with pytest.raises(Ambiguous, match="behind a pooler"):
        store.was_applied("r", 2, "another")
    assert not store.was_applied("r", 2, "another"), "nothing broke since"
    store.close()


def test_workers_behind_a_pooler_share_a_run_and_doctor_says_which_mode_is_on(tmp_path: Path) -> None:
    with pooler(urlsplit(server_url()).port or 0) as between:
        url = through(between, postgres_url(tmp_path))
        step = "step: each\nloop: {in: '{{ range(20) | list }}', iterator: n, max_in_flight: 8}\n"
        item = "tool:\n  kind: shell\n  script: echo $N >> done\n  env: {N: '{{ n }}'}\nnext: ask"
        gate = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: after"
        play = playbook(tmp_path, step + item, gate, shell("after", "echo x >> after", "end"), noop("end"))
        assert refold(tmp_path, "run", play, "--detach", "--name", "r", "--db", url).code == 0

        def status() -> str:
            (run,) = refold(tmp_path, "runs", "list", "--db", url, "-o", "json").data
            return str(run["status"])

        with started(tmp_path, "worker", "--db", url) as one, started(tmp_path, "worker", "--db", url) as two:
            until(lambda: status() == "waiting")
            one.send_signal(signal.SIGKILL)
            one.wait(60)
            assert refold(tmp_path, "gates", "approve", "r", "--db", url).code == 0
            until(lambda: status() == "completed")
            two.send_signal(signal.SIGTERM)
            two.communicate(timeout=60)
        assert sorted(map(int, (tmp_path / "done").read_text().split())) == list(range(20))
        assert (tmp_path / "after").read_text() == "x\n"
        found = refold(tmp_path, "doctor", "--db", url, "-o", "json").data
        (sessions,) = [each for each in found if each["about"] == "sessions"]
        assert sessions["state"] == "warning" and "refold_direct_url" in sessions["detail"]
        found = refold(tmp_path, "doctor", "--db", postgres_url(tmp_path), "-o", "json").data
        assert [each["detail"] for each in found if each["about"] == "sessions"] == ["direct"]
