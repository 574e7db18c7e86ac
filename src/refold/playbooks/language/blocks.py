"""The language `refold/v1`: blocks, which are items in a list of steps and are compiled to steps and arcs."""

from refold.playbooks.language.tables import Key, Table

MOST_PASSES = 1000  # of a loop that does not say

_NAME = Key(
    name="name",
    type="name",
    example="refine",
    about="its name, for arcs, messages and drawings; without it, a name such as `while_1` is generated",
)
_DESC = Key(name="desc", type="text", example="Until it is good.", about="a sentence for people")
_NEXT = Key(
    name="next",
    type="next",
    example="report",
    about="the arcs of the whole block; without it, the next item follows. An arc with `on: failure` handles every"
    " failure inside that no step there handles",
)
_BODY = Key(name="do", type="body", required=True, example="[{step: draft}]", about="what is done in each pass")
_BOUNDS = (
    Key(
        name="max_iterations",
        type="integer",
        least=1,
        most=1_000_000,
        example="10",
        about=f"the largest number of passes ({MOST_PASSES:,}); a step has its own `visit_limit` too",
    ),
    Key(
        name="on_max",
        type="text",
        choices=("fail", "continue"),
        example="continue",
        about="what happens then: a failure of kind `max_iterations` (`fail`, the default), or the run continues after"
        " the block",
    ),
    Key(
        name="stuck_after",
        type="integer",
        least=1,
        most=1_000_000,
        example="3",
        about="after this number of passes in a row that each changed nothing, compared with the one before, the block"
        " fails with the kind `stuck`",
    ),
    Key(
        name="stuck_on",
        type="expression",
        example='"{{ ctx.score }}"',
        about="the value that a pass should change (the result of its last step)",
    ),
)

PARALLEL = Table(
    "parallel",
    "a parallel block",
    "Branches that run in parallel; what follows waits for all of them. A failure in a branch ends that branch. The"
    " block fails, with the kind `branches_failed`, if too few are left. Its result is `{succeeded, failed, errors}`:"
    " the names of branches, and the error of each that failed.",
    (
        Key(name="parallel", type="name", required=True, example="review", about="its name"),
        _DESC,
        Key(
            name="branches",
            type="branches",
            required=True,
            example="{lint: [{step: lint}], test: [{step: build}, {step: test}]}",
            about="the branches by their names, each a list of steps and blocks; or a list of such lists, which are"
            " called `branch_1`, `branch_2` and so on",
        ),
        Key(
            name="min_success",
            type="integer",
            least=0,
            example="1",
            about="how many branches must complete (all)",
        ),
        Key(
            name="fail_fast",
            type="bool",
            example="true",
            about="whether the other branches are stopped as soon as the block can only fail",
        ),
        _NEXT,
    ),
    {"name": "write `parallel: name`", "steps": "write `branches`", "do": "write `branches`"},
)

WHILE = Table(
    "while",
    "a while block",
    "Steps that are repeated as long as a condition holds; it is checked before each pass.",
    (
        Key(
            name="while",
            type="condition",
            required=True,
            example='"{{ ctx.left > 0 }}"',
            about="whether there is another pass",
        ),
        _NAME,
        _DESC,
        _BODY,
        *_BOUNDS,
        _NEXT,
    ),
    {"steps": "write `do`", "max": "write `max_iterations`"},
)

UNTIL = Table(
    "until",
    "an until block",
    "Steps that run once, and again until a condition holds; it is checked after each pass.",
    (
        Key(
            name="until",
            type="condition",
            required=True,
            example='"{{ ctx.score > 0.9 }}"',
            about="whether that was the last pass",
        ),
        _NAME,
        _DESC,
        _BODY,
        *_BOUNDS,
        _NEXT,
    ),
    {"steps": "write `do`", "max": "write `max_iterations`"},
)

IF = Table(
    "if",
    "an if block",
    "Runs one of several lists of steps, or none.",
    (
        Key(name="if", type="condition", required=True, example='"{{ ctx.n > 5 }}"', about="whether `then` is done"),
        _NAME,
        _DESC,
        Key(name="then", type="body", required=True, example="[{step: high}]", about="what is done if it holds"),
        Key(
            name="elif",
            type="tables",
            of="elif",
            example='[{if: "{{ ctx.n > 2 }}", then: [{step: middle}]}]',
            about="further conditions, checked one after the other",
        ),
        Key(name="else", type="body", example="[{step: low}]", about="the steps to run if no condition holds"),
        _NEXT,
    ),
    {"do": "write `then`", "when": "write `if`"},
)

ELIF = Table(
    "elif",
    "an elif",
    "One more condition of an `if`.",
    (
        Key(name="if", type="condition", required=True, example='"{{ ctx.n > 2 }}"', about="whether `then` is done"),
        Key(name="then", type="body", required=True, example="[{step: middle}]", about="what is done if it holds"),
    ),
)

BLOCKS = (PARALLEL, WHILE, UNTIL, IF)
WORDS = tuple(table.name for table in BLOCKS)
