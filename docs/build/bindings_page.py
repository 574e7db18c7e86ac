"""The reference of files of bindings, from their tables: `python -m docs.build.bindings_page` prints it."""

from docs.build.playbook_page import KINDS, section
from refold.playbooks.language.bindings import TABLES

HEAD = """\
# Bindings

A file may name an agent, a model, a gate or a source of items and leave open which tool is behind the name. A file of
bindings says it: `refold-bindings.yaml` in the project of the file, or the one that `--bindings FILE` names. The
project is the nearest folder at or above the file that has a folder `.conductor` or `.claude`; if there is none, it is
the folder of the file. The page is printed by `python -m docs.build.bindings_page` from the tables that the reader
uses; do not edit it.

```yaml
agents:
  plan: {kind: llm, base_url: "http://localhost/v1", model: "{{ model | default('small') }}", prompt: "{{ prompt }}"}
  "review-*": {kind: python, entry: "my_agents:review"}
  "*": {kind: shell, command: [claude, -p], stdin: "{{ prompt }}"}
models:
  "*": {kind: llm, base_url: "http://localhost:11434/v1", price: {prompt: 0.5, completion: 1.5}}
identities:
  developer: {env: {GH_TOKEN: {secret: dev_token}}}
variables: {repo_name: acme/shop}
```

A name is looked up exactly, then by pattern (`*` and `?`, in the order of the file), then as `"*"`. The tools are
those of [playbooks](tools.md), with their checks; a value may be `{secret: name}`, which is read in the worker. The
keys of a bound tool are rendered when it is called. What is bound becomes part of the plan of a run, so that a run
continues with the tools that it began with, also if the file changes.

`refold run FILE --agent 'COMMAND'` binds one program to all agents that are not bound by a name or a pattern. It gets
the prompt on its standard input, and what it prints is the reply. Names that are not bound are reported all at once,
before the run begins.

What a bound tool answers is read by its kind: the standard output of `shell` and `container`, `text` of `llm`, the
structured content or the text of `mcp`, the data or the text of `http`; of other tools a text is a text, and a map or
a list that they return is a value.

"""


def page() -> str:
    kinds = {**KINDS, "any": "a [tool](tools.md), or a value"}
    return (
        "".join([HEAD, *(section(table, kinds) for table in TABLES.values())])
        .replace("[loop.source](#loopsource)", "a [source](sources.md)")
        .rstrip()
        + "\n"
    )


if __name__ == "__main__":
    print(page(), end="")
