"""Drawings of plans, as a terminal and as Mermaid show them."""

import random

import pytest

from refold.core.pipeline import Task, TaskPipeline
from refold.core.plan import Arc, Call, Gate, Loop, Plan, Wait
from refold.errors import InvalidPlan
from refold.playbooks.draw import draw, mermaid
from tests.core.acts import step

CHAIN = Plan(name="chain", steps=(step("a", "b"), step("b", "c", work=Wait(seconds=1)), step("c", work=Gate())))

DIAMOND = Plan(
    name="diamond",
    steps=(
        step("start", "left", "right", mode="inclusive"),
        step("left", "end", work=Call(tool="http")),
        step("right", "end", work=Call(tool="python")),
        step("end", join="any"),
    ),
)

CROSSING = Plan(
    name="crossing",
    steps=(
        step("start", "x", "y", mode="inclusive"),
        step("x", "p", "q", mode="inclusive"),
        step("y", "q", "r", mode="inclusive"),
        step("p", "end"),
        step("q", "end"),
        step("r", "end"),
        step("end", join=2),
    ),
)

POLLING = Plan(
    name="polling",
    steps=(
        step("fetch", "decide", Arc(to="sorry", on="failure"), when="{{ workload.on }}"),
        step("decide", Arc(to="fetch", when="{{ ctx.more and visit < 10 }}"), Arc(to="each", on="both", when=True)),
        step("each", loop=Loop(items="{{ decide.rows | selectattr('good') | list }}", iterator="row", max_in_flight=4)),
        step("sorry", loop=Loop(items=[1, 2], sequential=True)),
        step("last"),
        step("clean"),
        step("alert"),
    ),
    final_step="last",
    always=("clean",),
    on_fail=("alert",),
)

DRAWN = {
    "a chain": (
        CHAIN,
        """\
○  a  noop
○  b  wait
○  c  gate
""",
    ),
    "a diamond": (
        DIAMOND,
        """\
○    start  noop
├─╮
○ │  left   http
│ ○  right  python
├─╯
○    end    noop    joins any
""",
    ),
    "crossing ways": (
        CROSSING,
        """\
○        start  noop
├─╮
○ │      x      noop
├─┼─╮
○ │ │    p      noop
│ ○ │    y      noop
│ ├─┼─╮
│ ├─╯ │
│ ○   │  q      noop
│ │   ○  r      noop
├─┴───╯
○        end    noop    joins at least 2
""",
    ),
    "a loop, a fan-out and finalizers": (
        POLLING,
        """\
○    fetch   noop    only if workload.on; → sorry on failure
├─╮
○ │  decide  noop    ↺ fetch if ctx.more and visit < 10; → each in any case if true
○ │  each    noop    ⟳ each row of decide.rows | selectattr('good'…, 4 at once
  ○  sorry   noop    ⟳ each item of 2 items, one by one

○    last    noop    at the end, if all went well
○    clean   noop    at the end
○    alert   noop    at the end, if the run failed
""",
    ),
}


@pytest.mark.parametrize(("plan", "drawn"), DRAWN.values(), ids=DRAWN)
def test_a_plan_is_drawn_with_one_line_per_step(plan: Plan, drawn: str) -> None:
    assert draw(plan) == drawn


def test_a_list_of_tools_is_drawn_by_their_kinds() -> None:
    tasks = [Task(name=f"t{n}", kind=kind) for n, kind in enumerate(("http", "python", "http", "sqlite", "noop"))]
    one, many = (TaskPipeline(tasks=tuple(each)) for each in (tasks[:1], tasks))
    lines = draw(Plan(name="p", steps=(step("a", "b", work=one), step("b", work=many)))).splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == ["http", "http, python, sqlite, …"]


def test_what_has_become_of_a_step_is_shown_by_its_symbol() -> None:
    assert draw(DIAMOND, {"start": "completed", "left": "failed", "right": "started", "end": "skipped"}) == (
        "✔    start  noop\n├─╮\n✘ │  left   http\n│ ◐  right  python\n├─╯\n⊘    end    noop    joins any\n"
    )


def test_a_status_nobody_knows_is_drawn_like_none() -> None:
    assert draw(CHAIN, {"a": "dreaming"}) == draw(CHAIN)


def test_a_step_that_cannot_be_reached_is_drawn_apart() -> None:
    assert draw(Plan(name="p", steps=(step("a"), step("b", "a")))) == "○  a  noop\n\n○  b  noop    cannot be reached\n"


def random_plan(seed: int) -> Plan:
    chance = random.Random(seed)
    names = [f"s{n}" for n in range(chance.randint(1, 12))]
    steps = [step(name, *chance.sample(names, chance.randint(0, min(4, len(names))))) for name in names]
    return Plan(name="random", steps=tuple(steps))


@pytest.mark.parametrize("seed", range(200))
def test_every_step_of_any_graph_has_exactly_one_line(seed: int) -> None:
    plan = random_plan(seed)
    lines = [line for line in draw(plan).splitlines() if "○" in line]
    assert sorted(line.split("noop")[0].split()[-1] for line in lines) == sorted(each.name for each in plan.steps)
    assert len({line.index("noop") for line in lines}) == 1, "names and tools stand below each other"
    assert all(line.count("○") == 1 for line in lines)


def test_a_plan_is_drawn_in_mermaid() -> None:
    assert (
        mermaid(POLLING)
        == """\
flowchart TD
    s0["fetch<br>noop"]
    s1["decide<br>noop"]
    s2[["each<br>noop"]]
    s3[["sorry<br>noop"]]
    s4["last<br>noop"]
    s5["clean<br>noop"]
    s6["alert<br>noop"]
    s0 --> s1
    s0 -.->|"on failure"| s3
    s1 -->|"↺ if ctx.more and visit #lt; 10"| s0
    s1 -->|"in any case if true"| s2
    subgraph end_of_run [at the end]
        s4
        s5
        s6
    end
"""
    )


def test_names_cannot_break_out_of_mermaid() -> None:
    plan = Plan(
        name="p", steps=(step('a"]; click x <script>&|', Arc(to="w", when="#1")), step("w", work=Wait(signal="s")))
    )
    assert '    s0["a#quot;]; click x #lt;script#gt;#amp;#124;<br>noop"]\n' in mermaid(plan)
    assert '    s0 -->|"if #35;1"| s1\n' in mermaid(plan)
    assert '    s1(["w<br>wait"])\n' in mermaid(plan)


def test_a_plan_that_is_none_is_not_drawn() -> None:
    with pytest.raises(InvalidPlan):
        draw(Plan(name="p", steps=(step("a", "nowhere"),)))
