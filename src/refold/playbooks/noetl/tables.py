"""The dialects of NoETL as data: the keys of a file, its steps and policies, with their old forms."""

from refold.playbooks.language.rules import ACTION, POLICY, RULE
from refold.playbooks.language.tables import Key, Table
from refold.playbooks.noetl.graph_tables import ARC, CURSOR, FRAME, LOOP, LOOP_POLICY, LOOP_SPEC, NEXT, NEXT_SPEC

RULES = "write rules under `tool: {spec: {policy: {rules: …}}}`"
ARCS = "write `next: {arcs: [{step: …, when: …}]}`"

ROOT = Table(
    "playbook",
    "a playbook",
    "The file itself. A key that is not listed is kept: templates read it by its name.",
    (
        Key(
            name="apiVersion",
            type="text",
            required=True,
            choices=("noetl.io/v2", "noetl.io/v10"),
            example="noetl.io/v2",
            about="the dialect",
        ),
        Key(name="kind", type="text", required=True, choices=("Playbook",), example="Playbook", about="what it is"),
        Key(name="metadata", type="table", of="metadata", required=True, example="{name: daily}", about="its name"),
        Key(
            name="workload",
            type="map",
            example="{city: Oslo}",
            about="defaults of the inputs. Maps are merged with given inputs, key by key; templates read inputs, each"
            " other, `execution_id` and `job.uuid`, and are rendered once, at the start",
        ),
        Key(name="executor", type="table", of="executor", example="{spec: {entry_step: a}}", about="how it is run"),
        Key(name="keychain", type="entries", example="[{name: api, kind: bearer, token: …}]", about="credentials"),
        Key(
            name="workbook",
            type="tables",
            of="workbook",
            example="[{name: shout, tool: {kind: python, code: …}}]",
            about="tasks that steps run by name, with `tool: {kind: workbook, name: shout}`",
        ),
        Key(name="workflow", type="tables", of="step", required=True, example="[{step: start}]", about="the steps"),
    ),
    {"vars": "write `workload` for inputs, and `set: {ctx.name: …}` on a step for what changes"},
)

METADATA = Table(
    "metadata",
    "metadata",
    "The name of the playbook, and information for people.",
    (
        Key(name="name", type="title", required=True, example="daily", about="its name"),
        Key(name="path", type="any", example="reports/daily", about="where it is in a catalog: `path` in templates"),
        Key(name="version", type="any", example="3", about="`version` in templates"),
        Key(name="description", type="any", example="Fetches.", about="a sentence for people"),
        Key(name="labels", type="any", example="{team: data}", about="names and values"),
        Key(name="tags", type="words", example="[daily]", about="words"),
        Key(name="exposed_in_ui", type="any", example="true", about="for NoETL's pages"),
        Key(name="exposes_as_mcp", type="any", example="false", about="for NoETL's server"),
        Key(name="agent", type="any", example="true", about="for NoETL's agents"),
        Key(name="capabilities", type="words", example="[chat]", about="for NoETL's agents"),
    ),
    is_open=True,
)

EXECUTOR = Table(
    "executor",
    "executor",
    "Settings of runs. Where a run is executed is chosen when it is started.",
    (
        Key(
            name="profile",
            type="text",
            choices=("local", "distributed", "auto"),
            example="auto",
            about="a hint that changes nothing here",
        ),
        Key(name="version", type="any", example="noetl-runtime/1", about="a hint that changes nothing here"),
        Key(name="requires", type="table", of="requires", example="{tools: [http]}", about="what the playbook needs"),
        Key(name="spec", type="table", of="executor.spec", example="{entry_step: start}", about="its settings"),
    ),
)

REQUIRES = Table(
    "requires",
    "requires",
    "What a run needs.",
    (
        Key(
            name="tools",
            type="words",
            example="[http, python]",
            about="kinds of tools; one that does not exist is an error",
        ),
        Key(name="features", type="idle", example="[templating]", about="a hint that changes nothing here"),
    ),
)

EXECUTOR_SPEC = Table(
    "executor.spec",
    "executor.spec",
    "Where a run begins and ends, and what applies to all of its steps.",
    (
        Key(name="entry_step", type="step", example="start", about="the step that is entered first (the first one)"),
        Key(
            name="final_step",
            type="step",
            example="sum_up",
            about="runs once when all others have completed, with `execution_id`, `counts` and `failures` as its input",
        ),
        Key(
            name="no_next_is_error",
            type="bool",
            example="true",
            about="a step that has arcs and takes none has failed (false)",
        ),
        Key(name="timeout", type="limit", example="30s", about="limit of each step that has none"),
        Key(
            name="policy",
            type="table",
            of="executor.policy",
            example="{failure: {mode: fail_fast}}",
            about="policies of all steps",
        ),
    ),
)

EXECUTOR_POLICY = Table(
    "executor.policy",
    "executor.spec.policy",
    "Policies of each step that has none of its own.",
    (
        Key(
            name="defaults",
            type="table",
            of="executor.defaults",
            example="{lifecycle: {timeout_s: 30}}",
            about="for all steps",
        ),
        Key(name="failure", type="table", of="failure", example="{mode: fail_fast}", about="of loops"),
        Key(name="lifecycle", type="table", of="lifecycle", example="{timeout_s: 30}", about="time limits"),
        Key(name="results", type="idle", example="{}", about="a hint: results of any size are kept as they are"),
        Key(name="limits", type="idle", example="{}", about="a hint that changes nothing here"),
    ),
)

WORKBOOK = Table(
    "workbook",
    "a task of the workbook",
    "A task that steps run by its name.",
    (
        Key(name="name", type="title", required=True, example="shout", about="what steps call it by"),
        Key(name="tool", type="tool", required=True, example="{kind: python, code: …}", about="what it runs"),
        Key(name="desc", type="any", example="Shouts.", about="a sentence for people"),
        Key(name="assert", type="any", example="{expects: [a], returns: [b]}", about="names of inputs and of fields"),
    ),
    {"sink": "write a step of its own that stores the result"},
)

STEP = Table(
    "step",
    "a step",
    "A step does work; without `tool` it only branches.",
    (
        Key(name="step", type="step name", required=True, example="start", about="its name"),
        Key(name="desc", type="any", example="Begins.", about="a sentence for people"),
        Key(name="spec", type="table", of="step.spec", example="{timeout: 30s}", about="its policies"),
        Key(name="input", type="map", example='{page: "{{ ctx.page }}"}', about="values for the tool"),
        Key(name="args", type="map", example="{page: 1}", about="as `input`", old="`input`"),
        Key(
            name="when",
            type="condition",
            example='"{{ ctx.on }}"',
            about="whether to run it",
            old="`spec: {policy: {admit: {rules: …}}}`",
        ),
        Key(
            name="loop",
            type="table",
            of="loop",
            example='{in: "{{ workload.all }}", iterator: each}',
            about="over a list",
        ),
        Key(name="tool", type="tool", example="{kind: noop}", about="what to run: a tool, or a list of them"),
        Key(name="output", type="output", example="{output_select: [id]}", about="of its result"),
        Key(name="set", type="sets", example='{ctx.page: "{{ output.data.n }}"}', about="values for the context"),
        Key(name="set_ctx", type="map", example="{page: 1}", about="as `set`", old="`set: {ctx.name: …}`"),
        Key(name="next", type="next", example="{arcs: [{step: end}]}", about="which steps follow"),
    ),
    {
        "type": "write `tool: {kind: …}`",
        "case": ARCS,
        "retry": RULES,
        "sink": "write a step of its own that stores the result",
        "eval": ARCS,
        "expr": ARCS,
        "vars": "write `set: {ctx.name: …}`",
        "set_vars": "write `set: {ctx.name: …}`",
        "cond": ARCS,
    },
)

STEP_SPEC = Table(
    "step.spec",
    "`spec` of a step",
    "The policies of a step.",
    (
        Key(name="timeout", type="limit", example="30s", about="the time limit of the whole step"),
        Key(
            name="policy", type="table", of="step.policy", example="{failure: {mode: fail_fast}}", about="its policies"
        ),
        Key(
            name="next_mode",
            type="text",
            choices=("exclusive", "inclusive"),
            example="inclusive",
            about="how arcs are chosen",
            old="`next: {spec: {mode: …}}`",
        ),
        Key(name="result", type="output", example="{output_select: [id]}", about="as `output`"),
    ),
)

STEP_POLICY = Table(
    "step.policy",
    "`policy` of a step",
    "When a step is run, for how long, and what a failure means. What follows a try belongs to the tool.",
    (
        Key(
            name="admit",
            type="table",
            of="admit",
            example="{rules: [{else: {then: {allow: false}}}]}",
            about="whether to run",
        ),
        Key(name="lifecycle", type="table", of="lifecycle", example="{timeout_s: 30}", about="time limits"),
        Key(name="failure", type="table", of="failure", example="{mode: best_effort}", about="of the items of a loop"),
        Key(name="emit", type="idle", example="{}", about="a hint: every change is recorded anyway"),
    ),
    {"rules": "what follows a try is under `tool: {spec: {policy: {rules: …}}}`"},
)

EXECUTOR_DEFAULTS = Table(
    "executor.defaults",
    "executor.spec.policy.defaults",
    "Policies of each step that has none of its own, and time limits in short.",
    (
        *STEP_POLICY.keys,
        Key(name="timeout_s", type="limit", example="30", about="as `lifecycle: {timeout_s: …}`"),
        Key(name="deadline_s", type="limit", example="300", about="as `lifecycle: {deadline_s: …}`"),
    ),
    STEP_POLICY.old,
    is_open=True,
)

ADMIT = Table(
    "admit",
    "admit",
    "Whether a step is run: the first rule that holds decides; if none does, it is run. If not, its arcs are followed.",
    (
        Key(name="mode", type="text", choices=("exclusive",), example="exclusive", about="the first rule decides"),
        Key(
            name="rules",
            type="tables",
            of="admission",
            required=True,
            example="[{else: {then: {allow: true}}}]",
            about="in order",
        ),
    ),
)

ADMISSION = Table(
    "admission",
    "a rule of `admit`",
    "Whether a step is run.",
    (
        Key(
            name="when", type="condition", example='"{{ ctx.on }}"', about="whether the rule holds; without it, always"
        ),
        Key(name="then", type="table", of="allowed", example="{allow: true}", about="what it decides"),
        Key(
            name="else",
            type="else",
            of="allowed",
            example="{then: {allow: false}}",
            about="what is decided if none holds",
        ),
    ),
)

ALLOWED = Table(
    "allowed",
    "what a rule of `admit` decides",
    "Whether a step is run.",
    (Key(name="allow", type="bool", required=True, example="true", about="false: only its arcs are followed"),),
)

LIFECYCLE = Table(
    "lifecycle",
    "lifecycle",
    "Time limits of a step.",
    (
        Key(name="timeout_s", type="limit", example="30", about="seconds that a try may take"),
        Key(name="deadline_s", type="limit", example="300", about="seconds that all tries together may take"),
    ),
)

FAILURE = Table(
    "failure",
    "failure",
    "What happens when an item of a loop fails. Without it all items run, and then the step fails.",
    (
        Key(
            name="mode",
            type="text",
            required=True,
            choices=("fail_fast", "best_effort"),
            example="best_effort",
            about="`fail_fast`: no item is started after a failure; `best_effort`: failures are only counted",
        ),
    ),
)

OLD_RULE = Table(
    "rule",
    RULE.noun,
    RULE.about,
    RULE.keys,
    {"eval": "write `when`", "expr": "write `when`", "cond": "write `when`", "do": "write `then: {do: …}`"},
)

OLD_ACTION = Table(
    "action",
    ACTION.noun,
    ACTION.about,
    (
        *ACTION.keys,
        Key(name="set_ctx", type="map", example="{page: 1}", about="as `set`", old="`set: {ctx.name: …}`"),
        Key(name="set_iter", type="map", example="{page: 1}", about="as `set`", old="`set: {iter.name: …}`"),
    ),
)

_FILE = (ROOT, METADATA, EXECUTOR, REQUIRES, EXECUTOR_SPEC, EXECUTOR_POLICY, EXECUTOR_DEFAULTS, WORKBOOK)
_ALL = (*_FILE, STEP, STEP_SPEC, STEP_POLICY)
_RULES = (ADMIT, ADMISSION, ALLOWED, LIFECYCLE, FAILURE, POLICY, OLD_RULE, OLD_ACTION)
_GRAPH = (LOOP, LOOP_SPEC, LOOP_POLICY, CURSOR, FRAME, NEXT, NEXT_SPEC, ARC)

TABLES = {table.name: table for table in (*_ALL, *_RULES, *_GRAPH)}
