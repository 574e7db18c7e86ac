"""What the tool `python` is for its authors: its keys, its result, an example, and its checks."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.python.compile import InvalidCode, is_good, prepare, read_from_outside, required_of_main
from refold.tools.shared_keys import CLUSTER_KEYS, check_cluster, one_of

# Names that code can use besides its input.
OFFERED = (
    "context",
    "input",
    "input_data",
    "args",
    "run",
    "step",
    "visit",
    "attempt",
    "item",
    "idempotency_key",
    "usage",
)


def check_python(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    checks = (_code, _entry, _libs, _inline, check_cluster)
    return [*one_of(keys, "code", "script", "entry"), *(problem for check in checks for problem in check(keys))]


def _code(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    code = keys.get("code")
    if isinstance(code, str) and not is_good(code):
        try:
            prepare(code, "<code>")
        except InvalidCode as error:
            yield ToolProblem("code", f"the code does not compile: {error.message}", "", error.line, error.column)


def names_in_code(keys: Mapping[str, Any]) -> Sequence[tuple[str, int, int]]:
    code = keys.get("code")
    return read_from_outside(code) if isinstance(code, str) and is_good(code) else []


def check_main(keys: Mapping[str, Any], bound: Collection[str]) -> Sequence[ToolProblem]:
    """Return a problem for each parameter of `main` that nothing binds, with its place."""
    code = keys.get("code")
    if not isinstance(code, str) or "main" not in code or not is_good(code):
        return []
    known, hint = {*bound, *OFFERED}, "add it to `input`, or give it a default"
    message = "main() needs {!r}, and the input of the step does not have it"
    return [
        ToolProblem("code", message.format(name), hint, line, column, "missing-input")
        for name, line, column in required_of_main(code)
        if name not in known
    ]


def _entry(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    entry = keys.get("entry")
    if isinstance(entry, str) and not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", entry):
        yield ToolProblem("entry", f"{entry!r} does not name a function", "write package.module:function")


def _libs(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    libs = keys.get("libs")
    values: Sequence[Any] = list(libs.values()) if isinstance(libs, Mapping) else libs if isinstance(libs, list) else []
    fits = libs is None or isinstance(libs, (Mapping, list))
    if not fits or not all(isinstance(each, str) or _is_import(each) for each in values):
        hint = "write {alias: module}, {alias: {from: module, import: name}}, or a list of modules"
        yield ToolProblem("libs", "`libs` is not a list or map of imports", hint)


def _is_import(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"from", "import"} and all(map(_is_text, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _inline(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    for name in ("cwd", "env") if keys.get("isolation") == "inline" else ():
        if keys.get(name) is not None:
            yield ToolProblem(name, f"`{name}` needs a process of its own", "remove `isolation: inline`")


def _values(key: str, text: Any) -> Iterator[ToolProblem]:
    from refold.tools.python import noetl_text  # loaded only for NoETL files

    return noetl_text.problems(key, text)


PYTHON = ToolInfo(
    kind="python",
    about="Runs Python code. It is trusted code in a process of its own, not a sandbox.",
    keys=(
        ToolKey(
            name="code",
            type="text",
            static=True,
            about="the code. Its result is the value of a top-level `return`, or of the variable `result`, or what its"
            " function `main` returns. `await` can be used anywhere. Values of `input` can be read by their names and"
            " as `input`; `context` has run, step, visit, attempt, item, idempotency_key and last_error (why the try"
            " before this one failed), and a map `usage` for what the code uses, as in `context['usage']['tokens'] ="
            " 12`. Parameters of `main` are bound by name",
        ),
        ToolKey(
            name="script",
            type="text",
            static=True,
            about="a file with such code, in the working directory, in the folder of the playbook, or in `scripts`"
            " there",
        ),
        ToolKey(
            name="entry",
            type="text",
            static=True,
            about="a function to call, `package.module:function`; its parameters are bound by name",
        ),
        ToolKey(
            name="takes",
            type="text",
            static=True,
            choices=("names", "whole", "list"),
            about="how the function of `entry` gets its input: `names` (the default) are its parameters, `whole` is all"
            " of it as the only argument, `list` the only value in it",
        ),
        ToolKey(
            name="libs",
            type="any",
            static=True,
            about="what to import: `{alias: module}`, `{alias: {from: module, import: name}}`, or a list of modules",
        ),
        ToolKey(
            name="isolation",
            type="text",
            static=True,
            choices=("process", "inline", "ray"),
            about="`process` (the default) is an interpreter that is already running, and is killed when time is up;"
            " `inline` is faster, for trusted code that ends by itself: async code and code that only computes runs on"
            " the event loop, other code in a thread; `ray` is a process on a Ray cluster, for what needs more than"
            " this machine has",
        ),
        *CLUSTER_KEYS,
        ToolKey(name="cwd", type="text", about="where it runs, relative to the folder of the run (that folder)"),
        ToolKey(name="env", type="map", about="variables that are added to the environment"),
    ),
    result="the result of the code as JSON data: tuples become lists, sets become sorted lists, times become ISO"
    " texts; a value without an obvious JSON form is refused, with its path",
    check=check_python,
    check_noetl_text=_values,
    check_bound=check_main,
    names_read=names_in_code,
    example="""\
tool:
  kind: python
  input: {numbers: [3, 1, 2]}
  code: |
    def main(numbers, context):
        print("try", context["attempt"])
        return {"largest": max(numbers)}
""",
)
