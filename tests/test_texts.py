"""What files of the project say: names without empty words, a first sentence per module, and nothing unfinished."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.imports import ROOT, SRC, files, tree_of

MODULES = {file.relative_to(SRC): file.read_text(encoding="utf-8") for file in files()}

UNUSED_WORDS = ("job", "manager", "handler", "util", "helper", "common", "base", "impl")
NAMES_OF_OTHERS = {"call_exception_handler", "_LogHandler", "_in_base64"}  # words of asyncio, logging and base64
GENERATED = {"__pycache__", "dist", "node_modules"}
HIDDEN_BUT_OURS = {".ci", ".github"}

# Put together from parts, so that this file does not hold what it looks for.
INDEX_HOST = re.compile("|".join((r"pypi\.[a-z]", "python" + "hosted", "index" + "-url", "find" + "-links")), re.I)
SHARED_FOLDER = re.compile(r"(\.\.|work)/" + "shared" + r"\b|\b(" + "|".join(("DESIGN", "ROUTING", "STYLE")) + r")\.md")
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def trees() -> Iterator[tuple[Path, ast.Module]]:
    yield from ((path, tree_of(SRC / path)) for path in MODULES)


def test_the_source_is_where_these_tests_look() -> None:
    assert Path("errors.py") in MODULES


def test_every_module_opens_by_saying_in_a_sentence_what_it_is() -> None:
    assert [str(path) for path, text in MODULES.items() if not opens_with_a_sentence(path, text)] == []


def test_no_name_uses_a_word_that_says_nothing() -> None:
    modules = [(path, part) for path in MODULES for part in path.with_suffix("").parts]
    names = modules + [(path, node.name) for path, node in (*functions(), *classes())]
    ours = [(path, name) for path, name in names if name not in NAMES_OF_OTHERS]
    assert [f"{path}: {name}" for path, name in ours if says_nothing(name)] == []


def test_nothing_in_the_source_is_a_stub() -> None:
    names = [(path, node) for path, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert [f"{path}:{node.lineno}" for path, node in names if node.id == "NotImplementedError"] == []


def test_no_file_is_marked_as_unfinished() -> None:
    assert mentions(UNFINISHED) == []


def test_no_file_names_a_package_index() -> None:
    assert mentions(INDEX_HOST) == []


def test_no_wait_with_a_limit_can_lose_a_cancellation() -> None:
    """`asyncio.wait_for` of Python 3.11 does, if what it waits for comes just then; `asyncio.timeout` does not."""
    assert [str(path) for path, text in MODULES.items() if "asyncio.wait_for" in text] == []


def test_no_file_points_outside_the_project() -> None:
    assert mentions(SHARED_FOLDER) == []


def functions() -> Iterator[tuple[Path, Function]]:
    for path, tree in trees():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, Function))


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, tree in trees():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def opens_with_a_sentence(path: Path, text: str) -> bool:
    paragraph = (ast.get_docstring(tree_of(SRC / path)) or "").split("\n\n")[0]
    return text.startswith('"""') and paragraph[:1] != "" and paragraph.endswith((".", ":"))


def says_nothing(name: str) -> bool:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return any(word.lower().removesuffix("s") in UNUSED_WORDS for word in words)


def mentions(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in project_files()
        if path.suffix != ".png"  # whose bytes spell any short word somewhere
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1)
        if pattern.search(line)
    ]


def project_files() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = sorted(name for name in subfolders if is_ours(name))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("refold.db"))


def is_ours(folder: str) -> bool:
    return folder not in GENERATED and (not folder.startswith(".") or folder in HIDDEN_BUT_OURS)
