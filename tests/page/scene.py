"""Runs as people have them: some are over, one failed, some wait for people, and one has a loop and children."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.server.conftest import Server

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name}, labels: {{team: shop}}}}\n"

PLAYBOOKS = {
    "orders": """\
inputs:
  day: {type: string, description: The day that is settled}
  regions: {type: array, items: {type: string}}
workload: {day: "2026-11-18", regions: [north, south, east, west, islands, mountains]}
workflow:
  - step: fetch
    loop: {in: "{{ workload.regions }}", iterator: region, max_in_flight: 4}
    tool: {kind: python, code: "print('orders of', region)\\nresult = {'region': region, 'orders': len(region) * 7}"}
    next: count
  - step: count
    input: {counted: "{{ fetch.results }}"}
    tool:
      kind: python
      code: |
        print('\\x1b[32mcounted\\x1b[0m')
        result = sum(each['orders'] for each in counted)
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: report, when: "{{ count > 10 }}"}
        - {step: nothing}
  - step: nothing
    tool: {kind: noop}
  - step: report
    tool: {kind: noop, result: "{{ count }} orders on {{ workload.day }}"}
""",
    "settle-invoices": """\
workflow:
  - step: load
    tool: {kind: noop, result: {invoices: 12}}
    next: charge
  - step: charge
    tool: {kind: python, code: "print('charging 12 invoices')\\nraise ValueError('card 4242 was refused by the bank')"}
    next: thank
  - step: thank
    tool: {kind: noop}
""",
    "buy": """\
workload: {what: "two chairs, oak", price: 480}
workflow:
  - step: ask
    tool:
      kind: gate
      prompt: "May we buy {{ workload.what }} for {{ workload.price }} euros?"
      options: {approve: Buy it, reject: Not this year}
      assignee: admin
      form:
        type: object
        properties:
          cost_centre: {type: integer, minimum: 1000, maximum: 9999, title: Who pays, description: Four digits}
          limit: {type: number, title: The highest price}
          shop: {type: string, enum: [corner shop, market, elsewhere], title: Where}
          by: {type: string, format: date, title: Until when}
          urgent: {type: boolean, title: It is urgent}
          notes: {type: array, items: {type: string}, title: Notes}
          address: {type: object, title: Deliver to, properties: {street: {type: string}, town: {type: string}}}
        required: [cost_centre, limit]
        additionalProperties: false
      timeout: 7d
    next: done
  - step: done
    tool: {kind: noop, result: "{{ ask.option }}"}
""",
    "publish": """\
workload: {title: How to fold a map}
workflow:
  - step: review
    tool:
      kind: gate
      type: review
      prompt: "{{ workload.title }}: is it ready?"
      options: {publish: It may go out, again: Write it anew}
""",
    "decorate": """\
workload: {colours: {red: "Brick red", blue: "Sea blue", green: "Moss green"}}
workflow:
  - step: choose
    tool: {kind: gate, prompt: "Which colours?", choices: "{{ workload.colours }}", assignee: admin}
    next: paint
  - step: paint
    tool: {kind: noop, result: "{{ choose.choices | join(', ') }}"}
""",
    "wait-for-payment": "workflow:\n  - step: payment\n    tool: {kind: wait, signal: paid}\n",
    "nightly": "workflow:\n  - step: sleep\n    tool: {kind: wait, seconds: 86400}\n",
    "many-items": """\
workload: {count: 400}
workflow:
  - step: each
    loop: {in: "{{ range(workload.count) | list }}", iterator: n, max_in_flight: 50}
    tool: {kind: noop, result: "{{ n * n }}"}
""",
    "a-name-that-is-too-long-for-any-column-but-somebody-chooses-it": """\
workflow:
  - step: a_step_with_a_name_that_nobody_can_read_in_a_narrow_window
    tool: {kind: noop, result: 1}
""",
}


class Scene(Struct, frozen=True):
    """The ids of the runs, by what is special about them."""

    done: str
    failed: str
    asks: str
    review: str
    chooses: str
    listens: str
    sleeps: str
    many: str
    named: str


def write_playbooks(folder: Path) -> None:
    for name, text in PLAYBOOKS.items():
        (folder / f"{name}.yaml").write_text(HEAD.format(name=name) + text)


async def play(server: Server, folder: Path) -> Scene:
    """Start all of it, and wait until each run is where it stays."""
    write_playbooks(folder)
    long = list(PLAYBOOKS)[-1]
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("orders", "completed", {"name": "orders of Wednesday", "labels": {"region": "all"}}),
        ("settle-invoices", "failed", {"name": "invoices"}),
        ("buy", "waiting", {"name": "chairs", "input": {"what": "two chairs, oak", "price": 480}}),
        ("publish", "waiting", {}),
        ("decorate", "waiting", {}),
        ("wait-for-payment", "waiting", {"name": "order 4711", "key": "order/4711"}),
        ("nightly", "waiting", {}),
        ("many-items", "completed", {"name": "squares"}),
        (long, "completed", {"name": long}),
    ]
    async with server.client(await server.token()) as client:
        runs = [await server.start(client, workflow, **more) for workflow, _, more in wanted]
        await asyncio.gather(
            *(server.until(client, run, status) for run, (_, status, _) in zip(runs, wanted, strict=True))
        )
    return Scene(*runs)
