"""What can be known about a `.wf` file before a run: steps that cannot have run before, inputs, names in templates."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from refold.names import did_you_mean
from refold.playbooks.wf.keys import QUALITY
from refold.playbooks.wf.nodes import (
    Block,
    Call,
    ChildCall,
    Do,
    File,
    Foreach,
    Gate,
    Loop,
    MapValue,
    Node,
    Pair,
    Parallel,
    Scalar,
    Script,
    Test,
    Value,
    key_of,
)
from refold.playbooks.wf.reading import WfReading
from refold.templates.wf_language import ENGINE_NAMES, STATUS, names_in

FAILURE = ("failed_step", "failure_reason", "retry_count")

StepsOfChild = Callable[[ChildCall], Sequence[str]]
"""Returns the keys of the steps of a child's body."""


class EarlierResults(Struct):
    """What may have run before, in the order of the file: keys of results, and whether anything can export names."""

    keys: dict[str, str]  # key -> the kind of node that has left it
    exports: bool = False


class Checker:
    def __init__(self, reading: WfReading, file: File, steps_of_child: StepsOfChild, variables: Mapping[str, object]):
        self.reading, self.steps_of_child = reading, steps_of_child
        self.inputs = {each.name.text: each for each in file.inputs}
        self.variables = variables
        for each in file.inputs:
            self._shadow(each.name)

    def check(self, file: File) -> None:
        known = EarlierResults({})
        self._body(file.body, known)
        self._body(file.finally_body, known, finally_=True)

    def _shadow(self, name: Scalar) -> None:
        if name.text in ENGINE_NAMES:
            message = f"the input `{name.text}` hides the engine's variable of that name"
            self.reading.warn(name, "shadowed-name", message, "give it another name")
        elif name.text in self.variables:
            message = f"the project has a variable `{name.text}`, which hides this input"
            self.reading.warn(name, "shadowed-name", message, "give one of them another name")

    def _body(self, nodes: Sequence[Node], known: EarlierResults, finally_: bool = False) -> None:
        for node in nodes:
            self._node(node, known, finally_)

    def _node(self, node: Node, known: EarlierResults, finally_: bool) -> None:
        self._templates(node, known, finally_)
        match node:
            case Test():
                self._condition(node.condition, known)
                self._body(node.body, known, finally_)
                self._body(node.otherwise, known, finally_)
            case Loop():
                if node.word == "while":
                    self._condition(node.condition, known)
                self._body(node.body, known, finally_)
                if node.word == "do":
                    self._condition(node.condition, known)
            case Do() | Block():
                self._body(node.body, known, finally_)
            case Parallel():
                for call in node.calls:
                    if "if" in call.keys:
                        self._step(call.keys["if"], known, call.keys["if"].text.partition(".")[0])
                for call in node.calls:
                    self._templates(call, known, finally_)
                    self._add(call, known)
            case Gate():
                self._gate(node, known)
            case _:
                self._add(node, known)

    def _add(self, node: Node, known: EarlierResults) -> None:
        """Note that a node may have run."""
        key, kind = key_of(node), type(node).__name__
        if known.keys.get(key, kind) != kind:
            at = node.agent if isinstance(node, Call) else node.name  # type: ignore[attr-defined]
            message = f"another kind of node is called `{key}` too: they share one result"
            self.reading.warn(at, "duplicate-step", message, "give one of them another name")
        known.keys[key] = kind
        known.exports = known.exports or isinstance(node, Call | Script | ChildCall)
        if isinstance(node, ChildCall):
            for each in self.steps_of_child(node):
                known.keys.setdefault(each, kind)
        on_fail = node.keys.get("on_fail")
        if isinstance(on_fail, Scalar) and on_fail.text != "continue":
            known.keys.setdefault(fallback_key(on_fail), "Call")

    def _gate(self, node: Gate, known: EarlierResults) -> None:
        if node.name.text == QUALITY and "source" in node.keys:
            source = node.keys["source"]
            self._step(source, known, source.text)
        options = node.keys.get("options")
        if isinstance(options, Scalar):
            self._step(options, known, options.text.partition(".")[0])

    def _condition(self, condition: Scalar, known: EarlierResults) -> None:
        step, dot, _ = condition.text.partition(".")
        if dot:
            self._step(Scalar(step, condition.at, condition.at + len(step)), known, step)
            return
        declared = self.inputs.get(condition.text)
        if declared is None or not declared.boolean:
            names = [name for name, each in self.inputs.items() if each.boolean]
            message = f"`{condition.text}` is not an input that is declared as boolean"
            hint = did_you_mean(condition.text, names) if names else f"declare `{condition.text} boolean` in `inputs`"
            self.reading.at(condition, "unknown-input", message, hint)

    def _step(self, value: Scalar, known: EarlierResults, step: str) -> None:
        if step not in known.keys:
            message = f"no step `{step}` can have run before this"
            hint = did_you_mean(step, list(known.keys)) if known.keys else "name a step that stands before it"
            self.reading.at(value, "unknown-step", message, hint)

    def _templates(self, node: Node, known: EarlierResults, finally_: bool) -> None:
        """Warn of names that nothing declares, as long as no step can have exported them."""
        if known.exports:
            return
        own = ("item",) if isinstance(node, Foreach) else ()
        more = (STATUS,) if finally_ else ()
        for name, value in _texts_of(node):
            first = name.partition(".")[0]
            if name in self.inputs or name in self.variables or name in ENGINE_NAMES or name in (*more, *FAILURE):
                continue
            if "." in name and (first in known.keys or first in own or first == "inputs"):
                continue
            names = [*self.inputs, *self.variables, *ENGINE_NAMES]
            self.reading.warn(
                value, "unknown-name", f"nothing declares `{name}`", did_you_mean(name, names) if names else ""
            )


def fallback_key(on_fail: Scalar) -> str:
    """Return the key of the agent that `on_fail` names: a path only if it is quoted and has a `/`."""
    is_path = on_fail.quoted and "/" in on_fail.text
    return on_fail.text.rsplit("/", 1)[-1].removesuffix(".md").replace("#", "_") if is_path else on_fail.text


TEMPLATES = {
    Gate: ("prompt",),
    Script: ("run", "env"),
    ChildCall: ("inputs",),
    Foreach: ("inputs", "scope", "filter"),
}


def _texts_of(node: Node) -> Iterator[tuple[str, Value]]:
    for key in TEMPLATES.get(type(node), ()):
        if key in node.values and key in node.keys:
            yield from _in_value(node.values[key])


def _in_value(value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Scalar):
        if "{{" in value.text:
            yield from ((name, value) for name, _ in names_in(value.text))
    else:
        parts: Sequence[Pair | Value] = value.pairs if isinstance(value, MapValue) else value.items
        for part in parts:
            yield from _in_value(part.value if isinstance(part, Pair) else part)
