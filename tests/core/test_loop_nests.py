"""Loops of arcs are found in time that grows with the plan, and are those that their definition says."""

import random
from collections.abc import Iterator

import pytest

from refold.core.graph import Graph, analyse
from refold.core.plan import Arc, Plan, Step
from refold.errors import InvalidPlan
from tests.growth import grows_linearly


def planned(arcs: list[list[int]], each_pass: frozenset[tuple[int, int]] = frozenset(), join: str = "any") -> Plan:
    steps = [
        Step(
            name=f"s{s}",
            join=join,  # type: ignore[arg-type]
            arcs=tuple(Arc(to=f"s{to}", when="{{ visit < 3 }}", each_pass=(s, to) in each_pass) for to in targets),
        )
        for s, targets in enumerate(arcs)
    ]
    return Plan(name="nest", steps=tuple(steps))


def ladder(rungs: int) -> list[list[int]]:
    """Each step leads on to the next and back to the one before: as many loops inside each other as steps."""
    return [[to for to in (s - 1, s + 1) if 0 <= to < rungs] for s in range(rungs)]


def bodies_by_definition(graph: Graph) -> dict[int, set[int]]:
    """Per head: itself, and what is below it in the walk and gets back to it through what is below it."""
    met: dict[int, int] = {}
    left: dict[int, int] = {}
    back: set[int] = set()

    def visit(step: int) -> None:
        met[step] = len(met)
        for a in graph.out[step]:
            to = graph.target[a]
            if to not in met:
                visit(to)
            elif to not in left:
                back.add(a)
        left[step] = len(met)

    visit(graph.entry)
    found: dict[int, set[int]] = {}
    for head in {graph.target[a] for a in back}:
        below = {step for step in met if met[head] < met[step] < left[head]}
        todo = [graph.origin[a] for a in back if graph.target[a] == head]
        body = {head}
        while todo:
            step = todo.pop()
            if step in below and step not in body:
                body.add(step)
                todo += [graph.origin[a] for a, to in enumerate(graph.target) if to == step]
        found[head] = body
    return found


def graphs(count: int) -> Iterator[tuple[int, Graph]]:
    for seed in range(count):
        chance = random.Random(seed)
        steps = chance.randint(1, 14)
        arcs = [sorted({chance.randrange(steps) for _ in range(chance.randint(0, 3))}) for _ in range(steps)]
        yield seed, analyse(planned(arcs))


def test_the_loops_of_2000_random_graphs_are_those_of_the_definition() -> None:
    most = 0
    for seed, graph in graphs(2000):
        wanted = bodies_by_definition(graph)
        assert {loop.head: set(loop.steps()) for loop in graph.loops} == wanted, seed
        sizes = [(-len(loop), loop.head) for loop in graph.loops]
        assert sizes == sorted(sizes), seed
        for number, loop in enumerate(graph.loops):
            around = [each for each in graph.loops if loop.head in wanted[each.head] and each is not loop]
            smallest = min(around, key=len, default=None)
            assert loop.parent == (-1 if smallest is None else graph.loops.index(smallest)), seed
            inner = [n for n, each in enumerate(graph.loops) if n != number and each.head in wanted[loop.head]]
            assert loop.inner() == inner, seed
            most = max(most, len(around))
        for a, holder in enumerate(graph.exit_of):
            source, target = graph.origin[a], graph.target[a]
            left = [n for n, each in enumerate(graph.loops) if source in wanted[each.head] and target not in each]
            expected = left[0] if left and graph.reached[source] and graph.back[a] < 0 else -1
            assert holder == expected, seed
    assert most >= 4


def test_what_a_new_pass_sets_back_is_what_lies_in_the_body() -> None:
    for seed, graph in graphs(400):
        for loop in graph.loops:
            anew, body = loop.pass_reset(), set(loop.steps())
            into = [a for s in sorted(body) for a in graph.into[s]]
            assert list(anew.inside) == [a for a in into if graph.origin[a] in body], seed
            assert list(anew.outside) == [a for a in into if graph.origin[a] not in body], seed
            assert list(anew.inside_exits) == [a for a in anew.inside if graph.exit_of[a] >= 0], seed
            for s, waits, feeds in anew.body_counts:
                arcs = [a for a in anew.inside if graph.target[a] == s]
                assert (waits, feeds) == (len(arcs), len({graph.origin[a] for a in arcs})), seed


def side_entries(steps: int) -> list[list[int]]:
    """A ladder whose entry leads into every rung."""
    rungs = ladder(steps)
    rungs[0] = list(range(1, steps))
    return rungs


def exits(steps: int) -> list[list[int]]:
    """A ladder whose every rung also leads out of all loops."""
    return [*([*targets, steps] for targets in ladder(steps)), []]


SHAPES = {"a ladder": ladder, "a ladder with side entries": side_entries, "a ladder with exits": exits}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("join", ["any", "race"])
def test_a_plan_with_loops_inside_loops_is_analysed_in_time_that_grows_with_it(shape: str, join: str) -> None:
    assert grows_linearly(lambda size: analyse(planned(SHAPES[shape](size), join=join)), 500)


def test_arcs_of_each_pass_that_follow_each_other_without_end_are_refused() -> None:
    arcs: list[list[int]] = [[1], [0, 2], *([s + 1] for s in range(2, 200)), []]
    chain = frozenset((s, s + 1) for s in range(1, 200))
    with pytest.raises(InvalidPlan, match="follow each other more than 100 times"):
        analyse(planned(arcs, chain))
    few = analyse(planned(arcs, frozenset((s, s + 1) for s in range(1, 50))))
    assert len(few.loops[0]) == 51
