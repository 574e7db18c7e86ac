"""`refold examples` and `refold init`: what is told of examples, and what is copied where."""

import compileall
import os
import shutil
from pathlib import Path

import pytest
from click import Context
from hatchling.builders.wheel import WheelBuilder
from msgspec import json

from refold.cli.app import called
from refold.cli.commands import examples
from refold.cli.commands.examples import FOLDER, example, file_of, files, init, names, page
from tests.cli.program import refold

ROOT = Path(__file__).parents[2]


def copied(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_page_is_printed_from_the_playbooks_themselves() -> None:
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert text == page(), "write it anew: python -m refold.cli.commands.examples"
    for name in names():
        assert f"| [{name}](../src/refold/examples/{name}/{file_of(name).name}) | {example(name).about} |" in text


def test_the_readme_leads_to_the_examples() -> None:
    assert "(docs/examples.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_list_has_a_line_for_each_with_the_smallest_first(tmp_path: Path) -> None:
    done = refold(tmp_path, "examples")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["EXAMPLE", "hello", *sorted({*names()} - {"hello"})]
    assert all(example(line.split()[0]).about in line for line in lines[1:])
    assert "refold init --example NAME" in done.err


def test_machines_are_told_what_each_needs_and_how_it_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["examples", "-o", "json"]) == 0
    listed = {each["name"]: each for each in json.decode(capsys.readouterr().out)}
    assert listed["pages"] == {
        "name": "pages",
        "description": example("pages").about,
        "tools": ["http", "sqlite", "noop"],
        "commands": ["python3 api.py &", "refold run pages.yaml"],
        "files": ["pages.yaml", "api.py"],
    }


def test_tools_of_polls_and_of_tasks_count_and_other_kinds_do_not() -> None:
    assert example("watcher").tools == ("poll", "python", "shell", "transfer", "assert")
    assert example("pipeline").tools == ("http", "python")
    assert example("secrets").tools == ("http", "python", "noop")


def test_show_prints_every_file_with_the_playbook_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["examples", "show", "regions"]) == 0
    shown = capsys.readouterr().out
    heads = [line.removeprefix("--- ") for line in shown.splitlines() if line.startswith("--- ")]
    assert heads[0] == "regions.yaml" and sorted(heads) == sorted(files("regions"))
    assert files("regions")["sales/west.csv"].decode() in shown
    assert called(["examples", "show", "regions", "-o", "json"]) == 0
    assert {each["file"] for each in json.decode(capsys.readouterr().out)} == {*files("regions")}


@pytest.mark.parametrize("command", [["examples", "show"], ["init", "--example"]])
def test_a_name_that_is_none_is_told_with_the_one_that_was_meant(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called([*command, "pges"]) == 3
    assert "there is no example 'pges'; did you mean `pages`?" in capsys.readouterr().err
    assert called([*command, "../examples/pages"]) == 3
    assert copied(tmp_path) == {}


def test_init_alone_makes_the_smallest_playbook_here_and_it_runs(tmp_path: Path) -> None:
    done = refold(tmp_path, "init")
    assert (done.code, done.out) == (0, "hello.yaml\n")
    assert done.err.splitlines()[:2] == ["next:", "  refold run hello.yaml"]
    assert copied(tmp_path) == files("hello")


def test_an_example_goes_into_a_folder_of_its_name_or_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(["init", "--example", "regions"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0] == "regions/regions.yaml"
    assert told.err.splitlines() == ["next:", "  cd regions", "  refold run regions.yaml"]
    assert called(["init", "my folder/deep", "--example", "etl"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  cd 'my folder/deep'",
        "  # needs: pip install 'refold[duckdb]'",
        "  refold run etl.yaml",
    ]
    assert copied(tmp_path / "regions") == files("regions")
    assert copied(tmp_path / "my folder" / "deep") == files("etl")


def test_nothing_is_overwritten_and_nothing_is_half_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "api.py").write_text("mine")
    assert called(["init", str(tmp_path), "--example", "pages"]) == 4
    assert f"api.py: already in {tmp_path}, and nothing is overwritten" in capsys.readouterr().err
    assert copied(tmp_path) == {"api.py": b"mine"}
    os.replace(tmp_path / "api.py", tmp_path / "mine")
    os.symlink(tmp_path / "nowhere", tmp_path / "pages.yaml")
    assert called(["init", str(tmp_path), "--example", "pages"]) == 4
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert called(["init", str(tmp_path / "mine")]) == 2
    assert "is a file, and not a folder" in capsys.readouterr().err


def test_what_python_compiles_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER / "pages", tmp_path / "pages")
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    assert compileall.compile_dir(tmp_path, quiet=1)
    assert len(copied(tmp_path)) == 3
    assert [*files("pages")] == ["pages.yaml", "api.py"]


def test_names_are_completed() -> None:
    [choice] = [each for each in init.params if each.name == "name"]
    assert [each.value for each in choice.shell_complete(Context(init), "re")] == [
        "regions",
        "report",
        "retries",
        "review",
    ]


def test_the_package_has_every_file_of_every_example() -> None:
    packed = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    wanted = {f"refold/examples/{name}/{file}" for name in names() for file in files(name)}
    assert wanted - packed == set()
