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
        return [ToolProblem("uri", "`uri` and `ref` exclude each other", "remove one of them")]
    return []


ARTIFACT = ToolInfo(
    kind="artifact",
    about="Writes and reads files in the folder of artifacts: the setting `artifacts`, or a folder next to the"
    " database with its name and `-artifacts`. It also reads what a reference refers to, such as the `_ref` of a"
    " large result. If there is nothing to read, the failure has the kind `missing_reference` and the code"
    " `REFERENCE_NOT_AVAILABLE`, and may be tried again. Paths that lead out of the folder are refused.",
    keys=(
        ToolKey(
            name="action",
            type="text",
            choices=("get", "put", "list"),
            about="`get` (the default) reads, `put` writes, and `list` lists the files in a folder and below it",
        ),
        ToolKey(
            name="ref",
            type="any",
            about="what to read: a reference object as returned by `put`, or its text,"
            " `refold://artifact/PATH` or `refold://execution/RUN/result/STEP/HASH`; it may also be given as"
            " `input.ref` or `input.result_ref`",
        ),
        ToolKey(name="uri", type="text", about="the path of a file in that folder, such as `reports/7.json`"),
        ToolKey(name="data", type="any", about="what to write"),
        ToolKey(
            name="format",
            type="text",
            choices=("auto", "json", "text", "base64"),
            about="how the data is stored in the file: `auto` is JSON if the name ends in `.json` or the data is not"
            " text, and text otherwise; `base64` is for bytes",
        ),
        ToolKey(name="max_bytes", type="integer", about="the largest file that is read (10 MiB)"),
    ),
    result="of `get`, the stored data; of `put`, the reference `{kind, ref, store, scope, uri, meta}`, where `meta` is"
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
