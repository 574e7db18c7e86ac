"""The language `refold/v1`: a step, its arcs and its policies."""

from refold.playbooks.language.tables import Key, Table

STEP = Table(
    "step",
    "a step",
    "A step does work. A step without `next` ends its branch; the run ends when no work is left.",
    (
        Key(
            name="step",
            type="name",
            required=True,
            example="fetch",
            about="its name: lower-case letters, digits and `_`. Later templates read its result by this name",
        ),
        Key(name="desc", type="text", example="Gets the page.", about="a sentence for people"),
        Key(
            name="when",
            type="condition",
            example='"{{ workload.days > 0 }}"',
            about="whether to run it. If not, the step is bypassed: nothing runs, and its arcs are followed",
        ),
        Key(
            name="input",
            type="templates",
            example='{place: "{{ workload.city }}"}',
            about="values for the tool, which its keys read as `input.place` or just `place`",
        ),
        Key(
            name="loop",
            type="table",
            of="loop",
            example="{in: [1, 2, 3]}",
            about="run once for each item of a list or a source",
        ),
        Key(name="tool", type="tool", example="{kind: noop}", about="what to run; without it, the step only branches"),
        Key(
            name="set",
            type="sets",
            example='{ctx.page: "{{ output.data }}"}',
            about="values to store in the context when the step completes. All are computed before the first is set",
        ),
        Key(
            name="output",
            type="table",
            of="output",
            example="{schema: {type: object, required: [id]}}",
            about="the shape of the result",
        ),
        Key(name="next", type="next", example="report", about="the arcs: which steps follow"),
        Key(
            name="join",
            type="join",
            choices=("all", "any", "race"),
            of="join",
            example="all",
            about="when to start if several arcs lead here: `all` waits until each is taken or cannot be taken any more"
            " (the default), `any` starts with the first, `race` does too and stops steps that could only lead here",
        ),
        Key(
            name="retry",
            type="table",
            of="retry",
            example="{attempts: 3, delay: 2s}",
            about="whether a failed try is repeated, and when",
        ),
        Key(name="timeout", type="duration", example="30s", about="how long one try, or a wait, may take"),
        Key(
            name="visit_limit",
            type="integer",
            least=1,
            example="100",
            about="how often the step may be entered before the run fails (10,000)",
        ),
        Key(
            name="queue",
            type="text",
            example="heavy",
            about="the queue (that of the run, or `default`). A worker serves all queues, or those in its"
            " REFOLD_QUEUES",
        ),
        Key(
            name="priority",
            type="integer",
            least=-1_000_000,
            most=1_000_000,
            example="5",
            about="steps with a higher number are taken first (that of the run, or 0)",
        ),
        Key(
            name="share",
            type="lane",
            example='"{{ workload.customer }}"',
            about="whom the work is for. Shares of a queue and priority take turns, by their weights; without a share"
            " it is that of the run",
        ),
        Key(
            name="limit",
            type="lane",
            example="mail-server",
            about="the limit that it counts for: how many may run at a time, or start in a second, is set by"
            " `refold limits set` (that of the run)",
        ),
    ),
    {
        "args": "write `input`",
        "case": "write `next: {arcs: [{step: …, when: …}]}`",
        "type": "write `tool: {kind: …}`",
        "kind": "write `tool: {kind: …}`",
        "name": "write `step`",
        "spec": "write `timeout` and `retry` on the step itself",
        "sink": "write a step of its own that stores the result",
        "vars": "write `set: {ctx.name: …}`",
        "set_vars": "write `set: {ctx.name: …}`",
        "description": "write `desc`",
        "if": "write `when`",
        "needs": "write `next` in the step before: it names the steps that follow",
        "depends_on": "write `next` in the step before: it names the steps that follow",
        "depends": "write `next` in the step before: it names the steps that follow",
        "after": "write `next` in the step before: it names the steps that follow",
        "env": "write `env` in `tool`",
        "run": "write `tool: {kind: shell, script: …}`",
        "script": "write `tool: {kind: shell, script: …}`",
        "command": "write `tool: {kind: shell, command: [program, argument]}`",
        "uses": "write `tool: {kind: …}`",
        "id": "write `step`",
        "foreach": "write `loop: {in: …}`, or `loop: {source: …}`",
        "with": "write `input`",
        "retries": "write `retry: {attempts: …}`",
    },
)

NEXT = Table(
    "next",
    "next",
    "Which steps follow. In short: `next: report` is one arc, `next: [a, b]` starts both.",
    (
        Key(name="spec", type="table", of="next.spec", example="{mode: inclusive}", about="how arcs are chosen"),
        Key(
            name="arcs",
            type="tables",
            of="arc",
            required=True,
            example='[{step: low, when: "{{ n < 5 }}"}, {step: high}]',
            about="the arcs, in the order in which they are tried",
        ),
    ),
    {
        "step": "write `next: {arcs: [{step: …}]}`",
        "when": "write `next: {arcs: [{step: …, when: …}]}`",
        "then": "write `next: {arcs: [{step: …, when: …}]}`",
        "else": "write a last arc without `when`",
        "mode": "write `spec: {mode: …}`",
    },
)

NEXT_SPEC = Table(
    "next.spec",
    "next.spec",
    "How arcs are chosen.",
    (
        Key(
            name="mode",
            type="text",
            choices=("exclusive", "inclusive"),
            example="inclusive",
            about="`exclusive` takes the first arc that holds (the default), `inclusive` all of them",
        ),
    ),
    {"on_no_match": "leave it out: when no arc holds, the branch ends"},
)

ARC = Table(
    "arc",
    "an arc",
    "An arc leads to another step.",
    (
        Key(name="step", type="step", required=True, example="report", about="where it leads"),
        Key(
            name="when",
            type="condition",
            example='"{{ output.data.more }}"',
            about="whether it is taken (always)",
        ),
        Key(
            name="on",
            type="text",
            choices=("success", "failure", "both"),
            example="failure",
            about="for which outcome it is tried (`success`). A failure that takes no arc fails the run",
        ),
        Key(
            name="set",
            type="sets",
            example='{ctx.why: "{{ error.message }}"}',
            about="values to store in the context if the arc is taken",
        ),
        Key(
            name="each_pass",
            type="bool",
            example="true",
            about="for an arc that leaves a loop: its target runs in every pass instead of once after the loop",
        ),
    ),
    {
        "args": "write `set: {ctx.name: …}` on the arc, and read `ctx.name` in the step",
        "input": "write `set: {ctx.name: …}` on the arc, and read `ctx.name` in the step",
        "cond": "write `when`",
        "condition": "write `when`",
        "if": "write `when`",
        "then": "write `step`",
        "to": "write `step`",
        "else": "write a last arc without `when`",
    },
)

OUTPUT = Table(
    "output",
    "output",
    "The shape of the result of a step. A result that does not fit is a failure of kind `schema`, which names the"
    " place; templates that read what is not declared are reported before the run.",
    (
        Key(
            name="schema",
            type="schema",
            example="{type: object, properties: {id: {type: integer}}, required: [id]}",
            about="a JSON Schema of the result; in a loop, of the result of each item",
        ),
        Key(
            name="secret",
            type="bool",
            example="true",
            about="the result is stored encrypted; only the keys and the `input` of tools can read what is in it",
        ),
    ),
    {
        "select": "write `set: {ctx.name: …}` for what is needed later",
        "store": "write a step of its own that stores the result",
    },
)

RETRY = Table(
    "retry",
    "retry",
    "Whether a failed try is repeated, and when.",
    (
        Key(
            name="attempts",
            type="integer",
            required=True,
            least=1,
            most=1_000_000,
            example="3",
            about="the number of tries, including the first",
        ),
        Key(
            name="backoff",
            type="text",
            choices=("fixed", "linear", "exponential"),
            example="exponential",
            about="how the delay grows with each try: not (`fixed`, the default), by the same amount, or doubling",
        ),
        Key(name="delay", type="duration", example="2s", about="time before the second try (0, or 1s if it grows)"),
        Key(name="max_delay", type="duration", example="1m", about="the longest delay"),
        Key(
            name="jitter",
            type="number",
            least=0,
            most=1,
            example="0.5",
            about="the random part of the delay (0): with 0.5 it is between half of the delay and all of it",
        ),
        Key(
            name="on",
            type="texts",
            example="[timeout, connection]",
            about="the kinds of failures that are retried (all that are not marked as final)",
        ),
    ),
    {
        "max_attempts": "write `attempts`",
        "initial_delay": "write `delay`",
        "backoff_multiplier": "write `backoff: exponential`",
        "retry_when": "write `next` arcs with `on: failure` and `when`",
    },
)

JOIN = Table(
    "join",
    "join",
    "The long form of `join`.",
    (
        Key(
            name="at_least",
            type="integer",
            required=True,
            least=1,
            most=1_000_000,
            example="2",
            about="start when arcs from this number of different steps have been taken",
        ),
    ),
)
