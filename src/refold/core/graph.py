"""The graph of a plan, analysed once before any run: reachable steps, loops, and the role of each arc."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import Struct

from refold.core.pipeline import TaskPipeline
from refold.core.plan import Arc, Gate, Plan, Step, WorkerWork, finalizers_of, hash_of, normalised, problems_of
from refold.errors import InvalidPlan

KEPT = 1000  # a loop of at most so many steps keeps what its next pass needs
MOST_ROUNDS = 100  # times that `each_pass` may pull further steps into a loop


class PassReset(Struct, frozen=True):
    """What is reset when a loop begins another pass."""

    body_counts: tuple[tuple[int, int, int], ...]  # per step of the body: step, arcs into it from inside, their origins
    inside: tuple[int, ...]  # forward arcs with both ends in the body
    inside_exits: tuple[int, ...]  # those of them that leave an inner loop
    outside: tuple[int, ...]  # forward arcs into the body from outside


class Layout(Struct, frozen=True):
    """All loops in one order in which the steps of a loop, and the loops inside it, are consecutive.

    A list for each loop would take memory that grows with the square of the depth of nesting.
    """

    order: list[int]  # the steps that are in a loop
    rank: list[int]  # per step: its index in that order, or -1
    loops: list[int]
    into: list[list[int]]  # per step: forward arcs into it
    origin: list[int]
    target: list[int]
    exit_of: list[int]


class ArcLoop:
    """A loop made of arcs: its head and every step from which arcs lead back to it."""

    __slots__ = ("_layout", "_loops", "_pass_reset", "_steps", "exits", "head", "members", "parent")

    def __init__(
        self, head: int, parent: int, members: int, exits: tuple[int, ...], layout: Layout, steps: range, loops: range
    ) -> None:
        self.head = head
        self.parent = parent  # the loop around it, or -1
        self.members = members  # how many steps and loops are directly inside
        self.exits = exits  # arcs that leave the loop; they are resolved when it is finished
        self._layout, self._steps, self._loops = layout, steps, loops
        self._pass_reset: PassReset | None = None

    def __contains__(self, step: int) -> bool:
        return self._layout.rank[step] in self._steps

    def __len__(self) -> int:
        return len(self._steps)

    def steps(self) -> list[int]:
        """Return the steps of the body, in file order."""
        return sorted(self._layout.order[self._steps.start : self._steps.stop])

    def inner(self) -> list[int]:
        """Return all loops inside, at any depth."""
        return sorted(self._layout.loops[self._loops.start + 1 : self._loops.stop])

    def pass_reset(self) -> PassReset:
        """Return what another pass resets. It is kept for the next pass, unless the body is large."""
        reset = self._pass_reset
        if reset is None:
            reset = self._new_pass_reset()
            if len(self) <= KEPT:
                self._pass_reset = reset
        return reset

    def _new_pass_reset(self) -> PassReset:
        at, steps = self._layout, self.steps()
        arcs = [(a, at.origin[a] in self) for s in steps for a in at.into[s]]
        inside = tuple(a for a, starts_inside in arcs if starts_inside)
        waits = Counter(at.target[a] for a in inside)
        feeds = Counter(target for _, target in dict.fromkeys((at.origin[a], at.target[a]) for a in inside))
        return PassReset(
            body_counts=tuple((s, waits[s], feeds[s]) for s in steps),
            inside=inside,
            inside_exits=tuple(a for a in inside if at.exit_of[a] >= 0),
            outside=tuple(a for a, starts_inside in arcs if not starts_inside),
        )


class Graph(Struct, frozen=True):
    """A plan, indexed: steps and arcs are numbers in file order."""

    plan: Plan
    index: dict[str, int]
    specs: tuple[Arc, ...]
    origin: tuple[int, ...]
    target: tuple[int, ...]
    back: tuple[int, ...]  # per arc: the loop it goes back in, or -1
    exit_of: tuple[int, ...]  # per arc: the outermost loop that it leaves, or -1; it is resolved when that is finished
    settles_with_origin: bytes  # per arc: neither of the two, so it is resolved when its origin settles
    out: tuple[tuple[int, ...], ...]
    into: tuple[tuple[int, ...], ...]  # forward arcs only
    need: tuple[int, ...]  # how many origins must take an arc; 0: all arcs must be resolved
    origin_count: tuple[int, ...]  # how many different steps lead here
    parallel_arcs: dict[int, tuple[int, ...]]  # forward arc -> the others with the same origin and target
    reached: bytes
    loops: tuple[ArcLoop, ...]
    loop_by_head: dict[str, int]
    loop_of: tuple[int, ...]  # per step: the innermost loop around it, or -1
    arcs_without_conditions: tuple[
        frozenset[int] | None, ...
    ]  # taken after success, if no condition has to be evaluated
    order: tuple[int, ...]  # if there are races: all steps; those that can only lead into a race follow it
    rank: tuple[int, ...]  # per step: its index in that order
    race_losers: dict[int, range]  # race -> the ranks of the steps that can only lead into it
    windows: tuple[int, ...]  # per step: how many items of a fan-out may run at a time
    list_loops: tuple[int, ...]  # steps that are repeated for each item
    finalizers: frozenset[int]
    entry: int
    gates: frozenset[int]
    secret: frozenset[int]  # steps whose results are stored encrypted
    polled_calls: frozenset[int]  # calls that are repeated until a condition holds
    engine_steps: frozenset[int]  # steps that the engine ends itself, or times
    takers: dict[str, tuple[int, ...]]  # per type of event: the steps that take it
    collects_with_timeout: frozenset[int]  # steps that collect events for a limited time
    by_events: bool  # events lead from step to step, not arcs
    climb: "Climb"  # from a loop to the loops around it

    def step(self, s: int) -> Step:
        return self.plan.steps[s]

    def name(self, s: int) -> str:
        return self.plan.steps[s].name

    def around(self, loop: int, step: int) -> int:
        """Return the innermost loop around this one that has the step, or -1. The loop itself must not have it."""
        last = self.climb.last_without(loop, lambda each: step in self.loops[each])
        return self.loops[last].parent


class _Walk(Struct):
    """A depth-first walk from the entry, arcs in file order: when each step was met and left, which arcs go back."""

    met: list[int]
    left: list[int]
    above: list[int]  # the step it was met from, or -1
    back: list[bool]

    def is_below(self, step: int, other: int) -> bool:
        """Whether the step was met below the other one, or is the other one."""
        return self.met[other] <= self.met[step] < self.left[other]


def _walk(entry: int, out: list[list[int]], target: list[int]) -> _Walk:
    walk = _Walk([-1] * len(out), [-1] * len(out), [-1] * len(out), [False] * len(target))
    clock = 1
    walk.met[entry] = 0
    path: list[tuple[int, Iterator[int]]] = [(entry, iter(out[entry]))]
    while path:
        step, arcs = path[-1]
        for a in arcs:
            to = target[a]
            if walk.met[to] < 0:
                walk.met[to], walk.above[to] = clock, step
                clock += 1
                path.append((to, iter(out[to])))
                break
            walk.back[a] = walk.left[to] < 0
        else:
            walk.left[step] = clock
            path.pop()
    return walk


class Climb:
    """Finds a node's last ancestor that fails a test, in logarithmic time.

    If the test holds for a node, it must hold for all of its ancestors.
    """

    def __init__(self, above: list[int]) -> None:
        self._jumps = [above]  # the ancestors 1, 2, 4, … levels up; -1 is above all

    def last_without(self, start: int, holds: Callable[[int], bool]) -> int:
        height = 0
        while self._jump(height, start) >= 0 and not holds(self._jump(height, start)):
            height += 1
        for each in range(height, -1, -1):
            further = self._jump(each, start)
            if further >= 0 and not holds(further):
                start = further
        return start

    def _jump(self, height: int, start: int) -> int:
        while len(self._jumps) <= height:
            half = self._jumps[-1]
            self._jumps.append([half[to] if to >= 0 else -1 for to in half])
        return self._jumps[height][start]


class _Groups:
    """Disjoint sets of steps that are in one loop, each known by the head of the loop."""

    def __init__(self, steps: int) -> None:
        self._of = list(range(steps))

    def find(self, step: int) -> int:
        of = self._of
        while of[step] != step:
            of[step] = of[of[step]]
            step = of[step]
        return step

    def join(self, head: int, step: int) -> None:
        self._of[step] = head


def _groups(walk: _Walk, origin: list[int], target: list[int]) -> dict[int, list[int]]:
    """Return per head, inner loops first, the steps and the heads of loops that are directly inside.

    The body of a loop is its head, and the steps below it from which arcs lead back to it through steps below it.
    Heads are processed from the last one met to the first. The inside of a loop then becomes one group, so that no
    step is visited again for each loop around it. An arc counts from the first step that is above both of its ends.
    """
    tails: dict[int, list[int]] = {}
    arcs_below: dict[int, list[int]] = {}
    climb = Climb(walk.above)
    for a, to in enumerate(target):
        start = origin[a]
        if walk.met[start] < 0:
            continue
        if walk.back[a]:
            tails.setdefault(to, []).append(start)
        elif walk.is_below(to, start):
            arcs_below.setdefault(start, []).append(a)
        else:
            child = climb.last_without(start, partial(walk.is_below, to))
            arcs_below.setdefault(walk.above[child], []).append(a)
    groups = _Groups(len(walk.met))
    origins: dict[int, list[int]] = {}
    inside_of: dict[int, list[int]] = {}
    for step in sorted(tails.keys() | arcs_below.keys(), key=walk.met.__getitem__, reverse=True):
        for a in arcs_below.get(step, ()):
            origins.setdefault(groups.find(target[a]), []).append(origin[a])
        if step not in tails:
            continue
        inside: dict[int, None] = {}
        todo = [groups.find(tail) for tail in tails[step]]
        while todo:
            each = todo.pop()
            if each != step and each not in inside:
                inside[each] = None
                todo += map(groups.find, origins.get(each, ()))
        for each in inside:
            groups.join(step, each)
        inside_of[step] = list(inside)
    return inside_of


class _Nest(Struct):
    """The loops by number, the largest first, so that a loop comes before the loops inside it."""

    heads: list[int]
    parents: list[int]
    loop_of: list[int]
    order: list[int]  # steps; those of a loop are consecutive
    rank: list[int]
    steps: list[range]  # per loop: the ranks of its steps
    loops: list[int]  # loops; those inside a loop follow it
    inner: list[range]
    climb: Climb

    def has(self, loop: int, step: int) -> bool:
        return self.rank[step] in self.steps[loop]

    def first_left(self, origin: int, target: int) -> int:
        """Return the innermost loop that an arc leaves, or -1."""
        loop = self.loop_of[origin]
        return loop if loop >= 0 and not self.has(loop, target) else -1

    def last_left(self, origin: int, target: int) -> int:
        """Return the outermost loop that an arc leaves, or -1."""
        loop = self.first_left(origin, target)
        return loop if loop < 0 else self.climb.last_without(loop, lambda each: self.has(each, target))


def _nest(groups: dict[int, list[int]], steps: int) -> _Nest:
    sizes: dict[int, int] = {}
    for head, inside in groups.items():
        sizes[head] = 1 + sum(sizes.get(each, 1) for each in inside)
    heads = sorted(groups, key=lambda head: (-sizes[head], head))
    number = {head: loop for loop, head in enumerate(heads)}
    parents, loop_of = [-1] * len(heads), [-1] * steps
    for head, inside in groups.items():
        loop_of[head] = number[head]
        for each in inside:
            if each in number:
                parents[number[each]] = number[head]
            else:
                loop_of[each] = number[head]
    nest = _Nest(heads, parents, loop_of, [], [-1] * steps, [], [], [], Climb(parents))
    nest.steps, nest.inner = [range(0)] * len(heads), [range(0)] * len(heads)
    todo = [loop for loop, parent in enumerate(parents) if parent < 0]
    while todo:
        loop = todo.pop()
        if loop < 0:  # everything inside this loop has been placed
            loop = ~loop
            nest.steps[loop] = range(nest.steps[loop].start, len(nest.order))
            nest.inner[loop] = range(nest.inner[loop].start, len(nest.loops))
            continue
        nest.steps[loop] = range(len(nest.order), len(nest.order))
        nest.inner[loop] = range(len(nest.loops), len(nest.loops))
        nest.loops.append(loop)
        todo.append(~loop)
        for step in (heads[loop], *groups[heads[loop]]):
            if step in number and step != heads[loop]:
                todo.append(number[step])
            else:
                nest.rank[step] = len(nest.order)
                nest.order.append(step)
    return nest


class _Wiring(Struct):
    """Arcs as numbers. Virtual back arcs, appended after the real ones, pull `each_pass` targets into the loop body."""

    specs: list[Arc]
    origin: list[int]
    target: list[int]
    out: list[list[int]]

    def add(self, origin: int, target: int) -> None:
        self.out[origin].append(len(self.target))
        self.origin.append(origin)
        self.target.append(target)


def _analyse(wiring: _Wiring, entry: int, steps: int) -> tuple[_Walk, _Nest]:
    """Find the loops. The target of an `each_pass` arc below the head of a loop is in it, as if an arc led back."""
    added: set[tuple[int, int]] = set()
    for _ in range(MOST_ROUNDS):
        walk = _walk(entry, wiring.out, wiring.target)
        nest = _nest(_groups(walk, wiring.origin, wiring.target), steps)
        wanted = set()
        for a, spec in enumerate(wiring.specs):
            loop = nest.first_left(wiring.origin[a], wiring.target[a]) if spec.each_pass else -1
            if loop >= 0:
                wanted.add((wiring.target[a], nest.heads[loop]))
        new = {(step, head) for step, head in wanted - added if walk.met[head] < walk.met[step] < walk.left[head]}
        if not new:
            return walk, nest
        for step, head in sorted(new):
            wiring.add(step, head)
        added |= new
    raise InvalidPlan(
        [f"arcs with `each_pass` follow each other more than {MOST_ROUNDS} times; lead them into the loop"]
    )


def _arc_loops(nest: _Nest, into: list[list[int]], wiring: _Wiring, exit_of: list[int]) -> tuple[ArcLoop, ...]:
    members = Counter(nest.parents) + Counter(nest.loop_of)
    exits: list[list[int]] = [[] for _ in nest.heads]
    for a, loop in enumerate(exit_of):
        if loop >= 0:
            exits[loop].append(a)
    layout = Layout(nest.order, nest.rank, nest.loops, into, wiring.origin, wiring.target, exit_of)
    return tuple(
        ArcLoop(head, nest.parents[loop], members[loop], tuple(exits[loop]), layout, nest.steps[loop], nest.inner[loop])
        for loop, head in enumerate(nest.heads)
    )


def _parallel_arcs(into: list[list[int]], origin: list[int]) -> dict[int, tuple[int, ...]]:
    parallel_arcs = {}
    for arcs in into:
        if len(arcs) < 2:
            continue
        by_origin: dict[int, list[int]] = {}
        for a in arcs:
            by_origin.setdefault(origin[a], []).append(a)
        for same in by_origin.values():
            if len(same) > 1:
                parallel_arcs.update({a: tuple(b for b in same if b != a) for a in same})
    return parallel_arcs


def _arcs_without_conditions(step: Step, arcs: Iterable[int]) -> frozenset[int] | None:
    taken: list[int] = []
    for a, arc in zip(arcs, step.arcs, strict=True):
        if arc.on == "timeout":
            return None
        if arc.on == "failure" or (taken and step.mode == "exclusive"):
            continue
        if arc.when is not None or arc.set or arc.append or arc.input:
            return None
        taken.append(a)
    return None if step.set or step.append or step.patch is not None else frozenset(taken)


def _through(walk: _Walk, wiring: _Wiring, forward: list[int]) -> dict[int, int]:
    """Return per reachable step, targets first, the nearest step that all its forward paths lead into, or -1."""
    ahead: dict[int, list[int]] = {s: [] for s, met in enumerate(walk.met) if met >= 0}
    for a in forward:
        ahead[wiring.origin[a]].append(wiring.target[a])
    through: dict[int, int] = {}
    depth, far = {-1: 0}, {-1: -1}  # far: a step further on, so that long paths take few jumps

    def meeting(one: int, other: int) -> int:
        while one != other:
            if depth[one] < depth[other]:
                one, other = other, one
            if depth[one] > depth[other]:
                one = far[one] if depth[far[one]] >= depth[other] else through[one]
            elif far[one] != far[other]:
                one, other = far[one], far[other]
            else:
                one, other = through[one], through[other]
        return one

    for s in sorted(ahead, key=lambda s: (walk.left[s], -walk.met[s])):
        meet = ahead[s][0] if ahead[s] else -1
        for other in ahead[s][1:]:
            meet = meeting(meet, other)
        through[s], depth[s] = meet, depth[meet] + 1
        even = depth[meet] - depth[far[meet]] == depth[far[meet]] - depth[far[far[meet]]]
        far[s] = far[far[meet]] if even else meet
    return through


class _Ranks(Struct):
    """An order in which the steps that can only lead into a step directly follow it, and how many those are."""

    rank: list[int]
    behind: list[int]


def _ranks(through: dict[int, int], steps: int) -> _Ranks:
    size = [1] * steps
    for s, to in reversed(through.items()):
        if to >= 0:
            size[to] += size[s]
    free = 0
    rank, inner = [-1] * steps, [0] * steps  # inner: the first free rank after a step
    for s in (*through, *(s for s in range(steps) if s not in through)):
        to = through.get(s, -1)
        if to >= 0:
            rank[s] = inner[to]
            inner[to] += size[s]
        else:
            rank[s] = free
            free += size[s]
        inner[s] = rank[s] + 1
    return _Ranks(rank, [each - 1 for each in size])


def _ends(
    nest: _Nest, wiring: _Wiring, forward: list[int], exit_of: list[int], into: list[list[int]]
) -> tuple[list[int], list[list[int]]]:
    """Return per arc the loop that it leaves, and per step the forward arcs into it."""
    for a in forward:
        exit_of[a] = nest.last_left(wiring.origin[a], wiring.target[a])
        into[wiring.target[a]].append(a)
    return exit_of, into


def analyse(plan: Plan) -> Graph:
    """Return the graph of a plan, or raise InvalidPlan with everything that is wrong with it."""
    problems = list(problems_of(plan))
    if problems:
        raise InvalidPlan(problems)
    names, index = [step.name for step in plan.steps], {step.name: s for s, step in enumerate(plan.steps)}
    wiring = _Wiring([], [], [], [[] for _ in names])
    for s, step in enumerate(plan.steps):
        for arc in step.arcs:
            wiring.specs.append(arc)
            wiring.add(s, index[arc.to])
    entry = index[plan.entry] if plan.entry else 0
    walk, nest = _analyse(wiring, entry, len(names))
    real = len(wiring.specs)
    reached = bytes(met >= 0 for met in walk.met)
    forward = [a for a in range(real) if reached[wiring.origin[a]] and not walk.back[a]]
    loop_of_head = {head: loop for loop, head in enumerate(nest.heads)}
    exit_of, into = _ends(nest, wiring, forward, [-1] * real, [[] for _ in names])
    origin_counts = [len({wiring.origin[a] for a in arcs}) for arcs in into]
    for s, step in enumerate(plan.steps):
        if isinstance(step.join, int) and reached[s] and s != entry and step.join > origin_counts[s]:
            problems.append(f"step {step.name!r} waits for {step.join} sources but has {origin_counts[s]}")
    if problems:
        raise InvalidPlan(problems)
    wiring.out = [[a for a in arcs if a < real] for arcs in wiring.out]
    races = [s for s, step in enumerate(plan.steps) if step.join == "race"]
    polled = [s for s, step in enumerate(plan.steps) if step.poll is not None]
    ranks = _ranks(_through(walk, wiring, forward), len(names)) if races else _Ranks([], [])
    return Graph(
        plan=plan,
        index=index,
        specs=tuple(wiring.specs),
        origin=tuple(wiring.origin[:real]),
        target=tuple(wiring.target[:real]),
        back=tuple(loop_of_head[wiring.target[a]] if walk.back[a] else -1 for a in range(real)),
        exit_of=tuple(exit_of),
        settles_with_origin=bytes(not walk.back[a] and exit_of[a] < 0 for a in range(real)),
        out=tuple(map(tuple, wiring.out)),
        into=tuple(map(tuple, into)),
        need=tuple(step.join if isinstance(step.join, int) else int(step.join != "all") for step in plan.steps),
        origin_count=tuple(origin_counts),
        parallel_arcs=_parallel_arcs(into, wiring.origin),
        reached=reached,
        loops=_arc_loops(nest, into, wiring, exit_of),
        loop_by_head={names[head]: loop for head, loop in loop_of_head.items()},
        loop_of=tuple(nest.loop_of),
        arcs_without_conditions=tuple(
            _arcs_without_conditions(step, arcs) for step, arcs in zip(plan.steps, wiring.out, strict=True)
        ),
        order=tuple(sorted(range(len(ranks.rank)), key=ranks.rank.__getitem__)),
        rank=tuple(ranks.rank),
        race_losers={s: range(ranks.rank[s] + 1, ranks.rank[s] + 1 + ranks.behind[s]) for s in races},
        windows=tuple(
            1 if step.loop is None or step.loop.sequential else step.loop.max_in_flight for step in plan.steps
        ),
        list_loops=tuple(s for s, step in enumerate(plan.steps) if step.loop is not None),
        finalizers=frozenset(index[name] for name in finalizers_of(plan)),
        entry=entry,
        secret=frozenset(
            s for s, step in enumerate(plan.steps) if isinstance(step.work, TaskPipeline) and step.work.secret
        ),
        gates=frozenset(s for s, step in enumerate(plan.steps) if isinstance(step.work, Gate)),
        polled_calls=frozenset(s for s in polled if isinstance(plan.steps[s].work, WorkerWork)),
        engine_steps=frozenset(s for s, step in enumerate(plan.steps) if not isinstance(step.work, WorkerWork)).union(
            polled
        ),
        takers=_takers(plan),
        collects_with_timeout=frozenset(
            s for s, step in enumerate(plan.steps) if step.collect and step.collect.timeout is not None
        ),
        by_events=bool(plan.events),
        climb=nest.climb,
    )


def _takers(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {
        event.name: tuple(s for s, step in enumerate(plan.steps) if {event.name, *event.bases} & {*step.accepts})
        for event in plan.events
    }


class PreparedPlan(Struct, frozen=True, gc=False):
    """A plan that can be stored and run: it was encoded, decoded and analysed once, and is not again for its runs."""

    data: bytes
    hash: str
    graph: Graph


def prepare(plan: Plan) -> PreparedPlan:
    """Raises InvalidPlan."""
    normal, data = normalised(plan)
    return PreparedPlan(data, hash_of(data), analyse(normal))
