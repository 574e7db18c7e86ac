"""Steps that no worker does: waits, gates and judgements of a number, from the keys of their tools."""

from collections.abc import Mapping
from typing import Any

from refold.authoring.reading import Fields, Reading, cut
from refold.authoring.template_text import is_template
from refold.authoring.yaml_text import Node
from refold.core.moments import instant
from refold.core.plan import Gate, Quality, Wait

IDLE = {  # keys of a step that have no use where no worker takes part
    "input": "leave it out: the keys of a {kind} read the names of the run",
    "loop": "loop over another tool, before or after the {kind}",
    "retry": "leave it out: a {kind} is not tried again",
    "queue": "leave it out",
    "priority": "leave it out",
}
OPTIONS = ("approve", "reject")


def refuse_idle(reading: Reading, step: Fields, kind: str, names: tuple[str, ...] = tuple(IDLE)) -> None:
    """What has no effect is told, for whoever wrote it thought that it had one."""
    tool: Node = step.get("tool")
    noun = f"{kind} gate" if kind == "quality" else kind
    for name in names:
        for node in (step.node, tool):
            if name in node.nodes and not (node is tool and name != "input"):
                message = f"`{name}` has no effect on a {noun}"
                reading.at_key(node, name, "no-effect", message, IDLE[name].format(kind=noun))


def read_wait(reading: Reading, keys: Mapping[str, Node], told: Mapping[str, Any]) -> Wait:
    until = told.get("until")
    if until is not None and not is_template(until):
        until = _moment(reading, keys["until"])
    return Wait(seconds=told.get("seconds"), until=until, signal=told.get("signal"))


def _moment(reading: Reading, node: Node) -> int | None:
    """An ISO text with its zone, as microseconds since 1970; a number stays what it is."""
    value = node.value
    try:
        moment = instant(value)
    except ValueError:
        hint = "write it like 2027-01-31T12:00:00Z, with its zone"
        reading.at(node, "bad-moment", f"`{cut(str(value))}` is no moment", hint)
        return None
    return moment if isinstance(value, str) else int(value)


def read_gate(told: Mapping[str, Any]) -> Gate:
    """What the catalog's own check has found wrong is read as if it had not been written."""
    options = told.get("options", OPTIONS)
    labels = {name: str(label) for name, label in options.items()} if isinstance(options, dict) else {}
    names = tuple(dict.fromkeys(map(str, options))) if isinstance(options, dict | list | tuple) else ()
    refuse = told.get("refuse", ["reject"] if told.get("type", "approval") == "approval" else [])
    on_timeout = told.get("on_timeout", "fail")
    return Gate(
        prompt=told.get("prompt", ""),
        options=names or OPTIONS,
        refuse=tuple(str(each) for each in refuse if each in names),
        timeout=told.get("timeout"),
        on_timeout="goto" if isinstance(on_timeout, dict) else "continue" if on_timeout == "continue" else "fail",
        labels={name: label for name, label in labels.items() if label != name},
        form=told.get("form"),
        assignee=told.get("assignee"),
        min_approvals=max(told.get("min_approvals", 1), 1),
    )


def ways_out(keys: Mapping[str, Node]) -> list[Fields]:
    """The arc that a gate takes when its time is up, if it names a step for that."""
    on_timeout = keys.get("on_timeout")
    if (
        on_timeout is None
        or not isinstance(on_timeout.value, dict)
        or not isinstance(on_timeout.value.get("goto"), str)
    ):
        return []
    node: Node = on_timeout.nodes["goto"]
    return [Fields(node, {"step": node.value, "on": "timeout"})]


def read_quality(told: Mapping[str, Any]) -> Quality:
    return Quality(source=told.get("source"), threshold=told.get("threshold", 0), on_fail=told.get("on_fail", "fail"))
