"""`refold runs …`: finding runs, looking at them, steering those that others execute, and removing them."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tests.cli.program import HEAD, Done, noop, playbook, refold, shell, started, until

WAITS = shell("slow", "echo one\necho two >&2\ntouch begun\nwhile test ! -f go; do sleep 0.02; done", "last")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A completed run, a failed one, a paused one and one that waits."""
    folder = tmp_path_factory.mktemp("runs")
    assert refold(folder, "run", playbook(folder, noop("one", result="1")), "--name", "good", "-q").code == 0
    bad = shell("one", "echo said\nexit 1")
    assert refold(folder, "run", playbook(folder, bad, name="b.yaml"), "--name", "bad", "-q").code == 1
    asks = playbook(folder, "step: ask\ntool: {kind: wait, signal: go, seconds: 1h}", name="w.yaml")
    assert refold(folder, "run", asks, "--detach", "--name", "asks", "-q").code == 0
    assert refold(folder, "run", asks, "--detach", "--name", "held", "-q").code == 0
    assert refold(folder, "runs", "pause", "held").code == 0
    return folder


def listed(folder: Path, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = refold(folder, "runs", "list", "-o", "json", *options).data
    return found


def id_of(folder: Path, name: str) -> str:
    return next(str(row["id"]) for row in listed(folder) if row["name"] == name)


def test_the_list_shows_the_newest_first(folder: Path) -> None:
    rows = listed(folder)
    assert [(row["name"], row["status"]) for row in rows] == [
        ("held", "paused"),
        ("asks", "waiting"),
        ("bad", "failed"),
        ("good", "completed"),
    ]
    assert list(rows[0]) == [
        "id",
        "name",
        "workflow",
        "status",
        "key",
        "parent",
        "labels",
        "continued_by",
        "created_at",
        "ended_at",
        "served",
    ]
    assert rows[0]["ended_at"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", rows[3]["ended_at"])
    table = refold(folder, "runs", "list").out.splitlines()
    assert table[0].split() == ["NAME", "ID", "WORKFLOW", "STATUS", "STARTED", "TOOK"]
    assert [line.split()[0] for line in table[1:]] == ["held", "asks", "bad", "good"]


def test_the_list_can_be_shortened(folder: Path) -> None:
    assert [row["name"] for row in listed(folder, "--status", "failed")] == ["bad"]
    assert [row["name"] for row in listed(folder, "-n", "1")] == ["held"]
    lines = refold(folder, "runs", "list", "-o", "jsonl").out.splitlines()
    assert [json.decode(line)["name"] for line in lines] == ["held", "asks", "bad", "good"]


def test_a_list_of_runs_is_filtered_and_says_that_there_is_more(folder: Path) -> None:
    assert [row["name"] for row in listed(folder, "--name", "bad")] == ["bad"]
    assert [row["name"] for row in listed(folder, "--workflow", "play", "--since", "1h", "-n", "2")] == ["held", "asks"]
    assert listed(folder, "--until", "1h") == listed(folder, "--workflow", "nobody") == []
    first = refold(folder, "runs", "list", "-n", "3")
    assert first.err.startswith("there are more; to continue: --cursor ")
    rest = refold(folder, "runs", "list", "-n", "3", "--cursor", first.err.splitlines()[0].split()[-1])
    assert [line.split()[0] for line in rest.out.splitlines()[1:]] == ["good"]
    assert rest.err == ""
    assert refold(folder, "runs", "list", "-o", "json").err == ""
    wrong = refold(folder, "runs", "list", "--since", "yesterday")
    assert (wrong.code, "neither a moment such as" in wrong.err) == (2, True)


def test_labels_and_keys_are_shown_and_lists_are_filtered_by_them(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    labels = ("--label", "team=data", "--label", "tier=1")
    assert refold(tmp_path, "run", file, "--detach", "--name", "one", "--key", "k1", *labels, "-q").code == 0
    assert refold(tmp_path, "run", file, "--name", "two", "--label", "team=shop", "-q").code == 0
    assert [row["name"] for row in listed(tmp_path, "--label", "team=data")] == ["one"]
    assert [row["name"] for row in listed(tmp_path, "--label", "team=data", "--label", "tier=2")] == []
    assert listed(tmp_path, "--key", "k1")[0]["labels"] == {"team": "data", "tier": "1"}
    table = refold(tmp_path, "runs", "list").out.splitlines()
    assert table[0].split()[-1] == "LABELS" and table[2].endswith("team=data tier=1")
    shown = refold(tmp_path, "runs", "show", "one").out
    assert re.search(r"^key +k1$", shown, re.M) and re.search(r"^label +tier=1$", shown, re.M)
    wrong = refold(tmp_path, "runs", "list", "--label", "team")
    assert (wrong.code, "is not of the form name=value" in wrong.err) == (2, True)


def test_a_key_that_is_used_again_for_something_else_is_noticed(tmp_path: Path) -> None:
    file, other = playbook(tmp_path, noop("one")), tmp_path / "o.yaml"
    other.write_text("apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: other}\nworkflow: [{step: a}]\n")
    start = ("--detach", "--key", "k", "-q")
    assert refold(tmp_path, "run", file, *start, "-i", "n=1").err == ""
    assert refold(tmp_path, "run", file, *start, "-i", "n=1").err == ""
    again = refold(tmp_path, "run", file, *start, "-i", "n=2")
    assert (again.code, "was started with other inputs (n), which stay" in again.err) == (0, True)
    refused = refold(tmp_path, "run", str(other), *start)
    assert (refused.code, "of workflow 'play', and this is 'other'" in refused.err) == (4, True)


def test_a_run_is_found_by_name_id_and_the_beginning_of_its_id(folder: Path) -> None:
    run = id_of(folder, "good")
    for text in ("good", run, run[:10]):
        assert refold(folder, "runs", "show", text, "-o", "json").data["id"] == run


def test_a_run_that_is_not_there_is_not_found_and_something_like_it_is_named(folder: Path) -> None:
    done = refold(folder, "runs", "show", "goood")
    assert (done.code, done.out, done.err) == (3, "", "error: there is no run 'goood'; did you mean good?\n")
    assert refold(folder, "runs", "pause", "zzzzzzzzz").code == 3


def test_a_name_of_several_runs_means_the_newest_and_is_refused_where_something_is_changed(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    for _ in range(2):
        assert refold(tmp_path, "run", file, "--detach", "--name", "twin", "-q").code == 0
    rows = listed(tmp_path)
    assert refold(tmp_path, "runs", "show", "twin", "-o", "json").data["id"] == rows[0]["id"]
    for command in (("runs", "pause"), ("runs", "cancel"), ("runs", "resume"), ("runs", "retry"), ("gates", "approve")):
        done = refold(tmp_path, *command, "twin")
        assert (done.code, done.out) == (4, "")
        assert done.err.splitlines()[0] == "error: 'twin' may mean several runs; type the id of the one you mean:"
        assert [line.split()[0] for line in done.err.splitlines()[1:]] == [row["id"] for row in rows]
        assert [line.split()[2] for line in done.err.splitlines()[1:]] == ["queued", "queued"]


def test_a_run_is_not_changed_by_less_than_six_characters_of_its_id(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("one")), "--detach", "--name", "mine", "-q").code == 0
    run = listed(tmp_path)[0]["id"]
    assert refold(tmp_path, "runs", "show", run[:2], "-o", "json").data["id"] == run
    done = refold(tmp_path, "runs", "cancel", run[:5])
    assert done.code == 4
    assert "too short to change a run by it" in done.err
    assert refold(tmp_path, "runs", "pause", run[:6]).code == 0


def test_delete_removes_runs_that_are_over_with_the_runs_that_they_started(tmp_path: Path) -> None:
    playbook(tmp_path, noop("one"), name="child.yaml")
    parent = playbook(tmp_path, "step: sub\ntool: {kind: playbook, path: child.yaml}")
    assert refold(tmp_path, "run", parent, "--name", "top", "-q").code == 0
    assert refold(tmp_path, "run", parent, "--name", "open", "--detach", "-q").code == 0
    assert len(listed(tmp_path, "--children")) == 3 + 1
    refused = refold(tmp_path, "runs", "delete", "top", "open")
    assert (refused.code, len(listed(tmp_path, "--children"))) == (4, 4)
    assert refold(tmp_path, "runs", "delete", "top").err == "2 runs removed\n"
    assert sorted(row["name"] for row in listed(tmp_path, "--children")) == ["open", "open.sub"]


def test_show_tells_how_a_run_stands(folder: Path) -> None:
    shown = refold(folder, "runs", "show", "bad").out
    assert shown.startswith("bad  failed\nrun       ")
    assert "error     step one: " in shown
    assert re.search(r"^one +failed +1 +1 ", shown, re.M)


def test_the_history_is_the_log_fact_by_fact(folder: Path) -> None:
    facts = refold(folder, "runs", "history", "good", "-o", "json").data
    assert [fact["number"] for fact in facts] == list(range(1, len(facts) + 1))
    assert (facts[0]["type"], facts[-1]["type"]) == ("run_started", "run_ended")
    told = refold(folder, "runs", "history", "good").out.splitlines()
    assert len(told) == len(facts)
    assert told[-1].endswith("run completed")
    assert len(refold(folder, "runs", "history", "good", "--after", "2").out.splitlines()) == len(facts) - 2


def test_why_gives_a_reason_for_what_does_not_go_on(folder: Path) -> None:
    found = refold(folder, "runs", "why", "asks", "-o", "json").data
    (reason,) = found["reasons"]
    assert (found["status"], reason["step"], reason["kind"], reason["signal"]) == ("waiting", "ask", "signal", "go")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", reason["until"])
    assert "waits for signal 'go', until " in refold(folder, "runs", "why", "asks").out
    (reason,) = refold(folder, "runs", "why", "held", "-o", "json").data["reasons"]
    assert (reason["kind"], reason["by"]) == ("paused", "ann")
    assert refold(folder, "runs", "why", "good").out == "good is completed: nothing waits\n"


def test_logs_are_what_the_steps_printed(folder: Path) -> None:
    (line,) = [json.decode(each) for each in refold(folder, "runs", "logs", "bad", "-o", "jsonl").out.splitlines()]
    assert (line["step"], line["stream"], line["text"], line["visit"], line["attempt"]) == (
        "one",
        "stdout",
        "said",
        1,
        1,
    )
    assert refold(folder, "runs", "logs", "bad").out.endswith(" one   said\n")
    assert refold(folder, "runs", "logs", "bad", "--step", "two").out == ""


TWICE = "print('x')\\nif context['attempt'] == 1 and context['item'] == 1: raise OSError"
LOOP = (
    "{step: one, loop: {in: [1, 2], iterator: each}, retry: {attempts: 2, delay: 10ms},"
    f' tool: {{kind: python, code: "{TWICE}"}}}}'
)


def test_logs_tell_the_item_and_the_try_if_it_is_not_the_first(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, LOOP), "--name", "mine", "-q").code == 0
    lines = refold(tmp_path, "runs", "logs", "mine").out.splitlines()
    assert sorted(line.split(" ", 1)[1] for line in lines) == ["one[0]   x", "one[1]   x", "one[1] try 2   x"]


def test_what_is_over_can_neither_be_paused_nor_cancelled_nor_resumed(folder: Path) -> None:
    for command in ("pause", "cancel", "resume"):
        done = refold(folder, "runs", command, "good")
        assert (done.code, done.err.startswith("error: run good is completed")) == (4, True)


def test_a_run_that_another_process_executes_is_paused_resumed_and_cancelled_through_the_file(tmp_path: Path) -> None:
    file = playbook(tmp_path, WAITS, shell("last", "sleep 30"))
    with started(tmp_path, "run", file, "--name", "mine") as process:
        until((tmp_path / "begun").exists)
        why = refold(tmp_path, "runs", "why", "mine", "-o", "json").data["reasons"]
        assert [(each["step"], each["kind"]) for each in why] == [("slow", "running"), ("last", "join")]
        assert why[0]["worker"].startswith("run-")
        assert refold(tmp_path, "runs", "pause", "mine").err == "mine is paused; to continue: refold runs resume mine\n"
        (tmp_path / "go").touch()
        until(lambda: status(tmp_path) == {"slow": "completed", "last": "pending"})
        assert process.wait(60) == 6  # it leaves a paused run
        with started(tmp_path, "runs", "resume", "mine") as helping:
            until(lambda: status(tmp_path).get("last") == "running")
            done = refold(tmp_path, "runs", "cancel", "mine", "--reason", "enough")
            assert (done.code, done.err) == (0, "mine is being cancelled\n")
            assert helping.wait(60) == 1
    assert refold(tmp_path, "runs", "show", "mine", "-o", "json").data["status"] == "cancelled"


def status(folder: Path) -> dict[str, str]:
    steps = refold(folder, "runs", "show", "mine", "-o", "json").data["steps"]
    return {name: step["status"] for name, step in steps.items()}


def test_watch_shows_a_run_of_another_process_until_it_is_over_and_logs_follow_it(tmp_path: Path) -> None:
    file = playbook(tmp_path, WAITS, noop("last", result="3"))
    with started(tmp_path, "run", file, "--name", "mine", "-q") as process:
        until((tmp_path / "begun").exists)
        with (
            started(tmp_path, "runs", "watch", "-o", "json") as watching,
            started(tmp_path, "runs", "logs", "-f") as following,
        ):
            assert following.stdout is not None
            assert following.stdout.readline().endswith(" slow   one\n")
            assert refold(tmp_path, "runs", "watch", "--timeout", "0.1", "-q").code == 124
            (tmp_path / "go").touch()
            out, err = watching.communicate(timeout=60)
            rest = following.stdout.read()
            following.wait(60)
        assert process.wait(60) == 0
    assert (watching.returncode, json.decode(out)["result"]) == (0, 3)
    assert err.splitlines()[1:-1] == ["slow: started", "slow: completed", "last: completed"]
    assert (following.returncode, rest.splitlines()[0].endswith(" slow ! two")) == (0, True)


def test_who_watches_may_leave_without_harm(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, WAITS, noop("last")), "--detach", "-q").code == 0
    with started(tmp_path, "runs", "watch") as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline().startswith("no process executes play-")
        assert watching.stderr.readline().startswith("run play-")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    assert listed(tmp_path)[0]["status"] == "queued"


def test_after_kill_9_resume_goes_on_and_repeats_nothing_that_was_finished(tmp_path: Path) -> None:
    loop = "loop: {in: [0, 1, 2, 3, 4, 5], spec: {mode: parallel, max_in_flight: 2}}\nnext: last"
    each = 'step: each\ntool:\n  kind: shell\n  command: [sh, -c, "{script}", x, "{{{{ item }}}}"]\n{loop}'
    script = "echo $1 >> items; test $1 -lt 4 || while test ! -f go; do sleep 0.02; done; echo $1 >> finished"
    file = playbook(
        tmp_path, shell("first", "echo ran >> first", "each"), each.format(script=script, loop=loop), noop("last")
    )
    with started(tmp_path, "run", file, "--name", "mine") as process:
        until(lambda: (tmp_path / "items").exists() and len((tmp_path / "items").read_text().split()) == 6)
        until(lambda: steps_done(tmp_path) == 4)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) == -9
    (tmp_path / "go").touch()
    done = refold(tmp_path, "runs", "resume", "mine", "-o", "json", "-q")
    assert (done.code, done.data["status"]) == (0, "completed")
    assert (tmp_path / "first").read_text() == "ran\n"
    begun = (tmp_path / "items").read_text().split()
    assert sorted(begun) == ["0", "1", "2", "3", "4", "4", "5", "5"], "what was finished is not begun again"


def steps_done(folder: Path) -> int:
    facts = refold(folder, "runs", "history", "mine", "-o", "json").data
    return sum(len(fact["reports"]) for fact in facts if fact["type"] == "items_settled")


def test_prune_removes_what_ended_long_ago_and_nothing_else(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    for name in ("old", "older"):
        assert refold(tmp_path, "run", file, "--name", name, "-q").code == 0
    assert refold(tmp_path, "run", file, "--name", "alive", "--detach", "-q").code == 0

    def prune(*options: str) -> Done:
        return refold(tmp_path, "runs", "prune", *options)

    assert prune("--older-than", "30d") == (0, "", "0 runs removed\n")
    dry = prune("--older-than", "0s", "--dry-run")
    assert (dry.code, dry.err, len(listed(tmp_path))) == (0, "2 runs would be removed\n", 3)
    assert [row["name"] for row in json.decode(prune("--older-than", "0s", "-o", "json").out)] == ["older", "old"]
    assert [row["name"] for row in listed(tmp_path)] == ["alive"]
    assert refold(tmp_path, "runs", "show", "old").code == 3
    assert prune("--older-than", "soon").code == 2
    assert prune().code == 2


def test_prune_can_choose_by_status_and_workflow(tmp_path: Path) -> None:
    for name, step in (("one", noop("a")), ("two", '{step: a, tool: {kind: shell, command: ["false"]}}')):
        file = playbook(tmp_path, step, name=f"{name}.yaml")
        (tmp_path / file).write_text((tmp_path / file).read_text().replace("name: play", f"name: {name}"))
        refold(tmp_path, "run", file, "--name", name, "-q")
    prune = ("runs", "prune", "--older-than", "0s")
    assert refold(tmp_path, *prune, "--workflow", "two", "--status", "completed").err == "0 runs removed\n"
    assert refold(tmp_path, *prune, "--status", "failed").err == "1 run removed\n"
    assert [row["name"] for row in listed(tmp_path)] == ["one"]
    assert refold(tmp_path, *prune, "--workflow", "one").err == "1 run removed\n"


def test_without_a_database_there_is_nothing_to_look_at_and_none_is_made(tmp_path: Path) -> None:
    for command in (("runs", "list"), ("runs", "show"), ("runs", "resume"), ("db", "info"), ("runs", "pause", "x")):
        done = refold(tmp_path, *command)
        assert (done.code, "there is no database refold.db" in done.err) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_resume_without_a_name_wants_a_run_that_is_not_over(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("one")), "-q").code == 0
    assert refold(tmp_path, "runs", "resume") == (3, "", "error: every run is over\n")


LETTERS = """workload: {customer: acme, names: [Ada, Grace]}
workflow:
  - step: first
    queue: quick
    priority: 4
    share: "{{ customer }}"
    tool: {kind: noop, result: 1}
    next: send
  - step: send
    loop: {in: "{{ names }}", iterator: name, max_in_flight: 2}
    limit: "mail-{{ name }}"
    tool: {kind: noop, result: "{{ name }}"}
"""


def test_a_run_shows_where_it_and_its_steps_wait_and_why_names_the_limit_of_an_item(tmp_path: Path) -> None:
    (tmp_path / "letters.yaml").write_text(HEAD.replace("workflow:\n", LETTERS))
    assert refold(tmp_path, "run", "letters.yaml", "--name", "done", "--queue", "slow", "-q").code == 0
    lines = [line.split() for line in refold(tmp_path, "runs", "show", "done").out.splitlines()]
    assert ["waits", "in", "queue", "slow"] in lines
    first = lines.index(["STEP", "QUEUE", "PRIORITY", "SHARE", "LIMIT"])
    assert lines[first + 1 : first + 3] == [
        ["first", "quick", "4", "{{", "customer", "}}"],
        ["send", "mail-{{", "name", "}}"],
    ]
    steps = refold(tmp_path, "runs", "show", "done", "-o", "json").data["steps"]
    assert [steps["first"][key] for key in ("queue", "priority", "share")] == ["quick", 4, "{{ customer }}"]
    assert "limit" not in steps["first"]
    for name in ("Ada", "Grace"):
        assert refold(tmp_path, "limits", "set", f"mail-{name}", "--slots", "0").code == 0
    with started(tmp_path, "run", "letters.yaml", "--name", "held"):
        until(lambda: "mail-" in refold(tmp_path, "runs", "why", "held").out)
        told = refold(tmp_path, "runs", "why", "held").out
    assert "is kept back by the limit: mail-Ada" in told
    assert "is kept back by the limit: mail-Grace" in told
