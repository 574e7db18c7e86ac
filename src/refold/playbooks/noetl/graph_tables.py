"""The dialects of NoETL as data: loops, cursors and arcs, with their old forms."""

from refold.playbooks.language.tables import Key, Table

LOOP = Table(
    "loop",
    "a loop",
    "Runs the step once for each item. Its result is `{results, stats}`, in the order of the items.",
    (
        Key(
            name="in", type="any", example='"{{ workload.all }}"', about="a list, a map, a number, or texts with commas"
        ),
        Key(
            name="cursor",
            type="table",
            of="cursor",
            example="{kind: postgres, claim: …}",
            about="rows to be claimed instead",
        ),
        Key(name="iterator", type="title", required=True, example="each", about="what templates call the item"),
        Key(name="spec", type="table", of="loop.spec", example="{mode: parallel}", about="how items follow each other"),
        Key(name="mode", type="loop mode", example="parallel", about="as under `spec`", old="`spec: {mode: …}`"),
        Key(name="max_in_flight", type="count", example="5", about="as under `spec`", old="`spec: {max_in_flight: …}`"),
        Key(
            name="concurrency", type="count", example="5", about="as `max_in_flight`", old="`spec: {max_in_flight: …}`"
        ),
    ),
)

LOOP_SPEC = Table(
    "loop.spec",
    "`spec` of a loop",
    "How items follow each other.",
    (
        Key(
            name="mode",
            type="loop mode",
            example="parallel",
            about="`sequential` (the default), `parallel` (also called `async`) or `cursor`",
        ),
        Key(name="max_in_flight", type="count", example="5", about="how many items may run at the same time"),
        Key(name="concurrency", type="count", example="5", about="as `max_in_flight`", old="`max_in_flight`"),
        Key(
            name="policy",
            type="table",
            of="loop.policy",
            example="{exec: local}",
            about="a hint, and what failures mean",
        ),
        Key(name="timeout", type="limit", example="30s", about="of each item"),
        Key(
            name="frame", type="table", of="frame", example="{max_rows: 10}", about="of a cursor: how rows are claimed"
        ),
    ),
)

LOOP_POLICY = Table(
    "loop.policy",
    "`policy` of a loop",
    "Where items run, and what a failure means.",
    (
        Key(name="exec", type="any", example="local", about="a hint that changes nothing here"),
        Key(name="failure", type="table", of="failure", example="{mode: fail_fast}", about="of the items"),
        Key(name="results", type="idle", example="{}", about="a hint: results of any size are kept as they are"),
    ),
)

CURSOR = Table(
    "cursor",
    "cursor",
    "Rows of a database, claimed a few at a time until there are none.",
    (
        Key(
            name="kind",
            type="text",
            required=True,
            choices=("postgres", "sqlite", "duckdb"),
            example="postgres",
            about="of database",
        ),
        Key(name="auth", type="any", example="pg_main", about="how to reach it"),
        Key(
            name="claim",
            type="any",
            required=True,
            example="UPDATE …",
            about="the statement; it may read `__frame_max_rows`",
        ),
        Key(name="options", type="map", example="{database: jobs.db}", about="further keys of the tool"),
    ),
)

FRAME = Table(
    "frame",
    "frame",
    "How rows are claimed.",
    (
        Key(name="max_rows", type="count", example="10", about="rows of a claim (1)"),
        Key(name="row_concurrency", type="count", example="2", about="how many rows run at the same time (1)"),
        Key(
            name="process",
            type="text",
            choices=("row", "frame"),
            example="row",
            about="one run for each row, or for all",
        ),
        Key(name="max_attempts", type="count", example="3", about="tries of a claim whose rows fail (3)"),
        Key(
            name="retry_mode", type="text", choices=("whole_frame",), example="whole_frame", about="what a try repeats"
        ),
        Key(name="max_seconds", type="idle", example="30", about="a hint: a frame has no time of its own here"),
        Key(name="max_bytes", type="idle", example="1048576", about="a hint: rows of any size are kept"),
        Key(name="lease_seconds", type="idle", example="120", about="a hint: the engine has its own leases"),
        Key(name="heartbeat_seconds", type="idle", example="30", about="a hint: the engine has its own heartbeat"),
        Key(name="verify_ipc", type="idle", example="false", about="a hint that changes nothing here"),
    ),
)

NEXT = Table(
    "next",
    "next",
    "Which steps follow.",
    (
        Key(name="spec", type="table", of="next.spec", example="{mode: inclusive}", about="how arcs are chosen"),
        Key(name="arcs", type="arcs", of="arc", example="[{step: end}]", about="in the order in which they are tried"),
    ),
)

NEXT_SPEC = Table(
    "next.spec",
    "`spec` of next",
    "How arcs are chosen.",
    (
        Key(
            name="mode",
            type="text",
            choices=("exclusive", "inclusive"),
            example="inclusive",
            about="`exclusive`: the first that holds (the default); `inclusive`: all that hold",
        ),
        Key(
            name="on_no_match",
            type="text",
            choices=("complete", "quiet"),
            example="quiet",
            about="if none holds the branch ends; `quiet`: without a warning",
        ),
        Key(name="policy", type="idle", example="{}", about="a hint that changes nothing here"),
    ),
)

ARC = Table(
    "arc",
    "an arc",
    "A way to another step. One whose `when` reads `event`, `output.status` or `output.error` can handle failures.",
    (
        Key(name="step", type="step", required=True, example="end", about="where it leads"),
        Key(name="when", type="condition", example='"{{ ctx.more }}"', about="whether it is taken; without it, always"),
        Key(name="set", type="sets", example="{ctx.why: limit}", about="values to store in the context then"),
        Key(name="input", type="map", example="{page: 2}", about="inputs of the target for that visit"),
        Key(name="args", type="map", example="{page: 2}", about="as `input`", old="`set: {ctx.name: …}` on the arc"),
    ),
    {"cond": "write `when`", "then": "write `step`", "else": "write a last arc without `when`"},
)
