"""The kinds of tools that playbooks can name, as data: their keys, their results, and their checks."""

from collections.abc import Mapping

from refold.tool_api import ToolInfo, ToolKey
from refold.tools.checks import (
    PAGES,
    check_http,
    check_main,
    check_playbook,
    check_python,
    check_shell,
    names_in_code,
    programs_in,
    values_of,
)
from refold.tools.engine_kinds import GATE, POLL, QUALITY, WAIT
from refold.tools.outward_catalog import KINDS as OUTWARD
from refold.tools.simple import ASSERT
from refold.tools.sql.info import KINDS as SQL

PYTHON = ToolInfo(
    kind="python",
    about="Runs Python code. It is trusted code in a process of its own, not a sandbox.",
    keys=(
        ToolKey(
            name="code",
            type="text",
            static=True,
            about="the code. Its result is what it gives to a top-level `return`, or what it sets `result` to, or what"
            " its function `main` returns. `await` may stand anywhere. Values of `input` can be read by their names and"
            " as `input`; `context` has run, step, visit, attempt, item and idempotency_key, and a map `usage` for what"
            " it uses up, as in `context['usage']['tokens'] = 12`. Parameters of `main` are bound by name",
        ),
        ToolKey(
            name="script",
            type="text",
            static=True,
            about="a file with such code: in the present folder or that of the playbook, or in `scripts` there",
        ),
        ToolKey(
            name="entry",
            type="text",
            static=True,
            about="a function, `package.module:function`; its parameters are bound by name",
        ),
        ToolKey(
            name="libs",
            type="any",
            static=True,
            about="what to import: `{alias: module}`, `{alias: {from: module, import: name}}`, or a list of modules",
        ),
        ToolKey(
            name="isolation",
            type="text",
            static=True,
            choices=("process", "inline"),
            about="`process` (the default) is a warm interpreter that is killed for real when time is up; `inline` is"
            " faster, for trusted code that ends by itself: async code and code that only computes on the event loop,"
            " other code in a thread",
        ),
        ToolKey(name="cwd", type="text", about="the folder it runs in"),
        ToolKey(name="env", type="map", about="variables laid over the environment"),
    ),
    result="what the code gives, as JSON data: tuples become lists, sets sorted lists, times ISO texts; what has no"
    " obvious form is refused with its path",
    check=check_python,
    values=values_of("python"),
    check_bound=check_main,
    reads=names_in_code,
)

SHELL = ToolInfo(
    kind="shell",
    about="Runs a program. An exit code that is not among `ok_codes` is a failure of kind `exit`. What the program"
    " leaves running is ended with it. The environment has REFOLD_RUN, REFOLD_STEP, REFOLD_ATTEMPT and"
    " REFOLD_IDEMPOTENCY_KEY.",
    keys=(
        ToolKey(
            name="command",
            type="any",
            about="the program and its arguments, as a list; each value is one argument, whatever is in it. As text"
            " only with `shell: true`, and then without expressions",
        ),
        ToolKey(
            name="script",
            type="text",
            static=True,
            about="text for `/bin/sh -e`, so that the first failing line ends it; taken as it is written",
        ),
        ToolKey(name="args", type="list", about="arguments of the script: `$1`, `$2` and so on"),
        ToolKey(name="shell", type="bool", static=True, about="whether a command that is text is for `/bin/sh`"),
        ToolKey(name="cwd", type="text", about="the folder it runs in"),
        ToolKey(name="env", type="map", about="variables laid over the environment"),
        ToolKey(name="stdin", type="any", about="what it reads: text as it is, other values as JSON"),
        ToolKey(name="encoding", type="text", static=True, about="of what it reads and prints (utf-8)"),
        ToolKey(name="ok_codes", type="list", about="exit codes that are no failure ([0])"),
    ),
    result="`{exit_code, stdout, stderr, truncated}`: the first MiB of each stream, and how many bytes were left out",
    result_keys=("exit_code", "stdout", "stderr", "truncated"),
    check=check_shell,
    values=values_of("shell"),
    programs=programs_in("command"),
)

HTTP = ToolInfo(
    kind="http",
    about="Sends a request, with the header `Idempotency-Key` that is the same in every try. Addresses that are"
    " private, local or of a cloud's metadata are refused unless the setting `private_addresses` is on: `refold run`"
    " turns it on, since it runs on your own machine, and `REFOLD_PRIVATE_ADDRESSES=false` turns it off again.",
    keys=(
        ToolKey(name="url", type="text", required=True, about="http or https"),
        ToolKey(name="method", type="text", about="GET, or POST if there is a body"),
        ToolKey(name="params", type="map", about="of the query; a list repeats its name, null is not sent"),
        ToolKey(name="headers", type="map", about="null is not sent"),
        ToolKey(name="json", type="any", about="a body that is sent as JSON"),
        ToolKey(name="data", type="map", about="a body that is sent as a form"),
        ToolKey(name="body", type="text", about="a body that is sent as it is"),
        ToolKey(
            name="auth",
            type="map",
            about="`{bearer: TOKEN}`, `{basic: {username, password}}` or `{api_key: {header, value}}`; it is not sent"
            " on to another host",
        ),
        ToolKey(name="timeout", type="duration", about="for the whole request, with its redirects (30s)"),
        ToolKey(name="follow_redirects", type="bool", about="up to 10 of them (true)"),
        ToolKey(name="expect", type="list", about="statuses that are no failure; without it, all below 400"),
        ToolKey(
            name="response",
            type="text",
            static=True,
            choices=("auto", "json", "text", "base64"),
            about="how to read the body: `auto` goes by its type, `json` insists",
        ),
        ToolKey(name="max_bytes", type="integer", about="the largest body that is read, of all pages (10 MiB)"),
        ToolKey(name="verify", type="bool", static=True, about="whether certificates are checked (true)"),
        ToolKey(name="idempotency_key", type="any", about="another key, or false for none"),
        ToolKey(
            name="pages",
            type="map",
            about="goes from page to page: " + "; ".join(f"`{name}`: {about}" for name, about in PAGES.items()),
        ),
    ),
    result="`{status_code, headers, data, text, url, elapsed}`: `data` is the decoded JSON, `text` any other body;"
    " `url` is where the answer came from, without its query. With `pages`, `data` is the list of all items, and"
    " `pages` their number. A failure has `{status_code, headers, data, text}` under `error.data`",
    result_keys=("status_code", "headers", "data", "text", "url", "elapsed", "pages"),
    check=check_http,
)

NOOP = ToolInfo(
    kind="noop",
    about="Does nothing.",
    keys=(
        ToolKey(name="result", type="any", about="what comes of the step"),
        ToolKey(name="message", type="text", about="a line for the run's log"),
    ),
    result="`result`; or else `{status, message}`, if there is a message; or else the input",
)

PLAYBOOK = ToolInfo(
    kind="playbook",
    about="Starts another playbook, or a workflow in Python, as a run of its own, a child, and waits for it without a"
    " worker. The step's `input` is the child's, and may give what its `workload` names, or what its code takes; in a"
    " loop without `input`, the item is. A playbook may start itself; two that start each other are refused. What the"
    " child uses up is added to what its parent uses up.",
    keys=(
        ToolKey(
            name="path",
            type="text",
            static=True,
            about="its file, seen from the folder of this one;"
            " or `module:Class` for a workflow in Python, whose module is looked for there too",
        ),
        ToolKey(name="name", type="text", static=True, about="in short: `NAME.yaml` or `NAME.yml` in the same folder"),
    ),
    result="the result of the child. A child that fails is a failure of kind `child_failed`",
    check=check_playbook,
)

KINDS = (PYTHON, SHELL, HTTP, NOOP, ASSERT, *SQL, *OUTWARD, WAIT, GATE, QUALITY, POLL, PLAYBOOK)
CATALOG: Mapping[str, ToolInfo] = {info.kind: info for info in KINDS}
