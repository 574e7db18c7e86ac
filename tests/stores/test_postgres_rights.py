"""PostgreSQL: a role with the rights of the guide does all the work, and neither changes tables nor rewrites a log."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import errors as pg

from refold.stores.postgres.migrate import migrate_server
from tests.cli.program import Done, noop, playbook, refold, shell
from tests.postgres_server import server_url

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "postgresql.md"


@pytest.fixture
def schema(tmp_path: Path) -> Iterator[str]:
    """With the tables, and with a role of the same name that has the rights of the guide."""
    name = f"t_{abs(hash(str(tmp_path)))}"
    migrate_server(f"{server_url()}?refold_schema={name}")
    (sql,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    text = (
        sql.replace("refold_worker", name).replace("refold.", f"{name}.").replace("schema refold ", f"schema {name} ")
    )
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"create role {name} login")
        connection.execute(text)
        yield name
        connection.execute(f"drop schema {name} cascade")
        connection.execute(f"drop role {name}")


def as_role(schema: str) -> str:
    parts = urlsplit(server_url())
    return urlunsplit(parts._replace(netloc=f"{schema}@{parts.netloc.rpartition('@')[2]}"))


def test_a_role_with_the_rights_of_the_guide_works(tmp_path: Path, schema: str) -> None:
    url = f"{as_role(schema)}?refold_schema={schema}"

    def good(*arguments: str) -> Done:
        done = refold(tmp_path, *arguments, "--db", url)
        assert done.code == 0, done
        return done

    item = "step: each\nloop: {in: '{{ [1, 2] }}', iterator: n}\ntool: {kind: noop}\nnext: ask"
    gate = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: last"
    play = playbook(tmp_path, item, gate, shell("last", "test -e ok", "end"), noop("end"))
    good("limits", "set", "mail", "--slots", "2")
    good("run", play, "--detach", "--name", "r", "--label", "a=b")
    good("worker", "--until-idle")
    good("gates", "approve", "r")
    good("worker", "--until-idle")
    (tmp_path / "ok").touch()
    good("runs", "retry", "r")
    (run,) = good("runs", "list", "-o", "json").data
    assert run["status"] == "completed"
    good("db", "check")
    good("db", "migrate")  # there is nothing to do
    done = refold(tmp_path, "runs", "delete", "r", "--db", url)
    assert done.code == 5 and "does not allow it: permission denied for table facts" in done.err, done


@pytest.mark.parametrize(
    "sql",
    ["update {}.facts set at = 0", "delete from {}.facts_0", "create table {}.mine (a int)", "drop table {}.runs"],
)
def test_that_role_neither_rewrites_a_log_nor_changes_tables(schema: str, sql: str) -> None:
    with psycopg.connect(as_role(schema), autocommit=True) as connection, pytest.raises(pg.InsufficientPrivilege):
        connection.execute(sql.format(schema))


def test_no_function_runs_with_the_rights_of_its_owner(schema: str) -> None:
    with psycopg.connect(server_url()) as connection:
        sql = "select count(*), count(*) filter (where prosecdef) from pg_proc where pronamespace = %s::regnamespace"
        found = connection.execute(sql, (schema,)).fetchone()
    assert found is not None and found[0] > 10 and found[1] == 0
