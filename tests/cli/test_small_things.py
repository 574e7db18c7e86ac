"""Details of commands that a new user meets: inputs by their declared type, empty lists, lines of one item."""

from pathlib import Path

from tests.cli.program import noop, playbook, refold

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
