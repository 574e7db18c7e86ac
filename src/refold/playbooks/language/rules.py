"""The language `refold/v1`: `spec` of a task, with its time limit and the rules about what follows a try."""

from refold.playbooks.language.tables import Key, Table

TASK_SPEC = Table(
    "task.spec",
    "`spec` of a tool",
    "How a task of a tool is run.",
    (
        Key(
            name="policy",
            type="table",
            of="task.policy",
            example="{rules: [{else: {do: fail}}]}",
            about="what follows a try of it",
        ),
        Key(name="timeout", type="limit", example="30s", about="how long one try may take"),
    ),
)

POLICY = Table(
    "task.policy",
    "`policy` of a tool",
    "What follows a try of a task. If no rule holds, an error fails the step, and otherwise the next task follows.",
    (
        Key(
            name="rules",
            type="tables",
            of="rule",
            required=True,
            example='[{when: "{{ output.error.retryable }}", then: {do: retry, attempts: 5}}]',
            about="the first one that holds is followed. They read `output`: `status` (`ok` or `error`), `data`,"
            " `error` with `kind`, `message`, `code` and `retryable`, and `http.status`, `pg.code` or `py.exception`",
        ),
        Key(
            name="on_unmatched",
            type="text",
            choices=("continue", "fail"),
            example="continue",
            about="what happens if there are rules and none holds",
        ),
    ),
    {
        "before": "it is reserved and does nothing; write a task before this one",
        "after": "it is reserved and does nothing; write a task after this one",
        "finally": "it is reserved and does nothing; write a step that always runs",
        "mode": "leave it out: the first rule that holds is followed",
        "choose": "it is reserved and does nothing; write rules",
        "while": "it is reserved and does nothing; write `do: jump`",
        "until": "it is reserved and does nothing; write `do: jump`",
    },
)

RULE = Table(
    "rule",
    "a rule",
    "A rule about what follows a try. One without `when` always holds.",
    (
        Key(
            name="when",
            type="condition",
            example="\"{{ output.status == 'error' }}\"",
            about="whether it holds",
        ),
        Key(name="then", type="table", of="action", example="{do: retry, attempts: 3}", about="what to do then"),
        Key(name="else", type="else", of="action", example="{do: fail}", about="what to do if no rule before it holds"),
    ),
)

ACTION = Table(
    "action",
    "an action",
    "What follows a try of a task.",
    (
        Key(
            name="do",
            type="text",
            required=True,
            choices=("continue", "retry", "jump", "break", "fail"),
            example="retry",
            about="`continue` with the next task, also after an error; `retry` this one; `jump` to another; `break`"
            " ends the tasks successfully; `fail` fails the step",
        ),
        Key(name="attempts", type="count", example="3", about="for `retry`: the number of tries (3)"),
        Key(
            name="backoff",
            type="text",
            choices=("none", "fixed", "linear", "exponential"),
            example="exponential",
            about="for `retry`: how the delay grows. Without it, the same `delay` is used each time",
        ),
        Key(
            name="delay",
            type="count",
            example="1.0",
            about="for `retry`: seconds before the second try (1.0). No worker is occupied meanwhile",
        ),
        Key(name="to", type="text", example="again", about="for `jump`: the name of a task, or `previous`"),
        Key(name="set", type="sets", example='{ctx.page: "{{ output.data }}"}', about="values to store"),
    ),
)
