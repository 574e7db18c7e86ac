"""Prints the reference of Python workflows from the code: `python -m docs.build.python_page`.

Signatures are read from the source, as they are written. What has no docstring is described in `python_page_words`.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from msgspec import Struct

import refold
import refold.errors
import refold.plan
import refold.stages
from docs.build import python_page_words as words
from refold.core.read.summary import Summary
from refold.python.context import DurableCalls
from refold.python.requests import IncomingRequest
from refold.python.session import Session
from refold.python.state import State
from refold.runtime.engine import RunReport
from refold.runtime.handle import Request, Shown
from refold.runtime.sync import BlockingMethod

Function = ast.FunctionDef | ast.AsyncFunctionDef
WIDE = 100  # letters of a signature that stand on one line


PIPELINES = "Pipelines"
DATA = "Workflows as data"  # one line for each name: other pages are about them


class Section(Struct, frozen=True):
    """Names of one kind, in the order of the page."""

    title: str
    names: tuple[str, ...]


SECTIONS = (
    Section("Workflows", ("Workflow", "step", "flow", "Collect", "Retry", "Ray", "resource")),
    Section(
        "Events", ("Event", "StartEvent", "StopEvent", "InputRequestEvent", "InputResponseEvent", "ErrorEvent", "Live")
    ),
    Section("In a step", ("Context", "SyncContext", "ctx.options()", "ctx.state", "ctx.session")),
    Section(
        "Running",
        (
            "run_sync",
            "options",
            "open_engine",
            "playbook",
            "Settings",
            "Engine",
            "Handle",
            "engine.runs()",
            "engine.show()",
            "handle.stream()",
            "handle.requests()",
            "ctx.requests()",
            "SyncEngine",
            "SyncHandle",
        ),
    ),
    Section(PIPELINES, tuple(name for name in refold.stages.__all__ if name != "StageFailed")),
    Section(
        "Errors",
        ("RefoldError", "RunFailed", "StepFailed", "RunCancelled", "ChildFailed", "StageFailed", "LiveObjectLost"),
    ),
    Section(DATA, tuple(words.DATA)),
)
PARTS = {
    "ctx.options()": DurableCalls,
    "ctx.state": State,
    "ctx.session": Session,
    "engine.runs()": Summary,
    "engine.show()": RunReport,
    "handle.stream()": Shown,
    "handle.requests()": Request,
    "ctx.requests()": IncomingRequest,
}
"""What has no public name, by the call that returns it."""
MODULES = (refold, refold.stages, refold.plan, refold.errors)


@cache
def page() -> str:
    return "\n".join([words.HEAD, *map(_section, SECTIONS), words.VALUES]).rstrip() + "\n"


def _section(section: Section) -> str:
    about = words.SECTIONS[section.title]
    if section.title == DATA:
        rows = [f"| `{name}` | {about} |" for name, about in words.DATA.items()]
        return "\n".join([f"## {section.title}\n", f"{about}\n", "| name | meaning |", "| --- | --- |", *rows, ""])
    return "\n".join([f"## {section.title}\n", f"{about}\n", *(_entry(name) for name in section.names)])


def _thing(name: str) -> Any:
    """What a name of the page means, in the first public module that has it."""
    return PARTS.get(name) or next(getattr(module, name) for module in MODULES if hasattr(module, name))


def _entry(name: str) -> str:
    thing = _thing(name)
    return _class(name, thing) if isinstance(thing, type) else _function(name, thing)


def _function(name: str, function: Any) -> str:
    node = _definitions(function)[-1]
    options = words.OPTIONS.get(name)
    shown = f"@{name}" if name in words.DECORATORS else f"refold.{name}{_signature(node)}"
    about = _about(function, name)
    table = "" if options is None else f"\n{_options(node, options)}"
    return f"### `{name}`\n\n```\n{shown}\n```\n\n{about}\n{table}"


def _options(node: Function, options: Mapping[str, str]) -> str:
    given = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    rows = [
        f"| `{each.arg}` | `{_quoted(ast.unparse(default))}` | {options[each.arg]} |"
        for each, default in given
        if default is not None
    ]
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _class(name: str, cls: type) -> str:
    node = _class_node(cls)
    parts = [f"### `{name}`\n"]
    made = _method(node, "__init__")
    if made is not None and name not in words.NOT_CALLED:
        parts.append(f"```\n{name}{_signature(made)}\n```\n")
    parts += [f"{_about(cls, name)}\n"]
    fields, methods = _fields(node, cls), list(_methods(cls, name))
    if fields:
        parts.append(_attributes(fields))
    if methods:
        parts.append("\n".join(["| method | meaning |", "| --- | --- |", *methods]) + "\n")
    return "\n".join(parts)


def _attributes(fields: list[tuple[str, str]]) -> str:
    """A table, or only what is written if nothing is said of any of them."""
    if not any(about for _, about in fields):
        return "\n".join(["```", *(field for field, _ in fields), "```"]) + "\n"
    rows = [f"| `{_cell(field)}` | {_cell(about)} |" for field, about in fields]
    return "\n".join(["| attribute | meaning |", "| --- | --- |", *rows]) + "\n"


def _fields(node: ast.ClassDef, cls: type) -> list[tuple[str, str]]:
    """What a class declares, with the comment behind it."""
    lines, rows = _source(str(inspect.getsourcefile(cls))).splitlines(), list[tuple[str, str]]()
    extra = words.ATTRIBUTES.get(cls.__name__, {})
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id in _declared(cls):
            _, _, comment = lines[each.lineno - 1].partition("  # ")
            about = extra.get(each.target.id) or comment
            rows.append((_quoted(ast.unparse(each)), about))
    blocking = [
        name for name, each in vars(cls).items() if isinstance(each, BlockingMethod) and _is_for_users(cls, name)
    ]
    if blocking:
        rows.append((", ".join(blocking), f"the methods of `{cls.__name__.removeprefix('Sync')}`"))
    written = {field.partition(":")[0] for field, _ in rows}
    return rows + [(name, about) for name, about in extra.items() if name not in written]


def _declared(cls: type) -> set[str]:
    hidden = words.INTERNAL.get(cls.__name__, frozenset())
    try:
        return {name for name in get_type_hints(cls) if not name.startswith("_")} - hidden
    except NameError:
        return {name for name in cls.__annotations__ if not name.startswith("_")} - hidden


def _methods(cls: type, name: str) -> Iterator[str]:
    """Its own, and those of the classes of Refold that it is made of."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("refold."):
            found |= {key: each for key, each in vars(base).items() if inspect.isfunction(each)}
    for key, each in found.items():
        if not key.startswith("_") and _is_for_users(cls, key):
            node = _definitions(each)[-1]
            call = f"{'await ' if _is_awaited(node) else ''}{key}{_signature(node, wide=1000)}"
            yield f"| `{_cell(call)}` | {_cell(_about(each, f'{name}.{key}'))} |"


def _is_for_users(cls: type, key: str) -> bool:
    return key not in words.INTERNAL.get(cls.__name__, frozenset())


def _is_awaited(node: Function) -> bool:
    iterates = node.returns is not None and ast.unparse(node.returns).startswith("AsyncIterator")
    return isinstance(node, ast.AsyncFunctionDef) and not iterates


def _signature(node: Function, wide: int = WIDE) -> str:
    """As it is written, without `self`; over several lines if it is long."""
    arguments = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
    for each in (arguments.posonlyargs, arguments.args):
        if each and each[0].arg in ("self", "cls"):
            del each[0]
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    text = f"({ast.unparse(arguments)}){returns}"
    return _quoted(text if len(text) <= wide else f"(\n{_broken(arguments)}\n){returns}")


def _broken(arguments: ast.arguments) -> str:
    parts, depth, text = [""], 0, ast.unparse(arguments)
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return "\n".join(f"    {part.strip()}," for part in parts)


@cache
def _source(file: str) -> str:
    with open(file, encoding="utf-8") as source:
        return source.read()


@cache
def _nodes(file: str) -> list[Function | ast.ClassDef]:
    """The functions and classes of a file, those inside others too."""
    return [each for each in ast.walk(ast.parse(_source(file))) if isinstance(each, Function | ast.ClassDef)]


def _definitions(function: Any) -> list[Function]:
    """Of a function; of one that has several forms, those that are declared."""
    function = inspect.unwrap(function)
    file, line = inspect.getsourcefile(function), function.__code__.co_firstlineno
    nodes = _nodes(str(file))
    named = [each for each in nodes if isinstance(each, Function) and each.name == function.__name__]
    own = [each for each in named if _first_line(each) == line]
    declared = [each for each in named if any(ast.unparse(mark) == "overload" for mark in each.decorator_list)]
    return declared if declared and function.__module__ == "refold.python.workflow" else own


def _first_line(node: Function) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _class_node(cls: type) -> ast.ClassDef:
    nodes = _nodes(str(inspect.getsourcefile(cls)))
    return next(each for each in nodes if isinstance(each, ast.ClassDef) and each.name == cls.__name__)


def _method(node: ast.ClassDef, name: str) -> Function | None:
    return next((each for each in node.body if isinstance(each, Function) and each.name == name), None)


def _about(thing: Any, name: str) -> str:
    """Its docstring, or the words for what has none."""
    own = thing.__dict__.get("__doc__") if isinstance(thing, type) else thing.__doc__
    text = words.ABOUT.get(name) or own or ""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _quoted(text: str) -> str:
    """As people would type it."""
    return text.replace("'", '"')


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n\n", " ")


if __name__ == "__main__":
    sys.stdout.write(page())
