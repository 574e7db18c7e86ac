"""Reads the tools of a step: checks their keys against the catalog, and builds the work of the step.

Retries, and the rules about what follows a try of a task, are read here too. A worker itself renders tools that are a
list of tasks, or that have rules about tries, or secrets.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core.pipeline import Rule, Task, TaskPipeline
from refold.core.plan import Call, Gate, Poll, Quality, Retry, Wait, Work
from refold.core.times import instant, seconds
from refold.errors import InvalidValue
from refold.names import NAME, did_you_mean
from refold.playbooks.bindings import bound_data, how_to_bind
from refold.playbooks.children import read_child, started_of
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.kinds import Catalog, KindValues, read_kind
from refold.playbooks.reader.reading import Fields, Reading, cut, kind_of
from refold.playbooks.reader.templates import holds_secret, is_secret, is_template
from refold.playbooks.yaml.text import Node
from refold.templates import paths_of

GROWING_DELAY = 1.0  # seconds; a delay of 0 cannot grow


def retry_of(fields: Fields) -> Retry:
    backoff = fields.get("backoff", "fixed")
    return Retry(
        attempts=fields.get("attempts", 1),
        backoff=backoff,
        delay=fields.get("delay", 0.0 if backoff == "fixed" else GROWING_DELAY),
        max_delay=fields.get("max_delay"),
        jitter=fields.get("jitter", 0.0),
        on=fields.get("on", ()),
    )


PREVIOUS = ("previous", "prev", "_previous", "@previous")
RETRY_KEYS = ("attempts", "backoff", "delay")


def read_else(reading: Reading, node: Node, key: Key) -> Fields:
    """An action, with or without `then` around it."""
    if node.value is None and not reading.strict:
        return Fields(node, {})  # `- else:` with its action next to it
    inner = node.nodes.get("then") if isinstance(node.value, dict) else None
    return reading.table(inner if inner is not None and len(node.nodes) == 1 else node, key.of)


def rules_of(reading: Reading, policy: Fields, labels: list[str], at: int) -> tuple[Rule, ...]:
    """The rules of the task at this position."""
    found = (_rule(reading, fields, labels, at) for fields in policy.get("rules", ()))
    return tuple(rule for rule in found if rule is not None)


def _rule(reading: Reading, fields: Fields, labels: list[str], at: int) -> Rule | None:
    action: Fields | None = fields.get("then") or fields.get("else")
    if action is None:
        if not {"then", "else"} & fields.node.nodes.keys():
            reading.missing(fields.node, "a rule", "then", "{do: fail}")
        return None
    otherwise: Fields | None = fields.get("else")
    is_bare = otherwise is not None and otherwise.node.value is None
    if otherwise is not None and not is_bare and {"when", "then"} & fields.values.keys():
        reading.at(fields.node, "bad-rule", "`else` must be alone in a rule", "write two rules")
    do = action.get("do", "continue")
    if do != "retry":
        _refuse_idle(reading, action, RETRY_KEYS, "retry")
    if do != "jump":
        _refuse_idle(reading, action, ("to",), "jump")
    return Rule(
        when=fields.get("when"),
        do=do,
        set=_rule_sets(action),
        to=_target(reading, action, labels, at) if do == "jump" else "",
        attempts=action.get("attempts", 3),
        backoff=action.get("backoff", "fixed" if "delay" in action.values else "none"),
        delay=action.get("delay", 1.0),
    )


def _rule_sets(action: Fields) -> dict[str, Any]:
    old = {
        f"{scope}.{key}": value for scope in ("ctx", "iter") for key, value in action.get(f"set_{scope}", {}).items()
    }
    return {**old, **action.get("set", {})}


def _refuse_idle(reading: Reading, action: Fields, names: tuple[str, ...], owner: str) -> None:
    for name in names:
        if name in action.values:
            message = f"`{name}` has an effect only with `do: {owner}`"
            reading.warn_key(action.node, name, "no-effect", message, "leave it out")


def _target(reading: Reading, action: Fields, labels: list[str], at: int) -> str:
    to: str = action.get("to", "")
    if not to:
        reading.missing(action.node, "`do: jump`", "to", labels[0])
        return labels[0]
    if to in PREVIOUS and to not in labels:
        if at == 0:
            reading.at(action.node.nodes["to"], "unknown-task", "there is no task before this one", "name one of them")
        return labels[max(at - 1, 0)]
    if to not in labels:
        node = action.node.nodes["to"]
        reading.at(node, "unknown-task", f"there is no task `{to}` in this step", did_you_mean(to, labels))
    return to


IDLE = {  # keys of a step that have no use where no worker takes part
    "input": "leave it out: the keys of a {kind} read the names of the run",
    "loop": "loop over another tool, before or after the {kind}",
    "retry": "leave it out: a {kind} is not tried again",
    "queue": "leave it out",
    "priority": "leave it out",
    "share": "leave it out",
    "limit": "leave it out",
}
OPTIONS = ("approve", "reject")


def refuse_unused(reading: Reading, step: Fields, kind: str, names: tuple[str, ...] = tuple(IDLE)) -> None:
    """Report keys that have no effect, because their author expects one."""
    tool: Node = step.get("tool")
    noun = f"{kind} gate" if kind == "quality" else kind
    for name in names:
        for node in (step.node, tool):
            if name in node.nodes and not (node is tool and name != "input"):
                message = f"`{name}` has no effect on a {noun}"
                reading.at_key(node, name, "no-effect", message, IDLE[name].format(kind=noun))


def read_wait(reading: Reading, keys: Mapping[str, Node], values: Mapping[str, Any]) -> Wait:
    until = values.get("until")
    if until is not None and not is_template(until):
        until = _moment(reading, keys["until"])
    return Wait(seconds=values.get("seconds"), until=until, signal=values.get("signal"))


def _is_span(value: Any) -> bool:
    try:
        return isinstance(value, str) and seconds(value) > 0
    except InvalidValue:
        return False


def _moment(reading: Reading, node: Node) -> int | None:
    """An ISO text with a time zone as microseconds since 1970; a number is returned unchanged."""
    value = node.value
    try:
        moment = instant(value)
    except ValueError:
        hint = "write it like 2027-01-31T12:00:00Z, with its zone"
        if _is_span(value):
            hint = f"write `seconds: {value}` to wait so long; `until` is a time like 2027-01-31T12:00:00Z"
        reading.at(node, "bad-moment", f"`{cut(str(value))}` is not a time", hint)
        return None
    return moment if isinstance(value, str) else int(value)


def read_gate(values: Mapping[str, Any]) -> Gate:
    """Values that the catalog's check has refused are ignored here."""
    options = values.get("options", OPTIONS)
    labels = {name: str(label) for name, label in options.items()} if isinstance(options, dict) else {}
    names = tuple(dict.fromkeys(map(str, options))) if isinstance(options, dict | list | tuple) else ()
    refuse = values.get("refuse", ["reject"] if values.get("type", "approval") == "approval" else [])
    on_timeout = values.get("on_timeout", "fail")
    return Gate(
        prompt=values.get("prompt", ""),
        options=names or OPTIONS,
        refuse=tuple(str(each) for each in refuse if each in names),
        timeout=values.get("timeout"),
        on_timeout="goto" if isinstance(on_timeout, dict) else "continue" if on_timeout == "continue" else "fail",
        labels={name: label for name, label in labels.items() if label != name},
        form=values.get("form"),
        assignee=values.get("assignee"),
        choices=values.get("choices"),
        min_approvals=max(values.get("min_approvals", 1), 1),
    )


def ways_out(keys: Mapping[str, Node]) -> list[Fields]:
    """The arc that a gate takes at its timeout, if it names a step for that."""
    on_timeout = keys.get("on_timeout")
    if (
        on_timeout is None
        or not isinstance(on_timeout.value, dict)
        or not isinstance(on_timeout.value.get("goto"), str)
    ):
        return []
    node: Node = on_timeout.nodes["goto"]
    return [Fields(node, {"step": node.value, "on": "timeout"})]


def read_quality(values: Mapping[str, Any]) -> Quality:
    return Quality(
        source=values.get("source"), threshold=values.get("threshold", 0), on_fail=values.get("on_fail", "fail")
    )


EVERY = 30.0  # seconds between two looks of a poll


class ToolWork(Struct):
    """The work of a step, the keys that are rendered for it, and the nodes that may contain templates."""

    work: Work
    config: dict[str, Any] = {}
    input: Node | None = None  # under the tool, laid over the step's own
    rendered: list[Node] = []
    poll: Poll | None = None
    judged: list[Node] = []  # nodes whose templates can read what came of the step
    arcs: list[Fields] = []  # besides those that the step itself has


def read_tool(reading: Reading, step: Fields, catalog: Catalog) -> ToolWork:
    node: Node | None = step.get("tool")
    if node is None:
        return ToolWork(Call())
    found = read_kind(reading, node, catalog)
    if found is None:
        return ToolWork(Call())
    info, keys, values = found.info, found.keys, found.values
    if info.kind == "playbook":
        return ToolWork(read_child(reading, step, reading.child_reader, keys), input=input_node(reading, node))
    if info.kind == "poll" and "check" in values:
        return _poll(reading, step, catalog, keys, values)
    if info.by_engine:
        refuse_unused(reading, step, info.kind)
        return _by_engine(reading, info.kind, keys, values)
    return _call(reading, node, found)


def _call(reading: Reading, node: Node, found: KindValues) -> ToolWork:
    static = found.static()
    return ToolWork(
        Call(tool=found.info.kind, settings=settings_of(reading, found)),
        {name: value for name, value in found.values.items() if name not in static},
        input_node(reading, node),
        [child for name, child in found.keys.items() if name in found.values and name not in static],
    )


def settings_of(reading: Reading, found: KindValues) -> dict[str, Any]:
    """The keys that are not rendered, the folder in which a script is looked for, and the tool that is an agent."""
    static = found.static()
    settings = {name: value for name, value in found.values.items() if name in static}
    if found.info.kind == "python" and "script" in settings:
        return {**settings, "folder": reading.child_reader.folder()}
    if found.info.kind == "agent":
        return _agent_settings(reading, found, settings)
    return settings


def _agent_settings(reading: Reading, found: KindValues, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of an agent, with the tool that answers for it, as plain data."""
    by, agent = found.keys.get("by"), found.keys.get("agent")
    task = None
    if by is not None:
        task = bound_tool(reading, by, reading.catalog)
    elif agent is not None and isinstance(agent.value, str) and not is_template(agent.value):
        bindings = reading.bindings()
        task = bindings.agent(agent.value)
        if task is None:
            message = f"no tool is bound to the agent `{cut(agent.value)}`"
            reading.at(agent, "unknown-agent", message, how_to_bind("agents", agent.value))
    without = {name: value for name, value in settings.items() if name != "by"}
    return without if task is None else {**without, "bound": bound_data(task)}


def bound_tool(reading: Reading, node: Node, catalog: Catalog) -> Task | None:
    """Read a tool that answers for a name. Problems are reported, and None is returned."""
    found = read_kind(reading, node, catalog)
    if found is None:
        return None
    if found.info.by_engine or found.info.kind in ("playbook", "agent"):
        message = f"`{found.info.kind}` cannot answer for a name"
        hint = "take a tool that a worker runs, such as `shell`, `llm` or `python`"
        reading.at(node.nodes["kind"], "bad-tool", message, hint)
        return None
    static, given = found.static(), input_node(reading, node)
    return Task(
        name=found.info.kind,
        kind=found.info.kind,
        settings=settings_of(reading, found),
        keys={name: resolved(value) for name, value in found.values.items() if name not in static},
        input=resolved(given.value) if given is not None else {},
    )


def _by_engine(reading: Reading, kind: str, keys: dict[str, Node], values: dict[str, Any]) -> ToolWork:
    nodes = list(keys.values())
    match kind:
        case "gate":
            rendered = [keys[name] for name in ("prompt", "assignee", "choices") if name in keys]
            return ToolWork(read_gate(values), rendered=rendered, arcs=ways_out(keys))
        case "quality":
            return ToolWork(read_quality(values), rendered=nodes)
        case "poll":
            return ToolWork(Wait(), rendered=nodes, poll=_poll_of(reading, keys, values))
        case _:
            return ToolWork(read_wait(reading, keys, values), rendered=nodes)


def _poll_of(reading: Reading, keys: dict[str, Node], values: dict[str, Any]) -> Poll:
    every = values.get("every", EVERY)
    if not every:
        reading.at(keys["every"], "out-of-range", "`every` must be more than nothing", "for example `every: 30s`")
    return Poll(until=values.get("until", True), every=every or EVERY, timeout=values.get("timeout"))


def _poll(reading: Reading, step: Fields, catalog: Catalog, keys: dict[str, Node], values: dict[str, Any]) -> ToolWork:
    """A tool that a worker runs repeatedly; `until` reads its result."""
    refuse_unused(reading, step, "poll", ("loop",))
    found = read_kind(reading, keys["check"], catalog)
    if found is None:
        return ToolWork(Call())
    if found.info.by_engine or found.info.kind == "playbook":
        message = f"a poll cannot run the tool `{found.info.kind}` again and again"
        reading.at(keys["check"].nodes["kind"], "bad-tool", message, "take one that a worker runs, such as `http`")
        return ToolWork(Call())
    tool_work = _call(reading, keys["check"], found)
    over = input_node(reading, step.get("tool"))
    tool_work.input = tool_work.input or over
    tool_work.poll, tool_work.judged = _poll_of(reading, keys, values), [keys["until"]] if "until" in keys else []
    return tool_work


def input_node(reading: Reading, node: Node) -> Node | None:
    given: Node | None = node.nodes.get("input")
    if given is not None and not isinstance(given.value, dict):
        message = f"`input` must be a map, not {kind_of(given.value)}"
        reading.at(given, "wrong-type", message, "for example `input: {city: Oslo}`")
        return None
    return given


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
    names = {"_attempt", "_last_error", "_prev", "_task", "outcome", "output", "results", *SECRETS}
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
        settings=settings_of(reading, known),
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
    {
        "_attempt",
        "_last_error",
        "_prev",
        "_task",
        "command_id",
        "execution_id",
        "job",
        "keychain",
        "outcome",
        "output",
        "results",
    }
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
