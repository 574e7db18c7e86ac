"""Translates the keys of a NoETL tool to the keys of the Refold tool."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from refold.errors import RefoldError
from refold.playbooks.noetl.kinds import OLD_SPEC, Kind
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.reader.templates import is_expression, is_template
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.tool_api import ToolInfo, ToolProblem

OWN = frozenset(
    {"name", "kind", "spec", "set", "input", "args", "output", "desc", "description", "timeout", "timeout_seconds"}
    | {"assert"}
)
NO_POLICY = frozenset({"policy", "timeout", "timeout_seconds", "retry", "sandbox", "result", "description"})
RULES = "write rules under `spec: {policy: {rules: …}}`"
REFUSED = {
    "eval": RULES,
    "expr": RULES,
    "case": RULES,
    "sink": "write a task of its own that stores the result",
    "set_vars": "write `set: {ctx.name: …}`",
}
PROGRAM_KEYS = ("code", "command", "cmds", "script", "query", "commands")
RESPONSES = {"json": "json", "text": "text", "binary": "base64", "auto": "auto"}
FINE = list(range(200, 300))


class Config(Struct):
    settings: dict[str, Any] = {}
    rendered: dict[str, Any] = {}
    keys: dict[str, Any] = {}
    quoted: dict[str, Any] = {}
    credentials: tuple[str, ...] = ()
    input: dict[str, Any] = {}  # written where older files have it


def config_of(reading: Reading, node: Node, spec: Node | None, kind: Kind, info: ToolInfo | None) -> Config:
    nodes = {name: child for name, child in node.nodes.items() if name not in OWN or name in kind.takes}
    config = Config(input=_old_spec(reading, spec, nodes))
    if kind.needs and not any(name in nodes for name in kind.needs):
        reading.missing(node, f"the tool `{kind.kind}`", kind.needs[0], "…")
    _refuse_old(reading, node, nodes)
    if kind.kind == "playbook":
        return config
    _drop_idle(reading, node, kind, nodes)
    values = _values(reading, kind, nodes)
    if kind.kind == "python":
        _check_code(reading, info, nodes.get("code"))
    if kind.kind == "python":
        config.settings = {"dialect": "noetl"} | (
            {"folder": reading.child_reader.folder()} if "script" in values else {}
        )
    known = {key.name: key for key in info.keys} if info is not None else {}
    for name, value in values.items():
        if known and name not in known:
            message = f"the tool `{kind.kind}` has no key `{cut(name)}`; it has no effect"
            reading.warn(nodes.get(name, node), "unknown-key", message, "leave it out")
        else:
            _sort(config, kind, name, value, name in known and known[name].static)
    if info is not None:
        _check_values(reading, kind, info, config, nodes)
    return config


def _old_spec(reading: Reading, spec: Node | None, nodes: dict[str, Node]) -> dict[str, Any]:
    """Move keys under `spec` that belong to the tool; return the names that are bound there."""
    bound: dict[str, Any] = {}
    if spec is None:
        return bound
    for name, child in spec.nodes.items():
        if name in NO_POLICY:
            continue
        if name not in OLD_SPEC:
            reading.warn_key(spec, name, "unknown-key", f"`spec` of a tool has no key `{cut(name)}`", "leave it out")
            continue
        reading.warn_key(spec, name, "old-form", f"`spec.{name}` is an old form", f"write `{name}` beside `kind`")
        if name in ("input", "args"):
            bound |= child.value if isinstance(child.value, dict) else {}
        else:
            nodes.setdefault(name, child)
    return bound


def _refuse_old(reading: Reading, node: Node, nodes: dict[str, Node]) -> None:
    for name in REFUSED.keys() & nodes.keys():
        if not (name == "sink" and isinstance(nodes[name].value, bool)):  # as a flag it is only a hint
            reading.at_key(node, name, "old-key", f"a tool has no key `{name}`", REFUSED[name])
            del nodes[name]


def _drop_idle(reading: Reading, node: Node, kind: Kind, nodes: dict[str, Node]) -> None:
    for name in [*nodes]:
        if name == "retry":
            reading.warn_key(node, name, "no-effect", "`retry` of a tool has no effect", RULES)
            del nodes[name]
        elif name in kind.idle:
            if name in node.nodes:
                reading.warn_key(node, name, "no-effect", f"`{name}` has no effect here", "leave it out")
            del nodes[name]


def _values(reading: Reading, kind: Kind, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """The value of each key of the tool; of several spellings the first one counts."""
    values: dict[str, Any] = {}
    for name, child in nodes.items():
        if child.value is not None:
            values.setdefault(kind.keys.get(name, name), child.value)
    match kind.kind:
        case "http":
            return _http(values)
        case "python":
            return _python(reading, values, nodes)
        case "shell":
            return _shell(values, nodes)
        case "noop":
            return _noop(values)
        case "sqlite" | "duckdb" | "postgres":
            if isinstance(values.get("commands"), str) and "query" not in values:
                values["query"] = values.pop("commands")
            return _sql(reading, values, nodes)
        case "container":
            return _container(values)
        case _:
            return values


def _http(values: dict[str, Any]) -> dict[str, Any]:
    """The default method is GET; only success statuses count as success."""
    values.setdefault("method", "GET")
    values.setdefault("expect", FINE)
    body = values.get("json")
    if isinstance(body, str) and not is_expression(body):
        values["body"] = values.pop("json")
    if isinstance(values.get("response"), str):
        values["response"] = RESPONSES.get(values["response"], values["response"])
    auth = values.get("auth")
    if isinstance(auth, dict) and "type" in auth:
        values["auth"] = _auth(auth)
    return values


def _auth(auth: dict[str, Any]) -> dict[str, Any]:
    match auth.get("type"):
        case "bearer":
            return {"bearer": auth.get("token")}
        case "basic":
            return {"basic": {"username": auth.get("username"), "password": auth.get("password")}}
        case "api_key":
            return {"api_key": {"header": auth.get("header", "X-API-Key"), "value": auth.get("value", auth.get("key"))}}
        case _:
            return auth


def _python(reading: Reading, values: dict[str, Any], nodes: Mapping[str, Node]) -> dict[str, Any]:
    """A script is a file, or code in its long form."""
    script = values.get("script")
    if isinstance(script, dict):
        del values["script"]
        given = script.get("source")
        source = given if isinstance(given, dict) else {}
        kind = source.get("type", "file" if script.get("uri") else "inline")
        code = source.get("code", script.get("code"))
        if kind == "inline" and isinstance(code, str):
            values["code"] = code
        elif kind == "file" and isinstance(script.get("uri"), str):
            values["script"] = str(script["uri"]).removeprefix("file://")
        else:
            message = f"a script of type `{cut(str(kind))}` cannot be fetched"
            reading.at(nodes["script"], "unsupported", message, "put the code into a file next to the playbook")
    return values


def _sql(reading: Reading, values: dict[str, Any], nodes: Mapping[str, Node]) -> dict[str, Any]:
    """The long form of a script: its text, or a file next to the playbook, which is read with it."""
    script = values.get("query")
    if not isinstance(script, dict):
        return values
    del values["query"]
    given, uri = script.get("source"), script.get("uri")
    source = given if isinstance(given, dict) else {}
    text = source.get("code", script.get("code"))
    if isinstance(text, str):
        return {**values, "query": text}
    node = nodes.get("script", next(iter(nodes.values())))
    if source.get("type", "file") != "file" or not isinstance(uri, str):
        message = f"a script of type `{cut(str(source.get('type', 'file')))}` cannot be fetched"
        reading.at(node, "unsupported", message, "put the SQL into a file next to the playbook")
        return values
    found = _text_of_file(reading, uri.removeprefix("file://"))
    if found is None:
        reading.at(node, "unreadable-script", f"there is no file `{cut(uri)}` next to the playbook", "write its path")
        return values
    return {**values, "query": found}


def _text_of_file(reading: Reading, path: str) -> str | None:
    """Return the text of a file below the folder of the playbook; None if it cannot be read."""
    if path.startswith("/") or ".." in path.split("/") or reading.child_reader.load is None:
        return None
    try:
        data: bytes = reading.child_reader.load(os.path.join(os.path.dirname(reading.child_reader.above[-1]), path))
        return data.decode()
    except (RefoldError, UnicodeDecodeError):
        return None


MEMORY = {"Ki": "k", "Mi": "m", "Gi": "g", "K": "k", "M": "m", "G": "g"}


def _container(values: dict[str, Any]) -> dict[str, Any]:
    """Limits in the words of Kubernetes; what it would reserve has no meaning for one machine."""
    resources = values.get("resources")
    if not isinstance(resources, dict) or not {"limits", "requests"} & resources.keys():
        return values
    limits = resources.get("limits")
    found = dict(limits) if isinstance(limits, dict) else {}
    cpu, memory = found.get("cpu"), found.get("memory")
    if isinstance(cpu, str) and cpu.endswith("m") and cpu[:-1].isdecimal():
        cpu = int(cpu[:-1]) / 1000
    if isinstance(memory, str):
        unit = next((unit for unit in MEMORY if memory.endswith(unit)), "")
        memory = memory.removesuffix(unit) + MEMORY.get(unit, "")
    given = {name: value for name, value in (("cpus", cpu), ("memory", memory)) if value is not None}
    without = {name: value for name, value in values.items() if name != "resources"}
    return {**without, "resources": given} if given else without


def _noop(values: dict[str, Any]) -> dict[str, Any]:
    message = values.pop("message", None)
    values.setdefault("result", {"status": "ok", "message": message})
    return values


def _shell(values: dict[str, Any], nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Text is run by a shell; a list is a program with its arguments, or under `cmds` lines for a shell."""
    command = values.get("command")
    lines = "cmds" in nodes and isinstance(command, list)
    if isinstance(command, str) or lines:
        given = values.pop("shell", "bash")
        shell = "bash" if isinstance(given, bool) else given
        values["command"] = {"shell": shell, "lines": command if lines else [command]}
    return values


def _check_code(reading: Reading, info: ToolInfo | None, code: Node | None) -> None:
    """Check code that is not a template before it runs."""
    if info is None or info.check is None or code is None or not isinstance(code.value, str) or is_template(code.value):
        return
    for found in info.check({"code": code.value}):
        place = place_inside(reading.source, code, max(found.line, 1), max(found.column, 1))
        reading.at_place(place, "bad-tool", found.message, found.hint or "fix the code")


def _check_values(reading: Reading, kind: Kind, info: ToolInfo, config: Config, nodes: Mapping[str, Node]) -> None:
    """Check values in texts that are programs: a value must not be able to act as code."""
    texts = {**config.rendered, **config.keys}
    for name in config.quoted:
        if info.check_noetl_text is not None:
            tell_values(reading, info.check_noetl_text(name, texts[name]), _node_of(kind, name, nodes))
    if info.check_programs is not None:
        for found in info.check_programs(texts):
            tell_values(reading, [found], _node_of(kind, found.key, nodes))
    if kind.kind == "transfer" and info.check is not None and "source" in nodes:
        tell_values(reading, (each for each in info.check(texts) if each.code == "spliced"), nodes["source"])
    for key in info.keys:
        inner = nodes.get(key.name) if key.type == "tool" else None
        texts_inside = inner.nodes if inner is not None and isinstance(inner.value, dict) else {}
        for name in PROGRAM_KEYS:
            if name in texts_inside and _has_templates(texts_inside[name].value):
                message = f"no value may be put into `{name}` of a tool in a tool"
                reading.at(texts_inside[name], "bad-value", message, "give it in `input`, `args`, `env` or `params`")
    for name in ("entry", "libs") if kind.kind == "python" else ():
        if name in config.rendered:
            message = f"`{name}` names code, and cannot be computed"
            reading.at(nodes[name], "bad-value", message, "write the name out")


def tell_values(reading: Reading, problems: Iterable[ToolProblem], node: Node) -> None:
    """Report each problem at its value, in a text or in a list of texts."""
    for found in problems:
        child = node
        if isinstance(node.value, list):
            child = node.nodes[found.item or 0]
        place = place_inside(reading.source, child, found.line, found.column) if found.line else child.place
        length = 2 if found.line else child.length
        reading.say(Problem(found.code, found.message, place, found.hint, found.severity, length))


def _node_of(kind: Kind, key: str, nodes: Mapping[str, Node]) -> Node:
    named = [each for name, each in nodes.items() if kind.keys.get(name, name) == key]
    return named[0] if named else nodes["script" if "script" in nodes else "commands"]  # another form of that key


def _sort(config: Config, kind: Kind, name: str, value: Any, static: bool) -> None:
    if name == "auth" and isinstance(value, str):
        config.credentials = (*config.credentials, name)
    if kind.kind == "transfer" and isinstance(value, dict) and isinstance(value.get("auth"), str):
        config.credentials = (*config.credentials, f"{name}.auth")
    if static:
        (config.rendered if _has_templates(value) else config.settings)[name] = value
    else:
        config.keys[name] = value
    is_program_and_arguments = kind.kind == "shell" and isinstance(value, list)
    if name in kind.quoted and name not in config.settings and not is_program_and_arguments:
        config.quoted[name] = kind.quoted[name]


def _has_templates(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_templates(each) for each in (value.values() if isinstance(value, dict) else value))
    return is_template(value)
