"""The shape of the source, printed: sizes, files with one importer, names defined twice, hops of a one-step run.

These figures are alarms for people who read them; no test depends on one.
"""

import ast
import contextlib
import inspect
import io
import os
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any, NamedTuple, NoReturn

from tests import imports
from tests.imports import ROOT, SRC, import_graph, module_name, tree_of

LONG_FILE, LONG_FUNCTION, MANY_METHODS, SHORT_FILE = 500, 80, 25, 80
Function = ast.FunctionDef | ast.AsyncFunctionDef

PLAYBOOK = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: one}
workflow:
  - step: only
    tool: {kind: python, isolation: inline, code: "return 41 + 1"}
"""
RESULT = "42\n"


def main() -> None:
    print_sizes()
    print_rooms()
    print_single_importers()
    print_repeated_classes()
    print_hops(measure())


def files() -> list[Path]:
    """All source files except those of the examples, which are programs of their own."""
    return [file for file in imports.files() if not file.is_relative_to(SRC / "examples")]


def print_sizes() -> None:
    section(f"files over {LONG_FILE} lines", sized((lines(file), name(file)) for file in files()), LONG_FILE)
    section(f"functions over {LONG_FUNCTION} lines", sized(function_sizes()), LONG_FUNCTION)
    section(f"classes with more than {MANY_METHODS} methods", sized(class_sizes()), MANY_METHODS)


def section(title: str, rows: Iterable[tuple[int, str]], above: int) -> None:
    shown = [(size, text) for size, text in rows if size > above]
    print(f"{title}: {len(shown)}")
    for size, text in shown:
        print(f"  {size:5}  {text}")


def sized(rows: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return sorted(rows, key=lambda row: (-row[0], row[1]))


def function_sizes() -> Iterator[tuple[int, str]]:
    for file, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{name(file)}:{node.lineno} {node.name}"


def class_sizes() -> Iterator[tuple[int, str]]:
    for file, node in nodes(ast.ClassDef):
        yield sum(isinstance(part, Function) for part in node.body), f"{name(file)}:{node.lineno} {node.name}"


def nodes(*kinds: type[Any]) -> Iterator[tuple[Path, Any]]:
    for file in files():
        yield from ((file, node) for node in ast.walk(tree_of(file)) if isinstance(node, kinds))


def name(file: Path) -> str:
    return file.relative_to(SRC).as_posix()


def lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def print_rooms() -> None:
    rooms: dict[str, list[int]] = defaultdict(list)
    for file in files():
        rooms[file.parent.relative_to(SRC.parent).as_posix()].append(lines(file))
    everything = [count for counts in rooms.values() for count in counts]
    middle = f"median file: {median(everything):.0f} lines"
    print(f"\nfiles without examples: {len(everything)}, lines: {sum(everything)}, {middle}")
    print("  files  lines  median  room")
    for room, counts in sorted(rooms.items()):
        print(f"  {len(counts):5}  {sum(counts):5}  {median(counts):6.0f}  {room}")


def print_single_importers() -> None:
    importers: dict[str, list[str]] = defaultdict(list)
    for module, targets in import_graph().items():
        for target in targets:
            importers[target].append(module)
    single = [file for file in files() if file.stem[:2] != "__" and len(importers[module_name(file)]) == 1]
    short = sum(lines(file) < SHORT_FILE for file in single)
    print(f"\nfiles with exactly one importer: {len(single)}; of these under {SHORT_FILE} lines (marked *): {short}")
    for file in single:
        mark = "*" if lines(file) < SHORT_FILE else " "
        print(f"{mark} {lines(file):5}  {name(file)}  from {importers[module_name(file)][0]}")


def print_repeated_classes() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in files():
        for node in tree_of(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name(file))
    repeated = {title: where for title, where in sorted(homes.items()) if len(where) > 1}
    print(f"\npublic class names defined more than once: {len(repeated)}")
    for title, where in repeated.items():
        print(f"  {title}: {', '.join(where)}")


class Walk(NamedTuple):
    """What a run entered between the opening of its playbook and the first letter of its printed result."""

    hops: Sequence[str]
    calls: Counter[tuple[str, str]]


def print_hops(walk: Walk) -> None:
    print(
        f"\nhops of a one-step run: {len(walk.hops)} files; calls across files: about {walk.calls.total()}"
        "\n  a hop is a file entered for the first time between reading the plan and printing the result;"
        " imports do not count"
    )
    for number, file in enumerate(walk.hops, 1):
        print(f"  {number:5}  {file}")


def measure() -> Walk:
    """Run `refold run` on a playbook of one step in this process."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), leaving_by_exception():
        playbook = Path(folder, "one.yaml")
        playbook.write_text(PLAYBOOK, encoding="utf-8")
        recorder = Recorder(playbook)
        program, before = console_script(), sys.argv
        sys.argv = ["refold", "run", playbook.name, "--db", "refold.db"]
        messages = io.StringIO()
        try:
            with contextlib.redirect_stdout(recorder.output), contextlib.redirect_stderr(messages), recorder:
                program()
        except SystemExit as left:
            if left.code != 0 or recorder.output.getvalue() != RESULT:
                raise RuntimeError(f"the run ended with {left.code}: {messages.getvalue()}") from None
        finally:
            sys.argv = before
    return Walk(recorder.hops, recorder.calls)


def console_script() -> Callable[[], NoReturn]:
    """Return the function behind the command `refold`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["refold"].partition(":")
    found: Callable[[], NoReturn] = getattr(import_module(module), function)
    return found


@contextlib.contextmanager
def leaving_by_exception() -> Iterator[None]:
    """The program leaves by `os._exit`, which would end this process too."""

    def leave(status: int) -> NoReturn:
        raise SystemExit(status)

    before, os._exit = os._exit, leave
    try:
        yield
    finally:
        os._exit = before


class Output(io.StringIO):
    """Standard output; `printed` becomes true with the first text."""

    printed = False

    def write(self, text: str, /) -> int:
        self.printed = True
        return super().write(text)


class Recorder:
    """Notes each call of a function of src/refold, from the opening of the playbook to the first printed text."""

    def __init__(self, playbook: Path) -> None:
        self.playbook = playbook
        self.output = Output()
        self.hops: list[str] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        self.opened = False
        self.ended = False
        self.names: dict[CodeType, str | None] = {}

    def __enter__(self) -> None:
        sys.addaudithook(self.audit)  # it cannot be removed, and does nothing after the end
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def __exit__(self, *exception: object) -> None:
        self.ended = True
        sys.setprofile(None)
        threading.setprofile(None)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.ended and not self.opened and event == "open" and isinstance(arguments[0], (str, os.PathLike)):
            self.opened = os.path.basename(arguments[0]) == self.playbook.name

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not self.opened or self.output.printed or self.ended:
            return
        file = self.file_of(frame.f_code)
        if file is None or not frame.f_code.co_flags & inspect.CO_OPTIMIZED or is_resumed(frame):
            return
        caller = None
        outer = frame.f_back
        while outer is not None:
            if self.file_of(outer.f_code) is not None:
                if not outer.f_code.co_flags & inspect.CO_OPTIMIZED:
                    return  # the body of a module or class: this happens during an import
                caller = caller or self.file_of(outer.f_code)
            outer = outer.f_back
        if caller is not None and caller != file:
            self.calls[caller, file] += 1
        if file not in self.hops:
            self.hops.append(file)

    def file_of(self, code: CodeType) -> str | None:
        if code not in self.names:
            file = Path(code.co_filename)
            self.names[code] = name(file) if file.is_relative_to(SRC) else None
        return self.names[code]


def is_resumed(frame: FrameType) -> bool:
    """Whether a generator or coroutine continues after a pause, which is not a call."""
    code = frame.f_code
    if not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    return frame.f_lasti >= 0 and code.co_code[frame.f_lasti + 1] != 0  # RESUME 0 begins, all others continue


if __name__ == "__main__":
    main()
