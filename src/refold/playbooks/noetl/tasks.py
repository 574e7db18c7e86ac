"""Builds a pipeline from the tool of a NoETL step: one task or a list of tasks, in any published form."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct, structs

from refold.core.pipeline import Claim, Task, TaskPipeline
from refold.names import did_you_mean
from refold.playbooks.language.tables import Key
from refold.playbooks.noetl.agents import read_agent
from refold.playbooks.noetl.children import read_started
from refold.playbooks.noetl.keys import OWN, Config, config_of, tell_values
from refold.playbooks.noetl.kinds import FOREIGN, kind_of
from refold.playbooks.noetl.readers import read_limit
from refold.playbooks.noetl.results import read_output
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import Fields, Reading, cut
from refold.playbooks.reader.reading import kind_of as type_of
from refold.playbooks.tools import rules_of
from refold.playbooks.yaml.text import Node
from refold.templates import paths_of

LIMIT = Key(name="timeout", type="limit", example="30s", about="how long it may take")


class Book(Struct):
    """What tasks may refer to: tools by kind, and tasks of the workbook by name."""

    catalog: Catalog
    workbook: Mapping[str, Fields] = {}
    about: Mapping[str, Any] = {}  # the metadata of the file
    workload: Mapping[str, Any] = {}
    bound: frozenset[str] = frozenset()  # names that the step itself gives to its tasks


def read_tasks(reading: Reading, step: str, node: Node, book: Book) -> tuple[tuple[Task, ...], bool]:
    """The tasks, and whether there is a single one that is not in a list."""
    nodes = list(node.nodes) if isinstance(node.value, list) else [node]
    if isinstance(node.value, list) and not nodes:
        reading.at(node, "wrong-type", "the list of tools is empty", "leave `tool` out")
    forms = [_form(reading, each) for each in nodes]
    single = not isinstance(node.value, list)
    names = [form[0] or (f"{step}_task" if single else f"task_{at}") for at, form in enumerate(forms)]
    for at, name in enumerate(names):
        if name in names[:at]:
            reading.at(nodes[at], "duplicate-task", f"two tasks are called `{cut(name)}`", "give one another name")
    tasks = (_task(reading, at, names, form[1], book) for at, form in enumerate(forms))
    return tuple(task for task in tasks if task is not None), single


def _form(reading: Reading, node: Node) -> tuple[str, Node]:
    """The name of a task, and the map that has its kind."""
    if isinstance(node.value, dict) and len(node.nodes) == 1 and "kind" not in node.nodes:
        (label, inner), *_ = node.nodes.items()
        if isinstance(inner.value, dict):
            reading.warn(node, "old-form", "this is an old form of a task", f"write `{{name: {label}, kind: …}}`")
            return label, inner
    name = node.nodes.get("name") if isinstance(node.value, dict) else None
    by_name = node.nodes.get("kind") if name is not None else None  # of these kinds the name is that of what is run
    if name is None or not isinstance(name.value, str) or (by_name is not None and by_name.value in BY_NAME):
        return "", node
    return name.value, node


BY_NAME = ("workbook",)


def _task(reading: Reading, at: int, names: list[str], node: Node, book: Book) -> Task | None:
    found = _kind(reading, node, book)
    if found is None:
        return None
    if found == "workbook":
        return _from_workbook(reading, at, names, node, book)
    if found == "agent":
        return _agent(reading, at, names, node, book)
    kind = kind_of(found)
    spec = _spec(reading, node)
    config = config_of(reading, node, spec, kind, book.catalog.get(kind.kind))
    task = Task(
        name=names[at],
        kind=kind.kind,
        settings=config.settings,
        rendered=config.rendered,
        keys=config.keys,
        quoted=config.quoted,
        credentials=config.credentials,
        input=_inputs(reading, node, config, kind.takes),
        set=_map(reading, node, "set"),
        timeout=_limit(reading, node, spec),
        select=_select(reading, node, spec),
    )
    if kind.kind == "http" and task.timeout is not None and "timeout" not in task.keys:
        task = structs.replace(task, keys={**task.keys, "timeout": task.timeout})
    if found == "playbook":
        task = structs.replace(task, keys={}, child=read_started(reading, node, book.about, book.workload))
    return _with_policy(reading, task, spec, names, at)


def _agent(reading: Reading, at: int, names: list[str], node: Node, book: Book) -> Task | None:
    spec = _spec(reading, node)
    task = read_agent(reading, node, names[at], OWN, book.catalog)
    if task is None:
        return None
    task = structs.replace(
        task,
        input=_inputs(reading, node, Config(), ()),
        set=_map(reading, node, "set"),
        timeout=_limit(reading, node, spec),
        select=_select(reading, node, spec),
    )
    return _with_policy(reading, task, spec, names, at)


def _select(reading: Reading, node: Node, spec: Node | None) -> Any:
    return read_output(reading, [spec.nodes.get("result") if spec is not None else None, node.nodes.get("output")])


def _kind(reading: Reading, node: Node, book: Book) -> str | None:
    if not isinstance(node.value, dict):
        hint = "write `tool: {kind: python, code: …}`"
        reading.at(node, "wrong-type", f"a tool must be a map, not {type_of(node.value)}", hint)
        return None
    kind = node.nodes.get("kind")
    if kind is None or not isinstance(kind.value, str):
        reading.missing(node, "a tool", "kind", "python")
        return None
    known = [*book.catalog, "workbook"]
    if kind_of(kind.value).kind not in known:
        if kind.value in FOREIGN:
            message = f"`{kind.value}` is a tool of NoETL that Refold has not"
            reading.at(kind, "unsupported-tool", message, FOREIGN[kind.value] or "leave the step out")
        else:
            message = f"there is no tool `{cut(kind.value)}`"
            reading.at(kind, "unknown-tool", message, did_you_mean(kind.value, known))
        return None
    return str(kind.value)


def _from_workbook(reading: Reading, at: int, names: list[str], node: Node, book: Book) -> Task | None:
    """The task of that name in the workbook, with the input of the call merged over its own."""
    name = node.nodes.get("name")
    if name is None or not isinstance(name.value, str):
        reading.missing(node, "the tool `workbook`", "name", "shout")
        return None
    entry = book.workbook.get(name.value)
    if entry is None:
        message = f"the workbook has no task `{cut(name.value)}`"
        reading.at(name, "unknown-task", message, did_you_mean(name.value, list(book.workbook)))
        return None
    inner: Node = entry.get("tool")
    if not isinstance(inner.value, dict):
        reading.at(inner, "wrong-type", "a task of the workbook has one tool", "write `tool: {kind: …}`")
        return None
    task = _task(reading, at, names, inner, structs.replace(book, workbook={}))
    if task is None:
        return None
    given = {**task.input, **_inputs(reading, node, Config(), ())}
    for missing in _asserted(entry, "expects"):
        if given.get(missing) is None and missing not in book.bound:
            message = f"the task `{cut(name.value)}` of the workbook expects `{cut(missing)}`, which is not given"
            reading.at(node, "missing-input", message, f"add `input: {{{missing}: …}}`")
    return structs.replace(task, input=given, returns=_asserted(entry, "returns"))


def _asserted(entry: Fields, key: str) -> tuple[str, ...]:
    """The values next to the tool or inside it."""
    inside = entry.get("tool").value.get("assert")
    places = [each.get(key) for each in (entry.get("assert"), inside) if isinstance(each, dict)]
    names = [name for place in places if isinstance(place, list) for name in place if isinstance(name, str)]
    return tuple(dict.fromkeys(names))


def _inputs(reading: Reading, node: Node, config: Config, takes: Collection[str]) -> dict[str, Any]:
    """`input`, merged over `args`, its older name."""
    if "args" in takes:
        return {**config.input, **_map(reading, node, "input")}
    if "args" in node.nodes:
        reading.warn_key(node, "args", "old-form", "`args` is an old form", "write `input`")
    payload = _map(reading, node, "payload") if node.value.get("kind") == "playbook" else {}
    return {**config.input, **payload, **_map(reading, node, "args"), **_map(reading, node, "input")}


def _map(reading: Reading, node: Node, key: str) -> dict[str, Any]:
    child = node.nodes.get(key)
    if child is None or child.value is None:
        return {}
    if not isinstance(child.value, dict):
        reading.at(
            child, "wrong-type", f"`{key}` must be a map, not {type_of(child.value)}", f"write `{key}: {{a: 1}}`"
        )
        return {}
    return dict(child.value)


def _spec(reading: Reading, node: Node) -> Node | None:
    spec: Node | None = node.nodes.get("spec")
    if spec is not None and not isinstance(spec.value, dict):
        reading.at(
            spec, "wrong-type", f"`spec` must be a map, not {type_of(spec.value)}", "write `spec: {timeout: 30s}`"
        )
        return None
    return spec


def _limit(reading: Reading, node: Node, spec: Node | None) -> Any:
    """The time limit of a try, from any of its possible keys."""
    holders = [holder for holder in (spec, node) if holder is not None]
    for holder in holders:
        for name in ("timeout", "timeout_seconds"):
            if name in holder.nodes and holder.nodes[name].value is not None:
                return read_limit(reading, holder.nodes[name], LIMIT)
    return None


def _with_policy(reading: Reading, task: Task, spec: Node | None, names: list[str], at: int) -> Task:
    policy = spec.nodes.get("policy") if spec is not None else None
    if policy is None:
        return task
    fields = reading.table(policy, "task.policy")
    for rule in fields.get("rules", ()):
        if any(path[0] == "outcome" for path in paths_of(rule.node.value)):
            reading.warn(rule.node, "old-form", "`outcome` is an old form", "write `output`, and `data` for `result`")
    return structs.replace(task, rules=rules_of(reading, fields, names, at), unmatched=fields.get("on_unmatched", ""))


def pullers_of(loop: Fields, spec: Fields) -> Any:
    """How many rows are claimed at a time."""
    names = ("max_in_flight", "concurrency")
    return next((each.get(name) for each in (spec, loop) for name in names if each.get(name) is not None), 1)


def read_cursor(reading: Reading, loop: Fields, pipeline: TaskPipeline, book: Book) -> TaskPipeline:
    """The pipeline with the task that claims its rows."""
    cursor: Fields = loop.get("cursor")
    spec: Fields = loop.get("spec", Fields(loop.node, {}))
    frame: Fields = spec.get("frame", Fields(loop.node, {}))
    kind = kind_of(cursor.get("kind", "postgres")).kind
    options: dict[str, Any] = cursor.get("options", {})
    auth = cursor.get("auth")
    keys = {**options, "query": cursor.get("claim", ""), **({"auth": auth} if auth is not None else {})}
    if kind not in book.catalog:
        reading.at(cursor.node, "unknown-tool", f"there is no tool `{kind}`", "install the extra that has it")
    elif (check := book.catalog[kind].check_noetl_text) is not None and "claim" in cursor.node.nodes:
        tell_values(reading, check("query", keys["query"]), cursor.node.nodes["claim"])
    claim = Task(
        name="claim",
        kind=kind,
        keys={**keys, "as_objects": True},
        quoted={"query": "sql"},
        credentials=("auth",) if isinstance(auth, str) else (),
    )
    return structs.replace(
        pipeline,
        claim=Claim(
            task=claim,
            row=loop.get("iterator", "row"),
            rows=frame.get("max_rows", 1),
            at_once=frame.get("row_concurrency", 1),
            attempts=frame.get("max_attempts", 3),
            whole=frame.get("process", "row") == "frame",
            pullers=pullers_of(loop, spec),
        ),
    )
