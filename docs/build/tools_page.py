"""The page on tools in the documentation, from the catalog: `python -m docs.build.tools_page` prints it."""

from collections.abc import Mapping

from refold.tool_api import ToolInfo, page_of
from refold.tools.added import Installed
from refold.tools.catalog import CATALOG

HEAD = """# Tools

What a step can do, by the `kind` of its tool. This page is printed from the catalog, by
`python -m docs.build.tools_page`; do not edit it.

Every value of a key may hold expressions, `{{ ... }}`, unless the key is *static*: that is taken as it is written.
Besides the keys listed here a tool has `kind`, and `input`, the values that are bound for it. The idempotency key,
`RUN/STEP/VISIT` (and `/ITEM` in a loop), is the same in every try, so that the far side can recognise a repetition.
"""

EXAMPLES = {
    "python": """\
tool:
  kind: python
  input: {numbers: [3, 1, 2]}
  code: |
    def main(numbers, context):
        print("try", context["attempt"])
        return {"largest": max(numbers)}
""",
    "shell": """\
tool:
  kind: shell
  command: [wc, -l, "{{ ctx.file }}"]
---
tool:
  kind: shell
  env: {TARGET: "{{ ctx.folder }}"}
  args: ["{{ ctx.name }}"]
  script: |
    mkdir -p "$TARGET"
    tar -czf "$TARGET/$1.tar.gz" .
""",
    "http": """\
tool:
  kind: http
  url: https://api.example.com/orders
  params: {since: "{{ ctx.day }}"}
  auth: {bearer: "{{ ctx.token }}"}
  pages: {next: data.next, items: data.orders}
""",
    "noop": """\
tool:
  kind: noop
  result: "{{ ctx.total }}"
""",
    "assert": """\
tool:
  kind: assert
  that: "{{ ctx.total > 0 }}"
  message: "there is nothing to report: {{ ctx.total }}"
""",
    "sqlite": """\
tool:
  kind: sqlite
  database: orders.db
  query: |
    create table if not exists orders (id text primary key, amount real);
    insert into orders values ($id, $amount) on conflict do nothing
  params: {id: "{{ ctx.order.id }}", amount: "{{ ctx.order.amount }}"}
""",
    "duckdb": """\
tool:
  kind: duckdb
  query: select region, sum(amount) as total from read_csv($1) group by region
  params: ["{{ workload.file }}"]
""",
    "postgres": """\
tool:
  kind: postgres
  host: db.example.com
  database: shop
  user: reports
  password: "{{ ctx.password }}"
  query: select id, paid_at from orders where status = $1 and id = any($2)
  params: [open, "{{ ctx.ids }}"]
  read_only: true
  timeout: 30s
""",
    "transfer": """\
tool:
  kind: transfer
  source: {type: csv, path: "{{ workload.file }}"}
  target: {type: postgres, url: "{{ ctx.url }}", table: public.orders, mapping: {order_id: id, total: amount}}
  mode: upsert
  key: order_id
""",
    "artifact": """\
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
    "emit": """\
tool:
  kind: emit
  event: order.paid
  data: {id: "{{ ctx.order.id }}"}
""",
    "container": """\
tool:
  kind: container
  image: python:3.12-slim
  command: [python, -c]
  args: ["print(open('/in/orders.csv').read())"]
  env: {TOKEN: "{{ ctx.token }}"}
  volumes: ["{{ ctx.folder }}:/in:ro"]
  resources: {cpus: 1, memory: 512m}
  network: none
  timeout: 10m
""",
    "mcp": """\
tool:
  kind: mcp
  endpoint: https://tools.example.com/mcp
  tool: search
  arguments: {query: "{{ ctx.question }}"}
---
tool:
  kind: mcp
  command: [python, -m, my_server]
  method: tools/list
""",
    "llm": """\
tool:
  kind: llm
  base_url: http://localhost:11434/v1
  model: small
  system: Answer in one sentence.
  prompt: "{{ ctx.question }}"
  json: {type: object, properties: {answer: {type: string}}, required: [answer]}
""",
    "wait": """\
tool:
  kind: wait
  seconds: 2h
  signal: paid
""",
    "gate": """\
tool:
  kind: gate
  prompt: "Ship {{ ctx.version }}?"
  options: {approve: Ship it, reject: Not yet}
  assignee: release-team
  min_approvals: 2
  form: {type: object, properties: {note: {type: string}}}
  timeout: 48h
  on_timeout: continue
""",
    "quality": """\
tool:
  kind: quality
  source: "{{ ctx.confidence }}"
  threshold: 80
""",
    "poll": """\
tool:
  kind: poll
  check: {kind: http, url: "https://example.org/builds/7"}
  until: "{{ output.data.data.state == 'done' }}"
  every: 1m
  timeout: 2h
---
tool:
  kind: poll
  until: "{{ ctx.approved | default(false) }}"
""",
    "playbook": """\
input: {city: "{{ workload.city }}"}
tool:
  kind: playbook
  path: weather.yaml
""",
}


def page(catalog: Mapping[str, ToolInfo] = CATALOG) -> str:
    return page_of(HEAD, catalog, EXAMPLES, "Result")


if __name__ == "__main__":
    print(page(Installed(CATALOG)), end="")
