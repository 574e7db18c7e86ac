"""The engine does what a second implementation says: for the vectors, and for programs that are made from seeds."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.wf.generator import Generator
from tests.wf.interpreter import interpret
from tests.wf.programs import Done, Program, run
from tests.wf.test_vectors import RUNS, program_of

SEEDS = 300
CHUNK = 25
CONSTRUCTS = [
    "call",
    "retries",
    "on_fail = continue",
    "on_fail = agent",
    "script",
    "block in a text",
    "exports",
    "if",
    "unless",
    "else",
    "boolean input",
    "while",
    "do … while",
    "stuck_after",
    "on_max_iter = continue",
    "do",
    "always in a body",
    "always of the file",
    "parallel",
    "fail_fast = false",
    "min_success",
    "if of a call",
    "on_fail = continue in parallel",
    "on_fail = agent in parallel",
    "human gate",
    "on_timeout = continue",
    "quality gate",
    "schema",
    "call workflow",
    "retries of a child",
    "foreach",
    "a second item with the same id",
    "ordered",
    "halt",
]


def second(program: Program) -> Done:
    """Return what the second implementation says."""
    given = {name: getattr(program, name) for name in ("agents", "scripts", "gates", "items")}
    found, world = interpret(program.text, given, program.others, program.schemas, program.inputs)
    if found["status"] == "refused":
        return Done(status="refused", names=[found["names"]])
    return Done(
        status=found["status"],
        kind=found["kind"],
        calls=world.calls,
        gates=sorted(world.gates),
        passes=sorted(world.passes),
        runs=sorted(world.runs),
        skipped=sorted(world.skipped),
        items=world.items,
        env=world.env,
        run=world.run,
    )


def comparable(done: Done) -> dict[str, Any]:
    """Return what both implementations say; the logs of several runs have no common order for some of it."""
    parts = ("gates", "passes", "runs", "skipped")
    found = {name: sorted(getattr(done, name)) for name in parts}
    return {**found, **{name: getattr(done, name) for name in ("status", "kind", "calls", "items", "env", "run")}}


@pytest.mark.parametrize("case", RUNS, ids=[each["name"] for each in RUNS])
def test_the_second_implementation_agrees_with_the_vectors(case: dict[str, Any]) -> None:
    done, want = second(program_of(case)), case["want"]
    keys = [key for key in want if key not in ("names", "warnings")]
    ordered = {key: getattr(done, key) for key in keys}
    lists = ("gates", "passes", "runs", "skipped")
    assert {key: sorted(ordered[key]) if key in lists else ordered[key] for key in keys} == {
        key: sorted(want[key]) if key in lists else want[key] for key in keys
    }
    if "names" in want:
        assert want["names"] in done.names


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_generated_programs_end_as_the_second_implementation_says(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + CHUNK):
        program = Generator(seed).program()
        done = run(program, tmp_path / str(seed))
        wanted, found = comparable(second(program)), comparable(done)
        parts = ("agents", "scripts", "gates", "items", "inputs")
        given = json.dumps({name: getattr(program, name) for name in parts})
        texts = "\n".join([program.text, *program.others])
        assert found == wanted, f"seed {seed}: {done.why}\n{texts}\n{given}"


def test_every_construct_stands_in_at_least_twenty_programs() -> None:
    programs: Counter[str] = Counter()
    for seed in range(SEEDS):
        generator = Generator(seed)
        generator.program()
        programs.update(generator.used.keys())
    assert {name: programs[name] for name in CONSTRUCTS if programs[name] < 20} == {}
