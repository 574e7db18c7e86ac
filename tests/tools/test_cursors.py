"""Loops over rows that are claimed: every row is run once, a failing claim is repeated, and nothing claimed is lost."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from refold.core.facts import StepSettled
from refold.core.outcomes import Parked
from refold.playbooks.playbook import read
from refold.settings import Settings
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

BOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: claims}}
workload: {{db: {db}}}
workflow:
  - step: work
    loop:
      cursor:
        kind: sqlite
        options: {{database: "{{{{ workload.db }}}}"}}
        claim: >-
          UPDATE jobs SET state = 'taken' WHERE id IN
          (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT {{{{ __frame_max_rows }}}}) RETURNING id
      iterator: row
      spec: {{mode: cursor, max_in_flight: {pullers}, frame: {{{frame}}}}}
    tool:
{tool}
    next: {{arcs: [{{step: end, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
  - {{step: end, tool: {{kind: noop, result: "{{{{ work }}}}"}}}}
"""
SAVE = """\
      - {name: save, kind: sqlite, database: "{{ workload.db }}",
         query: "UPDATE jobs SET runs = runs + 1, state = 'done' WHERE id = {{ row.id }}"}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.db"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT DEFAULT 'new', runs INTEGER DEFAULT 0)")
        db.executemany("INSERT INTO jobs (id) VALUES (?)", [(n,) for n in range(1, 8)])
    db.close()
    return file


def rows(file: Path) -> list[Any]:
    db = sqlite3.connect(file)
    try:
        return db.execute("SELECT state, runs FROM jobs ORDER BY id").fetchall()
    finally:
        db.close()


def play(
    file: Path, tool: str = SAVE, frame: str = "max_rows: 3", pullers: int = 1, book: str = BOOK
) -> tuple[Any, list[Any]]:
    text = book.format(db=file, tool=tool.rstrip("\n"), frame=frame, pullers=pullers)
    plan = read(text, "play.yaml", CATALOG).plan

    async def run() -> tuple[Any, list[Any]]:
        async with open_engine(settings=Settings(processes=1)) as engine:
            id = (await engine.start(plan)).id
            async with asyncio.timeout(60):
                await engine.wait(id)
            return await engine.show(id), [fact for _, _, fact in await engine.history(id)]

    return asyncio.run(run())


IN_TWO = """\
      - {name: look, kind: python, isolation: inline, input: {id: "{{ row.id }}"}, code: "result = {'id': id}"}
      - {name: save, kind: sqlite, database: "{{ workload.db }}",
         query: "UPDATE jobs SET runs = runs + {{ look.id }}, state = 'done' WHERE id = {{ row.id }}"}
"""


def test_every_row_does_all_its_tasks_with_its_own_results(jobs: Path) -> None:
    play(jobs, IN_TWO, "max_rows: 2, row_concurrency: 2")
    assert rows(jobs) == [("done", n) for n in range(1, 8)]


def test_rows_are_claimed_and_run_until_none_is_left(jobs: Path) -> None:
    shown, facts = play(jobs)
    assert shown.result == {"cursor": "drained", "frames": 3}
    assert rows(jobs) == [("done", 1)] * 7
    claims = [fact for fact in facts if isinstance(fact, StepSettled) and isinstance(fact.report.outcome, Parked)]
    assert len(claims) == 3  # each is kept before its rows are run


def test_several_claims_are_made_at_once(jobs: Path) -> None:
    shown, facts = play(jobs, pullers=2)
    assert shown.result["frames"] == 3 and rows(jobs) == [("done", 1)] * 7
    assert len([fact for fact in facts if isinstance(fact, StepSettled)]) < 6


@pytest.mark.parametrize("pullers", [1, 2])
def test_each_claim_has_an_idempotency_key_of_its_own(jobs: Path, pullers: int) -> None:
    book = BOOK.replace("'taken'", "$idempotency_key").replace("{{{{ __frame_max_rows }}}}", "2")
    shown, _ = play(jobs, SAVE.replace(", state = 'done'", ""), pullers=pullers, book=book)
    assert shown.status == "completed"
    claims = Counter(state for state, _ in rows(jobs))
    assert sorted(claims.values()) == [1, 2, 2, 2]


def test_all_rows_of_a_claim_can_be_run_at_once(jobs: Path) -> None:
    tool = """\
      - name: save
        kind: python
        input: {ids: "{{ frame.rows }}", db: "{{ workload.db }}"}
        code: |
          import sqlite3
          with sqlite3.connect(db) as c:
              c.executemany("UPDATE jobs SET runs = runs + 1, state = 'done' WHERE id = ?", [(r['id'],) for r in ids])
          c.close()
          result = len(ids)
"""
    shown, _ = play(jobs, tool, "max_rows: 4, process: frame")
    assert shown.result["frames"] == 2 and rows(jobs) == [("done", 1)] * 7


FAILS_ONCE = """\
      - name: save
        kind: python
        input: {id: "{{ row.id }}", db: "{{ workload.db }}"}
        code: |
          import sqlite3
          with sqlite3.connect(db) as c:
              c.execute("UPDATE jobs SET runs = runs + 1, state = 'done' WHERE id = ?", [id])
              runs = c.execute("SELECT runs FROM jobs WHERE id = ?", [id]).fetchone()[0]
              c.commit()
          c.close()
          if id == 2 and runs < WANTED:
              raise ValueError("not yet")
          result = runs
"""


def test_a_claim_whose_rows_fail_is_repeated_whole(jobs: Path) -> None:
    shown, _ = play(jobs, FAILS_ONCE.replace("WANTED", "3"))
    assert shown.status == "completed"
    assert rows(jobs) == [("done", 3)] * 3 + [("done", 1)] * 4


def test_after_so_many_tries_the_step_has_failed(jobs: Path) -> None:
    shown, _ = play(jobs, FAILS_ONCE.replace("WANTED", "9"), "max_rows: 3, max_attempts: 2")
    assert (shown.status, shown.error.fault.message) == ("failed", "not yet")
    assert [state for state, _ in rows(jobs)] == ["done"] * 3 + ["new"] * 4


def test_a_number_that_is_none_fails_the_step(jobs: Path) -> None:
    shown, _ = play(jobs, frame='max_rows: "{{ nothing.at.all }}"')
    assert shown.status == "failed" and "`max_rows`" in shown.error.fault.message
