"""What it costs to read and check a file: a small multiple of splitting it into words."""

import time
from collections.abc import Callable
from typing import Any

from refold.errors import NotFound
from refold.playbooks.bindings import Bindings, command_for_agents, with_agent
from refold.playbooks.children import ChildReader
from refold.playbooks.wf.checks import Checker
from refold.playbooks.wf.reader import parse, read_wf
from refold.playbooks.wf.reading import WfReading
from refold.playbooks.wf.tokens import words_of

PART = """
  call plan{n} {{ retries = 2  on_fail = continue }}
  do {{
    max_iterations = 5
    stuck_after = 3
    call implement{n} {{ timeout = "30m" }}
    call review{n}
    if review{n}.open {{
      call fix{n}
    }}
  }} while review{n}.open
  parallel {{
    fail_fast = false
    min_success = 1
    call lint{n}
    call test{n} {{ if = "review{n}.seen" }}
  }}
  script pack{n} {{
    run = "make pack TARGET={{{{target}}}} PRIOR={{{{prior_context}}}}"
    env = {{ A = "{{{{plan{n}.context}}}}"  B = "x" }}
  }}
  gate human_review {{ prompt = "ship {{{{target}}}}?"  timeout = 2h }}
  unless fast {{ call ship{n} }}
"""
TEXT = (
    "workflow big {\n  inputs { target required  fast boolean }\n"
    + "".join(PART.format(n=number) for number in range(13))
    + "}\n"
)
BOUND = with_agent(Bindings(), command_for_agents(["true"]))
FILE = "/nowhere/big.wf"
MOST = 3.0


def children() -> ChildReader[Any]:
    def load(file: str) -> bytes:
        raise NotFound(file)

    def none(text: bytes, file: str, reader: ChildReader[Any]) -> Any:
        raise NotFound(file)

    reader = ChildReader[Any](load, none)
    reader.begin(FILE)
    return reader


def checked() -> None:
    reading = WfReading(TEXT, FILE, children(), lambda: BOUND)
    file = parse(reading)
    assert file is not None
    Checker(reading, file, lambda node: (), {}).check(file)
    assert reading.problems == []


def cost(do: Callable[[], object], times: int = 25) -> float:
    """Return the least time of the processor that a call took."""
    least = float("inf")
    for _ in range(times):
        began = time.process_time()
        do()
        least = min(least, time.process_time() - began)
    return least


def test_reading_and_checking_300_lines_costs_at_most_three_times_their_words() -> None:
    assert TEXT.count("\n") >= 300
    words = cost(lambda: words_of(TEXT))
    read = cost(checked)
    whole = cost(lambda: read_wf(TEXT, FILE, children(), lambda: BOUND, gh=False), 5)
    print(f"words {words * 1000:.2f} ms; read and checked {read / words:.2f} times, with its plan {whole / words:.2f}")
    assert read <= MOST * words
