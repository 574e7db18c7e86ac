"""What can be wrong with the keys of a tool, beyond their names and types, and be seen before a run."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolProblem
from refold.tools.python.compile import InvalidCode, is_good, prepare, read_from_outside, required_of_main

TEMPLATE = re.compile(r"\{\{(?!-?\s*\.)|\{%")  # `{{.Name}}` is for others, such as docker
# What code is offered beside its input.
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
NO_SPLICING = 'pass the value in `env` and write "$NAME", or as one of `args` and write "$1"'


def _one_of(keys: Mapping[str, Any], *names: str) -> Iterator[ToolProblem]:
    given = [name for name in names if keys.get(name) is not None]
    if not given:
        yield ToolProblem("", f"one of {_listed(names)} is needed")
    for name in given[1:]:
        yield ToolProblem(name, f"`{name}` and `{given[0]}` exclude each other", "take one of them away")


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return ", ".join(quoted[:-1]) + " and " + quoted[-1]


def check_python(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_one_of(keys, "code", "script", "entry"), *_code(keys), *_entry(keys), *_libs(keys), *_inline(keys)]


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
    """Parameters of `main` that nothing binds, each where it stands."""
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
        yield ToolProblem("libs", "`libs` does not say what to import", hint)


def _is_import(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"from", "import"} and all(map(_is_text, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _inline(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    for name in ("cwd", "env") if keys.get("isolation") == "inline" else ():
        if keys.get(name) is not None:
            yield ToolProblem(name, f"`{name}` needs a process of its own", "take away `isolation: inline`")


def check_shell(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_one_of(keys, "command", "script"), *_command(keys), *_script(keys)]


def _command(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    command, by_shell = keys.get("command"), keys.get("shell") is True
    if isinstance(command, str) and by_shell:
        yield from _spliced("command", command)
    elif isinstance(command, str) and not _is_one_expression(command):
        hint = "write a list, [program, argument, ...], or a `script` for a shell"
        yield ToolProblem("command", "a command is a list of the program and its arguments", hint)
    elif isinstance(command, list) and by_shell:
        yield ToolProblem("shell", "a shell takes text and no list", "write `script`, or take away `shell`")
    elif isinstance(command, list) and not command:
        yield ToolProblem("command", "the command is empty", "write [program, argument, ...]")
    if isinstance(command, list) and keys.get("args") is not None:
        yield ToolProblem("args", "`args` belong to a script", "put them into the list of the command")


def _is_one_expression(text: str) -> bool:
    """Its value is the list."""
    return text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1


def _script(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    script = keys.get("script")
    if isinstance(script, str):
        yield from _spliced("script", script)


def _spliced(key: str, text: str) -> Iterator[ToolProblem]:
    """A value that is put into the text of a shell can be anything to it, a command too."""
    if found := TEMPLATE.search(text):
        before = text[: found.start()]
        line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
        yield ToolProblem(key, "no value may be put into the text of a shell command", NO_SPLICING, line, column)


def check_http(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_body(keys), *_scheme(keys), *_auth(keys), *_pages(keys)]


def _body(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    given = [name for name in ("json", "data", "body") if keys.get(name) is not None]
    for name in given[1:]:
        yield ToolProblem(name, f"`{name}` and `{given[0]}` exclude each other", "a request has one body")


def _scheme(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    url = keys.get("url")
    if isinstance(url, str) and not re.match(r"https?://|\{\{", url, re.I):
        yield ToolProblem("url", "an address begins with http:// or https://")


AUTH = {
    "bearer": "auth: {bearer: TOKEN}",
    "basic": "auth: {basic: {username: NAME, password: PASSWORD}}",
    "api_key": "auth: {api_key: {header: NAME, value: KEY}}",
}


def _auth(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    auth = keys.get("auth")
    if isinstance(auth, Mapping) and (len(auth) != 1 or not set(auth) <= set(AUTH)):
        yield ToolProblem("auth", f"`auth` has exactly one of {_listed(list(AUTH))}", " or ".join(AUTH.values()))


PAGES = {
    "next": "where a response names the next page: a path such as `data.next`, or `link` for the header of that name",
    "items": "where the items of a page stand, such as `data.results`; without it, the data of a page is its items",
    "param": "the parameter that takes what `next` gives; without it, that is an address",
    "most": "pages at most (100); to come to more of them is a failure",
}


def _pages(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    pages = keys.get("pages")
    if not isinstance(pages, Mapping):
        return
    for name in pages:
        if name not in PAGES:
            yield ToolProblem("pages", f"`pages` has no {name!r}", f"it has {_listed(list(PAGES))}")
    if not isinstance(pages.get("next"), str):
        yield ToolProblem("pages", "`pages` needs `next`", PAGES["next"])


def check_playbook(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    if ("path" in keys) == ("name" in keys):
        return [ToolProblem("", "a playbook is started by exactly one of `path` and `name`", "give `path`")]
    return []


def values_of(kind: str) -> Callable[[str, str, Any], Iterator[ToolProblem]]:
    """What is wrong with values in the texts of a NoETL tool."""

    def problems(how: str, name: str, given: Any) -> Iterator[ToolProblem]:
        from refold.tools.noetl_text.quoting import problems_in  # loaded for NoETL files alone

        return problems_in(kind, how, name, given)

    return problems


# Interpreters, and the options behind which their program stands.
PROGRAM_OPTIONS: Mapping[str, str] = {
    r"(?:ba|da|k|z|c|tc|a|fi)?sh": r"-\w*c\w*",
    r"python[\d.]*|pypy[\d.]*": r"-\w*c",
    r"perl|ruby": r"-\w*[eE]",
    r"node|nodejs|deno|bun": r"-e|-p|-pe|--eval|--print|eval",
    r"php|lua|Rscript": r"-r|-e|-B|-E",
    r"psql|mysql|mariadb|duckdb|clickhouse": r"-c|-e|--command(?:=.*)?|--execute(?:=.*)?|-cmd",
}
FIRST_IS_PROGRAM = r"[gmn]?awk|g?sed|jq|yq|eval|expr|bc|ssh|sqlite3|su|xargs|trap"


def programs_in(*keys: str) -> Callable[[Mapping[str, Any]], Iterator[ToolProblem]]:
    """Warnings about values in what one of these lists hands to an interpreter as its program."""

    def problems(given: Mapping[str, Any]) -> Iterator[ToolProblem]:
        words: list[tuple[str, int, Any]] = []
        for key in keys:
            listed = given.get(key)
            words += [(key, item, word) for item, word in enumerate(listed)] if isinstance(listed, list) else ()
        for at, name in _program_texts([word for _, _, word in words]):
            key, item, word = words[at]
            found = TEMPLATE.search(word)
            assert found is not None
            line, column = word.count("\n", 0, found.start()) + 1, found.start() - word.rfind("\n", 0, found.start())
            message = f"a value goes into the program of `{name}`, and what it holds can be run"
            hint = 'give it as an argument behind the program, and read it there: "$1", sys.argv[1]'
            yield ToolProblem(key, message, hint, line, column, "value-as-code", item, "warning")

    return problems


def _program_texts(words: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Which of these words are programs of an interpreter among them, and hold values."""
    for i, word in enumerate(words):
        name = word.rsplit("/", 1)[-1] if isinstance(word, str) and not TEMPLATE.search(word) else ""
        option = next((each for known, each in PROGRAM_OPTIONS.items() if name and re.fullmatch(known, name)), None)
        if option is None and not re.fullmatch(FIRST_IS_PROGRAM, name):
            continue
        for at, text in enumerate(words[i + 1 :], i + 1):
            is_program = option is None or re.fullmatch(option, str(words[at - 1])) or re.fullmatch(option, str(text))
            if is_program and isinstance(text, str) and TEMPLATE.search(text):
                yield at, name
            if option is not None and re.fullmatch(option, str(words[at - 1])):
                break  # what follows are arguments
        return
