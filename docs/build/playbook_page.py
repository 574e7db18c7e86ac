"""The reference of the language, from its tables: `python -m docs.build.playbook_page` prints it."""

from collections.abc import Iterator, Mapping

from refold.playbooks.language.blocks import PARALLEL
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.language.tables import Key, Table
from refold.playbooks.reader.reading import either

KINDS = {
    "any": "any value",
    "body": "list of [steps](#step) and [blocks](#blocks)",
    "bool": "`true` or `false`",
    "branches": "map of names to lists of [steps](#step) and [blocks](#blocks), or a list of such lists",
    "budget": "map of units to numbers",
    "condition": "`true`, `false` or one `{{ expression }}`",
    "count": "number, or one `{{ expression }}`",
    "duration": "duration",
    "limit": "duration, or one `{{ expression }}`",
    "entries": "list of [entries](secrets.md)",
    "expression": "one `{{ expression }}`",
    "inputs": "map of names to JSON Schemas or types",
    "integer": "whole number",
    "items": "list, or one `{{ expression }}`",
    "labels": "map of plain values",
    "lane": "name, or text with an `{{ expression }}`",
    "map": "map",
    "name": "name",
    "number": "number",
    "playbook name": "name",
    "rate": "number with `/s`, `/m` or `/h`",
    "schema": "[JSON Schema](https://json-schema.org)",
    "share": "whole number, or a percentage such as `1%`",
    "sets": "map of `ctx.name` to values",
    "step": "name of a step",
    "steps": "list of names of steps",
    "template": "text with an `{{ expression }}`",
    "templates": "map of names to values",
    "text": "text",
    "texts": "list of texts",
    "tool": "[tool](tools.md), or a list of them",
    "values": "map of plain values",
    "width": "whole number, or one `{{ expression }}`",
    "waits": "one `{{ expression }}`, or a list of them",
}

HEAD = """\
# Playbooks

A playbook is a YAML file. This page has every key; required keys are in **bold**. Any other key is an error, and so is
a key that is given twice. The page is printed by `python -m docs.build.playbook_page` from the tables that the reader
uses; do not edit it. Tools have [a page of their own](tools.md).

```yaml
apiVersion: refold/v1
kind: Playbook
metadata: {name: greet}
workload: {names: [Ada, Grace]}
workflow:
  - step: greet
    loop: {in: "{{ workload.names }}", iterator: name}
    tool: {kind: python, code: "return f'Hello, {name}!'"}
    next: report
  - step: report
    tool: {kind: noop, result: "{{ greet.results }}"}
```

YAML is read by its version 1.2: `no`, `on` and `1:30` are text, `012` is the number 12. Anchors and aliases are read,
tags and merge keys (`<<`) are not. A file has one document in UTF-8, at most 1 MiB long and 64 levels deep.

A step may be visited several times, may be retried, and may follow a failure:

```yaml
apiVersion: refold/v1
kind: Playbook
metadata: {name: pages, description: Gets all pages and sums them up.}
workload: {api: "https://example.org/items"}
timeout: 1h
on_fail: [alert]
workflow:
  - step: get_page
    tool:
      kind: http
      url: "{{ api }}"
      params: {offset: "{{ ctx.offset | default(0) }}"}
    retry: {attempts: 4, backoff: exponential, delay: 2s, max_delay: 1m}
    timeout: 30s
    set:
      ctx.offset: "{{ ctx.offset | default(0) + 10 }}"
      ctx.more: "{{ output.data.data.has_more }}"
    next:
      arcs:
        - {step: get_page, when: "{{ ctx.more and visit < 100 }}"}
        - {step: sum_up}
        - {step: sum_up, on: failure, set: {ctx.why: "{{ error.message }}"}}
  - step: sum_up
    tool: {kind: noop, result: "{{ ctx.offset | default(0) }} items"}
  - step: alert
    tool: {kind: shell, command: [echo, "the run {{ run.id }} has failed"]}
```

"""

BLOCKS = """\
## Blocks

In a list of steps a block is allowed wherever a step is. It is short for steps and arcs, and is compiled to them: a run
shows them as `refine.check` or `review.fork`. Steps that only connect others take no time and no worker.

Inside a block each item is followed by the next one, unless it takes an arc of its own; arcs stay in their list. In
`workflow` itself, a step is followed by what its `next` names, and a block without `next` by the next item.

```yaml
apiVersion: refold/v1
kind: Playbook
metadata: {name: write}
workload: {topic: tides}
workflow:
  - until: "{{ ctx.score >= 0.8 }}"
    name: refine
    max_iterations: 5
    on_max: continue
    do:
      - step: draft
        tool: {kind: noop, result: "{{ topic }}, version {{ visit }}"}
      - parallel: review
        min_success: 1
        branches:
          facts: [{step: check_facts, tool: {kind: noop, result: 0.5}}]
          style: [{step: check_style, tool: {kind: noop, result: "{{ visit * 0.3 }}"}}]
      - step: judge
        tool: {kind: noop, result: "{{ check_style }}"}
        set: {ctx.score: "{{ output.data }}"}
  - if: "{{ ctx.score < 0.8 }}"
    then:
      - {step: ask, tool: {kind: noop, result: "not good enough"}}
    else:
      - {step: publish, tool: {kind: noop, result: "{{ draft }}"}}
```

"""

TEMPLATES = """\
## Templates

A value that is exactly one `{{ expression }}` keeps its type; a text with expressions in it is a text. A template must
be in quotes: `"{{ name }}"`. An undefined name is an error, which is reported before the run wherever possible.

| name | what it is | where |
| --- | --- | --- |
| `workload.x`, `x` | an input of the run, or its default | everywhere |
| `ctx.x`, `x` | what a `set` has set | everywhere |
| `steps.fetch`, `fetch` | the result of a step that has run; of a loop `{results, items, stats, failed}` | everywhere |
| `run.id`, `run.name`, `visit` | the run; how often this step was entered | everywhere |
| `run.started_at`, `run.folder` | when it was started, and in which folder | everywhere |
| `run.counts`, `run.failures` | steps for each status; failed ones, with `step` and `error` | everywhere |
| `run.error` | why the run ends: `kind`, `message`, `step`; null if it completes | `on_fail`, `always` |
| `item`, `iter.index`, `iter.count` | the item of a loop, its index, their number | `input`, the tool's keys |
| `item`, `iter.index` | the same | `key` and `after` of the loop |
| `input.x`, `x` | a value of the step's `input` | the tool's keys |
| `output.status`, `output.data`, `output.error`, `error` | the outcome of the step | its `set` and its arcs |

If a bare name has several meanings, the last of these wins: input of the run, result of a step, `ctx`, item, `input` of
the step.

## Durations

`250ms`, `30s`, `5m`, `2h`, `1d`, `1h30m`, ISO 8601 (`PT5M`), or a number of seconds; 100 years at most.

"""


def page() -> str:
    tables = [BLOCKS * (table is PARALLEL) + section(table) for table in TABLES.values()]
    return "".join([HEAD, *tables, TEMPLATES]).rstrip() + "\n"


def section(table: Table, kinds: Mapping[str, str] = KINDS) -> str:
    rows = "".join(_row(key, kinds) for key in table.keys)
    title = table.noun if table.name == "playbook" else f"`{table.name}`"
    return (
        f"## {title[0].upper()}{title[1:]}\n\n{table.about}\n\n| key | value | meaning |\n| --- | --- | --- |\n{rows}\n"
    )


def _row(key: Key, kinds: Mapping[str, str]) -> str:
    name = f"**`{key.name}`**" if key.required else f"`{key.name}`"
    old = f". An old form: write {_escaped(key.old)}" if key.old else ""
    about = f"{key.about}{old}. Example: `{key.name}: {_escaped(key.example)}`"
    return f"| {name} | {_kind(key, kinds)} | {about[0].upper()}{about[1:]} |\n"


def _kind(key: Key, kinds: Mapping[str, str]) -> str:
    if key.choices:
        listed = either(key.choices)
        return f"{listed}, or {_link(key.of)}" if key.of else listed
    match key.type:
        case "table" | "source":
            return _link(key.of)
        case "tables":
            return f"list of {_link(key.of)}"
        case "else":
            return f"{_link(key.of)}, or `then` with one"
        case "next":
            return f"name of a step, list of names, or {_link('next')}"
        case _:
            return kinds[key.type] + _range(key)


def _range(key: Key) -> str:
    if key.most is not None:
        return f", {key.least:,} to {key.most:,}"
    return f", at least {key.least:,}" if key.least is not None else ""


def _link(name: str) -> str:
    return f"[{name}](#{name.replace('.', '')})"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def examples() -> Iterator[tuple[str, str]]:
    """Every example of a key, with its table."""
    return ((name, f"{key.name}: {key.example}") for name, table in TABLES.items() for key in table.keys)


if __name__ == "__main__":
    print(page(), end="")
