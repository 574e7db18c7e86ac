"""The kinds of steps that the engine itself does, without a worker: their keys, their results, and their checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.schemas import flaw
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
    about="Waits, without a worker, for a time or a signal, whichever comes first. A signal that came before is kept"
    " and ends the wait at once; a time that is past does too.",
    keys=(
        ToolKey(name="seconds", type="duration", about="how long"),
        ToolKey(
            name="until",
            type="any",
            about="a moment: an ISO text with its zone, or a number since 1970: seconds, or microseconds above 10^11",
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
        yield ToolProblem("min_approvals", "`min_approvals` must lie between 1 and 1000", "for example 2")


def _timeout(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    what = keys.get("on_timeout")
    if what is None:
        return
    goes = isinstance(what, Mapping) and list(what) == ["goto"] and isinstance(what["goto"], str)
    if not goes and what not in ("fail", "continue"):
        yield ToolProblem("on_timeout", "`on_timeout` does not say what is to happen", ON_TIMEOUT)
    elif keys.get("timeout") is None:
        yield ToolProblem("on_timeout", "this gate never runs out of time", "add `timeout: 24h`")


def _form(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    """A form is held against what forms must be like, which is loaded only here."""
    form = keys.get("form")
    if not isinstance(form, Mapping):
        return
    wrong = flaw(form)
    if wrong is not None:
        where = ".".join(map(str, wrong[0]))
        hint = f"look at `{where}`" if where else "write `form: {type: object, properties: {…}}`"
        yield ToolProblem("form", f"the form is no JSON Schema: {wrong[1]}", hint)


GATE = ToolInfo(
    kind="gate",
    about="Asks a person, and waits without a worker. `refold gates` lists what waits, and decides; the first decision"
    " counts, and each visit of the step asks anew. A refusal is a failure of kind `rejected`.",
    keys=(
        ToolKey(
            name="type",
            type="text",
            static=True,
            choices=("approval", "review"),
            about="in an `approval` (the default) the option `reject` is a failure, in a `review` no option is",
        ),
        ToolKey(name="prompt", type="any", about="what is asked"),
        ToolKey(
            name="options",
            type="any",
            static=True,
            about="what can be chosen, as a list, or as a map with a label for each ([approve, reject])",
        ),
        ToolKey(name="refuse", type="list", static=True, about="the options that are a failure, instead of `reject`"),
        ToolKey(
            name="form",
            type="map",
            static=True,
            about="a JSON Schema of the feedback; an answer that does not fit is sent back. A refusal is not held"
            " against it",
        ),
        ToolKey(name="assignee", type="text", about="who is asked, for people to see; anybody may decide"),
        ToolKey(
            name="min_approvals",
            type="integer",
            static=True,
            about="how many different people must choose the same (1); one refusal is enough",
        ),
        ToolKey(name="timeout", type="duration", static=True, about="how long to wait; restarts do not prolong it"),
        ToolKey(
            name="on_timeout",
            type="any",
            static=True,
            about="what happens then: `fail` (the default), `continue`, or `{goto: STEP}`, which leaves the step for"
            " that one alone",
        ),
    ),
    result="`{option, by, at, feedback, approvals}`; after a timeout that is no failure, `option` is null and `by` is"
    ' "timeout". A refusal has the same under `error.data`',
    result_keys=("option", "by", "at", "feedback", "approvals"),
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
    about="Holds a number against a threshold, at once and without a worker. Below it, the step fails with the kind"
    " `quality`.",
    keys=(
        ToolKey(
            name="source",
            type="any",
            required=True,
            about="the number; what is no number, or is not there, counts as 0",
        ),
        ToolKey(name="threshold", type="number", required=True, about="the lowest number that is good enough"),
        ToolKey(
            name="on_fail",
            type="text",
            static=True,
            choices=("fail", "continue"),
            about="whether a lower number is a failure (`fail`) or is only told in the result",
        ),
    ),
    result="`{score, threshold, passed}`, and `why` if the score had to be taken for 0",
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
    about="Looks again every so often until something holds; in between, no worker is held. Without `check` it reads"
    " what the rest of the run has left. With it, a worker runs that tool each time, and `until` reads its output.",
    keys=(
        ToolKey(
            name="until",
            type="bool",
            required=True,
            about="one {{ expression }}; with `check` it can read `output.data`",
        ),
        ToolKey(name="every", type="duration", static=True, about="the time between two looks (30s)"),
        ToolKey(
            name="timeout", type="duration", static=True, about="when to give up, with a failure of kind `timeout`"
        ),
        ToolKey(
            name="check",
            type="tool",
            about="a tool with its keys, such as `{kind: http, url: …}`. Of the step, `retry` and `timeout` are for"
            " each look",
        ),
    ),
    result='that of the last `check`, or `{by: "poll"}`',
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
    " worker. The step's `input` is the child's, and may give what its `workload` names, or what its code takes; in a"
    " loop without `input`, the item is. A playbook may start itself; two that start each other are refused. What the"
    " child uses up is added to what its parent uses up.",
    keys=(
        ToolKey(
            name="path",
            type="text",
            static=True,
            about="its file, seen from the folder of this one;"
            " or `module:Class` for a workflow in Python, whose module is looked for there too",
        ),
        ToolKey(name="name", type="text", static=True, about="in short: `NAME.yaml` or `NAME.yml` in the same folder"),
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
