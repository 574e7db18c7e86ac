"""Reads retries, and the rules about what follows a try of a task."""

from typing import Any

from refold.core.pipeline import Rule
from refold.core.plan import Retry
from refold.names import did_you_mean
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.yaml.text import Node

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
    if "else" in fields.values and {"when", "then"} & fields.values.keys():
        reading.at(fields.node, "bad-rule", "`else` must be alone in a rule", "write two rules")
    do = action.get("do", "continue")
    if do != "retry":
        _refuse_idle(reading, action, RETRY_KEYS, "retry")
    if do != "jump":
        _refuse_idle(reading, action, ("to",), "jump")
    return Rule(
        when=fields.get("when"),
        do=do,
        set=_sets(action),
        to=_target(reading, action, labels, at) if do == "jump" else "",
        attempts=action.get("attempts", 3),
        backoff=action.get("backoff", "fixed" if "delay" in action.values else "none"),
        delay=action.get("delay", 1.0),
    )


def _sets(action: Fields) -> dict[str, Any]:
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
