"""Tools of a step in `refold/v1` that a worker renders itself: a list of tasks, rules about tries, or secrets."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from refold.core.pipeline import Task, TaskPipeline
from refold.core.plan import Call
from refold.names import NAME
from refold.playbooks.children import started_of
from refold.playbooks.reader.kinds import Catalog, read_kind
from refold.playbooks.reader.reading import Fields, Reading, cut, kind_of
from refold.playbooks.reader.templates import holds_secret, is_secret
from refold.playbooks.rules import rules_of
from refold.playbooks.tools import ToolWork, input_node, settings_of
from refold.playbooks.yaml.text import Node
from refold.templates import paths_of

OWN = frozenset({"name", "set", "spec", "kind", "input"})
SECRETS = frozenset({"keychain", "secrets"})
ALONE = ("gate", "quality", "poll")  # kinds that a step has for itself


def is_pipeline(reading: Reading, step: Fields) -> bool:
    """Whether the tool of a step is one that a worker renders itself."""
    node: Node | None = step.get("tool")
    if node is None:
        return False
    if reading.has_secrets and (
        step.get("step") in reading.sealed or reads_secrets(reading, [step.get("input"), node.value])
    ):
        return True
    if isinstance(node.value, list):
        return True
    if not isinstance(node.value, dict):
        return False
    return bool({"set", "spec"} & node.nodes.keys())


def reads_secrets(reading: Reading, value: Any) -> bool:
    return holds_secret(value) or any(path[0] in SECRETS or reads_sealed(reading, path) for path in paths_of(value))


def reads_sealed(reading: Reading, path: tuple[str, ...]) -> bool:
    """Whether a path reads the result of a step whose result is secret."""
    return bool(reading.sealed) and (path[1] if path[0] == "steps" and len(path) > 1 else path[0]) in reading.sealed


def resolved(value: Any) -> Any:
    """The value with each `{secret: name}` replaced by the expression that it is short for."""
    if is_secret(value):
        return f"{{{{ secrets[{value['secret']!r}] }}}}"
    if isinstance(value, dict):
        return {key: resolved(each) for key, each in value.items()}
    return [resolved(each) for each in value] if isinstance(value, list) else value


def inside(pipeline: TaskPipeline) -> frozenset[str]:
    """The additional names that templates of its tasks can read."""
    names = {"_attempt", "_prev", "_task", "outcome", "output", "results", *SECRETS}
    for task in pipeline.tasks:
        names |= {task.name, *task.input, *(key for key in _set_keys(task) if "." not in key)}
    return frozenset(names)


def set_in(pipeline: TaskPipeline) -> frozenset[str]:
    """The keys of the context that it sets."""
    keys = (key for task in pipeline.tasks for key in _set_keys(task))
    return frozenset(key.removeprefix("ctx.") for key in keys if key.startswith("ctx."))


def _set_keys(task: Task) -> list[str]:
    return [*task.set, *(key for rule in task.rules for key in rule.set)]


def read_pipeline(reading: Reading, step: Fields, catalog: Catalog) -> tuple[TaskPipeline, ToolWork]:
    """The tasks, and the nodes that may contain templates, as for any other tool of a step."""
    node: Node = step.get("tool")
    single = not isinstance(node.value, list)
    nodes = [node] if single else list(node.nodes)
    if not nodes:
        reading.at(node, "wrong-type", "the list of tools is empty", "leave `tool` out")
    names = _names(reading, step.get("step", ""), nodes, single)
    found = ToolWork(Call())
    tasks = [_task(reading, at, names, nodes[at], catalog, found) for at in range(len(nodes))]
    pipeline = TaskPipeline(
        tasks=tuple(task for task in tasks if task is not None),
        single=single,
        timeout=step.get("timeout"),
        secret=step.get("step") in reading.sealed,
        opens=bool(reading.sealed),
        keychain=reading.keychain if _reads_keychain(tasks) else (),
        playbook=reading.playbook,
    )
    return pipeline, found


def _reads_keychain(tasks: list[Task | None]) -> bool:
    values = [(task.keys, task.input) for task in tasks if task is not None]
    return any(path[0] == "keychain" for path in paths_of(values))


def _names(reading: Reading, step: str, nodes: list[Node], single: bool) -> list[str]:
    names: list[str] = []
    for at, node in enumerate(nodes):
        given = node.nodes.get("name") if isinstance(node.value, dict) else None
        name = given.value if given is not None and isinstance(given.value, str) else ""
        if given is not None and not NAME.fullmatch(name):
            message = f"`{cut(str(given.value))}` is not a name for a task: use lower-case letters, digits and `_`"
            reading.at(given, "bad-name", message, "for example `fetch`")
        name = name or (f"{step}_task" if single else f"task_{at}")
        if name in names:
            reading.at(node, "duplicate-task", f"two tasks are called `{cut(name)}`", "give one of them another name")
        names.append(name)
    return names


def _task(reading: Reading, at: int, names: list[str], node: Node, catalog: Catalog, found: ToolWork) -> Task | None:
    if not isinstance(node.value, dict):
        reading.at(node, "wrong-type", f"a task is a map, not {kind_of(node.value)}", "write `{kind: python, code: …}`")
        return None
    inner = Node(node.value, node.start, node.end, node.style, _tool_nodes(node), node.keys)
    known = read_kind(reading, inner, catalog)
    if known is None:
        return None
    info, keys, values = known.info, known.keys, known.values
    if info.kind in ALONE:
        message = f"`{info.kind}` cannot be one of several tasks"
        reading.at(node.nodes["kind"], "bad-tool", message, "give it a step of its own")
        return None
    static = known.static()
    given = input_node(reading, node)
    found.rendered += [child for name, child in keys.items() if name in values and name not in static]
    found.rendered += [each for each in (given, node.nodes.get("set"), node.nodes.get("spec")) if each is not None]
    task = Task(
        name=names[at],
        kind=info.kind,
        settings=settings_of(reading, info, values),
        keys={name: resolved(value) for name, value in values.items() if name not in static},
        input=resolved(given.value) if given is not None else {},
        set=_sets(reading, node),
        child=started_of(reading, reading.child_reader, keys) if info.kind == "playbook" else None,
    )
    return _with_spec(reading, task, node, names, at)


def _tool_nodes(node: Node) -> dict[str, Node]:
    return {name: child for name, child in node.nodes.items() if name not in OWN or name in ("kind", "input")}


def _sets(reading: Reading, node: Node) -> dict[str, Any]:
    child = node.nodes.get("set")
    if child is None:
        return {}
    if not isinstance(child.value, dict):
        reading.at(child, "wrong-type", f"`set` must be a map, not {kind_of(child.value)}", "write `set: {page: …}`")
        return {}
    for key in child.nodes:
        scope, dot, rest = key.partition(".")
        if dot and (scope not in ("ctx", "iter") or not NAME.fullmatch(rest.lower())):
            reading.at_key(child, key, "bad-set", f"`{cut(key)}` cannot be set", "write `ctx.name` or `name`")
    return dict(child.value)


def _with_spec(reading: Reading, task: Task, node: Node, names: list[str], at: int) -> Task:
    spec = node.nodes.get("spec")
    if spec is None:
        return task
    fields = reading.table(spec, "task.spec")
    policy: Fields = fields.get("policy", Fields(spec, {}))
    return structs.replace(
        task,
        rules=rules_of(reading, policy, names, at),
        unmatched=policy.get("on_unmatched", ""),
        timeout=fields.get("timeout"),
    )


INSIDE = frozenset(
    {"_attempt", "_prev", "_task", "command_id", "execution_id", "job", "keychain", "outcome", "output", "results"}
    | {"secrets", "worker_id"}
)
"""Names that only the worker knows."""

CONTEXT = re.compile(r"\bcontext\b")


def input_of(pipeline: TaskPipeline, bound: dict[str, Any], free: Iterable[str] = ()) -> dict[str, Any]:
    """The input of such a step: bound names, and paths whose values are taken when it is issued."""
    own = {*INSIDE, *bound} - {*free}
    tasks = [*pipeline.tasks, *([pipeline.claim.task] if pipeline.claim is not None else [])]
    named = [path for task in tasks for path in _paths(task)] + list(paths_of(pipeline.keychain))
    paths = dict.fromkeys(path for path in named if path[0] not in own)
    reads_context = any(_reads_context(task) for task in pipeline.tasks)
    return {"$let": bound, "$scope": [list(path) for path in paths] + ([["context"]] if reads_context else [])}


def _paths(task: Task) -> Sequence[tuple[str, ...]]:
    rules = [(rule.when, rule.set, rule.attempts, rule.delay) for rule in task.rules]
    return paths_of([task.rendered, task.keys, task.input, task.set, task.timeout, rules])


def _reads_context(task: Task) -> bool:
    """Whether a task needs the whole context: only Python code that mentions `context` gets it."""
    code = task.settings.get("code") or task.rendered.get("code")
    scripted = task.kind == "python" and bool(task.settings.get("script"))
    return task.kind == "python" and (scripted or (isinstance(code, str) and bool(CONTEXT.search(code))))
