"""The page on sources in the documentation, from the catalog: `python -m docs.build.sources_page` prints it."""

from collections.abc import Mapping

from refold.sources.added import Installed
from refold.sources.catalog import CATALOG
from refold.tool_api import ToolInfo, page_of

HEAD = """# Sources

Where the items of a loop come from, by the `kind` of the source. This page is printed from the catalog, by
`python -m docs.build.sources_page`; do not edit it.

A source is asked for a page when the loop has room for more items, and not before. With each page comes a *cursor*,
which is stored with it: after a crash the loop goes on behind the last page that it has, whatever process does it.

Values may hold expressions, `{{ ... }}`, evaluated when the loop is entered, unless the key is *static*: that is taken
as it is written. Where a key *may be secret*, `{secret: name}` stands for a secret, which is read for each page and
stored nowhere. Keys that a source does not have are refused by their names, and so are columns in `filter`.
"""

EXAMPLES = {
    "list": """\
kind: list
items: [lisbon, porto, "{{ workload.city }}"]
""",
    "range": """\
kind: range
start: 1
stop: "{{ workload.last + 1 }}"
""",
    "csv": """\
kind: csv
path: "{{ workload.file }}"
delimiter: ";"
types: {amount: number, paid: bool}
filter: {region: [north, south]}
""",
    "jsonl": """\
kind: jsonl
path: orders.jsonl
filter: {status: open}
""",
    "parquet": """\
kind: parquet
path: orders.parquet
columns: [id, amount]
where: amount > $least
params: {least: "{{ workload.least }}"}
""",
    "glob": """\
kind: glob
pattern: incoming/**/*.csv
""",
    "sql": """\
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
    "http": """\
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
    "python": """\
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
}


def page(catalog: Mapping[str, ToolInfo] = CATALOG) -> str:
    return page_of(HEAD, catalog, EXAMPLES, "Items")


if __name__ == "__main__":
    print(page(Installed(CATALOG)), end="")
