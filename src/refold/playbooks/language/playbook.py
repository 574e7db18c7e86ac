"""The language `refold/v1`: the keys of a file, except for its steps."""

from collections.abc import Mapping

from refold.playbooks.language.blocks import ELIF, IF, PARALLEL, UNTIL, WHILE
from refold.playbooks.language.loop import LOOP, LOOP_ORDER, LOOP_SOURCE, LOOP_SPEC
from refold.playbooks.language.rules import ACTION, POLICY, RULE, TASK_SPEC
from refold.playbooks.language.step import ARC, JOIN, NEXT, NEXT_SPEC, OUTPUT, RETRY, STEP
from refold.playbooks.language.tables import Key, Table

ROOT = Table(
    "playbook",
    "a playbook",
    "The file itself.",
    (
        Key(
            name="apiVersion",
            type="text",
            required=True,
            choices=("refold/v1",),
            example="refold/v1",
            about="the language that the file is written in",
        ),
        Key(name="kind", type="text", required=True, choices=("Playbook",), example="Playbook", about="what it is"),
        Key(
            name="metadata",
            type="table",
            of="metadata",
            required=True,
            example="{name: daily_report}",
            about="its name and description",
        ),
        Key(
            name="workload",
            type="values",
            example="{city: Oslo, days: 3}",
            about="the inputs of a run and their default values; plain values, no templates."
            " Templates read them as `workload.city` or just `city`",
        ),
        Key(
            name="inputs",
            type="inputs",
            example="{city: {type: string, required: true}, days: integer}",
            about="the types of inputs: for each name a JSON Schema, or in short a type. With `required:"
            " true` a run cannot be started without it; otherwise `workload` may have a default. A value that does not"
            " fit is refused when the run is started",
        ),
        Key(
            name="workflow",
            type="body",
            required=True,
            example="[{step: hello}]",
            about="the steps and blocks; the first one is entered first",
        ),
        Key(
            name="executor",
            type="table",
            of="executor",
            example="{spec: {entry_step: hello}}",
            about="where a run begins and ends, if not with the first step",
        ),
        Key(
            name="keychain",
            type="entries",
            example="[{name: shop, kind: env, map: {token: SHOP_TOKEN}}]",
            about="groups of credentials, which tools read as `{{ keychain.shop.token }}`; a single one is"
            " `{secret: NAME}`. Credentials are fetched when a tool needs them, and never stored",
        ),
        Key(
            name="on_failure",
            type="text",
            choices=("drain", "cancel"),
            example="drain",
            about="after a failure that no arc handles: `drain` lets running steps finish (the default), `cancel` stops"
            " them",
        ),
        Key(name="always", type="steps", example="[clean_up]", about="steps that run at the end, whatever the outcome"),
        Key(name="on_fail", type="steps", example="[alert]", about="steps that run at the end of a run that failed"),
        Key(name="timeout", type="duration", example="2h", about="how long a run may take"),
        Key(
            name="budget",
            type="budget",
            example="{tokens: 1000, usd: 2.5, on_exceeded: pause}",
            about="how much of each unit a run and its children may use, as reported by tools. When a limit is"
            " reached, no new work is issued and `on_exceeded` decides: `pause` (the default; `refold runs resume"
            " --budget` continues), `fail`, or `{goto: step}`, a step without arcs that runs last",
        ),
    ),
    {
        "vars": "write `workload` for inputs, and `set: {ctx.name: …}` on a step for what changes",
        "name": "write `metadata: {name: …}`",
        "description": "write `metadata: {description: …}`",
        "path": "write `metadata: {path: …}`",
        "steps": "write `workflow`",
        "tasks": "write `workflow`",
        "jobs": "write `workflow`",
        "params": "write `inputs`, and their defaults in `workload`",
        "parameters": "write `inputs`, and their defaults in `workload`",
        "arguments": "write `inputs`, and their defaults in `workload`",
        "variables": "write `workload` for inputs, and `set: {ctx.name: …}` on a step for what changes",
        "finally": "write `always`",
        "on_exit": "write `always`",
        "on_error": "write `on_fail`",
        "stages": "write `workflow`",
        "concurrency": "write `limit` on the steps; `refold limits set` says how many may run at a time",
        "labels": "write `metadata: {labels: …}`",
        "tags": "write `metadata: {tags: …}`",
        "secrets": "leave it out: write `{secret: NAME}` where one is used, and keep it with `refold secret set NAME`",
        "env": "write `env` in the tool of a step, and `workload` for inputs",
        "schedule": "a schedule is a file of its own, with `kind: Schedule`; see `refold schedules create`",
        "cron": "a schedule is a file of its own, with `kind: Schedule`; see `refold schedules create`",
        "triggers": "a schedule is a file of its own, with `kind: Schedule`; see `refold schedules create`",
        "on": "a schedule is a file of its own, with `kind: Schedule`; see `refold schedules create`",
        "spec": "write `executor: {spec: {entry_step: …}}`",
        "workbook": "write the tool into each step that uses it",
    },
)

METADATA = Table(
    "metadata",
    "metadata",
    "The name of the playbook, and information for people. Only the name and the labels have an effect on runs.",
    (
        Key(
            name="name",
            type="playbook name",
            required=True,
            example="daily_report",
            about="letters, digits, `_`, `.` and `-`",
        ),
        Key(name="description", type="text", example="Fetches and sums up.", about="a sentence for people"),
        Key(name="version", type="any", example="3", about="the version of the file, in any form"),
        Key(name="path", type="text", example="reports/daily", about="where it belongs in a collection"),
        Key(
            name="labels",
            type="labels",
            example="{team: data}",
            about="the labels of its runs, at most 16: `refold runs list --label team=data` shows them",
        ),
        Key(
            name="tags",
            type="texts",
            example="[daily, report]",
            about="words for people; lists of runs are filtered by `labels`",
        ),
    ),
)

EXECUTOR = Table(
    "executor",
    "executor",
    "Where a run begins and ends.",
    (
        Key(
            name="spec",
            type="table",
            of="executor.spec",
            required=True,
            example="{entry_step: hello}",
            about="its settings",
        ),
    ),
    {
        "profile": "leave it out: where a run is executed is chosen when it is started",
        "version": "leave it out",
        "requires": "leave it out: an unknown tool is an error",
    },
)

EXECUTOR_SPEC = Table(
    "executor.spec",
    "executor.spec",
    "Where a run begins and ends.",
    (
        Key(name="entry_step", type="step", example="hello", about="the step that is entered first"),
        Key(
            name="final_step",
            type="step",
            example="sum_up",
            about="a step that runs once when all others have completed; it has no arcs. If it fails, the run fails",
        ),
    ),
    {
        "no_next_is_error": "write an arc without `when` that leads to the step you want",
        "policy": "write `timeout` and `retry` on the steps",
    },
)

_FILE = (ROOT, METADATA, EXECUTOR, EXECUTOR_SPEC)
_STEP = (STEP, LOOP, LOOP_SOURCE, LOOP_ORDER, LOOP_SPEC, NEXT, NEXT_SPEC, ARC, JOIN, OUTPUT, RETRY)
_BLOCKS = (PARALLEL, WHILE, UNTIL, IF, ELIF)
_TASKS = (TASK_SPEC, POLICY, RULE, ACTION)

TABLES: Mapping[str, Table] = {table.name: table for table in (*_FILE, *_STEP, *_TASKS, *_BLOCKS)}
