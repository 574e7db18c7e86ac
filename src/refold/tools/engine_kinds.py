"""The kinds of steps that the engine does itself, without a worker: their keys, results, examples and checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.schemas import schema_flaw
from refold.tool_api import ToolInfo, ToolKey, ToolProblem

ON_TIMEOUT = "write `fail`, `continue` or `{goto: STEP}`"


def check_wait(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    signal = keys.get("signal")
    if all(keys.get(name) is None for name in ("seconds", "until", "signal")):
        return [ToolProblem("", "nothing ends this wait", "give `seconds`, `until` or `signal`")]
    if signal is not None and not (isinstance(signal, str) or _are_texts(signal)):
        return [ToolProblem("signal", "`signal` is a name or a list of names", "write `signal: [paid, refused]`")]
    return []


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)


WAIT = ToolInfo(
    kind="wait",
    about="Waits, without a worker, for a time or a signal, whichever comes first. A signal that arrived earlier is"
    " kept and ends the wait immediately; so does a time in the past.",
    keys=(
        ToolKey(name="seconds", type="duration", about="how long to wait"),
        ToolKey(
            name="until",
            type="any",
            about="a point in time: an ISO text with its zone, or a number since 1970: seconds, or microseconds above"
            " 10^11",
        ),
        ToolKey(name="signal", type="any", about="the name of a signal, or a list of names"),
    ),
    result='`{by: "signal", signal, value}` or `{by: "timer", value: null}`',
    result_keys=("by", "signal", "value"),
    by_engine=True,
    check=check_wait,
    example="""\
tool:
  kind: wait
  seconds: 2h
  signal: paid
""",
)


def check_gate(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_options(keys), *_refuse(keys), *_approvals(keys), *_timeout(keys), *_form(keys)]


def _names(keys: Mapping[str, Any]) -> list[Any]:
    options = keys.get("options", ["approve", "reject"])
    return list(options) if isinstance(options, list | Mapping) else []


def _options(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    options = keys.get("options")
    if options is None:
        return
    labels = list(options.values()) if isinstance(options, Mapping) else []
    if not _are_texts(_names(keys)) or not all(isinstance(label, str) for label in labels):
        hint = "write `options: [ship, hold]` or `options: {ship: Ship it, hold: Not yet}`"
        yield ToolProblem("options", "options are a list of names, or a map of names to labels", hint)


def _refuse(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    names, refuse = _names(keys), keys.get("refuse")
    for each in refuse if isinstance(refuse, list) and names else []:
        if each not in names:
            listed = ", ".join(f"`{name}`" for name in names)
            yield ToolProblem("refuse", f"the gate has no option `{each}`", f"its options are {listed}")


def _approvals(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    wanted = keys.get("min_approvals")
    if isinstance(wanted, int) and not 1 <= wanted <= 1000:
        yield ToolProblem("min_approvals", "`min_approvals` must be between 1 and 1000", "for example 2")


def _timeout(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    what = keys.get("on_timeout")
    if what is None:
        return
    goes = isinstance(what, Mapping) and list(what) == ["goto"] and isinstance(what["goto"], str)
    if not goes and what not in ("fail", "continue"):
        yield ToolProblem("on_timeout", "`on_timeout` is not an action", ON_TIMEOUT)
    elif keys.get("timeout") is None:
        yield ToolProblem("on_timeout", "this gate has no timeout", "add `timeout: 24h`")


def _form(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    """Check that the form is a JSON Schema; the library for that is loaded only here."""
    form = keys.get("form")
    if not isinstance(form, Mapping):
        return
    wrong = schema_flaw(form)
    if wrong is not None:
        where = ".".join(map(str, wrong[0]))
        hint = f"look at `{where}`" if where else "write `form: {type: object, properties: {…}}`"
        yield ToolProblem("form", f"the form is not a JSON Schema: {wrong[1]}", hint)


GATE = ToolInfo(
    kind="gate",
    about="Asks a person, and waits without a worker. `refold gates` lists open gates and takes decisions; the first"
    " decision counts, and each visit of the step asks again. A refusal is a failure of kind `rejected`.",
    keys=(
        ToolKey(
            name="type",
            type="text",
            static=True,
            choices=("approval", "review"),
            about="in an `approval` (the default) the option `reject` is a failure, in a `review` no option is",
        ),
        ToolKey(name="prompt", type="any", about="the question"),
        ToolKey(
            name="options",
            type="any",
            static=True,
            about="the options, as a list, or as a map with a label for each ([approve, reject])",
        ),
        ToolKey(name="refuse", type="list", static=True, about="the options that are a failure, instead of `reject`"),
        ToolKey(
            name="form",
            type="map",
            static=True,
            about="a JSON Schema of the feedback; an answer that does not fit is refused. A refusal of the gate is not"
            " checked against it",
        ),
        ToolKey(
            name="choices",
            type="any",
            about="further choices, computed when the gate is entered: a list of texts, or a map of values to labels."
            " Whoever does not refuse may take any number of them",
        ),
        ToolKey(name="assignee", type="text", about="who is asked, shown to people; anyone may decide"),
        ToolKey(
            name="min_approvals",
            type="integer",
            static=True,
            about="how many different people must choose the same option (1); one refusal is enough",
        ),
        ToolKey(name="timeout", type="duration", static=True, about="how long to wait; restarts do not prolong it"),
        ToolKey(
            name="on_timeout",
            type="any",
            static=True,
            about="what happens after the timeout: `fail` (the default), `continue`, or `{goto: STEP}`, which takes"
            " the run to that step only",
        ),
    ),
    result="`{option, by, at, feedback, approvals}`, with `choices`, the list of those that were taken, if the gate has"
    " choices; after a timeout that is not a failure, `option` is null and `by`"
    ' is "timeout". A refusal has the same under `error.data`',
    result_keys=("option", "by", "at", "feedback", "approvals", "choices"),
    by_engine=True,
    check=check_gate,
    example="""\
tool:
  kind: gate
  prompt: "Ship {{ ctx.version }}?"
  options: {approve: Ship it, reject: Not yet}
  assignee: release-team
  min_approvals: 2
  form: {type: object, properties: {note: {type: string}}}
  timeout: 48h
  on_timeout: continue
""",
)

QUALITY = ToolInfo(
    kind="quality",
    about="Compares a number with a threshold, immediately and without a worker. Below it, the step fails with the kind"
    " `quality`.",
    keys=(
        ToolKey(
            name="source",
            type="any",
            required=True,
            about="the number; a missing value, or one that is not a number, counts as 0",
        ),
        ToolKey(name="threshold", type="number", required=True, about="the lowest number that is good enough"),
        ToolKey(
            name="on_fail",
            type="text",
            static=True,
            choices=("fail", "continue"),
            about="whether a lower number is a failure (`fail`) or is only shown in the result",
        ),
    ),
    result="`{score, threshold, passed}`, and `why` if the score counted as 0",
    result_keys=("score", "threshold", "passed", "why"),
    by_engine=True,
    example="""\
tool:
  kind: quality
  source: "{{ ctx.confidence }}"
  threshold: 80
""",
)


POLL = ToolInfo(
    kind="poll",
    about="Checks a condition at intervals until it is true; in between, no worker is busy. Without `check` it reads"
    " what other steps of the run have set. With it, a worker runs that tool each time, and `until` reads its output.",
    keys=(
        ToolKey(
            name="until",
            type="bool",
            required=True,
            about="the condition, as one {{ expression }}; with `check` it can read `output.data`",
        ),
        ToolKey(name="every", type="duration", static=True, about="the time between two checks (30s)"),
        ToolKey(
            name="timeout", type="duration", static=True, about="when to give up, with a failure of kind `timeout`"
        ),
        ToolKey(
            name="check",
            type="tool",
            about="a tool with its keys, such as `{kind: http, url: …}`. `retry` and `timeout` of the step are for"
            " each check",
        ),
    ),
    result='the result of the last `check`, or `{by: "poll"}`',
    by_engine=True,
    example="""\
tool:
  kind: poll
  check: {kind: http, url: "https://example.org/builds/7"}
  until: "{{ output.data.data.state == 'done' }}"
  every: 1m
  timeout: 2h
---
tool:
  kind: poll
  until: "{{ ctx.approved | default(false) }}"
""",
)


def check_playbook(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    if ("path" in keys) == ("name" in keys):
        return [ToolProblem("", "a playbook is started by exactly one of `path` and `name`", "give `path`")]
    return []


PLAYBOOK = ToolInfo(
    kind="playbook",
    about="Starts another playbook, or a workflow in Python, as a run of its own, a child, and waits for it without a"
    " worker. The step's `input` is the input of the child: values of its `workload`, or arguments of its code; in a"
    " loop without `input`, the item is. A playbook may start itself; two that start each other are refused. The usage"
    " of the child is added to that of its parent.",
    keys=(
        ToolKey(
            name="path",
            type="text",
            static=True,
            about="its file, relative to the folder of this one;"
            " or `module:Class` for a workflow in Python, whose module is searched there too",
        ),
        ToolKey(
            name="name", type="text", static=True, about="short form: `NAME.yaml` or `NAME.yml` in the same folder"
        ),
    ),
    result="the result of the child. A child that fails is a failure of kind `child_failed`",
    check=check_playbook,
    example="""\
input: {city: "{{ workload.city }}"}
tool:
  kind: playbook
  path: weather.yaml
""",
)
