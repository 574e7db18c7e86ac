"""The command `noetl log`: what an event log of NoETL amounts to, as a table and as JSON, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import command, here
from tests.cli.program import Done

START = {"event_type": "playbook_started", "context": {"path": "examples/scores", "workload": {"limit": 10}}}
END = {"event_type": "playbook_completed"}


def numbered(*events: dict[str, Any], execution: int = 7) -> list[dict[str, Any]]:
    """The events as rows of a log, one second after the other."""
    times = (f"2027-01-15T12:00:{second:02}Z" for second in range(60))
    rows = zip(enumerate(events, 1), times, strict=False)
    return [{"event_id": n, "execution_id": execution, "created_at": at, **event} for (n, event), at in rows]


def done(step: str, data: Any, id: str = "", kind: str = "command.completed", **columns: Any) -> dict[str, Any]:
    result = {"context": {"data": data}}
    return {"event_type": kind, "node_name": step, "meta": {"command_id": id or step}, "result": result, **columns}


def entered(step: str, **context: Any) -> dict[str, Any]:
    return {"event_type": "step.enter", "node_name": step, "context": context}


def shown(folder: Path, rows: Any, *options: str) -> Done:
    (folder / "log.json").write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
    with here(folder):
        return command("noetl", "log", "log.json", *options)


def report(folder: Path, rows: Any, *options: str) -> Any:
    return json.loads(shown(folder, rows, "-o", "json", *options).out)


def test_the_table_has_every_visit_with_its_result_and_the_end_of_the_run(tmp_path: Path) -> None:
    rows = numbered(START, entered("load"), done("load", {"rows": 2}), {"event_type": "step.skipped", "node_name": "x"})
    told = shown(tmp_path, [*rows, *numbered(END)])
    assert told.code == 0
    assert [" ".join(line.split()) for line in told.out.splitlines()] == [
        "execution 7 of examples/scores: completed",
        "STEP VISIT STATUS ITEMS TRIES TOOK RESULT",
        'load 1 completed 1 1.0 s {"rows":2}',
        "x 1 skipped",
        'result: {"rows":2}',
    ]


def test_json_has_workload_context_times_and_whole_results(tmp_path: Path) -> None:
    sets = {"event_type": "ctx.updated", "result": {"context": {"step": "load", "gen": 3, "values": {"total": 2}}}}
    run = report(tmp_path, numbered(START, entered("load"), done("load", {"rows": 2}), sets, END))
    assert (run["execution"], run["playbook"], run["status"]) == ("7", "examples/scores", "completed")
    assert (run["workload"], run["context"], run["result"]) == ({"limit": 10}, {"total": 2}, {"rows": 2})
    assert (run["began_at"], run["ended_at"]) == ("2027-01-15T12:00:00.000000Z", "2027-01-15T12:00:04.000000Z")
    [visit] = run["visits"]
    assert (visit["step"], visit["visit"], visit["status"], visit["result"]) == ("load", 1, "completed", {"rows": 2})
    assert (visit["began_at"], visit["ended_at"]) == ("2027-01-15T12:00:01.000000Z", "2027-01-15T12:00:02.000000Z")


def test_a_loop_has_its_items_with_the_results_in_their_order_and_the_first_failure(tmp_path: Path) -> None:
    failed = done("score", None, "score:i1", "command.failed", error="boom", attempt=2)
    fan = entered("score", iterations_expected=3)
    items = [done("score", "c", "score:i2"), done("score", "a", "score:i0"), failed]
    run = report(tmp_path, numbered(START, fan, *items, {"event_type": "playbook_failed"}))
    [visit] = run["visits"]
    assert (visit["items"], visit["failed_items"], visit["attempts"]) == (3, 1, 2)
    assert (visit["status"], visit["result"]) == ("failed", ["a", None, "c"])
    assert visit["error"] == "1 of 3 items failed: boom"
    assert (run["status"], run["error"]) == ("failed", "1 of 3 items failed")
    assert "2/3" in shown(tmp_path, numbered(START, fan, *items)).out


def test_a_step_that_is_entered_again_has_another_visit_and_what_runs_at_the_end_was_dropped(tmp_path: Path) -> None:
    events = [entered("a"), done("a", 1, "a:1"), entered("a"), done("a", 2, "a:2"), entered("b")]
    run = report(tmp_path, numbered(START, *events, {"event_type": "playbook_cancelled"}))
    visits = [(visit["step"], visit["visit"], visit["status"], visit["result"]) for visit in run["visits"]]
    assert visits == [("a", 1, "completed", 1), ("a", 2, "completed", 2), ("b", 1, "dropped", None)]
    assert run["status"] == "cancelled"


def test_a_log_without_an_end_is_of_a_run_that_is_in_progress(tmp_path: Path) -> None:
    run = report(tmp_path, numbered(START, entered("a")))
    assert (run["status"], run["ended_at"], run["visits"][0]["status"]) == ("in_progress", None, "running")


@pytest.mark.parametrize("form", ["list", "object", "lines"])
def test_a_log_is_a_list_an_object_with_events_or_one_object_per_line(tmp_path: Path, form: str) -> None:
    rows = numbered(START, entered("a"), done("a", 1), END)
    lines = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    text = {"list": json.dumps(rows), "object": json.dumps({"events": rows}), "lines": lines}[form]
    assert report(tmp_path, text)["visits"][0]["result"] == 1


def test_one_of_several_executions_is_chosen_by_its_id(tmp_path: Path) -> None:
    rows = [*numbered(START, done("a", 1), END), *numbered(START, done("b", 2), END, execution=8)]
    undecided = shown(tmp_path, rows)
    assert (undecided.code, "choose one with --execution: 7, 8" in undecided.err) == (2, True)
    assert report(tmp_path, rows, "--execution", "8")["result"] == 2
    missing = shown(tmp_path, rows, "--execution", "9")
    assert (missing.code, "the log has no execution 9; it has 7, 8" in missing.err) == (3, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "log: it has no events"),
        ("[]", "log: it has no events"),
        ('{"event_type": "x"}\nnope\n', "line 2: is not JSON"),
        ("[3]", "event 1: must be a JSON object, not int"),
        ('[{"event_type": "x"}, {"kind": "y"}]', "event 2: has no text `event_type`"),
        ("apiVersion: noetl.io/v2", "line 1: is not JSON"),
        ("[" * 10_000 + "]" * 10_000, "log: has values within values that are too deep"),
        ('{"event_type": "x"}\n' + "[" * 10_000 + "]" * 10_000, "line 2: has values within values that are too deep"),
        (json.dumps([entered("each", iterations_expected=10**18)]), "at most 1,000,000"),
    ],
)
def test_what_is_not_an_event_log_is_refused_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    told = shown(tmp_path, text)
    assert (told.code, told.out) == (2, "")
    assert why in told.err


def test_a_missing_file_and_one_that_is_not_text_are_refused(tmp_path: Path) -> None:
    with here(tmp_path):
        missing = command("noetl", "log", "nowhere.json")
        (tmp_path / "bytes").write_bytes(b"\xff\xfe")
        broken = command("noetl", "log", "bytes")
        folder = command("noetl", "log", ".")
    assert (missing.code, "there is no file nowhere.json" in missing.err) == (3, True)
    assert (broken.code, "bytes: is not UTF-8 text" in broken.err) == (2, True)
    assert (folder.code, ".: cannot be read" in folder.err) == (2, True)


@pytest.mark.parametrize(
    ("address", "code", "why"),
    [
        ("postgresql://refold:pass@127.0.0.1:1/x", 5, "the database of the event log cannot be reached"),
        ("postgresql://not an address", 2, "the address: "),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(tmp_path: Path, address: str, code: int, why: str) -> None:
    with here(tmp_path):
        told = command("noetl", "log", address)
    assert (told.code, told.out, why in told.err, "pass@" in told.err) == (code, "", True, False)


LOOP = {"iterations_expected": 2, "iterator_var": "n"}


def item(step: str, index: int, data: Any, kind: str = "command.completed") -> dict[str, Any]:
    return {**done(step, data, f"7:{step}:i{index}", kind), "meta": {"command_id": f"7:{step}:i{index}"}}


def asked(folder: Path, rows: Any, *view: str) -> Done:
    return shown(folder, rows, *view)


RUN = numbered(
    START,
    entered("load"),
    done("load", {"rows": 2}),
    entered("each", **LOOP),
    item("each", 1, "b"),
    item("each", 0, "a"),
    END,
)


def test_the_views_print_what_the_commands_of_runs_print(tmp_path: Path) -> None:
    rows = [*RUN, *numbered(START, entered("wait"), execution=8)]
    listed = json.loads(asked(tmp_path, rows, "list", "-o", "json").out)
    assert {row["id"]: (row["workflow"], row["status"]) for row in listed} == {
        "7": ("examples/scores", "completed"),
        "8": ("examples/scores", "queued"),  # the log names no worker that has it
    }
    shown_run = json.loads(asked(tmp_path, rows, "show", "7", "-o", "json").out)
    assert shown_run["created_at"] == "2027-01-15T12:00:00.000000Z"
    assert shown_run["steps"]["load"]["status"] == "completed"
    history = asked(tmp_path, rows, "history", "7").out
    assert "load/1 succeeded" in history and "run completed" in history
    items = json.loads(asked(tmp_path, rows, "items", "7", "each", "-o", "json").out)
    assert [(each["item"], each["status"]) for each in items] == [(0, "completed"), (1, "completed")]
    assert "wait" in asked(tmp_path, rows, "why", "8").out
    assert not list(tmp_path.glob("*.db")), "nothing is written"


def test_a_view_of_a_run_that_the_log_does_not_have_names_the_view_that_lists_those_it_has(tmp_path: Path) -> None:
    for view in ("show", "history", "items", "why"):
        told = asked(tmp_path, RUN, view, "99")
        assert told.code == 3
        assert told.err.rstrip().endswith("there is no run '99'; `refold noetl log log.json list` shows them")


def test_a_view_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    told = asked(tmp_path, RUN, "visits")
    assert (told.code, "the views are report, list, show, history, items, why" in told.err) == (2, True)


def test_no_view_offers_to_continue_a_run_of_a_log(tmp_path: Path) -> None:
    rows = numbered(START, entered("a"))
    for view in ("list", "show"):
        told = asked(tmp_path, rows, view)
        assert told.code == 0 and "worker" not in told.out + told.err


@pytest.mark.parametrize(
    ("events", "difference"),
    [
        ([entered("a"), done("a", 1), END, {"event_type": "playbook_failed"}], "the run: NoETL would say failed"),
        ([entered("each", **LOOP), item("each", 1, "b"), item("each", 0, "a"), END], "in the order of their arrival"),
        (
            [entered("a"), done("a", 1), entered("a"), done("a", 2, "second"), END],
            "step a: NoETL would keep an earlier result",
        ),
        (
            [
                entered("a"),
                done("a", 1),
                {"event_type": "command.started", "node_name": "a", "meta": {"command_id": "a"}},
            ],
            "step a: NoETL would say running, here it is completed",
        ),
    ],
)
def test_it_says_where_noetls_own_reconstruction_would_differ(
    tmp_path: Path, events: list[dict[str, Any]], difference: str
) -> None:
    told = shown(tmp_path, numbered(START, *events))
    assert told.code == 0 and difference in told.err
    assert any(difference in each for each in report(tmp_path, numbered(START, *events))["differences"])


def test_it_says_why_a_run_without_a_start_differs(tmp_path: Path) -> None:
    told = shown(tmp_path, numbered(entered("a")))
    assert "NoETL would say initial, here it is in_progress: it has begun with its first event" in told.err


def test_it_says_nothing_where_both_agree(tmp_path: Path) -> None:
    told = shown(tmp_path, numbered(START, entered("load"), done("load", {"rows": 2}), END))
    assert "NoETL would" not in told.err


def test_an_event_table_is_read_from_its_address(tmp_path: Path, postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("create schema if not exists noetl")
        connection.execute(
            "create table noetl.event (event_id bigint, execution_id bigint, event_type text, node_name text,"
            " created_at timestamptz, status text, context jsonb, result jsonb, meta jsonb)"
        )
        try:
            for row in RUN:
                columns = {name: json.dumps(each) if isinstance(each, dict) else each for name, each in row.items()}
                names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
                connection.execute(f"insert into noetl.event ({names}) values ({marks})", list(columns.values()))
            with here(tmp_path):
                told = command("noetl", "log", postgres, "show", "7", "-o", "json")
                missing = command("noetl", "log", "--table", "noetl.nothing", postgres)
                connection.execute("delete from noetl.event")
                empty = command("noetl", "log", postgres)
        finally:
            connection.execute("drop schema noetl cascade")
    assert json.loads(told.out)["status"] == "completed"
    assert missing.code == 3 and "noetl.nothing cannot be read" in missing.err
    assert empty.code == 2 and "it has no events" in empty.err
