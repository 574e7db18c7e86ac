"""Settings of commands: where they come from, which wins, and what is said about wrong ones."""

import os
import re
from pathlib import Path

import pytest

from docs.build.settings_page import comments, page
from refold.cli.settings import OTHER_VARIABLES, CommandSettings, load
from refold.errors import InvalidValue, NotFound
from refold.settings import Settings, variable
from tests.cli.program import noop, playbook, refold

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "settings.md"


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "refold.toml").write_text(text, encoding="utf-8")
    return folder / "refold.toml"


def test_the_nearest_file_above_the_working_directory_counts(tmp_path: Path) -> None:
    write(tmp_path, "slots = 2\npoll = 3")
    near = write(tmp_path / "a", "slots = 5")
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    found = load({}, str(tmp_path / "a" / "b" / "c"))
    assert (found.engine.slots, found.engine.poll, found.file) == (5, 1.0, str(near))
    assert found.origin("slots") == f"{near}:1" and found.origin("poll") == "default"


def test_the_environment_wins_over_the_file_and_an_option_over_both(tmp_path: Path) -> None:
    write(tmp_path, 'db = "of-file.db"')
    file = playbook(tmp_path, noop("one"))
    assert refold(tmp_path, "run", file, "-q").code == 0
    assert refold(tmp_path, "run", file, "-q", REFOLD_DB="of-environment.db").code == 0
    assert refold(tmp_path, "run", file, "-q", "--db", "of-option.db", REFOLD_DB="of-environment.db").code == 0
    assert sorted(each.name for each in tmp_path.glob("*.db")) == ["of-environment.db", "of-file.db", "of-option.db"]
    shown = refold(tmp_path, "settings", "--db", "x.db", "-o", "json", REFOLD_SLOTS="7").data
    rows = {each["name"]: (each["value"], each["origin"], each["variable"]) for each in shown}
    assert rows["db"] == ("x.db", "--db", "REFOLD_DB") and rows["slots"] == (7, "REFOLD_SLOTS", "REFOLD_SLOTS")
    assert rows["stop_grace"] == (0.3, "REFOLD_STOP_GRACE", "REFOLD_STOP_GRACE")
    assert rows["private_addresses"] == (True, "default", "REFOLD_PRIVATE_ADDRESSES")


def test_every_setting_is_printed_with_its_origin(tmp_path: Path) -> None:
    write(tmp_path, 'queues = ["a", "b"]\n\n# comment\nkeyring = true\nlog = "json"\n')
    done = refold(tmp_path, "settings")
    rows = {line.split()[0]: line.split("  ", 1)[1].split("  ") for line in done.out.splitlines()[1:]}
    assert list(rows) == [*CommandSettings.__struct_fields__, *Settings.__struct_fields__]
    shown = {name: [cell.strip() for cell in cells if cell.strip()] for name, cells in rows.items()}
    where = tmp_path / "refold.toml"
    assert shown["queues"] == ["a, b", f"{where}:1"] and shown["keyring"] == ["true", f"{where}:4"]
    assert shown["log"] == ["json", f"{where}:5"] and shown["artifacts"] == ["-", "default"]


def test_an_unknown_key_is_an_error_with_its_line_and_a_hint(tmp_path: Path) -> None:
    write(tmp_path, "slots = 1\nqueue = ['a']\n")
    done = refold(tmp_path, "runs", "list")
    assert done.code == 2
    assert f"{tmp_path}/refold.toml:2:1: error[unknown-key]: there is no setting `queue`" in done.err
    assert "  2 | queue = ['a']\n    | ^^^^^\nhint: did you mean `queues`?" in done.err


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('database = "x"', "did you mean `db`?"),
        ("REFOLD_SLOTS = 3", "did you mean `slots`?"),
        ("lease-for = 3", "did you mean `lease_for`?"),
        ("qqq = 3", "known: `db`"),
        ("[slotz]\nx = 1", "did you mean `slots`?"),
    ],
)
def test_a_key_of_another_spelling_gets_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    write(tmp_path, text)
    with pytest.raises(InvalidValue, match="unknown-key") as caught:
        load({}, str(tmp_path))
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('slots = "many"', '1:1: error[wrong-value]: slots: "many" is not a whole number'),
        ("poll = true", "1:1: error[wrong-value]: poll: true is not a number"),
        ('queues = "a"', '1:1: error[wrong-value]: queues: "a" is not a list of texts such as ["one", "two"]'),
        ('\nlog = "xml"', '2:1: error[wrong-value]: log: "xml" is not one of text, json'),
        ("keyring = 1", "1:1: error[wrong-value]: keyring: 1 is not true or false"),
        ("slots = 1\nslots = [", "error[toml]: this is not TOML"),
        ("db = refold.db", "1:6: error[toml]: this is not TOML"),
    ],
)
def test_a_wrong_value_is_shown_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path, text)
    with pytest.raises(InvalidValue) as caught:
        load({}, str(tmp_path))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("REFOLD_SLOTS", "many", 'REFOLD_SLOTS: "many" is not a whole number'),
        ("REFOLD_LOG", "loud", 'REFOLD_LOG: "loud" is not one of text, json'),
        ("REFOLD_LOG_LEVEL", "x", 'REFOLD_LOG_LEVEL: "x" is not one of debug, info, warning, error'),
        ("REFOLD_KEYRING", "maybe", 'REFOLD_KEYRING: "maybe" is not true or false'),
    ],
)
def test_a_wrong_value_in_the_environment_is_refused_by_name(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        load({name: text}, str(tmp_path))
    assert str(caught.value) == why


def test_the_log_is_printed_as_the_file_says(tmp_path: Path) -> None:
    assert not load({}, str(tmp_path)).prints_log
    assert load({"REFOLD_LOG_LEVEL": "DEBUG"}, str(tmp_path)).command.log_level == "debug"
    write(tmp_path, 'log = "json"')
    done = refold(tmp_path, "run", playbook(tmp_path, noop("one")), "-q")
    assert '"event":"run started"' in done.err.replace(": ", ":")


def test_paths_of_the_file_are_relative_to_its_folder_and_those_of_the_environment_are_not(tmp_path: Path) -> None:
    write(tmp_path, 'db = "data/r.db"\nkey_file = "/k"\ncode = ["shop:Order"]')
    (tmp_path / "sub").mkdir()
    here, below = load({}, str(tmp_path)), load({"REFOLD_PLAYBOOKS": "p"}, str(tmp_path / "sub"))
    assert (here.command.db, below.command.db) == ("data/r.db", str(tmp_path / "data/r.db"))
    assert (below.engine.key_file, below.command.playbooks) == ("/k", "p")
    assert (here.command.code, below.command.code) == (("shop:Order",), (f"{tmp_path}/shop:Order",))


def test_a_worker_has_the_code_that_the_file_names(tmp_path: Path) -> None:
    write(tmp_path, 'code = ["shop:order"]')
    (tmp_path / "shop.py").write_text(
        "import refold\n\n@refold.flow\nasync def order(ctx: refold.Context, n: int) -> int:\n    return n + 1\n"
    )
    (tmp_path / "sub").mkdir()
    start = refold(tmp_path, "run", "shop:order", "-i", "n=1", "--name", "mine", "--detach", "-q")
    assert start.code == 0, start.err
    done = refold(tmp_path / "sub", "worker", "--until-idle", "--db", "../refold.db")
    assert done.code == 0, done.err
    assert refold(tmp_path, "runs", "show", "mine", "-o", "json").data["result"] == 2


def test_a_printed_command_names_the_database_only_if_it_would_not_be_found(tmp_path: Path) -> None:
    write(tmp_path, 'db = "d.db"')
    file = playbook(tmp_path, "{step: w, tool: {kind: gate, prompt: Now}}")
    left = refold(tmp_path, "run", file, "--name", "g", "--until-waiting").err
    assert "to continue: refold runs resume g\n" in left
    left = refold(tmp_path, "run", file, "--name", "h", "--until-waiting", REFOLD_DB="e.db").err
    assert "to continue: refold runs resume h --db e.db\n" in left


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "slots = 1")
    mine = tmp_path / "mine"
    mine.mkdir()
    real = os.stat

    def stat(path: str, **options: bool) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result((*found[:4], 12345, *found[5:])) if str(path) == str(file) else found

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(InvalidValue, match="belongs to another user"):
        load({}, str(mine))
    assert load({"REFOLD_SETTINGS": str(file)}, str(mine)).engine.slots == 1


def test_the_file_can_be_named_and_none_can_be_chosen(tmp_path: Path) -> None:
    write(tmp_path, "slots = 1")
    (tmp_path / "other.toml").write_text("slots = 2")
    assert load({"REFOLD_SETTINGS": "other.toml"}, str(tmp_path)).engine.slots == 2
    assert load({"REFOLD_SETTINGS": "/dev/null"}, str(tmp_path)).engine.slots == 16
    with pytest.raises(NotFound, match=r"there is no settings file gone\.toml, which REFOLD_SETTINGS names"):
        load({"REFOLD_SETTINGS": "gone.toml"}, str(tmp_path))


def test_a_variable_that_is_no_setting_is_warned_of(tmp_path: Path) -> None:
    done = refold(tmp_path, "settings", REFOLD_SLOTSS="1", REFOLD_SECRET_X="s", REFOLD_KEY="k", REFOLD_ZZZZ="1")
    assert done.err.splitlines()[:2] == [
        "warning: REFOLD_SLOTSS is set, and there is no such setting; did you mean REFOLD_SLOTS?",
        "warning: REFOLD_ZZZZ is set, and there is no such setting",
    ]
    assert done.code == 0 and "REFOLD_KEY" not in done.err


def test_the_page_of_settings_is_up_to_date_and_complete() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m docs.build.settings_page"
    assert set(comments(CommandSettings)) == set(CommandSettings.__struct_fields__)
    every = {**comments(Settings), **comments(CommandSettings)}
    assert [name for name, about in every.items() if not about] == []


def test_every_variable_in_the_source_and_in_the_docs_is_on_the_page() -> None:
    known = {*map(variable, (*CommandSettings.__struct_fields__, *Settings.__struct_fields__)), *OTHER_VARIABLES}
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.yaml"), *(ROOT / "docs").rglob("*.md")]
    files.remove(ROOT / "docs" / "proof.md")  # it has a variable of the tests
    found = {
        (name, str(file.relative_to(ROOT)))
        for file in files
        for name in re.findall(r"\bREFOLD_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8"))
    }
    unknown = {(name, file) for name, file in found if name not in known and not name.startswith("REFOLD_SECRET_")}
    assert unknown == set()
