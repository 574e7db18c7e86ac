"""The language `refold/v1`: a loop, its source, and the order of its items."""

from refold.playbooks.language.tables import Key, Table

MOST_AT_ONCE = 1_000_000
MOST_ON_A_PAGE = 100_000

LOOP = Table(
    "loop",
    "a loop",
    "Runs the step once for each item of a list, `in`, or of a source, `source`. Its result is `{results, items,"
    " stats}`, in the order of the items, and `failed`, those that failed. See [fan-out](../howto/fan-out.md).",
    (
        Key(
            name="in",
            type="items",
            example='"{{ workload.cities }}"',
            about="the items: a list, or an expression that returns one. It is computed once",
        ),
        Key(
            name="source",
            type="source",
            of="loop.source",
            example="{kind: csv, path: orders.csv}",
            about="where the items come from, page by page, if not from a list",
        ),
        Key(
            name="iterator",
            type="name",
            example="city",
            about="the item's name in `input`, the tool's keys and Python code (`item`). `iter.index` counts from 0,"
            " `iter.count` is the number of items; for a source, of those that were fetched so far",
        ),
        Key(
            name="max_in_flight",
            type="width",
            least=1,
            most=MOST_AT_ONCE,
            example="8",
            about="how many items may run at the same time. An expression is computed when the loop is entered. Without"
            " it they run one after the other, unless `spec` has another mode",
        ),
        Key(
            name="rate",
            type="rate",
            example="20/s",
            about="how many items may start in a second (`/s`), minute (`/m`) or hour (`/h`)",
        ),
        Key(
            name="key",
            type="template",
            example='"{{ item.id }}"',
            about="the key of an item: text or a whole number. A second item with the same key is left out",
        ),
        Key(
            name="order",
            type="table",
            of="loop.order",
            example='{after: "{{ item.needs }}"}',
            about="which items wait for which others; needs `key`",
        ),
        Key(
            name="on_item_error",
            type="text",
            choices=("continue", "skip_dependents", "halt"),
            example="halt",
            about="what happens when an item has failed. The others continue (`continue`, the default), except those"
            " that wait for it, which are skipped; `skip_dependents` means the same where there is an `order`;"
            " `halt` cancels all others, and the step fails",
        ),
        Key(
            name="tolerate",
            type="share",
            example="1%",
            about="how many items may fail without the step failing (0, or any number if `min_success` is given)",
        ),
        Key(name="min_success", type="share", example="90%", about="how many items must complete (0)"),
        Key(
            name="retry",
            type="table",
            of="retry",
            example="{attempts: 3}",
            about="whether a failed item is tried again; the same as `retry` of the step",
        ),
        Key(
            name="timeout",
            type="duration",
            example="30s",
            about="how long one try of an item may take; the same as `timeout` of the step",
        ),
        Key(
            name="workflow",
            type="text",
            example="label-one.yaml",
            about="a playbook, relative to the folder of this one, or a Python workflow as `module:Class`: each item"
            " is a run of it, instead of a `tool`. Its inputs are those of `input`, otherwise the item by its name",
        ),
        Key(name="spec", type="table", of="loop.spec", example="{mode: parallel}", about="how items follow each other"),
    ),
    {
        "mode": "write `spec: {mode: …}`, or `max_in_flight` for a parallel loop",
        "concurrency": "write `max_in_flight`",
        "max_parallel": "write `max_in_flight`",
        "collection": "write `in`",
        "items": "write `in`",
        "over": "write `in`, or `source`",
        "element": "write `iterator`",
        "as": "write `iterator`",
        "var": "write `iterator`",
        "variable": "write `iterator`",
        "name": "write `iterator`",
        "parallel": "write `max_in_flight`",
        "workers": "write `max_in_flight`",
        "batch_size": "write `max_in_flight`",
        "limit": "write `max_in_flight`",
        "for": "write `in`",
        "list": "write `in`",
        "after": "write `order: {after: …}`",
        "ordered": "write `order: {after: …}`",
        "on_child_fail": "write `on_item_error`",
        "inputs": "write `input` on the step",
        "cursor": "write `source: {kind: sql, …}`; cursors are not read in refold/v1",
    },
    one_of=("in", "source"),
)

LOOP_SOURCE = Table(
    "loop.source",
    "a source",
    "Where items come from, page by page. Besides these it has the keys of its kind, which are on the page on"
    " [sources](sources.md). Templates are rendered once, when the loop is entered.",
    (
        Key(name="kind", type="text", required=True, example="csv", about="the kind of source"),
        Key(
            name="page",
            type="integer",
            least=1,
            most=MOST_ON_A_PAGE,
            example="200",
            about="how many items to fetch at a time (500). The next page is fetched before the items run out",
        ),
        Key(
            name="retry",
            type="table",
            of="retry",
            example="{attempts: 3}",
            about="whether a page that could not be fetched is tried again (5 attempts, exponential, from 1s to 1m)",
        ),
        Key(
            name="timeout",
            type="duration",
            example="30s",
            about="how long fetching a page may take; for kinds with a key `timeout` of their own, that key is meant",
        ),
    ),
)

LOOP_ORDER = Table(
    "loop.order",
    "an order",
    "Which items wait for which. An item begins when all that it waits for have completed; if one of them fails, it is"
    " skipped. The loop begins when all its items are known.",
    (
        Key(
            name="after",
            type="waits",
            required=True,
            example='"{{ item.needs }}"',
            about="the keys of the items that must have completed before: a list, one key, or nothing",
        ),
        Key(
            name="on_cycle",
            type="text",
            choices=("fail", "drop"),
            example="drop",
            about="what happens if items wait for each other: the step fails and names them (`fail`, the default), or"
            " the wait that closes the circle is dropped",
        ),
    ),
)

LOOP_SPEC = Table(
    "loop.spec",
    "loop.spec",
    "How items follow each other.",
    (
        Key(
            name="mode",
            type="text",
            choices=("sequential", "parallel"),
            example="parallel",
            about="`sequential` is one after the other (the default)",
        ),
        Key(
            name="max_in_flight",
            type="integer",
            least=1,
            most=MOST_AT_ONCE,
            example="8",
            about="how many items of a parallel loop may run at the same time (16)",
        ),
    ),
    {"async": "write `mode: parallel`", "policy": "write `retry` and `timeout` on the step"},
)
