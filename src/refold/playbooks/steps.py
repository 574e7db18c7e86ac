"""A step of a playbook: its fields put together to a step of the plan, with the templates in it and their scopes."""

from typing import Any, Literal

from msgspec import Struct, structs

from refold.core.pipeline import TaskPipeline
from refold.core.plan import VISIT_LIMIT, Arc, Call, Child, Loop, Step
from refold.playbooks.children import read_body
from refold.playbooks.loops import lift, read_loop, templated
from refold.playbooks.pipelines import (
    call_of,
    input_of,
    inside,
    is_pipeline,
    read_pipeline,
    reads_secrets,
    resolved,
    set_in,
)
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.rules import retry_of
from refold.playbooks.tools import Tooled, read_tool
from refold.playbooks.yaml.text import Node

Scope = Literal["run", "source", "key", "input", "tool", "outcome"]
"""What templates can read: the run alone, also in a source; also the item of a loop, as it comes and as it is run; also
the step's input; or what came of the step."""


class Value(Struct, frozen=True):
    """A value that may hold templates."""

    node: Node
    scope: Scope


class Draft(Struct):
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


def read_step(reading: Reading, fields: Fields, catalog: Catalog) -> Draft:
    lift(reading, fields)
    pipeline, tooled = _tooled(reading, fields, catalog)
    arcs = [*_arcs(fields), *tooled.arcs]
    loops = isinstance(tooled.work, Call | Child) and tooled.poll is None
    loop = read_loop(reading, fields.get("loop")) if loops else None
    bound = _bound(fields, tooled, loop)
    given = _input(bound, tooled)
    if pipeline is not None:
        tooled.work, given = call_of(pipeline), input_of(pipeline, bound)
    step = Step(
        name=fields.get("step", ""),
        work=tooled.work,
        input=given,
        when=fields.get("when"),
        mode=_mode(fields.get("next")),
        join=fields.get("join", "all"),
        arcs=tuple(map(_arc, arcs)),
        set=fields.get("set", {}),
        retry=retry_of(fields.get("retry", Fields(fields.node, {}))),
        timeout=fields.get("timeout"),
        loop=loop,
        poll=tooled.poll,
        visit_limit=fields.get("visit_limit", VISIT_LIMIT),
        queue=fields.get("queue", "default"),
        priority=fields.get("priority", 0),
    )
    iterator = loop.name if loop is not None else ""
    names = frozenset(bound) | (inside(pipeline) if pipeline is not None else frozenset())
    draft = Draft(step.name, fields, step, _values(fields, tooled, arcs), names, iterator, arcs)
    draft.sets = set_in(pipeline) if pipeline is not None else frozenset()
    return draft


def _tooled(reading: Reading, fields: Fields, catalog: Catalog) -> tuple[TaskPipeline | None, Tooled]:
    """A playbook, a tool whose keys are rendered when it is issued, or a pipeline, which a worker renders."""
    tool, given, body = fields.get("tool"), fields.get("input", {}), read_body(reading, fields, reading.family)
    if body is not None:
        return None, Tooled(body)
    if tool is None or not is_pipeline(reading, fields):
        return None, read_tool(reading, fields, catalog)
    pipeline, tooled = read_pipeline(reading, fields, catalog)
    if reads_secrets(reading, given):
        own = resolved(fields.told.pop("input"))
        tasks = tuple(structs.replace(task, input={**own, **task.input}) for task in pipeline.tasks)
        pipeline = structs.replace(pipeline, tasks=tasks)
    return pipeline, tooled


def _bound(fields: Fields, tooled: Tooled, loop: Loop | None) -> dict[str, Any]:
    """Names for the tool: the item of a loop and its place, the step's input, and over it the tool's own."""
    item = {loop.name: f"{{{{ {loop.name} }}}}", "loop_index": "{{ iter.index }}"} if loop is not None else {}
    under_tool = tooled.input.value if tooled.input is not None else {}
    given = {**fields.get("input", {}), **under_tool}
    if isinstance(tooled.work, Child):
        return given or {name: value for name, value in item.items() if name != "loop_index"}
    return {**item, **given}


def _input(bound: dict[str, Any], tooled: Tooled) -> Any:
    """The step's input is bound to names first; then the keys of the tool are rendered, which can read them."""
    if isinstance(tooled.work, Child):
        return bound or None
    return {"$let": bound, "$in": tooled.config} if isinstance(tooled.work, Call) else None


def _mode(fields: Fields | None) -> Any:
    if fields is None:
        return "exclusive"
    spec: Fields = fields.get("spec", fields)  # the short forms have no spec
    return spec.get("mode", "exclusive")


def _arcs(fields: Fields) -> list[Fields]:
    found: Fields | None = fields.get("next")
    return [arc for arc in found.get("arcs", []) if "step" in arc.told] if found is not None else []


def _arc(fields: Fields) -> Arc:
    return Arc(
        to=fields.get("step"),
        on=fields.get("on", "success"),
        when=fields.get("when"),
        set=fields.get("set", {}),
        each_pass=fields.get("each_pass", False),
    )


def _values(fields: Fields, tooled: Tooled, arcs: list[Fields]) -> list[Value]:
    """Every value of the step in which a template may stand, with what it can read there."""
    keys: Scope = "tool" if isinstance(tooled.work, Call | Child) else "run"
    found = [_value(fields, "when", "run"), _value(fields, "input", "input"), _value(fields, "set", "outcome")]
    found += [Value(node, scope) for node, scope in templated(fields.get("loop"))]
    found += [Value(tooled.input, "input")] if tooled.input is not None else []
    found += [Value(node, keys) for node in tooled.rendered]
    found += [Value(node, "outcome") for node in tooled.judged]
    for arc in arcs:
        found += [_value(arc, "when", "outcome"), _value(arc, "set", "outcome")]
    return [value for value in found if value is not None]


def _value(fields: Fields, key: str, scope: Scope) -> Value | None:
    return Value(fields.node.nodes[key], scope) if key in fields.told else None
