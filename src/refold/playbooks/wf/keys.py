"""The keys of each node of a `.wf` file: which there are, what their values are, and how they are checked."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from refold.core.plan import LONGEST
from refold.names import did_you_mean
from refold.playbooks.wf.nodes import ListValue, MapValue, Pair, Scalar, Value

Report = Callable[..., None]
"""`report(code, message, at, end, hint)` notes an error; with `severity="warning"` a warning."""

HUMAN_GATES = ("human_approval", "human_review")
QUALITY, PR_APPROVAL = "quality_gate", "pr_approval"
MOST_RETRIES, MOST_PASSES, MOST_CALLS = 999_999, 1_000_000, 1_000_000
SPAN = re.compile(r"([0-9]+)(ms|s|m|h)?")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
DAY = 86_400.0


class Wrong(Exception):
    """A value does not fit its key."""

    def __init__(self, code: str, message: str, value: Value, hint: str = "") -> None:
        self.code, self.message, self.value, self.hint = code, message, value, hint
        super().__init__(message)


class Key(Struct, frozen=True):
    read: Callable[[str, Value], Any]
    required: bool = False


def text(key: str, value: Value) -> str:
    return _scalar(key, value).text


def scalar(key: str, value: Value) -> Scalar:
    return _scalar(key, value)


def _scalar(key: str, value: Value) -> Scalar:
    if isinstance(value, Scalar):
        return value
    kind = "a list" if isinstance(value, ListValue) else "a map"
    raise Wrong("wrong-type", f"`{key}` has one value, and this is {kind}", value, f'write `{key} = "…"`')


def scalars(key: str, value: Value) -> tuple[Scalar, ...]:
    """Return the elements of a list; a single value is a list of one."""
    if isinstance(value, MapValue):
        raise Wrong("wrong-type", f"`{key}` is a list, and this is a map", value, f'write `{key} = ["…"]`')
    items = value.items if isinstance(value, ListValue) else (value,)
    return tuple(_scalar(key, item) for item in items)


def number(least: int, most: int) -> Callable[[str, Value], int]:
    def read(key: str, value: Value) -> int:
        written = _scalar(key, value).text
        if not written.isdecimal() or not written.isascii() or not least <= int(written[:20]) <= most:
            message = f"`{key}` is a whole number from {least} to {most:,}, not `{written}`"
            raise Wrong("bad-value", message, value)
        return int(written)

    return read


def one_of(*words: str) -> Callable[[str, Value], str]:
    def read(key: str, value: Value) -> str:
        written = _scalar(key, value).text
        if written not in words:
            hint = did_you_mean(written, words)
            raise Wrong("bad-value", f"`{key}` is {' or '.join(words)}, not `{written}`", value, hint)
        return written

    return read


_true_or_false = one_of("true", "false")


def truth(key: str, value: Value) -> bool:
    return _true_or_false(key, value) == "true"


def span(key: str, value: Value) -> float:
    """Return a span of time, or a number of seconds, in seconds."""
    written = _scalar(key, value).text
    found = SPAN.fullmatch(written)
    seconds = int(found[1][:30]) * UNITS[found[2]] if found is not None else 0.0
    if not 0 < seconds <= LONGEST:
        hint = "write 30s, 5m, 2h, or a number of seconds"
        raise Wrong("bad-value", f"`{key}` is a span of time, not `{written}`", value, hint)
    return seconds


def texts(key: str, value: Value) -> tuple[Pair, ...]:
    """Return the pairs of a map whose values are scalars."""
    if not isinstance(value, MapValue):
        raise Wrong("wrong-type", f"`{key}` is a map", value, f'write `{key} = {{ name = "…" }}`')
    for pair in value.pairs:
        _scalar(pair.key, pair.value)
    return value.pairs


def tree(key: str, value: Value) -> tuple[Pair, ...]:
    """Return the pairs of a map whose values may be lists and maps again."""
    if not isinstance(value, MapValue):
        raise Wrong("wrong-type", f"`{key}` is a map", value, f'write `{key} = {{ name = "…" }}`')
    return value.pairs


def options(key: str, value: Value) -> Value:
    """Return a list of texts, a map of texts to labels, or `step.field`."""
    if isinstance(value, MapValue):
        texts(key, value)
    elif isinstance(value, ListValue):
        scalars(key, value)
    else:
        _dotted(key, value, "step.field")
    if isinstance(value, ListValue | MapValue) and not (value.items if isinstance(value, ListValue) else value.pairs):
        raise Wrong("bad-value", f"`{key}` is empty", value, "name what can be chosen, or leave it out")
    return value


def condition(key: str, value: Value) -> Scalar:
    return _dotted(key, _scalar(key, value), "step.marker")


def _dotted(key: str, value: Scalar, form: str) -> Scalar:
    step, dot, name = value.text.partition(".")
    if not (dot and step and name) or "." in name:
        raise Wrong("bad-value", f"`{key}` is `{form}`, not `{value.text}`", value)
    return value


_OUTPUT = {"output": Key(scalar), "with": Key(scalars)}
_TRIES = {"retries": Key(number(0, MOST_RETRIES)), "on_fail": Key(scalar), "as": Key(text)}
_CALL = {
    **_OUTPUT,
    **_TRIES,
    "timeout": Key(span),
    "max_turns": Key(number(1, 4_294_967_295)),
    "plugin_dirs": Key(scalars),
}
_PASSES = {
    "max_iterations": Key(number(1, MOST_PASSES), required=True),
    "on_max_iter": Key(one_of("fail", "continue")),
    "stuck_after": Key(number(2, MOST_PASSES)),
}
_GATE = {
    "prompt": Key(text),
    "timeout": Key(span),
    "on_timeout": Key(one_of("fail", "continue")),
    "min_approvals": Key(number(1, MOST_CALLS)),
    "as": Key(text),
}

Tables = Literal[
    "meta", "call", "parallel call", "call workflow", "loop", "do", "parallel", "gate", "script", "foreach"
]
TABLES: Mapping[str, Mapping[str, Key]] = {
    "meta": {
        "title": Key(text),
        "description": Key(text),
        "group": Key(text),
        "trigger": Key(one_of("manual", "pr", "scheduled")),
        "targets": Key(scalars),
    },
    "call": _CALL,
    "parallel call": {**_CALL, "if": Key(condition)},
    "call workflow": {"inputs": Key(texts), **_TRIES},
    "loop": _PASSES,
    "do": _OUTPUT,
    "parallel": {"fail_fast": Key(truth), "min_success": Key(number(0, MOST_CALLS)), **_OUTPUT},
    "gate": _GATE,
    "human gate": {**_GATE, "options": Key(options)},
    "pr_approval gate": {**_GATE, "mode": Key(one_of("min_approvals", "review_decision"))},
    "quality gate": {
        "source": Key(scalar, required=True),
        "threshold": Key(number(0, 100), required=True),
        "on_fail": Key(one_of("fail", "continue")),
    },
    "script": {"run": Key(text, required=True), "env": Key(texts), "timeout": Key(span), **_TRIES},
    "foreach": {
        "over": Key(scalar, required=True),
        "max_parallel": Key(number(1, MOST_CALLS), required=True),
        "workflow": Key(scalar, required=True),
        "scope": Key(tree),
        "filter": Key(tree),
        "inputs": Key(texts),
        "ordered": Key(truth),
        "on_cycle": Key(one_of("fail", "warn")),
        "on_child_fail": Key(one_of("halt", "continue", "skip_dependents")),
    },
}


REQUIRED = {name: [key for key, each in table.items() if each.required] for name, table in TABLES.items()}


def gate_table(name: str) -> str:
    """Return the name of the table for a gate of this name."""
    if name in HUMAN_GATES:
        return "human gate"
    return {QUALITY: "quality gate", PR_APPROVAL: "pr_approval gate"}.get(name, "gate")


class Keys(Struct, gc=False):
    """What the pairs of a node mean, and where they stand."""

    meant: dict[str, Any]
    values: dict[str, Value]


def read_pairs(
    pairs: Iterable[Pair], table: str, node: str, at: int, end: int, report: Report, missing: bool = True
) -> Keys:
    """Check the pairs of a node, which begins at `at`, against a table."""
    keys, known = Keys({}, {}), TABLES[table]
    for pair in pairs:
        if pair.key not in known:
            hint = did_you_mean(pair.key, list(known)) if known else f"`{node}` has no keys"
            report("unknown-key", f"`{node}` has no key `{pair.key}`", pair.at, pair.at + len(pair.key), hint)
        elif pair.key in keys.values:
            message = f"`{pair.key}` stands here twice"
            report("duplicate-key", message, pair.at, pair.at + len(pair.key), "leave one of them out")
        else:
            keys.values[pair.key] = pair.value
            try:
                keys.meant[pair.key] = known[pair.key].read(pair.key, pair.value)
                if not isinstance(pair.value, Scalar):
                    _check_map(pair.value, report)
            except Wrong as wrong:
                report(wrong.code, wrong.message, wrong.value.at, wrong.value.end, wrong.hint)
    for name in REQUIRED[table]:
        if name not in keys.values and missing:
            report("missing-key", f"`{node}` needs `{name}`", at, end, f"add `{name} = …`")
    return keys


def _check_map(value: Value, report: Report) -> None:
    """Report keys that stand twice in a map."""
    if isinstance(value, ListValue):
        for item in value.items:
            _check_map(item, report)
    elif isinstance(value, MapValue):
        seen: set[str] = set()
        for pair in value.pairs:
            if pair.key in seen:
                message = f"`{pair.key}` stands here twice"
                report("duplicate-key", message, pair.at, pair.at + len(pair.key), "leave one of them out")
            seen.add(pair.key)
            _check_map(pair.value, report)
