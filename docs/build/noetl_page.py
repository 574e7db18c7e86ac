"""The reference of NoETL files, from their tables: `python -m docs.build.noetl_page` prints it."""

from docs.build import playbook_page
from refold.playbooks.language.tables import Table
from refold.playbooks.noetl.kinds import FOREIGN, KINDS, Kind
from refold.playbooks.noetl.tables import TABLES

WORDS = {
    **playbook_page.KINDS,
    "arcs": "list of [arc](#arc)",
    "condition": "template, `true` or `false`",
    "count": "number, also as text, or a template",
    "entries": "list of maps with `name` and `kind`",
    "idle": "any value",
    "limit": "duration, `{connect, read}`, or a template",
    "loop mode": "`sequential`, `parallel`, `async` or `cursor`",
    "output": "map: see [results](../noetl.md#results)",
    "sets": "map of `ctx.name`, `iter.name`, `step.name` or a bare name to values",
    "step name": "name",
    "title": "text",
    "tool": "[tool](#tools), or a list of them",
    "words": "list of texts, or one text",
}

HEAD = """\
# NoETL playbooks: all keys

Files that begin with `apiVersion: noetl.io/v2` or `noetl.io/v10` are read by the tables of this page, which is printed
from them by `python -m docs.build.noetl_page`; do not edit it. Required keys are in **bold**. Differences from NoETL
have [a page of their own](../noetl.md).

```yaml
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pages, path: examples/pages}
workload: {pages: [1, 2, 3]}
workflow:
  - step: get
    loop: {in: "{{ workload.pages }}", iterator: page, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      - name: fetch
        kind: python
        input: {n: "{{ page }}"}
        code: "result = {'rows': [n] * n}"
        spec:
          policy:
            rules:
              - {when: "{{ output.error.retryable }}", then: {do: retry, attempts: 3, backoff: exponential, delay: 1.0}}
              - else: {then: {do: continue, set: {iter.rows: "{{ output.data.rows }}"}}}
      - {name: count, kind: noop, result: {count: "{{ iter.rows | length }}"}}
    next: {arcs: [{step: report, when: "{{ event.name == 'loop.done' }}"}]}
  - step: report
    tool: {kind: noop, result: {total: "{{ get.results | sum(attribute='count') }}"}}
```

"""

TOOLS = """\
## Tools

A tool is a map with `kind`; its other keys are those of [the tool](tools.md), under their names there or under NoETL's
names. In addition there may be `name` (of a task in a list), `input`, `set`, `output`, `timeout` or
`timeout_seconds`, `assert` (of a task of the workbook), and `spec` with `policy` (see [task.policy](#taskpolicy)) and
`timeout`.

| kind | spellings of NoETL | hints that change nothing |
| --- | --- | --- |
"""
BY_ENGINE = (
    "| `playbook` | `path` of a file, or a path in the catalog that contains this file; `input`, `args` and `payload`"
    " are its inputs; with `return_step`, `return_result` or `result_step` the task waits for it"
    " | `version`, `poll_interval` |\n"
    "| `workbook` | `name` of a task of the workbook, and its `input` | |\n"
    "| `agent` | none: the keys are those of [the tool](tools.md#agent), and [bindings](bindings.md) say who answers."
    " NoETL's own keys, such as `framework` and `entrypoint`, are refused: bind a function that builds and calls that"
    " agent, or write `kind: playbook` for `framework: noetl` | |\n"
)

ELSEWHERE = """
Refold does not have these kinds; a file that uses one is refused:

| kind | write instead |
| --- | --- |
"""


def page() -> str:
    sections = "".join(_section(table) for table in TABLES.values())
    kinds = "".join(_kind(name, kind) for name, kind in KINDS.items())
    others = "".join(f"| `{name}` | {hint or 'nothing'} |\n" for name, hint in FOREIGN.items())
    return f"{HEAD}{sections}{TOOLS}{BY_ENGINE}{kinds}{ELSEWHERE}{others}"


def _section(table: Table) -> str:
    text = playbook_page.section(table, WORDS)
    if table.is_open:
        text += "Any other key has no effect, and a warning says so.\n\n"
    if table.old:
        refused = "; ".join(f"`{name}`: {hint}" for name, hint in table.old.items())
        text += f"Refused: {refused}.\n\n"
    return text


def _kind(name: str, kind: Kind) -> str:
    spelt = [f"`{theirs}` is `{ours}`" for theirs, ours in kind.keys.items() if theirs != ours]
    same = [f"as `{kind.kind}`"] if kind.kind != name else []
    idle = ", ".join(f"`{each}`" for each in sorted(kind.idle))
    return f"| `{name}` | {', '.join(same + spelt)} | {idle} |\n"


if __name__ == "__main__":
    print(page(), end="")
