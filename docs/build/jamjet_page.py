"""The page on files of JamJet, from the tables of their reader: `python -m docs.build.jamjet_page` prints it."""

from collections.abc import Iterator, Mapping, Sequence

from refold.playbooks.jamjet.agents import AGENT, LIMITS
from refold.playbooks.jamjet.evaluation import SCORERS
from refold.playbooks.jamjet.fields import Field
from refold.playbooks.jamjet.strategies import STRATEGIES
from refold.playbooks.jamjet.tables import GRAPH_KINDS, GRAPH_NODE, IR_KINDS, LIST_KINDS, LIST_NODE, UNSUPPORTED
from refold.playbooks.jamjet.whole import BUDGET, MODEL, POLICY, REMOTE, RETRY, SERVER, TIMEOUTS, TOOL
from refold.templates.jamjet.conditions import FUNCTIONS, METHODS, OPERATORS

HEAD = """# Files of JamJet

Every field of JamJet's files that Refold reads. This page is printed from the reader's tables, by
`python -m docs.build.jamjet_page`; do not edit it. [Coming from JamJet](../coming-from/jamjet.md) has an example and
everything that is different.

The form of a file is told by what is in it, in YAML or JSON:

| form | sign |
| --- | --- |
| IR | `workflow_id` and `nodes` |
| graph | `workflow:` and `nodes:`, a map |
| list | `workflow:` with a list of `nodes` in it |
| agent | `agent:` |
| fleet | `agents:` and `workflows:`, or one of them; `refold run FILE UNIT` names the unit |

A field that must be there is marked *needed*. Times are seconds, or words such as `30s`, `5m` and `2h`.
"""

CONDITIONS = """
## Conditions

A condition compares values: paths, literals, lists and calls. `state` is the state of the run, `output` what the node
gave that the edge leaves, of a node that only chooses the one before it; in the list form, and in
the goal of an agent, bare names are keys of the state, and on edges first fields of the output.
A path that leads nowhere is null. `"5"` is not 5, and `true` is not 1. False are null, `false`, 0, `""`, `[]` and
`{{}}`. Order between values that have none is false, and a call that fails gives null.

- operators: {operators}, `and`, `or`, `not`
- functions: {functions}
- methods: {methods}

Texts have expressions in `{{{{ … }}}}`, also `{{% if %}}` and `{{% for %}}`. A text that is one expression keeps the
type of its value; in mappings `state.x` and `$state.x` are expressions too.
"""


def _rows(fields: Sequence[Field]) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "| --- | --- | --- |"
    for field in fields:
        names = ", ".join(f"`{name}`" for name in (field.name, *field.also))
        sort = field.type + (", needed" if field.needed else "")
        choices = f" (one of {', '.join(f'`{each}`' for each in field.choices)})" if field.choices else ""
        yield f"| {names} | {sort} | {field.about}{choices} |"


def _kinds(kinds: Mapping[str, Sequence[Field]], level: str = "###") -> Iterator[str]:
    for kind, fields in kinds.items():
        if fields:
            yield f"\n{level} {kind}\n"
            yield from _rows(fields)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def page() -> str:
    lines = [HEAD, "## Graph: every node\n", *_rows(GRAPH_NODE)]
    lines += ["\n## Graph: kinds of nodes", *_kinds(GRAPH_KINDS)]
    own = {kind: fields for kind, fields in LIST_KINDS.items() if GRAPH_KINDS.get(kind) != fields}
    lines += ["\n## List: every node\n", *_rows(LIST_NODE)]
    lines += ["\n## List: `config` by kind\n\nKinds that are not here have the fields of graphs.", *_kinds(own)]
    lines += ["\n## IR: kinds of nodes", *_kinds(IR_KINDS)]
    lines += ["\n## Agents\n", *_rows(AGENT), "\nThe limits:\n", *_rows(LIMITS)]
    lines += [f"\nThe strategies: {_listed([*STRATEGIES])}."]
    whole = {
        "retry_policies": RETRY,
        "timeouts": TIMEOUTS,
        "models": MODEL,
        "tools": TOOL,
        "mcp_servers": SERVER,
        "remote_agents": REMOTE,
        "policy": POLICY,
        "token_budget": BUDGET,
    }
    lines += ["\n## What holds for all nodes", *_kinds(whole)]
    lines += ["\n## Scorers of evaluations", *_kinds(SCORERS)]
    words = {"operators": _listed([*OPERATORS]), "functions": _listed([*FUNCTIONS]), "methods": _listed([*METHODS])}
    lines += [CONDITIONS.format(**words)]
    lines += ["## Kinds that Refold does not run\n", "| kind | instead |", "| --- | --- |"]
    lines += [f"| `{kind}` | {hint} |" for kind, hint in UNSUPPORTED.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
