"""What it costs to read and check a file: a small multiple of splitting it into words."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.errors import NotFound
from refold.playbooks.bindings import Bindings, command_for_agents, with_agent
from refold.playbooks.children import ChildReader
from refold.playbooks.wf.agents import Agents
from refold.playbooks.wf.checks import Checker
from refold.playbooks.wf.nodes import Call, walk
from refold.playbooks.wf.project import Project
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
MOST_WITH_PLAN = 7.0


def children() -> ChildReader[Any]:
    def load(file: str) -> bytes:
        raise NotFound(file)

    def none(text: bytes, file: str, reader: ChildReader[Any]) -> Any:
        raise NotFound(file)

    reader = ChildReader[Any](load, none)
    reader.begin(FILE)
    return reader


def checked() -> None:
    """Read the words and the grammar, check the tree, and find who answers for each agent."""
    reading = WfReading(TEXT, FILE, children(), lambda: BOUND)
    file = parse(reading)
    assert file is not None
    Checker(reading, file, lambda node: (), {}).check(file)
    agents = Agents(reading, Project(FILE, file.name, reading.child_reader.load), ())
    found = [agents.asked(each.agent, False, each.keys, None, ()) for each in walk(file.body) if isinstance(each, Call)]
    assert len(found) == TEXT.count("call ")
    assert reading.problems == []


def cost(do: Callable[[], object], times: int = 60) -> float:
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
    whole = cost(lambda: read_wf(TEXT, FILE, children(), lambda: BOUND, gh=False))
    print(f"words {words * 1000:.2f} ms; read and checked {read / words:.2f} times, with its plan {whole / words:.2f}")
    assert read <= MOST * words
    assert whole <= MOST_WITH_PLAN * words


def test_each_folder_of_agents_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".conductor" / "agents"
    folder.mkdir(parents=True)
    names = [f"agent{number}" for number in range(40)]
    for name in names:
        (folder / f"{name}.md").write_text("Do it.")
    listed: list[str] = []
    names_in = os.listdir

    def listdir(path: str) -> list[str]:
        listed.append(path)
        return names_in(path)

    monkeypatch.setattr(os, "listdir", listdir)
    project = Project(str(tmp_path / "x.wf"), "x", lambda file: Path(file).read_bytes())
    assert all(project.agent(name, False, ()) is not None for name in names)
    assert project.agent("nobody", False, ()) is None
    assert len(listed) == len(set(listed)) <= 4
