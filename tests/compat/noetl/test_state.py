"""What NoETL's state reconstruction promises, kept by Refold: first for NoETL's own logs, then by the engine itself."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Retry
from refold.core import codec
from refold.core.facts import (
    Bypassed,
    Fact,
    FanOutEntered,
    ItemsIssued,
    ItemsSettled,
    Move,
    Parent,
    Routed,
    RunStarted,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.fold.apply import Record, fold
from refold.core.graph import analyse
from refold.core.outcomes import SECOND, AddTo, AppendTo, Failed, Fault, Report, Succeeded
from refold.core.plan import canonical, plan_hash
from refold.core.read.summary import shown_steps, summarize
from refold.core.state import (
    BYPASSED,
    CANCELLED,
    COMPLETED,
    ENTERED,
    FAILED,
    INITIAL,
    ISSUED,
    PENDING,
    RUNNING,
    SKIPPED,
    FanOut,
    RunState,
    StepState,
)
from refold.errors import Corrupt, LeaseLost
from refold.plan import Arc, Call, Loop, Step
from refold.playbooks.noetl_log.events import life_of, status_of
from refold.playbooks.noetl_log.log import PLAYBOOK, ImportedRun, read_log
from refold.playbooks.noetl_log.log_reader import CONTEXT, ENDS, STEP_EVENTS
from refold.playbooks.noetl_log.results import extract_user_data, flatten_labels, with_data, with_sets
from refold.ports import Done, Lease, Writes
from tests.compat.stage import Stage, plan, step, work

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
ENVELOPE: dict[str, Any] = {
    "status": "COMPLETED",
    "context": {
        "call_index": 0,
        "result": {
            "status": "success",
            "context": {"data": {"warm": True, "note": "mild"}, "status": "success", "stdout": "", "stderr": ""},
        },
    },
}
DONE = frozenset({COMPLETED, FAILED, SKIPPED, BYPASSED, CANCELLED})


def enveloped(data: Any) -> dict[str, Any]:
    return {"status": "COMPLETED", "context": {"result": {"status": "success", "context": {"data": data}}}}


def event(kind: str, name: str | None = None, **columns: Any) -> dict[str, Any]:
    return {"event_type": kind, "node_name": name, "execution_id": 12345, "catalog_id": 67890, "status": "", **columns}


def numbered(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """The events as the rows of a log: each with its own id, one second after the one before."""
    rows = enumerate(events, 1)
    return [{"event_id": n, "created_at": (NOON + timedelta(seconds=n)).isoformat(), **row} for n, row in rows]


def read(*events: dict[str, Any]) -> ImportedRun:
    return read_log(numbered(*events))


def of_command(command: str, kind: str = "command.completed", name: str = "looped", **columns: Any) -> dict[str, Any]:
    return event(kind, name, meta={"command_id": command}, **columns)


def fanned_out(count: int, name: str = "looped") -> dict[str, Any]:
    return event("step.enter", name, context={"iterations_expected": count, "iterator_var": "item"})


def updated(name: str, completion: int, **values: Any) -> dict[str, Any]:
    payload = {"step": name, "gen": completion, "values": values}
    return event("ctx.updated", result={"status": "CONTEXT", "context": payload})


def state_of(imported: ImportedRun, name: str) -> StepState:
    return imported.state().steps[imported.graph.index[name]]


def life(imported: ImportedRun, name: str) -> str:
    return state_of(imported, name).life


def fan_of(imported: ImportedRun, name: str = "looped") -> FanOut:
    fan = state_of(imported, name).fan
    assert fan is not None
    return fan


def facts_of(imported: ImportedRun) -> list[Fact]:
    return [fact for _, _, fact in imported.records]


def moves_of(facts: Sequence[Fact]) -> list[Move]:
    return [move for fact in facts if isinstance(fact, Routed) for move in fact.moves]


@pytest.mark.parametrize(("life", "word"), [(INITIAL, "initial"), (RUNNING, "in_progress"), (COMPLETED, "completed")])
def test_execution_state_is_shown_in_noetls_word(life: str, word: str) -> None:
    assert status_of(life) == word
    assert life_of(word) == life


@pytest.mark.parametrize(
    ("word", "life"),
    [
        ("initial", INITIAL),
        ("pending", INITIAL),
        ("RUNNING", RUNNING),
        ("in_progress", RUNNING),
        ("completed", COMPLETED),
        ("Success", COMPLETED),
        ("FAILED", FAILED),
        ("error", FAILED),
        ("cancelled", CANCELLED),
        ("canceled", CANCELLED),
        ("whatever", INITIAL),
    ],
)
def test_execution_state_is_read_from_any_spelling_of_noetls_words(word: str, life: str) -> None:
    assert life_of(word) == life


def test_workflow_state_is_rebuilt_from_events() -> None:
    imported = read(
        event("playbook_started", context={"workload": {"key": "value"}, "path": "test/playbook", "version": "1"}),
        event("step.enter", "step1"),
        event("command.issued", "step1"),
        event("command.completed", "step1", result={"output": "success"}),
    )
    state = imported.state()
    assert state == fold(imported.graph, imported.records, RunState(run="12345"))
    assert (state.run, state.life, state.input) == ("12345", RUNNING, {"key": "value"})
    assert state.plan == plan_hash(imported.plan)
    assert life(imported, "step1") == COMPLETED
    assert state_of(imported, "step1").result == {"output": "success"}
    assert imported.plan.name == "test/playbook"


def test_workflow_state_builds_its_context_from_workload_results_and_ids() -> None:
    context = read(
        event("playbook_started", context={"workload": {"var1": "value1"}, "path": "test/path"}),
        event("command.completed", "step1", result={"output": "result1"}),
    ).context()
    assert context["var1"] == context["workload"]["var1"] == "value1"
    assert context["steps"]["step1"] == {"output": "result1"}
    assert [context[name] for name in ("execution_id", "catalog_id", "path")] == ["12345", "67890", "test/path"]
    assert "version" not in context


def test_step_state_goes_from_entered_to_issued_to_completed() -> None:
    log = [event("step.enter", "a"), event("command.issued", "a"), event("command.completed", "a")]
    assert [life(read(*log[:length]), "a") for length in (1, 2, 3)] == [ENTERED, ISSUED, COMPLETED]


def test_a_skipped_step_is_a_bypassed_visit_that_is_done_but_not_completed() -> None:
    imported = read(event("playbook_started"), event("step.skipped", "guarded"))
    assert life(imported, "guarded") == BYPASSED
    assert life(imported, "guarded") in DONE
    assert shown_steps(imported.graph, imported.state())["guarded"]["status"] == "bypassed"
    at = round((NOON + timedelta(seconds=2)).timestamp()) * SECOND
    assert imported.records[-1][1:] == (at, Routed((Bypassed("guarded", 1),)))


def test_step_skipped_with_an_underscore_also_marks_skipped() -> None:
    assert life(read(event("step_skipped", "guarded")), "guarded") == BYPASSED


def test_an_iterator_step_completes_once_all_its_iterations_have_and_has_their_results() -> None:
    log = [fanned_out(3)]
    fan = fan_of(read(*log))
    assert (fan.count, fan.next, fan.done) == (3, 0, 0)
    assert life(read(*log), "looped") == ISSUED
    for index, value in enumerate("abc"):
        meta = {"command_id": f"e:looped:0:i{index}", "iteration_index": index, "iteration_total": 3}
        log.append(event("command.completed", "looped", meta=meta, result={"value": value}))
    imported = read(*log)
    assert life(imported, "looped") == COMPLETED
    assert fan_of(imported).done == 3
    assert [result["value"] for result in imported.context()["looped"]] == ["a", "b", "c"]


def test_an_iterator_step_counts_a_doubled_completion_of_a_command_once() -> None:
    log = [fanned_out(2), *(of_command("e:looped:0:i0", result={"i": 0}) for _ in range(2))]
    assert fan_of(read(*log)).done == 1
    assert life(read(*log), "looped") == ISSUED
    log.append(of_command("e:looped:0:i1", result={"i": 1}))
    assert fan_of(read(*log)).done == 2
    assert life(read(*log), "looped") == COMPLETED
    assert read(*log).context()["looped"] == [{"i": 0}, {"i": 1}]


def test_an_iterator_step_that_is_partially_complete_stays_running() -> None:
    imported = read(fanned_out(3), *(of_command(f"e:looped:0:i{i}", result={"i": i}) for i in range(2)))
    assert fan_of(imported).done == 2
    assert life(imported, "looped") == ISSUED
    assert "looped" not in imported.context()


def test_a_workers_own_step_exit_during_partial_iteration_does_not_complete_the_step() -> None:
    command = "exec:looped:e0:i2"
    imported = read(
        event("step.enter", "looped", result={"status": "ENTERED", "context": {"iterations_expected": 3}}),
        *(of_command(f"exec:looped:e0:i{index}", "command.issued") for index in range(3)),
        of_command(command, "command.claimed"),
        of_command(command, "command.started"),
        event("step.enter", "looped", context={"status": "started"}),
        event("call.done", "looped"),
        event("step.exit", "looped", result={"status": "COMPLETED", "context": {"command_id": command}}),
        event("command.completed", "looped", result={"status": "COMPLETED", "context": {"command_id": command}}),
    )
    fan = fan_of(imported)
    assert (fan.count, fan.next, fan.done) == (3, 3, 1)
    assert life(imported, "looped") == ISSUED
    assert sorted(imported.state().open) == ["looped/1/0", "looped/1/1"]


def test_a_plain_step_is_unaffected_by_what_holds_for_iterators() -> None:
    imported = read(event("step.enter", "plain"), event("command.completed", "plain", result={"ok": True}))
    assert life(imported, "plain") == COMPLETED
    assert state_of(imported, "plain").fan is None
    assert state_of(imported, "plain").result == {"ok": True}


def test_user_data_is_unwrapped_from_the_standard_envelope() -> None:
    assert extract_user_data(ENVELOPE) == {"warm": True, "note": "mild"}
    assert extract_user_data({"status": "ok", "context": {"data": [1]}}) == [1]
    assert extract_user_data({"status": "ok", "context": {"rows": 3}}) == {"rows": 3}
    assert extract_user_data(enveloped(None)) is None


@pytest.mark.parametrize("flat", [{"warm": False}, {}, [{"context": {"data": 1}}], "text", 0])
def test_user_data_of_a_flat_result_is_the_result(flat: Any) -> None:
    assert extract_user_data(flat) == flat


def test_user_data_of_null_is_none() -> None:
    assert extract_user_data(None) is None


def test_the_context_shows_step_data_at_top_level_and_the_envelope_under_steps() -> None:
    imported = read(
        event("playbook_started", context={"workload": {"temp": 30, "judge": "hidden"}}),
        event("call.done", "judge", result=ENVELOPE),
        event("command.completed", "judge", result={"status": "COMPLETED", "context": {"command_id": "c"}}),
    )
    context = imported.context()
    assert context["judge"]["warm"] is True
    assert context["steps"]["judge"] == ENVELOPE
    assert context["temp"] == 30
    assert context["workload"]["judge"] == "hidden"


def test_the_context_has_a_data_accessor_for_a_flat_user_dict() -> None:
    data = {"status": "success", "messages": ["one", "two", "three"], "total": 3}
    seen = read(event("command.completed", "greet", result=enveloped(data))).context()["greet"]
    assert (seen["status"], seen["total"]) == ("success", 3)
    assert seen["data"] == data


def test_the_data_accessor_does_not_clobber_a_data_field() -> None:
    labelled = {"first": {"data": {"executed": True, "value": 42}, "status": "success"}}
    seen = read(event("command.completed", "several", result=enveloped(labelled))).context()["several"]
    assert seen["first"]["data"]["executed"] is True
    assert seen["data"] == {"executed": True, "value": 42}
    assert with_data({"data": 1}) == {"data": 1}
    assert with_data([1]) == [1]


def test_user_data_of_a_task_sequence_is_flattened_and_its_labels_stay() -> None:
    first = {"data": {"executed": True}, "message": "done", "status": "success"}
    data = extract_user_data(enveloped({"first": first}))
    assert data["data"]["executed"] is data["first"]["data"]["executed"] is True
    assert data["status"] == "success"


def test_of_flattened_labels_the_later_wins_and_no_label_loses_to_a_field() -> None:
    data = {"first": {"n": 1, "last": 0}, "last": {"n": 2}}
    assert flatten_labels(data) == {"first": data["first"], "last": {"n": 2}, "n": 2}


@pytest.mark.parametrize("data", [{}, {"first": {"n": 1}, "n": 2}, [{"n": 1}], 7, None])
def test_what_is_no_map_of_labels_is_not_flattened(data: Any) -> None:
    assert flatten_labels(data) == data


SETS = [
    ("ctx.foo", "foo"),
    ("iter.bar", "bar"),
    ("step.baz", "baz"),
    ("qux", "qux"),
    ("app.config", "app.config"),
    ("ctx.a.b", "a.b"),
]


@pytest.mark.parametrize(("key", "bare"), SETS)
def test_set_strips_the_scopes_ctx_iter_and_step_and_no_other(key: str, bare: str) -> None:
    assert with_sets({"kept": 0}, {key: {"level": 5}}) == {"kept": 0, bare: {"level": 5}}


def test_set_strips_scopes_in_all_cases_together() -> None:
    sets = {key: number for number, (key, _) in enumerate(SETS)}
    assert with_sets({"foo": "old"}, sets) == {"foo": 0, "bar": 1, "baz": 2, "qux": 3, "app.config": 4, "a.b": 5}


def test_a_command_issued_after_completion_reactivates_the_step_and_its_result_stays_until_the_next() -> None:
    log = [event("command.completed", "fetch", result={"next": 10})]
    assert life(read(*log), "fetch") == COMPLETED
    log += [event("step.enter", "fetch"), event("command.issued", "fetch")]
    again = state_of(read(*log), "fetch")
    assert (again.life, again.visits, again.last) == (ISSUED, 2, COMPLETED)
    assert again.result == {"next": 10}
    assert read(*log).context()["fetch"]["next"] == 10
    log += [event("call.done", "fetch", result={"next": 20}), event("command.completed", "fetch")]
    assert state_of(read(*log), "fetch").result == {"next": 20}


def test_a_context_update_folds_latest_wins_and_marks_the_completion_it_belongs_to() -> None:
    imported = read(
        updated("start", 100, offset=0, limit=10), updated("check", 200, offset=10), updated("check", 300, offset=20)
    )
    state = imported.state()
    assert state.ctx == {"offset": 20, "limit": 10}
    assert state.versions == {"offset": 3, "limit": 1}
    marks = [(move.step, move.visit) for move in moves_of(facts_of(imported)) if isinstance(move, Took)]
    assert marks == [("start", 1), ("check", 1), ("check", 2)]


def test_the_context_overlays_durable_values_over_the_workloads_and_over_results() -> None:
    context = read(
        event("playbook_started", context={"workload": {"offset": 0, "limit": 10, "path": "mine"}, "path": "p"}),
        event("command.completed", "page", event_id=7, result={"n": 1}),
        updated("page", 7, offset=30, page="mine", path="mine"),
    ).context()
    assert (context["offset"], context["limit"], context["page"]) == (30, 10, "mine")
    assert context["workload"]["offset"] == 0
    assert context["steps"]["page"] == {"n": 1}
    assert context["path"] == "p"


def test_a_context_update_that_is_repeated_counts_once_per_completion() -> None:
    imported = read(
        event("step.enter", "count"),
        event("step.exit", "count", event_id=10),
        updated("count", 10, n=1, m=1),
        event("command.completed", "count", event_id=11),
        updated("other", 12, n=5),
        updated("count", 10, n=1, m=1),
        updated("count", 11, n=2, m=2),
    )
    assert imported.state().ctx == {"n": 5, "m": 1}
    assert state_of(imported, "count").visits == 1


def test_a_context_update_may_stand_in_the_context_column_and_may_name_no_step() -> None:
    old = event("ctx.updated", context={"step": "a", "gen": 1, "values": {"x": 1}})
    nameless = [event("ctx.updated", context={"values": {"y": value}}) for value in (1, 2)]
    imported = read(event("command.completed", "a", event_id=1), old, *nameless)
    assert imported.state().ctx == {"x": 1, "y": 2}
    assert state_of(imported, "a").visits == 1
    assert state_of(imported, CONTEXT).visits == 2


ALIASES = {
    "step.enter": ENTERED,
    "step_enter": ENTERED,
    "step_started": ENTERED,
    "step.skipped": BYPASSED,
    "step_skipped": BYPASSED,
    "command.issued": ISSUED,
    "command.claimed": ISSUED,
    "command.started": ISSUED,
    "action_started": ISSUED,
    "call.done": ISSUED,
    "action_done": ISSUED,
    "command.completed": COMPLETED,
    "action_completed": COMPLETED,
    "step.exit": COMPLETED,
    "step_completed": COMPLETED,
    "command.failed": FAILED,
    "action_failed": FAILED,
    "step_failed": FAILED,
}


@pytest.mark.parametrize(("kind", "expected"), ALIASES.items())
def test_every_name_of_a_step_event_is_known(kind: str, expected: str) -> None:
    assert life(read(event(kind, "a")), "a") == expected
    assert ALIASES.keys() == STEP_EVENTS.keys()


ENDINGS = {
    "playbook_completed": COMPLETED,
    "playbook.completed": COMPLETED,
    "playbook_failed": FAILED,
    "playbook.failed": FAILED,
    "playbook.cancelled": CANCELLED,
}


@pytest.mark.parametrize(("kind", "status"), ENDINGS.items())
def test_every_name_of_the_playbooks_end_is_known_and_nothing_after_it_is_read(kind: str, status: str) -> None:
    imported = read(
        event("playbook_started"),
        event("command.completed", "a", result={"n": 1}),
        event("command.issued", "b"),
        event(kind),
        event("command.completed", "b"),
        event("playbook.completed"),
    )
    state = imported.state()
    assert (state.life, state.open) == (status, {})
    assert life(imported, "b") == CANCELLED
    assert state.result == ({"n": 1} if status == COMPLETED else None)
    assert state.ended_at - state.started_at == 3 * SECOND


def test_an_empty_log_is_a_run_that_has_not_begun() -> None:
    assert read_log([]).state().life == INITIAL
    assert dict(read_log([]).context()) == {"execution_id": "", "catalog_id": "", "steps": {}, "workload": {}}


def test_events_of_other_kinds_and_steps_without_a_name_are_passed_over() -> None:
    imported = read(event("playbook_started"), event("command.heartbeat", "a"), event("step.enter"))
    assert list(imported.graph.index) == [PLAYBOOK]


def test_iteration_results_stand_in_the_order_of_items_and_not_of_arrival() -> None:
    order = [2, 0, 3, 1]
    imported = read(
        fanned_out(4),
        *(of_command(f"e:looped:0:i{i}", result={"i": i}) for i in order),
        event("playbook.completed"),
    )
    assert [result["i"] for result in imported.context()["looped"]] == [0, 1, 2, 3]
    assert imported.state().result == [{"i": 0}, {"i": 1}, {"i": 2}, {"i": 3}]


def test_a_command_that_names_no_item_is_the_first_item_without_one() -> None:
    imported = read(fanned_out(3), *(of_command(name, result=name) for name in ("x", "e:i0", "x", "y")))
    assert fan_of(imported).done == 2
    imported = read(fanned_out(3), *(of_command(name, result=name) for name in ("e:i1", "x", "x", "y")))
    assert imported.context()["looped"] == ["x", "e:i1", "y"]


def test_a_completion_that_names_no_command_ends_no_iteration() -> None:
    imported = read(fanned_out(1), event("step.exit", "looped"))
    assert fan_of(imported).done == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"meta": {"command_id": "e:i1"}},
        {"result": {"context": {"command_id": "e:i1"}}},
        {"result": {"data": {"command_id": "e:i1"}}},
        {"meta": {"command_id": "e", "iteration_index": 1}},
    ],
)
def test_a_command_is_known_by_any_place_its_id_may_stand_in(columns: dict[str, Any]) -> None:
    imported = read(fanned_out(2), event("command.completed", "looped", **columns))
    assert list(fan_of(imported).status) == [1, 2]


def test_an_iteration_has_the_result_its_call_gave_like_a_plain_step() -> None:
    bare = {"status": "COMPLETED"}
    imported = read(fanned_out(1), of_command("e:i0", "call.done", result={"n": 7}), of_command("e:i0", result=bare))
    assert imported.context()["looped"] == [{"n": 7}]


def test_an_iterator_step_entered_again_waits_for_all_its_new_iterations() -> None:
    first = [fanned_out(2), of_command("e:looped:1:i0"), of_command("e:looped:1:i1")]
    again = [*first, fanned_out(3), of_command("e:looped:2:i0"), of_command("e:looped:1:i1")]
    assert life(read(*first), "looped") == COMPLETED
    assert (life(read(*again), "looped"), fan_of(read(*again)).count, fan_of(read(*again)).done) == (ISSUED, 3, 1)
    assert read(*again).context()["looped"] == read(*first).context()["looped"]


def test_an_iterator_step_without_iterations_is_complete_at_once() -> None:
    imported = read(fanned_out(0), event("step.exit", "looped"))
    assert (life(imported, "looped"), state_of(imported, "looped").visits) == (COMPLETED, 1)
    assert imported.context()["looped"] == []


def test_a_failed_iteration_fails_the_step_when_the_others_are_through() -> None:
    log = [fanned_out(2), of_command("e:i0", "command.failed", result={"error": "no"})]
    assert life(read(*log), "looped") == ISSUED
    imported = read(*log, of_command("e:i1"))
    fault = state_of(imported, "looped").fault
    assert life(imported, "looped") == FAILED
    assert fault is not None and fault.message == "1 of 2 items failed"
    whole = read(*log, event("step_failed", "looped", result={"error": "all of it"}))
    fault = state_of(whole, "looped").fault
    assert fault is not None and fault.message == "all of it"
    assert whole.state().open == {}


@pytest.mark.parametrize("result", [{"error": "no table"}, {"status": "error", "context": {"error": "no table"}}])
def test_a_failure_is_told_from_either_place_of_its_error(result: dict[str, Any]) -> None:
    imported = read(event("command.issued", "a"), event("command.failed", "a", result=result), event("playbook.failed"))
    state = imported.state()
    assert (life(imported, "a"), state.life) == (FAILED, FAILED)
    assert state.error is not None and state.error.step == "a"
    assert state.error.fault == Fault("error", "no table")


def test_a_step_that_exits_with_a_failed_status_has_failed_and_the_first_end_counts() -> None:
    log = [event("command.issued", "a"), event("step.exit", "a", status="FAILED"), event("command.completed", "a")]
    assert life(read(*log), "a") == FAILED
    assert state_of(read(*log), "a").visits == 1


def test_a_late_event_of_an_ended_command_begins_no_visit() -> None:
    end = [of_command("e:a:1", name="a"), of_command("e:a:1", "command.started", "a"), event("call.done", "a")]
    imported = read(of_command("e:a:1", "command.issued", "a"), *end)
    assert (life(imported, "a"), state_of(imported, "a").visits) == (COMPLETED, 1)
    other = read(of_command("e:a:1", name="a", result=1), of_command("e:a:2", name="a", result=2))
    assert (state_of(other, "a").visits, state_of(other, "a").result) == (2, 2)


def test_a_report_tells_who_ran_the_command_when_and_in_which_try() -> None:
    imported = read(
        event("command.issued", "a"),
        event("command.claimed", "a", worker_id="w1"),
        event("command.started", "a", attempt=2),
        event("command.completed", "a"),
    )
    began = round(NOON.timestamp()) * SECOND
    settled = facts_of(imported)[-1]
    assert isinstance(settled, StepSettled)
    report = settled.report
    assert (report.worker, report.attempt) == ("w1", 2)
    assert (report.claimed_at, report.started_at) == (began + 2 * SECOND, began + 3 * SECOND)
    assert [fact.attempt for fact in facts_of(imported) if isinstance(fact, StepIssued)] == [1, 2]


def test_a_sub_playbook_knows_its_parent() -> None:
    started = facts_of(read(event("playbook_started", parent_execution_id=99)))[0]
    assert isinstance(started, RunStarted)
    assert started.parent == Parent("99", "")


def test_times_come_from_the_log_alone_and_never_go_back() -> None:
    east = timezone(timedelta(hours=5))
    times = [NOON, NOON.replace(tzinfo=None), None, "soon", NOON.astimezone(east).isoformat(), "2027-01-15T11:59:59Z"]
    imported = read_log([event("command.issued", f"s{i}", created_at=each) for i, each in enumerate(times)])
    assert {at for _, at, _ in imported.records} == {round(NOON.timestamp()) * SECOND}
    assert imported.records[0][1] == imported.state().started_at


def test_the_context_is_looked_up_and_nothing_is_copied() -> None:
    imported = read(event("command.completed", "a", result=ENVELOPE), updated("b", 9, big=[1]))
    result = ENVELOPE["context"]["result"]["context"]["data"]
    assert imported.context()["steps"]["a"] is ENVELOPE
    assert imported.context()["a"]["data"] is result


def test_an_imported_run_leaves_nothing_to_decide_but_what_was_open() -> None:
    log = [event("step.enter", "a"), event("command.completed", "a"), event("step.enter", "a"), updated("b", 5, x=1)]
    state = read(*log).state()
    assert (state.ended, state.ready, state.over, state.judge) == ({}, [], [], {})
    assert [state.steps[s].life for s in state.entered] == [ENTERED]


def test_an_imported_run_is_a_run_like_any_other_to_the_engine(stage: Stage) -> None:
    imported = read(
        event("playbook_started", context={"workload": {"n": 1}, "path": "shop/import"}),
        fanned_out(2),
        *(of_command(f"e:i{i}", result={"i": i}) for i in (1, 0)),
        event("command.completed", "save", event_id=50, result={"rows": 2}),
        updated("save", 50, rows=2),
        event("playbook.completed"),
    )
    facts, plan_bytes = facts_of(imported), canonical(imported.plan)
    summary = summarize(imported.graph, imported.state())
    with stage.store.turn([imported.run]) as turn:
        turn.write(Writes("12345", "t", 0, imported.records[0][1], facts, summary, plan=plan_bytes))
    shown = stage.show("12345")
    assert (shown.workflow, shown.status, shown.result) == ("shop/import", COMPLETED, {"rows": 2})
    assert {name: each["status"] for name, each in shown.steps.items()} == {
        PLAYBOOK: BYPASSED,
        "looped": COMPLETED,
        "save": COMPLETED,
    }
    assert shown.state.ctx == {"rows": 2}


STEP_NAMES = st.sampled_from(["a", "b", "c"])
COMMANDS = st.none() | st.builds("e:{}:i{}".format, st.integers(0, 2), st.integers(0, 3))


@st.composite
def any_event(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from([*STEP_EVENTS, "ctx.updated", "playbook_started", "step.done"]))
    command, identity = draw(COMMANDS), draw(st.integers(1, 9))
    payload: dict[str, Any] = {"step": draw(STEP_NAMES), "gen": draw(st.none() | st.integers(1, 9))}
    payload["values"] = {draw(st.sampled_from("xy")): identity}
    if kind.startswith("step") and draw(st.booleans()):
        payload["iterations_expected"] = draw(st.integers(0, 3))
    meta = {"command_id": command} if command is not None else None
    attempt = draw(st.none() | st.integers(0, 3))
    return event(kind, draw(STEP_NAMES), event_id=identity, meta=meta, context=payload, attempt=attempt)


@settings(max_examples=300)
@given(st.lists(any_event(), max_size=30), st.sampled_from([None, *ENDS]))
def test_whatever_the_events_their_facts_fold_and_come_back_from_bytes(log: list[Any], end: str | None) -> None:
    imported = read(*log, *([event(end)] if end is not None else []))
    state = imported.state()
    stored = [(seq, at, codec.decode_fact(codec.encode_fact(fact))) for seq, at, fact in imported.records]
    assert fold(imported.graph, stored, RunState(run=imported.run)) == state
    assert (state.ended, state.judge) == ({}, {})
    assert read(*log, *([event(end)] if end is not None else [])).records == imported.records
    assert all(imported.context()[name] is not None for name in imported.context()["steps"])


def leases(stage: Stage, count: int) -> list[Lease]:
    """Commands taken by hand, so that the test says when each is reported."""
    held = [stage.claim(f"worker{number}") for number in range(count)]
    return sorted((lease for lease in held if lease is not None), key=lambda lease: lease.command.item or 0)


def start_by_hand(stage: Stage, *steps: Step, **input: Any) -> str:
    stage.house(serves=False)
    return stage.start(plan(*steps), input)


def fan_shown(stage: Stage, run: str, s: int = 0) -> FanOut:
    fan = stage.show(run).state.steps[s].fan
    assert fan is not None
    return fan


def succeeded(result: Any = None, *writes: Any) -> Done:
    return Done(Succeeded(result), writes=writes)


def test_the_engine_completes_a_fan_out_when_every_one_of_its_commands_has_reported(stage: Stage) -> None:
    run = start_by_hand(stage, step("each", "after", loop=Loop(items=[10, 20, 30])), step("after"))
    held = leases(stage, 3)
    assert [lease.command.id for lease in held] == ["each/1/0", "each/1/1", "each/1/2"]
    for lease in (held[2], held[0]):
        stage.settle(lease, succeeded(lease.command.input))
        assert stage.show(run).steps["each"]["status"] == ISSUED
        assert stage.show(run).steps["after"]["status"] == PENDING
    assert fan_shown(stage, run).done == 2
    stage.settle(held[1], succeeded(20))
    assert stage.show(run).steps["each"]["status"] == COMPLETED
    assert stage.show(run).steps["after"]["status"] == ISSUED


def test_the_engine_refuses_the_second_report_of_a_command(stage: Stage) -> None:
    run = start_by_hand(stage, step("each", loop=Loop(items=[1, 2])))
    first, second = leases(stage, 2)
    stage.settle(first, succeeded("a", AddTo("reports", 1)))
    before = stage.history(run)
    with pytest.raises(LeaseLost):
        stage.settle(first, succeeded("again", AddTo("reports", 1)))
    assert stage.history(run) == before
    assert fan_shown(stage, run).done == 1
    stage.settle(second, succeeded("b", AddTo("reports", 1)))
    shown = stage.show(run)
    assert (shown.status, shown.result, shown.state.ctx) == (COMPLETED, ["a", "b"], {"reports": 2})


def test_the_engine_refuses_the_second_of_two_reports_that_come_at_once(stage: Stage) -> None:
    run = start_by_hand(stage, step("each", loop=Loop(items=[1, 2])))
    first, _ = leases(stage, 2)
    settle = stage.first.desk.settle

    async def report_twice() -> list[Any]:
        reports = (settle(first, succeeded(name, AddTo("reports", 1))) for name in ("a", "again"))
        return await asyncio.gather(*reports, return_exceptions=True)

    answers = stage.do(report_twice())
    assert [type(answer) for answer in answers] == [type(None), LeaseLost]
    assert fan_shown(stage, run).done == 1


def test_the_engine_counts_the_worker_that_holds_the_command_and_not_the_one_that_lost_it(stage: Stage) -> None:
    run = start_by_hand(stage, step("only"))
    (late,) = leases(stage, 1)
    stage.pass_time(31)
    stage.store.expire(5)
    (holder,) = leases(stage, 1)
    with pytest.raises(LeaseLost):
        stage.settle(late, succeeded("late", AddTo("reports", 1)))
    assert stage.status(run) == RUNNING
    stage.settle(holder, succeeded("mine", AddTo("reports", 1)))
    shown = stage.show(run)
    assert (shown.status, shown.result, shown.state.ctx) == (COMPLETED, "mine", {"reports": 1})


def records(*facts: Fact) -> list[Record]:
    return [(seq, 0, fact) for seq, fact in enumerate(facts, 1)]


def test_the_fold_believes_no_log_in_which_a_command_of_a_plain_step_ends_twice() -> None:
    ends = StepSettled("only", 1, Report(1, Succeeded()))
    log = records(RunStarted("p"), StepIssued("only", 1), ends, ends)
    graph = analyse(plan(step("only", "next"), step("next")))
    assert fold(graph, log[:-1], RunState(run="r")).steps[0].life == COMPLETED
    with pytest.raises(Corrupt, match="only/1 was settled but is not open"):
        fold(graph, log, RunState(run="r"))


def test_the_fold_believes_no_log_in_which_an_item_ends_twice() -> None:
    ends = ItemsSettled("each", 1, (Report(1, Succeeded(), item=0),))
    log = records(RunStarted("p"), FanOutEntered("each", 1, 2, [1, 2]), ItemsIssued("each", 1, 0, 2), ends, ends)
    graph = analyse(plan(step("each", loop=Loop(items=[1, 2]))))
    assert fold(graph, log[:-1], RunState(run="r")).steps[0].life == ISSUED
    with pytest.raises(Corrupt, match="each/1/0 was settled but is not open"):
        fold(graph, log, RunState(run="r"))


def test_the_engine_completes_a_plain_step_with_its_one_report(stage: Stage) -> None:
    run = start_by_hand(stage, step("plain", "next"), step("next"))
    (lease,) = leases(stage, 1)
    stage.settle(lease, succeeded({"ok": True}))
    shown = stage.show(run).steps
    assert (shown["plain"]["status"], shown["plain"]["result"]) == (COMPLETED, {"ok": True})
    assert shown["next"]["status"] == ISSUED


def test_the_engine_bypasses_a_step_whose_guard_is_false_and_the_join_behind_it_still_starts(stage: Stage) -> None:
    shown = stage.run(
        plan(
            step("start", "guarded", "silent", "real", mode="inclusive"),
            step("guarded", "join", when=False, set={"ctx.seen": True}),
            step("silent", "join", when=False),
            step("real", "join", work=work(takes=5)),
            step("join"),
        )
    )
    assert shown.status == COMPLETED
    assert shown.steps["guarded"]["status"] == shown.steps["silent"]["status"] == BYPASSED
    assert stage.calls() == ["start/1", "real/1", "join/1"]
    assert shown.state.ctx == {}


def test_the_engine_skips_the_branch_that_was_not_taken_and_the_join_behind_it_still_starts(stage: Stage) -> None:
    left, right = Arc(to="left", when=True), Arc(to="right")
    deep = (step("right", "deeper"), step("deeper", "join"))
    shown = stage.run(plan(step("choose", left, right), step("left", "join"), *deep, step("join")))
    assert {name: each["status"] for name, each in shown.steps.items() if name in ("right", "deeper", "join")} == {
        "right": SKIPPED,
        "deeper": SKIPPED,
        "join": COMPLETED,
    }
    assert stage.calls() == ["choose/1", "left/1", "join/1"]


def again(*answers: bool) -> Any:
    return {"script": list(answers)}


def test_the_engine_reactivates_a_completed_step_on_re_entry_and_its_result_stays_until_the_next(stage: Stage) -> None:
    run = start_by_hand(
        stage,
        step("fetch", "check"),
        step("check", Arc(to="fetch", when=again(True, False)), "end", input={"path": ["fetch", "next"]}),
        step("end"),
    )
    results = iter([{"next": 10}, None, {"next": 20}, None])
    inputs = []
    for expected in ("fetch/1", "check/1", "fetch/2", "check/2"):
        (lease,) = leases(stage, 1)
        assert lease.command.id == expected
        inputs.append(lease.command.input)
        if expected == "fetch/2":
            fetch, check = (stage.show(run).steps[name] for name in ("fetch", "check"))
            assert (fetch["status"], fetch["visits"], fetch["result"]) == (ISSUED, 2, {"next": 10})
            assert (check["status"], check["visits"]) == (COMPLETED, 1)
        stage.settle(lease, succeeded(next(results)))
    assert inputs == [None, 10, None, 20]
    assert [stage.show(run).steps[name]["visits"] for name in ("fetch", "check", "end")] == [2, 2, 1]


def test_the_engine_lets_a_fan_out_that_is_entered_again_wait_for_all_its_new_items(stage: Stage) -> None:
    loop = Loop(items={"script": [["a"], ["b", "c"]]})
    run = start_by_hand(stage, step("each", Arc(to="each", when=again(True, False)), loop=loop))
    (first,) = leases(stage, 1)
    stage.settle(first, succeeded("a"))
    second, third = leases(stage, 2)
    stage.settle(second, succeeded("b"))
    assert (stage.show(run).steps["each"]["status"], fan_shown(stage, run).done) == (ISSUED, 1)
    stage.settle(third, succeeded("c"))
    assert stage.show(run).result == ["b", "c"]


PAGES = plan(
    step("start", "page", set={"ctx.offset": {"path": ["workload", "offset"]}, "ctx.limit": 10}),
    step(
        "page",
        Arc(to="page", when=again(True, True, False)),
        work=work(),
        input={"path": ["offset"]},
        set={"ctx.offset": {"script": [10, 20, 30]}},
    ),
)


def test_the_engine_writes_the_context_once_per_completion_and_the_latest_wins(stage: Stage) -> None:
    shown = stage.run(PAGES, {"offset": 0})
    assert [each.call.input for each in stage.began if each.command.startswith("page/")] == [0, 10, 20]
    assert shown.state.ctx == {"offset": 30, "limit": 10}
    assert shown.state.versions == {"offset": 4, "limit": 1}
    marks = [(took.step, took.visit, took.sets["offset"]) for took in stage.moves(shown.id, Took)]
    assert marks == [("start", 1, 0), ("page", 1, 10), ("page", 2, 20), ("page", 3, 30)]


def test_the_context_is_the_same_to_a_process_that_knows_only_the_log(stage: Stage) -> None:
    run = stage.start(PAGES, {"offset": 0})
    stage.until(lambda: len(stage.calls("page")) == 2)
    stage.first.kill()
    stage.house("second")
    shown = stage.end(run)
    assert (shown.state.ctx, shown.state.versions) == ({"offset": 30, "limit": 10}, {"offset": 4, "limit": 1})
    assert len(stage.moves(run, Took)) == 4


def test_a_failed_try_leaves_nothing_in_the_context(stage: Stage) -> None:
    run = start_by_hand(stage, step("only", retry=Retry(attempts=2)))
    for outcome in (Failed(Fault("error")), Succeeded()):
        (lease,) = leases(stage, 1)
        stage.settle(lease, Done(outcome, writes=(AddTo("tries", 1),)))
    assert stage.show(run).state.ctx == {"tries": 1}


def read_by(names: dict[str, Any]) -> Step:
    return step("reader", work=work(), input={name: {"path": path} for name, path in names.items()})


def test_the_engine_lets_the_context_win_over_results_and_these_over_the_workload(stage: Stage) -> None:
    names = {
        "offset": ["offset"],
        "limit": ["limit"],
        "seed": ["workload", "offset"],
        "one": ["one"],
        "one_result": ["steps", "one"],
        "two": ["two"],
    }
    shown = stage.run(
        plan(
            step("one", "two", work=work(gives="result"), set={"ctx.offset": 30, "ctx.one": "context"}),
            step("two", "reader", work=work(gives="result")),
            read_by(names),
        ),
        {"offset": 0, "limit": 10, "one": "workload", "two": "workload"},
    )
    assert shown.result == {
        "offset": 30,
        "limit": 10,
        "seed": 0,
        "one": "context",
        "one_result": "result",
        "two": "result",
    }


@pytest.mark.parametrize(("key", "bare"), SETS)
def test_the_engine_strips_the_scope_of_a_set_on_a_step_and_on_an_arc(stage: Stage, key: str, bare: str) -> None:
    shown = stage.run(plan(step("a", Arc(to="b", set={f"{key}2": 2}), set={key: 1}), step("b")))
    assert shown.state.ctx == {bare: 1, f"{bare}2": 2}


def test_the_engine_renders_all_values_of_a_set_before_it_writes_the_first(stage: Stage) -> None:
    swap = {"ctx.x": {"path": ["ctx", "y"]}, "ctx.y": {"path": ["ctx", "x"]}}
    shown = stage.run(plan(step("a", "b", set={"x": 1, "y": 2}), step("b", set=swap)))
    assert shown.state.ctx == {"x": 2, "y": 1}


def test_the_engine_keeps_results_and_writes_of_items_in_item_order_whatever_arrives_first(stage: Stage) -> None:
    run = start_by_hand(
        stage, step("each", "reader", loop=Loop(items=[0, 1, 2, 3])), read_by({"each": ["each", "results"]})
    )
    held = leases(stage, 4)
    for number in (2, 0, 3, 1):
        assert stage.show(run).state.ctx == {}
        stage.settle(held[number], succeeded(f"r{number}", AppendTo("seen", number)))
    assert stage.show(run).state.ctx == {"seen": [0, 1, 2, 3]}
    (reader,) = leases(stage, 1)
    assert reader.command.input == {"each": ["r0", "r1", "r2", "r3"]}


def test_the_result_of_a_run_that_ends_with_a_fan_out_stands_in_item_order(stage: Stage) -> None:
    takes = {"a": 3, "b": 1, "c": 2}

    async def slowly(call: Any) -> str:
        await asyncio.sleep(takes[call.input])
        return f"{call.input}!"

    stage.tools["slowly"] = slowly
    shown = stage.run(plan(step("each", loop=Loop(items=["a", "b", "c"]), work=Call(tool="slowly"))))
    assert shown.result == ["a!", "b!", "c!"]
    settled = [report.item for fact in stage.facts(shown.id, ItemsSettled) for report in fact.reports]
    assert settled == [1, 2, 0]
