"""Examples are held to what is asked of users: no warnings, no secrets, no host but this one, nothing hidden."""

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest

from refold.cli.app import COMMANDS, refold
from refold.cli.commands.examples import FOLDER, example, file_of, files, names
from refold.cli.commands.playbooks import read_file

ROOT = Path(__file__).parents[2]
ALL = sorted(
    path
    for folder in (FOLDER, ROOT / "examples")
    for path in folder.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)
OTHER_YAML = ("refold-bindings.yaml", "verdict.yaml")  # bindings, and the schema of an output
PLAYBOOKS = [path for path in ALL if path.suffix in (".yaml", ".wf") and path.name not in OTHER_YAML]
SCRIPTS = [path for path in ALL if path.suffix == ".py" and FOLDER in path.parents]
HOST = re.compile(r"\b\w+://([^/\s\"'{}:]+)")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
LOOPBACK = {"127.0.0.1", "localhost"}
SECRET = re.compile(
    r"-----BEGIN|\bAKIA[0-9A-Z]{12}|\bgh[pousr]_\w{20}|\bsk-\w{16}|\beyJ[\w-]{10,}\."
    r"|(?:password|passwd|token|secret|api_?key)[\"']?\s*[:=]\s*[\"']?[\w+/.-]{8,}",
    re.I,
)
NAMED = re.compile(r"\{secret: [\w-]+\}|map: \{token: [A-Z_]+\}|= os\.environ\.get\(")  # a secret by its name is none
OUT_OF_SIGHT = {"subprocess", "ctypes", "socket", "urllib.request", "http.client", "pickle", "importlib"}
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen"}


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PLAYBOOKS, ids=ids)
def test_the_playbook_is_good_and_nothing_is_to_be_said_about_it(path: Path) -> None:
    assert read_file(str(path)).warnings == ()


@pytest.mark.parametrize("name", names())
def test_the_playbook_is_short_and_says_in_a_line_what_it_does(name: str) -> None:
    text = file_of(name).read_text(encoding="utf-8")
    assert name == "hello" or 25 <= len(text.splitlines()) <= 80
    assert max(map(len, text.splitlines())) <= 120
    assert 40 <= len(example(name).about) <= 100 and example(name).about.endswith(".")


@pytest.mark.parametrize("name", names())
def test_what_it_says_to_run_is_there(name: str) -> None:
    assert any(command.startswith(f"refold run {file_of(name).name}") for command in example(name).commands)
    for command in example(name).commands:
        words = shlex.split(command, comments=True)
        if words[0] == "refold":
            assert words[1] in {*COMMANDS, *refold.commands}
        named = [word.rpartition("=")[2] for word in words if word.endswith((".py", ".yaml", ".csv"))]
        assert {*named} <= {*files(name)}, command


@pytest.mark.parametrize("path", ALL, ids=ids)
def test_no_secret_is_written_out_and_no_host_is_named_but_this_one(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert SECRET.findall(NAMED.sub("", text)) == []
    assert {*HOST.findall(text), *ADDRESS.findall(text)} <= LOOPBACK


def test_the_looks_for_secrets_and_hosts_find_some() -> None:
    found = ["password: hunter2hunter2", 'API_KEY = "0123456789abcdef"', "-----BEGIN RSA", "token='abcdefghijkl'"]
    assert all(SECRET.search(NAMED.sub("", text)) for text in found)
    assert HOST.findall("url: https://example.org/x") == ["example.org"]
    assert ADDRESS.findall('("0.0.0.0", 80)') == ["0.0.0.0"]


@pytest.mark.parametrize("path", SCRIPTS, ids=ids)
def test_a_script_uses_what_python_brings_and_starts_nothing_of_its_own(path: Path) -> None:
    imported, called = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
        elif isinstance(node, ast.Call):
            called.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
    assert imported & OUT_OF_SIGHT == set()
    assert called & CALLS == set()
