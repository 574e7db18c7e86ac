"""Reads an evaluation: its scorers, and the step that asks those who need a worker."""

from typing import Any

from msgspec import structs

from refold.core.pipeline import Task, TaskPipeline
from refold.core.plan import Call, Fail
from refold.playbooks.jamjet.drafts import NodeDraft
from refold.playbooks.jamjet.fields import Field, ReadFields, read_fields
from refold.playbooks.jamjet.work import NodeWork, Workshop
from refold.playbooks.reader.reading import cut
from refold.playbooks.yaml.text import Node

TYPE = Field("type", "text", "what judges", True)
SCORERS: dict[str, tuple[Field, ...]] = {
    "llm_judge": (
        TYPE,
        Field("model", "text", "the model that judges", True),
        Field("rubric", "text", "what it looks at", True),
        Field("min_score", "number", "the lowest score that passes, of 1 to 5 (3)"),
    ),
    "assertion": (
        TYPE,
        Field("checks", "list", "expressions that must be true, over `output` and `state`"),
        Field("check", "text", "one such expression"),
    ),
    "latency": (
        TYPE,
        Field("threshold_ms", "number", "how long the node may take", True),
    ),
    "cost": (
        TYPE,
        Field("threshold_usd", "number", "how much the node may cost", True),
    ),
    "custom": (
        TYPE,
        Field("module", "text", "`module:Class`, or a function", True),
        Field("kwargs", "map", "arguments of its constructor"),
    ),
}
CODE_SCORER = "refold.tools.python.scorers:score"


def evaluation(shop: Workshop, node: NodeDraft, before: list[str]) -> NodeWork:
    """The work of an evaluation; `before` are the nodes that lead to it."""
    expression = node.given.get("input_expr")
    info: dict[str, Any] = {
        "node": "eval",
        "name": node.id,
        "subject": before[0] if len(before) == 1 else "",
        "on_fail": node.text("on_fail", "halt"),
        "most": node.given.value("max_retries", 0),
    }
    if expression is not None and expression.value:
        info["expression"] = shop.expressions.condition(expression, node.owner)
    elif len(before) != 1 and node.given.value("scorers"):
        message = f"{node.owner} (eval) needs `input_expr`: {len(before)} nodes lead to it"
        shop.reading.at(node.named, "missing-key", message, "add `input_expr: state.KEY`")
    listed = node.given.get("scorers")
    if listed is None:
        return NodeWork(Fail("unbound"), info=info)
    if not listed.nodes:
        message = f"{node.owner} (eval) needs at least one of `scorers`"
        shop.reading.at(listed, "missing-key", message, 'add `{type: assertion, checks: ["output.ok"]}`')
    tasks: list[Task] = []
    input: dict[str, Any] = {}
    info["scorers"] = [_scorer(shop, node, each, at, info, tasks, input) for at, each in enumerate(listed.nodes)]
    if not tasks:
        return NodeWork(Call("noop"), {"input": {"$plain": {}}, "config": {"$plain": {}}}, info)
    given = {"input": input, "scope": {"$plain": {}}}
    return NodeWork(TaskPipeline(tasks=tuple(tasks), timeout=node.timeout), given, info)


def _scorer(
    shop: Workshop, node: NodeDraft, each: Node, at: int, info: dict[str, Any], tasks: list[Task], input: dict[str, Any]
) -> dict[str, Any]:
    owner = f"a scorer of {node.owner}"
    kind = each.value.get("type") if isinstance(each.value, dict) else None
    if not isinstance(kind, str) or kind not in SCORERS:
        place = each.nodes["type"] if isinstance(each.value, dict) and "type" in each.value else each
        message = f"{owner} has no type that there is" if kind is None else f"there is no scorer `{cut(str(kind))}`"
        shop.reading.at(place, "bad-value", f"{message} ({node.owner})", f"there are {', '.join(SCORERS)}")
        return {"type": "assertion", "checks": []}
    given = read_fields(shop.reading, each, SCORERS[kind], owner)
    if kind == "assertion":
        return {"type": kind, "checks": _checks(shop, node, given)}
    if kind == "llm_judge":
        input[f"scorer_{at}"] = {"$judge": {"rubric": given.value("rubric", ""), "info": {**info}}}
        tasks.append(_judge(shop, node, given, at))
        return {"type": kind, "min_score": given.value("min_score", 3)}
    if kind == "custom":
        input[f"scorer_{at}"] = {"$judged": {**info}}
        values = {"module": given.value("module", ""), "kwargs": given.value("kwargs", {})}
        judged = f"{{{{ input.scorer_{at} }}}}"
        about = {**values, "output": judged}
        tasks.append(Task(name=f"scorer_{at}", kind="python", settings={"entry": CODE_SCORER}, input=about))
        return {"type": kind, "module": given.value("module", "")}
    name = "threshold_ms" if kind == "latency" else "threshold_usd"
    if not info["subject"]:
        message = f"{owner}: `{kind}` is about the one node before it, and there are several"
        shop.reading.at(each, "missing-key", message, "put the evaluation behind one node")
    return {"type": kind, name: given.value(name, 0)}


def _checks(shop: Workshop, node: NodeDraft, given: ReadFields) -> list[str]:
    listed, single = given.get("checks"), given.get("check")
    nodes = [*(listed.nodes if listed is not None else ()), *([single] if single is not None else ())]
    if not nodes:
        message = f"an assertion of {node.owner} needs `checks`"
        shop.reading.at(given.node, "missing-key", message, 'add `checks: ["output.ok"]`')
    texts = [shop.expressions.condition(each, node.owner) for each in nodes]
    return [text for text in texts if text]


def _judge(shop: Workshop, node: NodeDraft, given: ReadFields, at: int) -> Task:
    ref = given.value("model", "")
    known = shop.known("models", ref)
    actual = known.value("model", ref) if known is not None else ref
    task = shop.bindings.models.get(ref) or shop.bindings.model(actual)
    if task is None:
        shop.unbound(node, "scorers", "unknown-model", "model", "models", ref)
        return Task(name=f"scorer_{at}", kind="noop")
    keys: dict[str, Any] = dict(task.keys)
    if task.kind == "llm":
        keys = {"model": actual, "messages": f"{{{{ input.scorer_{at} }}}}", **keys}
    return structs.replace(task, name=f"scorer_{at}", keys=keys, input={"messages": f"{{{{ input.scorer_{at} }}}}"})
