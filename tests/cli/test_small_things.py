"""Details of commands that a new user meets: inputs by their declared type, empty lists, lines of one item."""

import json
from pathlib import Path

import pytest

from tests.cli.in_process import command, here
from tests.cli.program import noop, playbook, refold, shell, started, until

DECLARED = "inputs: {zip: string, n: {type: integer, required: false}}\n"


def test_an_input_that_is_declared_as_text_is_text_whatever_it_looks_like(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("a", result="'{{ zip }}!'"), more=DECLARED)
    for typed, meant in (("12345", "12345!"), ("true", "true!"), ("null", "null!"), ('"quoted"', "quoted!")):
        done = refold(tmp_path, "run", file, "-q", "-i", f"zip={typed}", "-i", "n=7")
        assert (done.code, done.out) == (0, f"{meant}\n"), done.err
    assert refold(tmp_path, "run", file, "-q", "-i", "zip=1", "-i", "n=x").code == 2


def test_a_file_of_inputs_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    done = refold(tmp_path, "run", playbook(tmp_path, noop("a")), "--input-file", "gone.json")
    assert done == (3, "", "error: there is no file gone.json\n")


def test_a_file_of_inputs_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name, text in (("in.json", '{"zip": "a"}'), ("in.yaml", "zip: a\n")):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        file = playbook(tmp_path, noop("a", result="'{{ zip }}'"), more=DECLARED)
        assert refold(tmp_path, "run", file, "-q", "--input-file", name).out == "a\n"


def test_empty_lists_say_so(tmp_path: Path) -> None:
    file = playbook(tmp_path, "{step: a, loop: {in: [1, 2]}, tool: {kind: noop}}")
    assert refold(tmp_path, "run", file, "-q", "--name", "mine").code == 0
    assert refold(tmp_path, "gates", "list") == (0, "", "no gate and no question waits for a person\n")
    assert refold(tmp_path, "dlq", "list") == (0, "", "there is no dead letter\n")
    done = refold(tmp_path, "runs", "items", "mine", "--state", "failed")
    assert done.code == 0 and "ITEM" not in done.out and done.err == "no item has this state\n"


def test_logs_can_show_one_item_and_the_last_lines(tmp_path: Path) -> None:
    tool = '{kind: shell, args: ["{{ i }}"], script: "echo 1$1; echo 2$1"}'
    step = f'{{step: a, loop: {{in: [x, y, z]}}, input: {{i: "{{{{ item }}}}"}}, tool: {tool}}}'
    assert refold(tmp_path, "run", playbook(tmp_path, step), "-q", "--name", "mine").code == 0

    def texts(*options: str) -> list[str]:
        return [line.rsplit(" ", 1)[1] for line in refold(tmp_path, "runs", "logs", "mine", *options).out.splitlines()]

    assert texts("--item", "1") == ["1y", "2y"]
    assert texts("--item", "1", "--tail", "1") == ["2y"] and texts("--tail", "0") == []
    assert len(texts()) == 6 and texts("--tail", "2") == texts()[-2:]


def test_counts_have_their_plural(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("a")), "-q").code == 0
    assert refold(tmp_path, "db", "check").err == "1 run read, 0 problems\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ls", "runs list"),
        ("logs", "runs logs"),
        ("status", "runs show"),
        ("resume", "runs resume"),
        ("backup", "db backup"),
        ("approve", "gates approve"),
        ("trigger", "schedules trigger"),
    ],
)
def test_a_word_of_other_programs_gets_the_command_that_is_meant(typed: str, meant: str, tmp_path: Path) -> None:
    with here(tmp_path):
        done = command(typed, "x")
    assert done.code == 2 and f"error: No such command {typed!r}. Write `refold {meant}`." in done.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("runs stop", "runs cancel"),
        ("runs rm", "runs delete"),
        ("schedules disable", "schedules pause"),
        ("schedules run", "schedules trigger"),
        ("limits rm", "limits remove"),
        ("dlq retry", "dlq redrive"),
    ],
)
def test_a_word_of_other_programs_within_a_group_gets_the_command_that_is_meant(
    typed: str, meant: str, tmp_path: Path
) -> None:
    with here(tmp_path):
        done = command(*typed.split(), "x")
    assert done.code == 2 and f"Write `refold {meant}`." in done.err


def test_completion_says_where_its_script_goes(tmp_path: Path) -> None:
    with here(tmp_path):
        shown = " ".join(command("completion", "--help").out.split())
    assert "into ~/.bashrc" in shown and "into ~/.zshrc" in shown and "completions/refold.fish" in shown


def test_a_value_that_does_not_fit_is_written_as_json(tmp_path: Path) -> None:
    file = playbook(
        tmp_path, noop("a", result="'{{ flag }}'"), more="inputs: {flag: {type: string}, n: {type: object}}\n"
    )
    with here(tmp_path):
        assert "n: true is not of type 'object'" in command("run", file, "-i", "flag=x", "-i", "n=true").err
        assert "n: null is not of type 'object'" in command("run", file, "-i", "flag=x", "-i", "n=null").err


def test_progress_for_machines_speaks_of_errors_and_of_steps_that_have_started(tmp_path: Path) -> None:
    with here(tmp_path):
        file = playbook(tmp_path, shell("a", "sleep 0.3; exit 3"))
        done = command("run", file, "--progress", "json")
    rows = [row for line in done.err.splitlines() if "step" in (row := json.loads(line))]
    assert [row["status"] for row in rows] == ["started", "failed"]
    assert rows[-1]["error"]["kind"] == "exit" and all("fault" not in row for row in rows)


def test_the_history_has_json_delays_decisions_and_no_generated_steps(tmp_path: Path) -> None:
    with here(tmp_path):
        steps = shell("a", "exit 3", more="retry: {attempts: 2, delay: 0.2}")
        file = playbook(tmp_path, steps, more="workload: {day: null}\n")
        assert command("run", file, "-q", "--name", "mine", "-i", "day=[true]").code == 1
        history = command("runs", "history", "mine").out
        assert 'run started with {"day":[true]}' in history and "a/1 issued, try 2, after 0.2 s" in history
        gate = playbook(tmp_path, "step: ask\ntool: {kind: gate, prompt: ok?, timeout: 1h}", name="gate.yaml")
        assert command("run", gate, "-q", "--until-waiting", "--name", "asks").code == 0
        assert "ask/1 waits for a decision" in command("runs", "history", "asks").out
        branches = "{hot: [{step: hot, tool: {kind: noop}}], cool: [{step: cool, tool: {kind: noop}}]}"
        block = playbook(tmp_path, f"parallel: both\nbranches: {branches}", name="block.yaml")
        assert command("run", block, "-q", "--name", "block").code == 0
        history, shown = command("runs", "history", "block").out, command("runs", "show", "block").out
        assert "hot/1 entered" in history and "both." not in history and "both." not in shown


def test_a_run_that_runs_is_in_a_worker_and_no_end_of_a_lease_is_told(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("a", "touch began; while test ! -e go; do sleep 0.05; done"))
    with started(tmp_path, "run", file, "--name", "mine") as run:
        until((tmp_path / "began").exists)
        why = refold(tmp_path, "runs", "why", "mine").out
        (tmp_path / "go").touch()
        assert run.wait(60) == 0
    assert "runs in worker run-" in why and "leased" not in why


def test_a_failed_loop_says_its_first_reason_on_the_screen(tmp_path: Path) -> None:
    with here(tmp_path):
        loop = "step: s\nloop: {in: [a, b], iterator: x}\ntool: {kind: assert, that: false, message: no disk}"
        done = command("run", playbook(tmp_path, loop), "--name", "mine", "--progress", "lines")
    assert done.code == 1 and "because item 0: " in done.err and "no disk" in done.err.partition("because")[2]


def test_dead_letters_name_class_step_and_keys_and_can_be_dismissed(tmp_path: Path) -> None:
    with here(tmp_path):
        tool = "tool: {kind: python, isolation: inline, code: \"{}['gone']\"}"
        loop = f"step: s\nloop: {{in: [{{id: ab}}, {{id: cd}}], iterator: x, key: '{{{{ x.id }}}}'}}\n{tool}"
        file = playbook(tmp_path, loop)
        assert command("run", file, "-q").code == 1
        [group] = command("dlq", "list", "-o", "json").data
        assert (group["message"], group["steps"]) == ("KeyError: 'gone'", ["play/s"])
        assert "KeyError: 'gone'" in (listed := command("dlq", "list").out) and "play/s" in listed
        assert "ab, cd" in command("dlq", "show", group["fingerprint"]).out
        assert command("dlq", "dismiss", group["fingerprint"][:6]).code == 0
        assert command("dlq", "list").err == "there is no dead letter\n"
        assert command("dlq", "redrive", "--all").err == "reopened: 0 of 0\n"
        assert command("run", file, "-q").code == 1
        assert [each["runs"] for each in command("dlq", "list", "-o", "json").data] == [1]
        assert command("dlq", "dismiss", "nothing").code == 3


@pytest.mark.parametrize("group", ["", "runs", "gates", "dlq", "schedules", "secret", "token", "audit", "db", "noetl"])
def test_the_summaries_of_commands_are_whole_sentences_on_80_columns(tmp_path: Path, group: str) -> None:
    with here(tmp_path):
        shown = command(*filter(None, [group]), "--help").out.partition("Commands:")[2]
    assert shown and "..." not in shown and all(line.endswith(".") for line in shown.splitlines() if line.strip())


def test_logs_show_the_lines_of_child_runs_with_their_names(tmp_path: Path) -> None:
    with here(tmp_path):
        playbook(tmp_path, shell("say", "echo from the child"), name="kid.yaml")
        kids = "step: kids\ntool: {kind: playbook, path: kid.yaml}"
        file = playbook(tmp_path, shell("own", "echo from the parent", "kids"), kids)
        assert command("run", file, "-q", "--name", "top").code == 0
        lines = [line.split(maxsplit=1)[1].split() for line in command("runs", "logs", "top").out.splitlines()]
        assert lines == [["own", "from", "the", "parent"], ["top.kids/say", "from", "the", "child"]]
        assert "child" not in command("runs", "logs", "top", "--alone").out
        rows = [json.loads(line) for line in command("runs", "logs", "top", "-o", "jsonl").out.splitlines()]
        assert [row.get("name", "") for row in rows] == ["", "top.kids"]


def test_why_says_once_that_a_budget_is_used_up(tmp_path: Path) -> None:
    code = "context['usage']['tokens'] = 70\nresult = 1"
    step = f"step: one\ntool:\n  kind: python\n  isolation: inline\n  code: {json.dumps(code)}\nnext: two"
    with here(tmp_path):
        file = playbook(tmp_path, step, noop("two"), more="budget: {tokens: 30}\n")
        assert command("run", file, "--name", "dear", "-q").code == 6
        assert command("runs", "why", "dear").out.count("70 tokens are used up, and the budget is 30") == 1


@pytest.mark.parametrize("line", [("pause",), ("cancel",), ("resume",), ("retry",), ("signal", "go")])
def test_errors_name_a_run_as_people_do(tmp_path: Path, line: tuple[str, ...]) -> None:
    with here(tmp_path):
        assert command("run", playbook(tmp_path, noop("one")), "--name", "daily", "-q").code == 0
        run = command("runs", "show", "daily", "-o", "json").data["id"]
        done = command("runs", line[0], "daily", *line[1:])
    assert done.code == 4 and "run daily " in done.err and run not in done.err
