"""The commands about schedules, and the folder of a worker."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from refold.runtime.schedule_changes import find_schedule
from refold.wiring import open_intake, open_process
from tests.cli.in_process import command, here
from tests.cli.program import refold

REPORT = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: report, labels: {team: data}}
workload: {day: ""}
inputs: {day: string}
workflow:
  - step: only
    tool: {kind: noop, result: "{{ day }} for {{ schedule.planned }} in {{ run.folder }}"}
"""
NIGHTLY = """\
apiVersion: refold/v1
kind: Schedule
metadata: {name: nightly}
workflow: report.yaml
cron: "30 2 * * *"
zone: Europe/Berlin
input: {day: "{{ schedule.planned | in_zone('Europe/Berlin') | format_time }}"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "report.yaml").write_text(REPORT)
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    return tmp_path


def data(*arguments: str, code: int = 0) -> Any:
    done = command(*arguments, "-o", "json")
    assert done.code == code, done
    return json.loads(done.out)


def test_a_schedule_is_made_listed_shown_and_deleted(folder: Path) -> None:
    with here(folder):
        made = data("schedules", "create", "nightly.yaml")
        assert (made["id"], made["cron"], made["zone"], made["state"]) == (
            *("nightly", ["30 2 * * *"]),
            *("Europe/Berlin", "active"),
        )
        assert made["next"] is not None and made["labels"] == {"team": "data"} and made["file"] == ""
        again = command("schedules", "create", "nightly.yaml")
        assert again.code == 4 and "there is a schedule nightly" in again.err
        assert data("schedules", "create", "nightly.yaml", "--replace")["id"] == "nightly"
        assert [each["id"] for each in data("schedules", "list")] == ["nightly"]
        assert "30 2 * * * Europe/Berlin" in command("schedules", "list").out
        shown = command("schedules", "show", "nightly").out
        assert "workflow  report.yaml (report)" in shown and "overlap   skip" in shown
        assert data("schedules", "delete", "nightly") == {"id": "nightly", "deleted": True}
        lost = command("schedules", "show", "nightly")
        assert lost.code == 3 and "no schedule 'nightly'" in lost.err


def test_a_schedule_is_made_by_options(folder: Path) -> None:
    with here(folder):
        options = ("--name", "often", "--workflow", "report.yaml", "--every", "90s", "-i", "day={{ schedule.id }}")
        made = data("schedules", "create", *options, "--label", "a=b", "--overlap", "allow", "--paused")
        assert (made["every"], made["overlap"], made["state"]) == (90.0, "allow", "paused")
        assert made["labels"] == {"team": "data", "a": "b"} and made["input"] == {"day": "{{ schedule.id }}"}
        assert command("schedules", "create", "--name", "x").code == 2
        assert command("schedules", "create", "nightly.yaml", "--every", "1h").code == 2
        wrong = command("schedules", "create", "--name", "x", "--workflow", "report.yaml", "--cron", "1 2 3")
        assert wrong.code == 2 and "5 fields, not 3" in wrong.err


def test_a_triggered_run_is_executed_by_a_worker_and_shown_with_its_time(folder: Path) -> None:
    with here(folder):
        command("schedules", "create", "nightly.yaml")
        record = data("schedules", "trigger", "nightly")
        assert (record["state"], record["how"]) == ("started", "triggered")
        skipped = command("schedules", "trigger", "nightly")
        assert skipped.code == 4 and "is not over" in skipped.err and "--overlap allow" in skipped.err
        assert refold(folder, "worker", "--until-idle", "-q").code == 0
        run = data("runs", "show", record["run"])
        assert run["status"] == "completed" and run["labels"] == {"team": "data", "schedule": "nightly"}
        day = datetime.fromisoformat(record["planned"]).astimezone(ZoneInfo("Europe/Berlin")).date()
        assert run["result"] == f"{day} for {record['planned']} in {folder.resolve()}"
        times = data("schedules", "show", "nightly")["times"]
        assert [each["state"] for each in times] == ["skipped", "started"]
        assert "started by the schedule nightly" not in command("runs", "history", record["run"]).err


def test_a_backfill_is_previewed_started_and_shown(folder: Path) -> None:
    with here(folder):
        command("schedules", "create", "nightly.yaml")
        span = ("--from", "2026-03-28T00:00:00Z", "--until", "2026-03-30T12:00:00Z")
        dry = data("schedules", "backfill", "nightly", *span, "--dry-run")
        assert [each[:16] for each in dry["times"]] == ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]
        made = data("schedules", "backfill", "nightly", *span, "--id", "march", "--at-once", "2")
        assert (made["state"], made["total"], made["at_once"]) == ("running", 3, 2)
        assert refold(folder, "worker", "--until-idle", "-q").code == 0
        (shown,) = data("schedules", "show", "nightly")["backfills"]
        assert (shown["state"], shown["started"], shown["left"]) == ("done", 3, 0)
        runs = data("runs", "list", "--label", "backfill=march")
        runs = runs["runs"] if isinstance(runs, dict) else runs
        assert len(runs) == 3
        nothing = command("schedules", "backfill", "nightly", *span)
        assert nothing.code == 2 and "all 3 times have a run" in nothing.err
        assert command("schedules", "backfill", "nightly").code == 2
        assert command("schedules", "backfill", "nightly", "--pause", "none").code == 3
        assert data("schedules", "backfill", "nightly", "--stop", "march")["state"] == "stopped"
        late = command("schedules", "backfill", "nightly", "--resume", "march")
        assert late.code == 4 and "backfill march is stopped" in late.err


async def test_a_schedule_that_no_worker_serves_says_so_when_it_is_made_and_listed(folder: Path) -> None:
    nobody = "no worker serves these schedules; to start their runs: refold worker\n"
    with here(folder):
        assert command("schedules", "create", "nightly.yaml").err == nobody
        assert command("schedules", "list").err == nobody
        command("schedules", "pause", "nightly")
        assert command("schedules", "list").err == ""  # nothing would start
        command("schedules", "resume", "nightly")
        async with open_process(db="refold.db") as process:
            await process.enrol()
            assert command("schedules", "list").err == ""


def test_a_schedule_does_not_show_a_run_as_open_that_is_over(folder: Path) -> None:
    with here(folder):
        command("schedules", "create", "nightly.yaml")
        run = data("schedules", "trigger", "nightly")["run"]
        assert data("schedules", "show", "nightly")["open_runs"] == [run]
        assert refold(folder, "worker", "--until-idle", "-q").code == 0
        assert data("schedules", "show", "nightly")["open_runs"] == []
        assert "open " not in command("schedules", "show", "nightly").out


def test_pausing_and_resuming_are_told_with_their_note(folder: Path) -> None:
    with here(folder):
        command("schedules", "create", "nightly.yaml")
        paused = data("schedules", "pause", "nightly", "--note", "the move")
        assert (paused["state"], paused["note"], paused["next"]) == ("paused", "the move", None)
        assert data("schedules", "resume", "nightly")["state"] == "active"
        assert "was not paused" in command("schedules", "resume", "nightly").out


def test_a_preview_says_where_the_clock_changes(folder: Path) -> None:
    with here(folder):
        rows = data("schedules", "preview", "nightly.yaml", "-n", "3", "--from", "2026-03-28T00:00:00Z")
        assert [row["local"][:22] for row in rows] == [
            "2026-03-28T02:30:00+01",
            "2026-03-29T03:00:00+02",
            "2026-03-30T02:30:00+02",
        ]
        assert [row["note"] for row in rows] == [
            "",
            "the clock skips the time; this is the first moment after the gap; the clock has gone forward",
            "",
        ]
        assert "rules of zones" in command("schedules", "preview", "nightly.yaml").err


def test_validate_checks_a_schedule_with_its_workflow_and_inputs(folder: Path) -> None:
    with here(folder):
        assert command("validate", "nightly.yaml").out == "nightly.yaml: ok\n"
        (folder / "lost.yaml").write_text(NIGHTLY.replace("report.yaml", "reprt.yaml"))
        lost = command("validate", "lost.yaml")
        assert lost.code == 2 and "lost.yaml:4:11: error[bad-workflow]" in lost.err
        (folder / "wrong.yaml").write_text(NIGHTLY.replace("{day: ", "{day: 3, other: "))
        wrong = command("validate", "wrong.yaml")
        assert wrong.code == 2 and "wrong.yaml:7:8: error[bad-input]" in wrong.err
        (folder / "slip.yaml").write_text(NIGHTLY.replace("{day: ", "{dya: 3, day: "))
        slip = "`report` has no such input: did you mean `day`?"
        assert slip in command("validate", "slip.yaml").err
        made = command("schedules", "create", "slip.yaml")
        assert made.code == 2 and slip in made.err


def test_calendars_take_days_out(folder: Path) -> None:
    head = "apiVersion: refold/v1\nkind: Calendar\nmetadata: {name: holidays}\n"
    (folder / "holidays.yaml").write_text(head + "days: [2026-03-29]\n")
    (folder / "nightly.yaml").write_text(NIGHTLY + "except: holidays\n")
    with here(folder):
        warned = command("schedules", "create", "nightly.yaml")
        assert "there is no calendar 'holidays'" in warned.err
        assert data("schedules", "create", "holidays.yaml") == {"calendar": "holidays", "days": ["2026-03-29"]}
        rows = data("schedules", "preview", "nightly", "-n", "2", "--from", "2026-03-28T00:00:00Z")
        assert [row["utc"][:10] for row in rows] == ["2026-03-28", "2026-03-30"]


def test_the_folder_of_a_worker_makes_changes_and_pauses_schedules(folder: Path) -> None:
    worker = ("worker", "--playbooks", ".", "--until-idle")
    assert "schedule nightly: made" in refold(folder, *worker).err
    with open_intake(folder / "refold.db") as (_, store):
        first = find_schedule(store.views, "nightly")
    assert first.file == str(folder.resolve() / "nightly.yaml")
    assert "schedule nightly" not in refold(folder, *worker).err
    with open_intake(folder / "refold.db") as (_, store):
        assert find_schedule(store.views, "nightly") == first, "what is the same is not touched"
    (folder / "nightly.yaml").write_text(NIGHTLY.replace("30 2", "45 3"))
    (folder / "broken.yaml").write_text(NIGHTLY.replace("zone: Europe/Berlin", "zone: nowhere"))
    changed = refold(folder, *worker)
    assert changed.code == 0 and "schedule nightly: changed" in changed.err and "unknown-zone" in changed.err
    (folder / "nightly.yaml").rename(folder / "nightly.txt")
    (folder / "broken.yaml").unlink()
    assert "schedule nightly: paused, because its file is gone" in refold(folder, *worker).err
    with open_intake(folder / "refold.db") as (_, store):
        gone = find_schedule(store.views, "nightly")
    assert gone.paused and gone.when.cron == ("45 3 * * *",) and "is not there any more" in gone.note
    (folder / "nightly.txt").rename(folder / "nightly.yaml")
    assert "schedule nightly: resumed" in refold(folder, *worker).err


FLOW = """\
import refold


@refold.flow
async def greet(ctx: refold.Context, name: str) -> str:
    return f"hello {name}"
"""


def test_a_python_workflow_is_started_by_its_schedule(folder: Path) -> None:
    (folder / "greeting.py").write_text(FLOW)
    with here(folder):
        options = ("--name", "greet", "--workflow", "greeting:greet", "--every", "1d", "-i", "name={{ schedule.id }}")
        assert data("schedules", "create", *options)["code"] == "greeting:greet"
        wrong = command("schedules", "create", "--name", "x", *options[2:-1], "nobody=x")
        assert wrong.code == 2
        run = data("schedules", "trigger", "greet")["run"]
        path = {"PYTHONPATH": str(folder)}
        assert refold(folder, "worker", "--until-idle", "-q", "--code", "greeting:greet", **path).code == 0
        assert data("runs", "show", run)["result"] == "hello greet"
