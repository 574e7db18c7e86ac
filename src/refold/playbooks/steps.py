"""Builds a step of the plan, with its loop, from a step of a playbook, and collects its templates with their scopes.

A draft is a playbook, or a step, as it was read: its fields and its plan, and the positions of its parts in the file.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct, structs

from refold.core.pipeline import TaskPipeline
from refold.core.plan import VISIT_LIMIT, Arc, Call, Child, Loop, Plan, Step, WorkerWork
from refold.playbooks.children import read_body
from refold.playbooks.problems import Place
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.sources import LoopSource
from refold.playbooks.tools import (
    ToolWork,
    input_of,
    inside,
    is_pipeline,
    read_pipeline,
    read_tool,
    reads_secrets,
    resolved,
    retry_of,
    set_in,
)
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node

Scope = Literal["run", "source", "key", "input", "tool", "outcome"]
"""What templates can read: the run only, also in a source; the item of a loop, when it arrives and when it is run;
the step's input; or the outcome of the step."""


class Value(Struct, frozen=True):
    """A value that may contain templates."""

    node: Node
    scope: Scope


class StepDraft(Struct):
    """A step as it was read; `step` is what the plan gets."""

    name: str
    fields: Fields
    step: Step
    values: list[Value]
    bound: frozenset[str]  # names in its input
    iterator: str  # "" if it does not loop
    arcs: list[Fields]  # as they were written, in the order of the plan's
    block: str = ""  # that it was made for, if nobody wrote it
    within: str = ""  # the block that it stands in
    sets: frozenset[str] = frozenset()  # keys of the context that its tasks set

    @property
    def node(self) -> Node:
        return self.fields.node


def read_step(reading: Reading, fields: Fields, catalog: Catalog) -> StepDraft:
    lift(reading, fields)
    pipeline, tool_work = _tooled(reading, fields, catalog)
    arcs = [*_arcs(fields), *tool_work.arcs]
    loops = isinstance(tool_work.work, Call | Child) and tool_work.poll is None
    loop = read_loop(reading, fields.get("loop")) if loops else None
    if loop is not None and loop.rate is not None:
        _check_rate(reading, fields, tool_work.work)
    bound = _bound(fields, tool_work, loop)
    given = _input(bound, tool_work)
    if pipeline is not None:
        tool_work.work, given = pipeline, input_of(pipeline, bound)
    step = Step(
        name=fields.get("step", ""),
        work=tool_work.work,
        input=given,
        when=fields.get("when"),
        mode=_mode(fields.get("next")),
        join=fields.get("join", "all"),
        arcs=tuple(map(_arc, arcs)),
        set=fields.get("set", {}),
        retry=retry_of(fields.get("retry", Fields(fields.node, {}))),
        timeout=fields.get("timeout"),
        loop=loop,
        poll=tool_work.poll,
        visit_limit=fields.get("visit_limit", VISIT_LIMIT),
        queue=fields.get("queue", ""),
        priority=fields.get("priority"),
        share=fields.get("share"),
        limit=fields.get("limit"),
    )
    iterator = loop.iterator if loop is not None else ""
    names = frozenset(bound) | (inside(pipeline) if pipeline is not None else frozenset())
    draft = StepDraft(step.name, fields, step, _values(fields, tool_work, arcs), names, iterator, arcs)
    draft.sets = set_in(pipeline) if pipeline is not None else frozenset()
    return draft


def _tooled(reading: Reading, fields: Fields, catalog: Catalog) -> tuple[TaskPipeline | None, ToolWork]:
    """The work of a step: a playbook, a tool rendered when it is issued, or a pipeline, which a worker renders."""
    tool, given, body = fields.get("tool"), fields.get("input", {}), read_body(reading, fields, reading.child_reader)
    if body is not None:
        return None, ToolWork(body)
    if tool is None or not is_pipeline(reading, fields):
        return None, read_tool(reading, fields, catalog)
    pipeline, tool_work = read_pipeline(reading, fields, catalog)
    if reads_secrets(reading, given):
        own = resolved(fields.values.pop("input"))
        tasks = tuple(structs.replace(task, input={**own, **task.input}) for task in pipeline.tasks)
        pipeline = structs.replace(pipeline, tasks=tasks)
    return pipeline, tool_work


def _bound(fields: Fields, tool_work: ToolWork, loop: Loop | None) -> dict[str, Any]:
    """The names for the tool: the item of a loop and its index, the step's input, and the tool's own, which wins."""
    item = {loop.iterator: f"{{{{ {loop.iterator} }}}}", "loop_index": "{{ iter.index }}"} if loop is not None else {}
    under_tool = tool_work.input.value if tool_work.input is not None else {}
    given = {**fields.get("input", {}), **under_tool}
    if isinstance(tool_work.work, Child):
        return given or {name: value for name, value in item.items() if name != "loop_index"}
    return {**item, **given}


def _input(bound: dict[str, Any], tool_work: ToolWork) -> Any:
    """The step's input is bound to names first; then the keys of the tool are rendered, which can read them."""
    if isinstance(tool_work.work, Child):
        return bound or None
    return {"$let": bound, "$in": tool_work.config} if isinstance(tool_work.work, Call) else None


def _mode(fields: Fields | None) -> Any:
    if fields is None:
        return "exclusive"
    spec: Fields = fields.get("spec", fields)  # the short forms have no spec
    return spec.get("mode", "exclusive")


def _arcs(fields: Fields) -> list[Fields]:
    found: Fields | None = fields.get("next")
    return [arc for arc in found.get("arcs", []) if "step" in arc.values] if found is not None else []


def _arc(fields: Fields) -> Arc:
    return Arc(
        to=fields.get("step"),
        on=fields.get("on", "success"),
        when=fields.get("when"),
        set=fields.get("set", {}),
        each_pass=fields.get("each_pass", False),
    )


def _values(fields: Fields, tool_work: ToolWork, arcs: list[Fields]) -> list[Value]:
    """Every value of the step that may contain templates, with its scope."""
    keys: Scope = "tool" if isinstance(tool_work.work, WorkerWork | Child) else "run"
    found = [_value(fields, "when", "run"), _value(fields, "input", "input"), _value(fields, "set", "outcome")]
    found += [_value(fields, "share", "input"), _value(fields, "limit", "input")]
    found += [Value(node, scope) for node, scope in templated(fields.get("loop"))]
    found += [Value(tool_work.input, "input")] if tool_work.input is not None else []
    found += [Value(node, keys) for node in tool_work.rendered]
    found += [Value(node, "outcome") for node in tool_work.judged]
    for arc in arcs:
        found += [_value(arc, "when", "outcome"), _value(arc, "set", "outcome")]
    return [value for value in found if value is not None]


def _value(fields: Fields, key: str, scope: Scope) -> Value | None:
    return Value(fields.node.nodes[key], scope) if key in fields.values else None


OF_ITEMS = ("retry", "timeout")  # what a loop says of its items is what the step says
TAKEN = ("index", "count")  # names behind `iter.`

Rendered = Literal["run", "source", "key"]
"""When templates of a loop are rendered: with the step, with the source, or for the key of each item."""


def lift(reading: Reading, step: Fields) -> None:
    """Move `retry` and `timeout` of the loop to the step."""
    loop: Fields | None = step.get("loop")
    for name in OF_ITEMS if loop is not None else ():
        assert loop is not None
        if name in loop.node.nodes and name in step.node.nodes:
            message = f"`{name}` is on the loop and on its step, and means the same"
            reading.at_key(loop.node, name, "given-twice", message, "leave one of them out")
        elif name in loop.values:
            step.values[name] = loop.values[name]


def read_loop(reading: Reading, fields: Fields | None) -> Loop | None:
    """Read the loop as far as possible, and report what is wrong with it."""
    if fields is None:
        return None
    loop_source: LoopSource | None = fields.get("source")
    _check_iterator(reading, fields)
    _check_order(reading, fields)
    _check_failures(reading, fields)
    order: Fields = fields.get("order", Fields(fields.node, {}))
    return structs.replace(
        _paced(reading, fields),
        items=fields.get("in"),
        iterator=fields.get("iterator", "item"),
        source=None if loop_source is None else loop_source.source,
        key=fields.get("key"),
        after=order.get("after"),
        on_cycle=order.get("on_cycle", "fail"),
        on_item_error="halt" if fields.get("on_item_error") == "halt" else "all",
        tolerate=fields.get("tolerate"),
        min_success=fields.get("min_success"),
        rate=fields.get("rate"),
    )


def templated(fields: Fields | None) -> Iterator[tuple[Node, Rendered]]:
    """Every value of a loop that may contain templates, and when it is rendered."""
    if fields is None:
        return
    order: Fields | None = fields.get("order")
    loop_source: LoopSource | None = fields.get("source")
    if "in" in fields.values:
        yield fields.node.nodes["in"], "run"
    if isinstance(fields.get("max_in_flight"), str):
        yield fields.node.nodes["max_in_flight"], "run"
    for node in loop_source.rendered if loop_source is not None else ():
        yield node, "source"
    if "key" in fields.values:
        yield fields.node.nodes["key"], "key"
    if order is not None and "after" in order.values:
        yield order.node.nodes["after"], "key"


def _paced(reading: Reading, fields: Fields) -> Loop:
    """How many items run at a time."""
    spec: Fields = fields.get("spec", Fields(fields.node, {}))
    mode, window = spec.get("mode", "sequential"), fields.get("max_in_flight")
    if window is None:
        if mode == "sequential" and "max_in_flight" in spec.values:
            message = "`max_in_flight` has no effect on a sequential loop"
            reading.warn(
                spec.node.nodes["max_in_flight"], "no-effect", message, "add `mode: parallel`, or leave it out"
            )
        return Loop(sequential=mode == "sequential", max_in_flight=spec.get("max_in_flight", Loop().max_in_flight))
    if "max_in_flight" in spec.values:
        message = "`max_in_flight` is on the loop and in its `spec`"
        reading.at_key(spec.node, "max_in_flight", "given-twice", message, "leave `spec` out")
    if mode == "sequential" and "mode" in spec.values:
        message = "a sequential loop runs one item at a time, whatever `max_in_flight` is"
        reading.at_key(fields.node, "max_in_flight", "contradiction", message, "leave `spec` out, or `max_in_flight`")
    return Loop(computed_max_in_flight=window) if isinstance(window, str) else Loop(max_in_flight=window)


def _check_rate(reading: Reading, step: Fields, work: Any) -> None:
    loop: Fields = step.get("loop")
    if isinstance(work, Child):
        message = "`rate` counts commands that workers take, and these items are runs"
        reading.at_key(loop.node, "rate", "no-effect", message, "give the steps of the child a `limit`")
    if "limit" in step.node.nodes:
        message = "`rate` is a limit of its own, and the step names another one"
        reading.at_key(loop.node, "rate", "contradiction", message, "leave one of them out")


def _check_iterator(reading: Reading, fields: Fields) -> None:
    name = fields.get("iterator")
    if name in TAKEN:
        node = fields.node.nodes["iterator"]
        reading.at(node, "bad-name", f"`iter.{name}` means something else", f"for example `{name}_1`")


def _check_order(reading: Reading, fields: Fields) -> None:
    if "order" in fields.values and "key" not in fields.node.nodes:
        message = "`order` needs `key`: items wait for others by their keys"
        name = fields.get("iterator", "item")
        reading.at_key(fields.node, "order", "missing-key", message, f'add `key: "{{{{ {name}.id }}}}"`')


def _check_failures(reading: Reading, fields: Fields) -> None:
    policy = fields.get("on_item_error")
    if policy == "skip_dependents" and "order" not in fields.node.nodes:
        message = "no item of this loop depends on another, so there are none to skip"
        hint = 'add `order: {after: "{{ … }}"}`, or write `continue`'
        reading.at(fields.node.nodes["on_item_error"], "no-effect", message, hint)
    for name in ("tolerate", "min_success") if policy == "halt" else ():
        if name in fields.node.nodes:
            message = f"`{name}` has no effect where the first failure halts the loop"
            reading.at_key(fields.node, name, "no-effect", message, "leave it out, or write `on_item_error: continue`")


class PlaybookDraft(Struct):
    fields: Fields
    drafts: list[StepDraft]
    plan: Plan
    blocks: dict[str, str] = {}  # the name of each, and the step where it is entered

    def draft(self, name: str) -> StepDraft:
        return next(draft for draft in self.drafts if draft.name == name)

    def names(self) -> list[str]:
        return [draft.name for draft in self.drafts if draft.name]

    def written(self) -> list[str]:
        """The names in the file: those of steps and blocks, not those of generated steps."""
        return [*(draft.name for draft in self.drafts if draft.name and not draft.block), *self.blocks]

    def finalizers(self) -> list[tuple[str, Node]]:
        """The steps that run at the end, and the nodes that name them."""
        found = [*self.fields.get("always", ()), *self.fields.get("on_fail", ())]
        last, budget = self.executor("final_step"), self.fields.get("budget")
        found += [(last.value, last)] if last is not None else []
        return [*found, (budget.exceeded, budget.step)] if budget is not None and budget.step is not None else found

    def executor(self, key: str) -> Node | None:
        """The node of the step that `executor.spec` names under this key, if any."""
        executor: Fields | None = self.fields.get("executor")
        spec: Fields | None = executor.get("spec") if executor is not None else None
        return spec.node.nodes[key] if spec is not None and key in spec.values else None


class Places(Mapping[str, Place]):
    """`steps.fetch`, `steps.fetch.next`, `steps.fetch.tool.code`."""

    def __init__(self, source: str, playbook: PlaybookDraft) -> None:
        self._source, self._draft = source, playbook

    def __getitem__(self, path: str) -> Place:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> dict[str, Place]:
        found = {}
        for draft in self._draft.drafts:
            path = f"steps.{draft.name}"
            found[path] = draft.node.nodes["step"].place
            found |= {f"{path}.{key}": node.place for key, node in draft.node.nodes.items()}
            tool = draft.node.nodes.get("tool")
            if tool is not None and isinstance(tool.value, dict):
                found |= {f"{path}.tool.{key}": self._text_place(node) for key, node in tool.nodes.items()}
        return found

    def _text_place(self, node: Node) -> Place:
        """The position of a value; of a block scalar, that of its text, so that lines can be counted from there."""
        return place_inside(self._source, node, 1, 1) if node.style in ("|", ">") else node.place
