"""Reads a map with a `kind`, a tool or a source, and checks its keys against the description of that kind."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.core import times
from refold.errors import InvalidValue
from refold.names import did_you_mean, meant
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Reading, cut, either, kind_of
from refold.playbooks.reader.templates import holds_secret, is_expression, is_secret, is_template
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.tool_api import ToolInfo, ToolKey

Catalog = Mapping[str, ToolInfo]

WANTED = {
    "text": "text",
    "number": "a number",
    "integer": "a whole number",
    "bool": "true or false",
    "map": "a map",
    "list": "a list",
    "duration": "a duration",
    "tool": "a tool",
}
SHAPES = {"text": '"…"', "number": "1.5", "integer": "3", "bool": "true", "map": "{name: value}", "list": "[a, b]"}
SHAPES["tool"] = "{kind: http, url: …}"


class KindFamily(Struct, frozen=True):
    """What kinds are described: tools, or sources."""

    word: str
    example: str  # of a kind
    shape: str
    own: tuple[str, ...]  # keys that all kinds have
    lent: tuple[str, ...] = ()  # these too, but a kind may have its own of that name


TOOL = KindFamily("tool", "python", "{kind: python, code: …}", ("kind", "input"))
SOURCE = KindFamily("source", "csv", "{kind: csv, path: …}", ("kind",), ("page", "retry", "timeout"))


class KindValues(Struct, frozen=True):
    """A map of a known kind: its keys, and the values of the valid ones."""

    info: ToolInfo
    keys: dict[str, Node]
    values: dict[str, Any]

    def static(self) -> set[str]:
        return {key.name for key in self.info.keys if key.static}


def read_kind(reading: Reading, node: Node, catalog: Catalog, sort: KindFamily = TOOL) -> KindValues | None:
    """Read the map and report all its problems; return None if its kind is not known."""
    info = _kind(reading, node, catalog, sort)
    if info is None:
        return None
    lent = [name for name in sort.lent if all(key.name != name for key in info.keys)]
    keys = {name: child for name, child in node.nodes.items() if name not in sort.own and name not in lent}
    values = _keys(reading, node, info, keys, sort)
    if info.check is not None and not _has_other_key(info, keys, sort):
        _check(reading, node, info, keys, sort)
    if info.check_programs is not None:
        _warn_of_programs(reading, info, keys)
    return KindValues(info, keys, values)


def _has_other_key(info: ToolInfo, keys: Mapping[str, Node], sort: KindFamily) -> bool:
    """Whether a key has the name of another engine: what a check would miss is there, and was reported."""
    return sort is TOOL and any(
        name in OTHER_KEYS.get(info.kind, {}) for name in keys.keys() - {k.name for k in info.keys}
    )


OTHER_NAMES = {
    "shell": ("bash", "sh", "zsh", "cmd", "command", "script", "exec", "run", "program", "powershell"),
    "python": ("py", "python3", "code", "task", "lambda"),
    "http": ("https", "rest", "api", "request", "requests", "curl", "webhook", "fetch", "get", "post"),
    "container": ("docker", "podman", "image"),
    "postgres": ("postgresql", "psql", "pg"),
    "sqlite": ("sql", "sqlite3", "db", "database"),
    "wait": ("sleep", "delay", "pause", "timer", "wait_for", "signal"),
    "gate": ("approval", "approve", "manual", "human", "review", "ask"),
    "playbook": ("workflow", "subflow", "sub_workflow", "child", "include", "import"),
    "llm": ("openai", "gpt", "chat", "completion", "model", "anthropic"),
    "noop": ("none", "pass", "log", "echo", "print", "dummy"),
    "transfer": ("copy", "etl", "load"),
}
"""What people from other engines write for a tool."""


OTHER_KEYS = {
    "wait": {"for": "seconds", "duration": "seconds", "delay": "seconds", "time": "seconds", "sleep": "seconds"},
    "shell": {"cmd": "command", "run": "script", "bash": "script", "file": "stdout_file", "output": "stdout_file"},
    "python": {
        "file": "script",
        "function": "entry",
        "module": "entry",
        "source": "code",
        "requirements": "runtime_env",
    },
    "http": {"query": "params", "payload": "json", "endpoint": "url", "address": "url"},
    "sqlite": {"sql": "query", "statement": "query", "path": "database", "file": "database"},
    "duckdb": {"sql": "query", "statement": "query", "path": "database", "file": "database"},
    "postgres": {"sql": "query", "statement": "query"},
    "gate": {"message": "prompt", "text": "prompt", "question": "prompt", "approvers": "assignee", "who": "assignee"},
    "playbook": {"playbook": "path", "file": "path", "workflow": "path", "params": "input", "with": "input"},
}
"""What people from other engines write for a key of a tool."""


def _hint(name: str, catalog: Catalog) -> str:
    guess = next((kind for kind, names in OTHER_NAMES.items() if name.lower() in names and kind in catalog), "")
    return f"write `kind: {guess}`" if guess else did_you_mean(name, catalog)


def _kind(reading: Reading, node: Node, catalog: Catalog, sort: KindFamily) -> ToolInfo | None:
    if not isinstance(node.value, dict):
        _no_map(reading, node, sort)
        return None
    kind = node.nodes.get("kind")
    if kind is None:
        reading.missing(node, f"a {sort.word}", "kind", sort.example)
        return None
    if not isinstance(kind.value, str):
        reading.at(kind, "wrong-type", f"`kind` must be text, not {kind_of(kind.value)}", did_you_mean("", catalog))
        return None
    if kind.value not in catalog:
        message = f"there is no {sort.word} `{cut(kind.value)}`"
        reading.at(kind, f"unknown-{sort.word}", message, _hint(kind.value, catalog))
        return None
    return catalog[kind.value]


def _no_map(reading: Reading, node: Node, sort: KindFamily) -> None:
    hint = f"write `{sort.word}: {sort.shape}`"
    if isinstance(node.value, str):
        hint = f"write `{sort.word}: {{kind: {cut(node.value)}}}`"
    reading.at(node, "wrong-type", f"a {sort.word} must be a map, not {kind_of(node.value)}", hint)


def _keys(reading: Reading, node: Node, info: ToolInfo, keys: Mapping[str, Node], sort: KindFamily) -> dict[str, Any]:
    """The values of the keys that fit the catalog."""
    known = {key.name: key for key in info.keys}
    more = [name for name in (*sort.own, *sort.lent) if name != "kind"]
    values, misspelt = {}, set()
    for name, child in keys.items():
        key = known.get(name)
        if key is None:
            other = "input" if name == "args" else OTHER_KEYS.get(info.kind, {}).get(name, "")
            is_other = sort is TOOL and (other in known or other in more)
            hint = f"write `{other}`" if is_other else did_you_mean(name, dict.fromkeys([*known, *more]))
            message = f"the {sort.word} `{info.kind}` has no key `{cut(name)}`"
            reading.at_key(node, name, "unknown-key", message, hint)
            misspelt.add(meant(name, known))
        elif _fits(reading, child, key, sort):
            values[name] = _taken(child.value, key)
    for key in info.keys:
        if key.required and key.name not in keys and key.name not in misspelt:
            reading.missing(node, f"the {sort.word} `{info.kind}`", key.name, "…")
    return values


def _fits(reading: Reading, node: Node, key: ToolKey, sort: KindFamily) -> bool:
    value = node.value
    if sort is SOURCE and not key.secret and holds_secret(value):
        message = f"`{key.name}` is rendered when the loop is entered, and cannot hold a secret"
        reading.at(node, "bad-secret", message, "the keys that may be secret are on the page on sources")
        return False
    if not key.static and is_secret(value):
        return True
    if not key.static and is_template(value) and (is_expression(value) or key.type in ("text", "any")):
        return True
    if not _is_of(value, key.type):
        hint = "a value computed from text is text; write one {{ expression }}" if is_template(value) else ""
        if key.static and is_template(value):
            hint = "it is not rendered, so a template is not allowed here"
        if key.name == "body" and isinstance(value, dict | list):
            hint = "write `json` for data that is sent as JSON"
        hint = hint or (times.FORMS if key.type == "duration" else f"write `{key.name}: {SHAPES[key.type]}`")
        reading.at(node, "wrong-type", f"`{key.name}` must be {WANTED[key.type]}, not {kind_of(value)}", hint)
        return False
    if key.choices and value not in key.choices:
        hint = did_you_mean(str(value), key.choices)
        reading.at(node, "bad-choice", f"`{key.name}` must be {either(key.choices)}, not `{cut(str(value))}`", hint)
        return False
    return True


def _is_of(value: Any, kind: str) -> bool:
    match kind:
        case "any":
            return True
        case "duration":
            return _is_duration(value)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, {"text": str, "bool": bool, "list": list}.get(kind, dict))


def _is_duration(value: Any) -> bool:
    try:
        times.seconds(value)
    except InvalidValue:
        return False
    return True


def _taken(value: Any, key: ToolKey) -> Any:
    is_written = key.type == "duration" and not (is_template(value) or is_secret(value))
    return times.seconds(value) if is_written else value


def _check(reading: Reading, node: Node, info: ToolInfo, keys: Mapping[str, Node], sort: KindFamily) -> None:
    """Report what the kind's own check finds; its positions count inside the text of a key."""
    assert info.check is not None
    code = f"bad-{sort.word}"
    for found in info.check({name: child.value for name, child in keys.items()}):
        child = keys.get(found.key)
        if child is None:
            known = ", ".join(f"`{key.name}`" for key in info.keys)
            reading.at(node.nodes["kind"], code, found.message, found.hint or f"its keys are {known}")
        elif found.line:
            place = place_inside(reading.source, child, found.line, found.column)
            reading.at_place(place, code, found.message, found.hint or f"fix the text of `{found.key}`")
        else:
            reading.at_key(node, found.key, code, found.message, found.hint or _about(info, found.key))


def _warn_of_programs(reading: Reading, info: ToolInfo, keys: Mapping[str, Node]) -> None:
    assert info.check_programs is not None
    for found in info.check_programs({name: child.value for name, child in keys.items()}):
        child = keys[found.key].nodes[found.item]
        place = place_inside(reading.source, child, found.line, found.column)
        reading.say(Problem(found.code, found.message, place, found.hint, found.severity, 2))


def _about(info: ToolInfo, name: str) -> str:
    return next((f"`{name}`: {key.about}" for key in info.keys if key.name == name), "")
