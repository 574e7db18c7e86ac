"""What the tool `artifact` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem


def check_artifact(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    action = keys.get("action", "get")
    if action == "put" and keys.get("uri") is None:
        return [ToolProblem("", "`put` needs `uri`", "write `uri: reports/today.json`")]
    if action == "put" and "data" not in keys:
        return [ToolProblem("", "`put` needs `data`", 'write `data: "{{ ctx.report }}"`')]
    if action == "get" and keys.get("ref") is not None and keys.get("uri") is not None:
        return [ToolProblem("uri", "`uri` and `ref` exclude each other", "take one of them away")]
    return []


ARTIFACT = ToolInfo(
    kind="artifact",
    about="Keeps files in the folder of artifacts, which is the setting `artifacts`, or beside the database its name"
    " with `-artifacts`; and reads what a reference stands for, such as the `_ref` of a large result. What is not there"
    " is a failure of kind `missing_reference`, code `REFERENCE_NOT_AVAILABLE`, that may be tried again. No path leads"
    " out of the folder.",
    keys=(
        ToolKey(
            name="action",
            type="text",
            choices=("get", "put", "list"),
            about="`get` (the default) reads, `put` writes, and `list` names the files in a folder and below it",
        ),
        ToolKey(
            name="ref",
            type="any",
            about="what to get: a reference object such as `put` gives, or its text,"
            " `refold://artifact/PATH` or `refold://execution/RUN/result/STEP/HASH`; it may also be given as"
            " `input.ref` or `input.result_ref`",
        ),
        ToolKey(name="uri", type="text", about="the path of a file in that folder, such as `reports/7.json`"),
        ToolKey(name="data", type="any", about="what to put"),
        ToolKey(
            name="format",
            type="text",
            choices=("auto", "json", "text", "base64"),
            about="how the file holds the data: `auto` is JSON if its name ends in `.json` or what is put is no text,"
            " and text otherwise; `base64` is for bytes",
        ),
        ToolKey(name="max_bytes", type="integer", about="the largest file that is read (10 MiB)"),
    ),
    result="of `get`, what was stored; of `put`, the reference `{kind, ref, store, scope, uri, meta}`, where `meta` is"
    " `{content_type, bytes, sha256}`; of `list`, `{files}`, each as `{uri, ref, bytes}`",
    check=check_artifact,
    example="""\
tool:
  kind: artifact
  action: put
  uri: "reports/{{ ctx.day }}.json"
  data: "{{ ctx.report }}"
---
tool:
  kind: artifact
  ref: "{{ ctx.report_ref }}"
""",
)
