"""Builds a step of the plan from a step of a NoETL file."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, structs

from refold.core.pipeline import Task, TaskPipeline
from refold.core.plan import Arc, Call, Loop, Step, WorkerWork
from refold.playbooks.noetl.results import read_output, sets_of, warn_references
from refold.playbooks.noetl.tasks import Book, read_cursor, read_tasks
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.steps import StepDraft, Value
from refold.playbooks.tools import input_of
from refold.playbooks.yaml.text import Node
from refold.templates import paths_of

ERRORS = {("output", "status"), ("output", "error")}
Of = Literal["step", "loop", "cursor"]
_SPELT = {"call.done": "step.done", "call.error": "step.failed"}
SPELT: Mapping[Of, Mapping[str, str]] = {
    "step": _SPELT,
    "loop": {"call.done": "loop.done", "step.done": "loop.done", "call.error": "step.failed"},
    "cursor": {**_SPELT, "loop.done": "step.done"},
}
QUOTED = re.compile(r"(['\"])([a-z_]+\.[a-z_]+)\1")


def listens(when: Any) -> str:
    """The outcome of an arc: an arc whose condition reads how the step ended listens to both."""
    paths = paths_of(when) if isinstance(when, str) else ()
    return "both" if any(path[0] == "event" or path[:2] in ERRORS for path in paths) else "success"


def respelt(when: Any, of: Of) -> Any:
    """Replace the names of events by the engine's names."""
    if not isinstance(when, str) or not any(path[0] == "event" for path in paths_of(when)):
        return when
    names = SPELT[of]
    return QUOTED.sub(lambda found: f"{found[1]}{names.get(found[2], found[2])}{found[1]}", when)


def admission(when: Any, admit: Fields | None) -> Any:
    """The condition of a step: the old condition and the first matching admission rule must both allow it."""
    if admit is None:
        return when
    rules = [] if when is None else [[{"$first": [[when, False]]}, False]]  # unless the condition holds
    for rule in admit.get("rules", ()):
        decided: Fields | None = rule.get("then") or rule.get("else")
        if decided is not None:
            rules.append([rule.get("when", True), decided.get("allow", True)])
    return {"$first": rules}


FAILURES: Mapping[str, Any] = {"fail_fast": "stop", "best_effort": "ignore"}
SUMMARY = {name: f"{{{{ summary__.{name} }}}}" for name in ("execution_id", "counts", "failures")}


class Whole(Struct):
    """What applies to all steps of a file."""

    book: Book
    spec: Fields  # of the executor
    keychain: tuple[dict[str, Any], ...] = ()
    steps: tuple[str, ...] = ()
    given: Mapping[str, frozenset[str]] = {}  # names that arcs give to the steps they lead to

    @property
    def final(self) -> str:
        name: str = self.spec.get("final_step", "")
        return name


def read_step(reading: Reading, fields: Fields, whole: Whole) -> StepDraft:
    name = fields.get("step", "")
    spec: Fields = fields.get("spec", Fields(fields.node, {}))
    policies = _policies(spec, whole.spec)
    loop = _loop(reading, fields.get("loop"), policies)
    arcs = arcs_of(fields)
    warn_references(reading, fields.node, [fields.get("set", {}), *(arc.get("set", {}) for arc in arcs)])
    timeout = _timeout(reading, fields, spec, policies, whole.spec)
    work, given = _work(reading, fields, whole, loop, timeout)
    step = Step(
        name=name,
        work=work,
        input=given,
        when=admission(fields.get("when"), policies.get("admit")),
        mode=_mode(fields.get("next"), spec),
        arcs=tuple(_arc(arc, "loop" if loop is not None else "cursor" if _claims(fields) else "step") for arc in arcs),
        no_match=_no_match(fields.get("next"), whole.spec),
        set=_sets(reading, fields),
        timeout=timeout,
        loop=loop,
        keeps_input=_reads_input(fields, arcs),
    )
    iterator = loop.iterator if loop is not None else ""
    return StepDraft(name, fields, step, [Value(fields.node, "run")], frozenset(), iterator, arcs)


TIME_LIMITS = ("timeout_s", "deadline_s")


def _policies(spec: Fields, executor: Fields) -> dict[str, Fields]:
    """Merge the layers of each policy key by key; the one nearest to the step wins."""
    nothing = Fields(spec.node, {})
    over_all: Fields = executor.get("policy", nothing)
    short = {name: value for name, value in over_all.get("defaults", nothing).values.items() if name in TIME_LIMITS}
    merged: dict[str, Fields] = {"lifecycle": Fields(spec.node, short)} if short else {}
    for layer in (over_all, over_all.get("defaults", nothing), spec.get("policy", nothing)):
        for name, policy in layer.values.items():
            if isinstance(policy, Fields):
                merged[name] = Fields(policy.node, {**merged.get(name, nothing).values, **policy.values})
    return merged


def _work(
    reading: Reading, fields: Fields, whole: Whole, loop: Loop | None, timeout: float | None
) -> tuple[WorkerWork, dict[str, Any] | None]:
    """The work of a step and its input; without a tool the step only branches."""
    node: Node | None = fields.get("tool")
    bound = {**fields.get("args", {}), **fields.get("input", {})}
    if fields.get("step") == whole.final:
        bound = {**SUMMARY, **bound}
    if node is None:
        return Call(), {"$let": bound, "$in": {"result": None}} if bound else None
    if loop is not None:
        bound = {loop.iterator: f"{{{{ iter.{loop.iterator} }}}}", "loop_index": "{{ loop_index }}", **bound}
    name: str = fields.get("step", "")
    book = structs.replace(whole.book, bound=whole.given.get(name, frozenset()).union(bound))
    tasks, single = read_tasks(reading, name, node, book)
    warn_references(reading, fields.node, sets_of(tasks))
    spec: Fields | None = fields.get("spec")
    select = read_output(reading, [spec.get("result") if spec is not None else None, fields.get("output")])
    pipeline = TaskPipeline(
        tasks=tasks,
        language="noetl",
        single=single,
        results=_results(tasks, whole),
        keychain=whole.keychain if _uses_secrets(tasks) else (),
        own=tuple(key for task in tasks for key in _set_keys(task) if key.startswith("step.")),
        timeout=timeout,
        playbook=str(whole.book.about.get("path") or whole.book.about.get("name", "")),
        about={name: whole.book.about.get(name) for name in ("path", "version")},
        select={**(tasks[0].select if single and tasks else {}), **select},
    )
    if _claims(fields):
        pipeline = read_cursor(reading, fields.get("loop"), pipeline, whole.book)
    return pipeline, input_of(pipeline, bound)


def _claims(fields: Fields) -> bool:
    return "loop" in fields.values and "cursor" in fields.get("loop").values


def _set_keys(task: Task) -> list[str]:
    return [*task.set, *(key for rule in task.rules for key in rule.set)]


def _results(tasks: tuple[Task, ...], whole: Whole) -> tuple[str, ...]:
    named = {path[0] for task in tasks for path in paths_of([task.keys, task.rendered, task.input, task.set])}
    return tuple(name for name in whole.steps if name in named)


def _uses_secrets(tasks: tuple[Task, ...]) -> bool:
    paths = (path for task in tasks for path in paths_of([task.keys, task.rendered, task.input]))
    return any(task.credentials for task in tasks) or any(path[0] == "keychain" for path in paths)


def _loop(reading: Reading, fields: Fields | None, policies: dict[str, Fields]) -> Loop | None:
    if fields is None:
        return None
    spec: Fields = fields.get("spec", Fields(fields.node, {}))
    cursor = "cursor" in fields.values
    if cursor == ("in" in fields.values):
        reading.at(fields.node, "bad-loop", "a loop needs exactly one of `in` and `cursor`", 'write `in: "{{ … }}"`')
    if cursor:
        return None  # to the engine it is one command, which claims until nothing is left
    mode = spec.get("mode") or fields.get("mode") or "sequential"
    window = next(
        (each.get(key) for each in (spec, fields) for key in ("max_in_flight", "concurrency") if each.get(key)), None
    )
    if mode == "sequential" and window is not None:
        reading.warn(
            fields.node, "no-effect", "`max_in_flight` has no effect on a sequential loop", "write `mode: parallel`"
        )
    inner: Fields = spec.get("policy", Fields(fields.node, {}))
    failure: Fields | None = inner.get("failure") or policies.get("failure")
    number = isinstance(window, int | float)
    return Loop(
        items=fields.get("in"),
        iterator=fields.get("iterator", "item"),
        sequential=mode == "sequential",
        max_in_flight=max(int(window), 1) if number and window else 16,
        computed_max_in_flight=None if number or mode == "sequential" else window,
        on_item_error=FAILURES[failure.get("mode")] if failure is not None and "mode" in failure.values else "all",
        loose=True,
    )


def _timeout(
    reading: Reading, fields: Fields, spec: Fields, policies: dict[str, Fields], executor: Fields
) -> float | None:
    life = policies.get("lifecycle")
    loop: Fields | None = fields.get("loop")
    inner: Fields | None = loop.get("spec") if loop is not None else None
    values = [inner.get("timeout") if inner is not None else None, spec.get("timeout")]
    limits = [each for each in (life.get("timeout_s"), life.get("deadline_s")) if each is not None] if life else []
    values += [each for each in limits if isinstance(each, str)] or ([min(limits)] if limits else [])
    found = next((each for each in [*values, executor.get("timeout")] if each is not None), None)
    if isinstance(found, str):
        message = "the time limit of a step cannot be computed"
        reading.at(fields.node, "unsupported", message, "write a number of seconds, or give the limit to the tool")
        return None
    return found


def _mode(fields: Fields | None, spec: Fields) -> Any:
    if fields is None:
        return "exclusive"
    own: Fields = fields.get("spec", fields)
    return own.get("mode") or spec.get("next_mode") or "exclusive"


def _no_match(fields: Fields | None, executor: Fields) -> Any:
    if executor.get("no_next_is_error"):
        return "fail"
    spec: Fields | None = fields.get("spec") if fields is not None else None
    return "quiet" if spec is not None and spec.get("on_no_match") == "quiet" else "end"


def arcs_of(fields: Fields) -> list[Fields]:
    found: Fields | None = fields.get("next")
    return [arc for arc in found.get("arcs", []) if "step" in arc.values] if found is not None else []


def _arc(fields: Fields, of: Of) -> Arc:
    when = fields.get("when")
    return Arc(
        to=fields.get("step"),
        on=listens(when),  # type: ignore[arg-type]
        when=respelt(when, of),
        set=fields.get("set", {}),
        input={**fields.get("args", {}), **fields.get("input", {})},
    )


def _sets(reading: Reading, fields: Fields) -> dict[str, Any]:
    sets: dict[str, Any] = fields.get("set", {})
    old = {f"ctx.{key.removeprefix('ctx.')}": value for key, value in fields.get("set_ctx", {}).items()}
    for key in sets:
        if key.startswith("iter."):
            hint = "set it on the tool, or write `ctx.` before it"
            reading.at_key(fields.node.nodes["set"], key, "bad-set", "a step has no iteration to set this for", hint)
    return {**old, **sets}


def _reads_input(fields: Fields, arcs: list[Fields]) -> bool:
    values = [fields.get("set"), *(each.get(key) for each in arcs for key in ("when", "set", "args", "input"))]
    return any(path[0] in ("input", "args") for path in paths_of(values))
