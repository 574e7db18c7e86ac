"""What reading and checking a long playbook costs, in units of the bare YAML parser's own work on it."""

import gc
import sys
from time import thread_time

import yaml

from refold.playbooks.playbook import read
from refold.tools.catalog import CATALOG

LINES = 2_400
REPEATS = 15
RATIO = 3.0  # at most

HEAD = """\
apiVersion: refold/v1
kind: Playbook
metadata:
  name: long
  description: Fetches pages, transforms and stores them, {salt}.
workload:
  api: https://example.org/v1
  limit: 20
  folder: /tmp/out
workflow:
"""

PART = """\
  - step: fetch_{n}_{salt}
    desc: Gets page {n}.
    input:
      page: "{{{{ visit }}}}"
      limit: "{{{{ workload.limit }}}}"
    tool:
      kind: http
      url: "{{{{ workload.api }}}}/items/{n}"
      params:
        limit: "{{{{ limit }}}}"
        offset: "{{{{ page * limit }}}}"
    retry:
      attempts: 5
      backoff: exponential
      delay: 2s
      max_delay: 1m
    timeout: 30s
    next:
      arcs:
        - step: shape_{n}_{salt}
        - step: store_{n}_{salt}
          on: failure
          set:
            ctx.why_{n}_{salt}: "{{{{ error.message }}}}"
  - step: shape_{n}_{salt}
    input:
      rows: "{{{{ fetch_{n}_{salt}.data.items }}}}"
    tool:
      kind: python
      code: |
        rows = [row for row in rows if row["id"] > {n}]  # {salt}
        return {{"rows": rows, "more": len(rows) >= 20}}
    set:
      ctx.more_{n}_{salt}: "{{{{ output.data.more }}}}"
      ctx.count_{n}_{salt}: "{{{{ output.data.rows | length }}}}"
    next:
      spec: {{mode: exclusive}}
      arcs:
        - step: fetch_{n}_{salt}
          when: "{{{{ ctx.more_{n}_{salt} and visit < 5 }}}}"
        - step: store_{n}_{salt}
  - step: store_{n}_{salt}
    when: "{{{{ ctx.count_{n}_{salt} > 0 }}}}"
    loop:
      in: "{{{{ shape_{n}_{salt}.rows }}}}"
      iterator: row
      spec:
        mode: parallel
        max_in_flight: 8
    tool:
      kind: shell
      command:
        - store
        - --id
        - "{{{{ row.id }}}}"
      cwd: "{{{{ workload.folder }}}}"
    next: fetch_{after}_{salt}
"""


def playbook(lines: int, salt: int) -> str:
    """A playbook of about so many lines; another salt is another text, so that nothing is remembered."""
    parts = (lines - HEAD.count("\n")) // PART.count("\n")
    body = "".join(PART.format(n=n, after=n + 1, salt=salt) for n in range(parts))
    return HEAD.format(salt=salt) + body + f"  - step: fetch_{parts}_{salt}\n"


def measure(repeats: int = REPEATS) -> tuple[int, float, float]:
    """Lines, and the least CPU seconds of parser and reader."""
    least = [float("inf"), float("inf")]
    for salt in range(repeats):
        text = playbook(LINES, salt)
        for at, work in enumerate((_compose, _read)):
            gc.collect()
            began = thread_time()
            work(text)
            least[at] = min(least[at], thread_time() - began)
    return len(playbook(LINES, 0).splitlines()), least[0], least[1]


def _compose(text: str) -> None:
    yaml.compose(text, yaml.CSafeLoader)


def _read(text: str) -> None:
    read(text, "long.yaml", CATALOG)


def main() -> int:
    lines, compose, reading = measure()
    ratio = reading / compose
    print(
        f"{lines:,} lines: bare compose {compose * 1e3:.1f} ms, read and checked {reading * 1e3:.1f} ms: {ratio:.2f} x"
    )
    if ratio > RATIO:
        print(f"MISSED: at most {RATIO} x")
    return 1 if ratio > RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
