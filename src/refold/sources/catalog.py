"""The kinds of sources that loops can name: their keys, their items, an example, and their checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.registry import SOURCES, Installed
from refold.tool_api import ToolInfo, ToolKey, ToolProblem

PLACE = "its file, relative to the folder of the playbook"
CHANGED = " If the file changes while the loop reads it, the next page is a failure of kind `source_changed`."
VALUES = ToolKey(name="params", type="any", about="a list, for `$1` and `$2`, or a map, for `$name`")
FILTER = ToolKey(name="filter", type="map", about="by column, the value or the list of values that an item must have")


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


LIST = ToolInfo(
    kind="list",
    about="The elements of a list.",
    keys=(ToolKey(name="items", type="list", required=True, about="any values"),),
    result="the elements",
    example="""\
kind: list
items: [lisbon, porto, "{{ workload.city }}"]
""",
)


def check_range(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    if keys.get("step") == 0 and not isinstance(keys["step"], bool):
        return [ToolProblem("step", "`step` must not be 0", "1 goes up, -1 goes down")]
    return []


RANGE = ToolInfo(
    kind="range",
    about="Whole numbers, one after the other.",
    keys=(
        ToolKey(name="start", type="integer", about="the first number (0)"),
        ToolKey(name="stop", type="integer", required=True, about="the number before which it ends"),
        ToolKey(name="step", type="integer", about="the difference between two numbers (1); below 0 it counts down"),
    ),
    result="the numbers",
    check=check_range,
    example="""\
kind: range
start: 1
stop: "{{ workload.last + 1 }}"
""",
)

TYPES = ("text", "integer", "number", "bool")


def check_csv(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_types(keys.get("types")), *_columns(keys), *check_filter(keys)]


def _types(types: Any) -> Iterator[ToolProblem]:
    for column, name in types.items() if isinstance(types, Mapping) else ():
        if name not in TYPES and not is_expression(name):
            yield ToolProblem("types", f"`types.{column}` is one of {', '.join(TYPES)}, not {name!r}")


def _columns(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    columns = keys.get("columns")
    if isinstance(columns, list) and not all(isinstance(each, str) for each in columns):
        yield ToolProblem("columns", "`columns` is a list of names")
    if keys.get("header") is False and columns is None:
        yield ToolProblem("columns", "without a header, `columns` is needed", "name them in order")


def check_filter(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    found = []
    given = keys.get("filter")
    for column, wanted in given.items() if isinstance(given, Mapping) else ():
        values = wanted if isinstance(wanted, list) else [wanted]
        if any(isinstance(each, (list, Mapping)) for each in values):
            found.append(ToolProblem("filter", f"`filter.{column}` is a value or a list of values"))
    return found


CSV = ToolInfo(
    kind="csv",
    about="The rows of a CSV file. Values may be in quotes and contain line ends. The cost of a page depends only on"
    " its rows, not on where they are. A row with more or fewer values than columns is a failure that names its line."
    + CHANGED,
    keys=(
        ToolKey(name="path", type="text", required=True, about=PLACE),
        ToolKey(name="delimiter", type="text", about="the character between values (`,`)"),
        ToolKey(name="header", type="bool", about="whether the first row names the columns (true without `columns`)"),
        ToolKey(name="columns", type="list", about="names of the columns, in place of those in the file"),
        ToolKey(name="encoding", type="text", about="the encoding of the file (utf-8); not utf-16 and the like"),
        ToolKey(
            name="types",
            type="map",
            about="by column, `integer`, `number` or `bool`: empty values are null; columns without a type are text",
        ),
        FILTER,
    ),
    result="a map by column for each row",
    check=check_csv,
    example="""\
kind: csv
path: "{{ workload.file }}"
delimiter: ";"
types: {amount: number, paid: bool}
filter: {region: [north, south]}
""",
)

JSONL = ToolInfo(
    kind="jsonl",
    about="The lines of a file, each of them JSON. Empty lines are skipped; a line that is not JSON is a failure that"
    " names it." + CHANGED,
    keys=(ToolKey(name="path", type="text", required=True, about=PLACE), FILTER),
    result="the values, any JSON",
    check=check_filter,
    example="""\
kind: jsonl
path: orders.jsonl
filter: {status: open}
""",
)


def check_parquet(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    columns = keys.get("columns")
    found = list(_params(keys))
    if isinstance(columns, list) and not (columns and all(isinstance(each, str) for each in columns)):
        found.append(ToolProblem("columns", "`columns` is a list of names"))
    return found


def _params(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    params = keys.get("params")
    if params is not None and not isinstance(params, (list, Mapping)) and not is_expression(params):
        yield ToolProblem("params", "`params` is a list or a map", "[a, b] for $1 and $2, {name: a} for $name")


PARQUET = ToolInfo(
    kind="parquet",
    about="The rows of a Parquet file, in order. Needs `pip install 'refold[duckdb]'`." + CHANGED,
    keys=(
        ToolKey(name="path", type="text", required=True, about=PLACE),
        ToolKey(name="columns", type="list", about="the columns to read (all)"),
        ToolKey(
            name="where",
            type="text",
            static=True,
            about="a condition in SQL, such as `amount > $least`; its values come from `params`",
        ),
        VALUES,
    ),
    result="a map by column for each row, with values as the tool duckdb returns them",
    check=check_parquet,
    example="""\
kind: parquet
path: orders.parquet
columns: [id, amount]
where: amount > $least
params: {least: "{{ workload.least }}"}
""",
)

GLOB = ToolInfo(
    kind="glob",
    about="Files whose paths match a pattern, sorted by the parts of their paths. Folders are not items. `**` matches"
    " any number of folders, but follows no links; names that start with a dot must be written out.",
    keys=(
        ToolKey(
            name="pattern",
            type="text",
            required=True,
            about="such as `incoming/**/*.csv`, relative to the folder of the playbook",
        ),
        ToolKey(
            name="filter",
            type="map",
            about="by `path`, `name`, `size` or `modified`, the value or the list of values that a file must have",
        ),
    ),
    result="`{path, name, size, modified}`: the whole path, the size in bytes, and a time in ISO 8601",
    check=check_filter,
    example="""\
kind: glob
pattern: incoming/**/*.csv
""",
)

POSTGRES = ("url", "host", "port", "user", "password", "sslmode", "auth", "schema")


def check_sql(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    driver = keys.get("driver")
    found = list(_params(keys))
    if driver == "sqlite" and keys.get("database") is None:
        found.append(ToolProblem("database", "sqlite needs `database`, its file"))
    for name in POSTGRES if driver in ("sqlite", "duckdb") else ("attach",) if driver == "postgres" else ():
        if keys.get(name) is not None:
            found.append(ToolProblem(name, f"{driver} has no `{name}`", "`driver` decides which keys there are"))
    return found


SQL = ToolInfo(
    kind="sql",
    about="The rows of a query. With `key`, each page starts after the last key of the page before, and costs no more"
    " than its rows if there is an index; the key must be unique and never null. Rows that are added after it are"
    " found. Without `key`, each page skips the rows before it, and the query must have an ORDER BY that gives every"
    " row a fixed position. The query cannot change data. DuckDB needs `pip install 'refold[duckdb]'`, PostgreSQL needs"
    " `pip install 'refold[postgres]'`.",
    keys=(
        ToolKey(
            name="driver",
            type="text",
            required=True,
            static=True,
            choices=("sqlite", "duckdb", "postgres"),
            about="the tool that runs the query",
        ),
        ToolKey(
            name="query",
            type="text",
            required=True,
            static=True,
            about="one statement; values are written `$1` or `$name` and come from `params`",
        ),
        VALUES,
        ToolKey(name="key", type="text", static=True, about="the column of the result that orders the pages"),
        ToolKey(name="database", type="text", about="sqlite, duckdb: " + PLACE + "; postgres: its name"),
        ToolKey(name="attach", type="map", about="duckdb: more files, by the names under which they are attached"),
        ToolKey(name="url", type="any", secret=True, about="postgres: `postgresql://USER@HOST:PORT/DATABASE`"),
        ToolKey(name="host", type="text", about="postgres: in place of `url`, with the next four and `database`"),
        ToolKey(name="port", type="any", about="postgres: the port (5432)"),
        ToolKey(name="user", type="any", secret=True, about="postgres: the user who connects"),
        ToolKey(name="password", type="any", secret=True, about="postgres: the password, best `{secret: name}`"),
        ToolKey(name="sslmode", type="text", about="postgres: how TLS is used, such as `require` or `verify-full`"),
        ToolKey(
            name="auth", type="map", secret=True, about="postgres: a map of these keys; `{secret: name}` with fields"
        ),
        ToolKey(name="schema", type="text", about="postgres: where tables are searched"),
        ToolKey(name="timeout", type="duration", about="for one page"),
    ),
    result="a map by column for each row, with values as the tool of the driver returns them",
    check=check_sql,
    example="""\
kind: sql
driver: postgres
host: db.example.com
database: shop
user: reports
password: {secret: shop_password}
query: select id, amount from orders where status = $status
params: {status: open}
key: id
---
kind: sql
driver: sqlite
database: orders.db
query: select region, sum(amount) as total from orders group by region order by region
""",
)

WAYS = "`{link: true}`, `{path: data.next}`, `{page: page, start: 1}` or `{cursor: data.next, param: cursor}`"


def check_http(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    found = []
    url, way = keys.get("url"), keys.get("next")
    if isinstance(url, str) and not is_expression(url) and not url.lower().startswith(("http://", "https://")):
        found.append(ToolProblem("url", "an address starts with http:// or https://"))
    if isinstance(way, Mapping) and not _leads_on(way):
        found.append(ToolProblem("next", f"`next` must be {WAYS}"))
    return found


def _leads_on(way: Mapping[str, Any]) -> bool:
    match dict(way):
        case {"link": True, **rest} | {"path": str(), **rest}:
            return not rest
        case {"page": str(), "start": start, **rest}:
            return not rest and ((isinstance(start, int) and not isinstance(start, bool)) or is_expression(start))
        case {"page": str(), **rest}:
            return not rest
        case {"cursor": str(), "param": str(), **rest}:
            return not rest
        case _:
            return False


HTTP = ToolInfo(
    kind="http",
    about="Items from the responses of a server, on one page or several. The tool http makes the requests, and"
    " refuses the same addresses. Status 429 and errors of the server may be tried again, after the time that it asks"
    " for. Another host receives none of `params`, `headers` and `auth`.",
    keys=(
        ToolKey(name="url", type="text", required=True, about="the address of the first page, http or https"),
        ToolKey(name="params", type="map", secret=True, about="parameters of the query; a list repeats its name"),
        ToolKey(name="headers", type="map", secret=True, about="headers by name; null is not sent"),
        ToolKey(
            name="auth",
            type="map",
            secret=True,
            about="`{bearer: {secret: name}}`, or in short `{secret: name}`;"
            " `{basic: {username, password}}` or `{api_key: {header, value}}`",
        ),
        ToolKey(
            name="items", type="text", about="where the list is in the body, such as `data.orders` (the whole body)"
        ),
        ToolKey(
            name="next",
            type="map",
            about="where the next page is: `{link: true}`, in the header Link; `{path: data.next}`, an address in the"
            " body; `{page: page, start: 1}`, a parameter that counts, until a page is empty; `{cursor: data.next,"
            " param: cursor}`, a value in the body that is sent as a parameter. Without it there is one page",
        ),
        ToolKey(name="timeout", type="duration", about="for one page (30s)"),
        ToolKey(name="max_bytes", type="integer", about="the largest body that is read (10 MiB)"),
        ToolKey(name="verify", type="bool", static=True, about="whether certificates are checked (true)"),
    ),
    result="the elements of the lists",
    check=check_http,
    example="""\
kind: http
url: https://api.example.com/orders
params: {since: "{{ workload.day }}", limit: 100}
auth: {bearer: {secret: shop_token}}
items: data.orders
next: {cursor: data.next, param: cursor}
---
kind: http
url: https://api.example.com/issues
next: {link: true}
""",
)


def check_python(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    code, function = keys.get("code"), keys.get("function")
    if (code is None) == (function is None):
        return [ToolProblem("", "exactly one of `function` and `code` is needed")]
    module, _, name = function.partition(":") if isinstance(function, str) else ("x", "", "x")
    if not module or not name:
        return [ToolProblem("function", f"{function!r} does not name a function", "write 'package.module:function'")]
    return []


PYTHON = ToolInfo(
    kind="python",
    about="The values that Python code returns or yields: an iterator, a generator, or a list, async or not. It runs"
    " in a process of its own, where it waits between pages. If that process has ended, the code starts again and the"
    " items that were read are skipped: it must return the same items again. The code is trusted.",
    keys=(
        ToolKey(name="function", type="text", static=True, about="`package.module:function`, which returns the items"),
        ToolKey(
            name="code",
            type="text",
            static=True,
            about="in place of `function`: code that returns them, or has a function `main` that does",
        ),
        ToolKey(name="args", type="map", about="arguments of the function, by name"),
    ),
    result="the items, converted as by the tool python",
    check=check_python,
    example="""\
kind: python
code: |
  def main(days):
      for day in range(days):
          yield {"day": day}
args: {days: 30}
---
kind: python
function: shop.orders:open_orders
args: {region: "{{ workload.region }}"}
""",
)

KINDS = (LIST, RANGE, CSV, JSONL, PARQUET, GLOB, SQL, HTTP, PYTHON)
CATALOG: Mapping[str, ToolInfo] = {info.kind: info for info in KINDS}


def installed_sources() -> Mapping[str, ToolInfo]:
    """Return the catalog with the kinds that installed packages add."""
    return Installed(CATALOG, SOURCES)
