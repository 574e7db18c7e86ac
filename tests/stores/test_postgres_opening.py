"""PostgreSQL addresses that cannot be used: one clear message each, and exit code 5."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from refold.errors import Unreachable, Unusable
from refold.stores.postgres.address import read_address, without_password
from refold.stores.postgres.migrate import migrate_server, newest
from refold.stores.postgres.store import PostgresStore
from tests.cli.program import environment, noop, playbook, refold, shell, started, until
from tests.contracts.stores import commit, note
from tests.postgres_server import Server, server_url, session_server


def with_parts(url: str, **parts: str) -> str:
    return urlunsplit(urlsplit(url)._replace(**parts))


def server_as(own: Server, user: str) -> str:
    return with_parts(own.url, netloc=f"{user}@127.0.0.1:{own.port}")


@pytest.fixture
def schema(tmp_path: Path) -> Iterator[str]:
    """A schema of its own, so that its version can be changed."""
    name = f"t_{abs(hash(str(tmp_path)))}"
    yield name
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"drop schema if exists {name} cascade")


@pytest.fixture
def url(schema: str) -> str:
    return f"{server_url()}?refold_schema={schema}"


def fails(folder: Path, url: str, *arguments: str) -> str:
    """Run a command, which must end with 5 and one line; return it."""
    done = refold(folder, *(arguments or ("runs", "list")), "--db", url)
    assert (done.code, done.out) == (5, ""), done
    (line,) = done.err.strip().splitlines()
    assert "secret" not in line
    return line


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    url = "postgresql://refold:secret@127.0.0.1:1/refold"
    play = playbook(tmp_path, noop("a"))
    for command in (("runs", "list"), ("run", play), ("worker",), ("db", "migrate")):
        assert "postgresql://refold@127.0.0.1:1/refold does not answer" in fails(tmp_path, url, *command)


def test_a_password_that_is_wrong(tmp_path: Path) -> None:
    name = f"u_{abs(hash(str(tmp_path)))}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"create user {name} password 'right'")
        connection.execute(f"alter user {name} nologin")
    try:
        netloc = f"{name}:secret@{urlsplit(server_url()).netloc.rpartition('@')[2]}"
        line = fails(tmp_path, with_parts(server_url(), netloc=netloc))
        assert f"{name}@" in line and "not permitted to log in" in line
    finally:
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute(f"drop user {name}")


def test_a_server_that_wants_another_password(tmp_path: Path) -> None:
    own = session_server()
    name, rules = f"u_{abs(hash(str(tmp_path)))}", own.data / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(own.url, autocommit=True) as connection:
        connection.execute(f"create user {name} password 'right'")
        rules.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{before}")
        connection.execute("select pg_reload_conf()")
        try:
            until(lambda: refold(tmp_path, "runs", "list", "--db", server_as(own, name)).code)
            for user in (f"{name}:secret", name):
                line = fails(tmp_path, server_as(own, user), "worker")
                assert f"{name}@127.0.0.1:{own.port}/postgres does not accept the user or the password" in line
        finally:
            rules.write_text(before)
            connection.execute("select pg_reload_conf()")
            connection.execute(f"drop user {name}")


def test_a_setting_of_libpq_that_is_wrong_is_no_server_that_does_not_answer(tmp_path: Path) -> None:
    here = server_url()
    for url in (
        f"{here}?sslmode=nonsense",
        f"{here}?nonsense=1",
        "postgresql://127.0.0.1:99999999/x",
        "postgresql://[::1/x",
    ):
        assert "is not an address of PostgreSQL" in fails(tmp_path, url, "worker")


def test_a_database_or_a_user_that_does_not_exist(tmp_path: Path) -> None:
    assert "there is no such database" in fails(tmp_path, with_parts(server_url(), path="/nowhere"))
    netloc = f"nobody_known@{urlsplit(server_url()).netloc.rpartition('@')[2]}"
    assert "there is no such user" in fails(tmp_path, with_parts(server_url(), netloc=netloc))


def test_a_url_of_another_kind_or_with_a_setting_that_does_not_exist(tmp_path: Path) -> None:
    assert "mysql:// is not a kind of database that Refold knows" in fails(tmp_path, "mysql://host/db")
    assert "refold_colour is not a setting" in fails(tmp_path, f"{server_url()}?refold_colour=red")
    assert "refold_schema='Drop Table'" in fails(tmp_path, f"{server_url()}?refold_schema=Drop%20Table")


def test_a_database_without_tables_is_read_by_no_command_and_filled_by_the_first_run(tmp_path: Path, url: str) -> None:
    assert "has no tables of Refold in the schema" in fails(tmp_path, url)
    assert refold(tmp_path, "run", playbook(tmp_path, noop("a")), "--db", url).code == 0
    assert len(refold(tmp_path, "runs", "list", "--db", url, "-o", "json").data) == 1


def test_tables_of_a_newer_release_are_refused_by_name(tmp_path: Path, url: str, schema: str) -> None:
    migrate_server(url)
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"insert into {schema}.schema_version (version) values (999)")
    for command in (("runs", "list"), ("db", "migrate"), ("run", playbook(tmp_path, noop("a")))):
        line = fails(tmp_path, url, *command)
        assert f"has schema 999, and this release of Refold knows {newest()}: upgrade Refold" in line


def test_tables_of_an_older_release_are_updated_by_migrate_alone(
    tmp_path: Path, url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_server(url)
    from refold.stores.postgres import migrate

    files = [*migrate._files(), (newest() + 1, "later.sql")]
    text = "create table refold.later (a int);"
    monkeypatch.setattr(migrate, "_files", lambda: files)
    monkeypatch.setattr(migrate, "_text", lambda name: text)
    with pytest.raises(Unusable, match=r"is older than .*: run `refold db migrate`"):
        PostgresStore(url)
    assert migrate_server(url) == migrate_server(url) == newest()
    PostgresStore(url).close()
    with psycopg.connect(server_url()) as connection:
        assert connection.execute(f"select count(*) from {schema}.later").fetchone() == (0,)


def test_a_server_that_takes_no_writes_is_named(tmp_path: Path, url: str) -> None:
    migrate_server(url)
    read_only = f"{url}&options={quote('-c default_transaction_read_only=on')}"
    line = fails(tmp_path, read_only, "run", playbook(tmp_path, noop("a")))
    assert "read-only" in line


def test_a_database_that_is_dropped_while_it_is_used_is_named(tmp_path: Path) -> None:
    name = f"d_{abs(hash(str(tmp_path)))}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
        store = PostgresStore(with_parts(server_url(), path=f"/{name}"))
        commit(store, "r", note())
        connection.execute(f"drop database {name} with (force)")
    with pytest.raises((Unusable, Unreachable)):
        commit(store, "r", note())
    with pytest.raises(Unusable, match="there is no such database"):
        commit(store, "r", note())
    store.close()


def test_a_run_whose_database_is_dropped_ends_with_one_message(tmp_path: Path) -> None:
    name = f"d_{abs(hash(str(tmp_path)))}"
    play = playbook(tmp_path, shell("one", "touch began; sleep 600"))
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
        url = with_parts(server_url(), path=f"/{name}")
        with started(tmp_path, "run", play, "--db", url) as process:
            until(lambda: (tmp_path / "began").exists())
            connection.execute(f"drop database {name} with (force)")
            _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    (line,) = [line for line in err.splitlines() if line.startswith("error")]
    assert "there is no such database" in line


def test_a_run_waits_while_its_server_is_read_only_and_then_goes_on(tmp_path: Path) -> None:
    name = f"d_{abs(hash(str(tmp_path)))}"
    end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
    play = playbook(tmp_path, shell("one", "echo x >> one; until test -e go; do sleep 0.05; done", "two"), noop("two"))
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
        url = with_parts(server_url(), path=f"/{name}")
        try:
            with started(tmp_path, "run", play, "--db", url) as process:
                until(lambda: (tmp_path / "one").exists())
                connection.execute(f"alter database {name} set default_transaction_read_only = on")
                connection.execute(end, (name,))
                (tmp_path / "go").touch()
                assert "read-only" in fails(tmp_path, url, "run", play)
                assert process.poll() is None
                connection.execute(f"alter database {name} reset default_transaction_read_only")
                connection.execute(end, (name,))
                process.communicate(timeout=60)
            assert process.returncode == 0
            assert (tmp_path / "one").read_text() == "x\n"
        finally:
            connection.execute(f"drop database {name} with (force)")


def test_tables_that_are_dropped_while_they_are_used_are_named(url: str, schema: str) -> None:
    store = PostgresStore(url)
    commit(store, "r", note())
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"drop schema {schema} cascade")
    with pytest.raises(Unusable, match="has not the tables that this release needs"):
        commit(store, "r", note())
    store.close()


def test_the_driver_that_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('No module named psycopg')\n")
    done = subprocess.run(
        [sys.executable, "-m", "refold.cli", "runs", "list", "--db", "postgresql://host/db"],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "install refold[postgres]" in done.stderr


def test_two_processes_that_find_no_tables_make_them_once(url: str) -> None:
    first, second = PostgresStore(url), PostgresStore(url)
    commit(first, "r", note())
    assert len(second.facts("r")) == 1
    first.close()
    second.close()


def test_passwords_are_not_shown() -> None:
    assert without_password("postgresql://me:pa%40ss@h1:5432,h2/db") == "postgresql://me@h1:5432,h2/db"
    assert without_password("postgresql://h/db?user=me&password=x&a=b") == "postgresql://h/db?user=me&password=***&a=b"
    address = read_address("postgresql://me@h/db?refold_schema=team&refold_namespace=a%20b&sslmode=require")
    assert (address.schema, address.namespace) == ("team", "a b")
    assert address.url == "postgresql://me@h/db?sslmode=require"
    socket = read_address("postgresql:///db?host=/run/pg&refold_schema=team")
    assert socket.url == "postgresql:///db?host=%2Frun%2Fpg"


def test_doctor_refuses_a_server_on_which_commits_do_not_last(tmp_path: Path, url: str) -> None:
    migrate_server(url)
    PostgresStore(url).close()
    with psycopg.connect(server_url()) as connection:
        (fsync,) = connection.execute("select current_setting('fsync')").fetchone() or ("",)
    done = refold(tmp_path, "doctor", "--db", url, "-o", "json")
    states = {finding["about"]: finding["state"] for finding in done.data}
    assert states["durability"] == ("ok" if fsync == "on" else "error")
    assert done.code == (0 if fsync == "on" else 1)
