"""What is known of a plan before any run: its walk, its loops, who holds which arc."""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.core.pipelines import is_secret
from refold.core.plan import Arc, Call, Gate, Plan, Step
from refold.core.plan_checks import finalizers_of, problems_of
from refold.errors import InvalidPlan


class ArcLoop(Struct, frozen=True):
    """A loop made of arcs: everything that can get back to its head."""

    head: int
    parent: int  # the loop around it, or -1
    fresh: tuple[tuple[int, int, int], ...]  # per step of the body: arcs into it from inside, and their sources
    members: int  # steps and loops directly inside
    inner: tuple[int, ...]  # all loops inside, at any depth
    inside: tuple[int, ...]  # forward arcs with both ends in the body
    inside_held: tuple[int, ...]  # those that an inner loop holds
    outside: tuple[int, ...]  # forward arcs that lead into the body from outside
    held: tuple[int, ...]  # arcs resolved when this loop is finished


class Graph(Struct, frozen=True):
    """A plan, indexed: steps and arcs are numbers in file order."""

    plan: Plan
    index: dict[str, int]
    specs: tuple[Arc, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    back: tuple[int, ...]  # per arc: the loop it goes back in, or -1
    holder: tuple[int, ...]  # per arc: the loop that holds it, or -1
    loose: bytes  # per arc: neither of the two, so it is resolved when its source settles
    out: tuple[tuple[int, ...], ...]
    into: tuple[tuple[int, ...], ...]  # forward arcs only
    need: tuple[int, ...]  # how many sources must take an arc; 0: all arcs must be resolved
    sources: tuple[int, ...]  # how many different sources lead here
    twins: dict[int, tuple[int, ...]]  # arcs with the same source and target as this forward arc, if any
    reached: bytes
    loops: tuple[ArcLoop, ...]
    loop_by_head: dict[str, int]
    loop_of: tuple[int, ...]  # per step: the innermost loop around it, or -1
    plainly: tuple[frozenset[int] | None, ...]  # arcs taken after success when nothing has to be evaluated
    order: tuple[int, ...]  # if there are races: all steps, those that can only lead into a race right behind it
    place: tuple[int, ...]  # per step: where it stands in that order
    losers: dict[int, range]  # per race: the places of the steps all of whose forward paths lead into it
    windows: tuple[int, ...]  # per step: how many items of a fan-out may be open at once
    finalizers: frozenset[int]
    entry: int
    gates: frozenset[int]
    secret: frozenset[int]  # steps whose results are sealed by whoever runs them
    repeats: frozenset[int]  # calls that are made again until something holds
    waits: frozenset[int]  # steps that no worker looks after, or not alone
    takers: dict[str, tuple[int, ...]]  # per type of event: the steps that take it
    timed: frozenset[int]  # steps that do not gather events for ever
    by_events: bool  # events lead from step to step, not arcs

    def step(self, s: int) -> Step:
        return self.plan.steps[s]

    def name(self, s: int) -> str:
        return self.plan.steps[s].name


class _Walk(Struct):
    """Depth first from the entry, arcs in file order: when each step was met and left, which arcs go back."""

    met: list[int]
    left: list[int]
    back: list[bool]


def _walk(entry: int, out: list[list[int]], target: list[int]) -> _Walk:
    walk = _Walk([-1] * len(out), [-1] * len(out), [False] * len(target))
    clock = 1
    walk.met[entry] = 0
    path: list[tuple[int, Iterator[int]]] = [(entry, iter(out[entry]))]
    while path:
        step, arcs = path[-1]
        for a in arcs:
            to = target[a]
            if walk.met[to] < 0:
                walk.met[to] = clock
                clock += 1
                path.append((to, iter(out[to])))
                break
            walk.back[a] = walk.left[to] < 0
        else:
            walk.left[step] = clock
            path.pop()
    return walk


def _bodies(walk: _Walk, source: list[int], target: list[int]) -> dict[int, set[int]]:
    """Head -> body: the head and what is below it and gets back to it through what is below it."""
    sources_of: dict[int, list[int]] = {}
    tails: dict[int, list[int]] = {}
    for a, to in enumerate(target):
        if walk.met[source[a]] >= 0:
            sources_of.setdefault(to, []).append(source[a])
            if walk.back[a]:
                tails.setdefault(to, []).append(source[a])
    bodies = {}
    for head, wanted in tails.items():
        body = {head}
        todo = list(wanted)
        while todo:
            step = todo.pop()
            if step not in body and walk.met[head] < walk.met[step] < walk.left[head]:
                body.add(step)
                todo.extend(sources_of[step])
        bodies[head] = body
    return bodies


class _Nest(Struct):
    heads: list[int]
    bodies: list[set[int]]
    parents: list[int]
    loop_of: list[int]

    def leaves(self, source: int, target: int) -> list[int]:
        """The loops that an arc leaves, innermost first."""
        found = []
        loop = self.loop_of[source]
        while loop >= 0 and target not in self.bodies[loop]:
            found.append(loop)
            loop = self.parents[loop]
        return found


def _nest(bodies: dict[int, set[int]], steps: int) -> _Nest:
    heads = sorted(bodies, key=lambda head: (-len(bodies[head]), head))
    nest = _Nest(heads, [bodies[head] for head in heads], [], [-1] * steps)
    for loop, head in enumerate(heads):
        nest.parents.append(nest.loop_of[head])
        for step in nest.bodies[loop]:
            nest.loop_of[step] = loop
    return nest


class _Wiring(Struct):
    """Arcs as numbers. `each_pass` adds arcs that are never taken, behind the real ones."""

    specs: list[Arc]
    source: list[int]
    target: list[int]
    out: list[list[int]]

    def add(self, source: int, target: int) -> None:
        self.out[source].append(len(self.target))
        self.source.append(source)
        self.target.append(target)


def _analyse(wiring: _Wiring, entry: int, steps: int) -> tuple[_Walk, _Nest]:
    """`each_pass` puts the target into the loop, if it stands below its head, as if an arc led back from there."""
    added: set[tuple[int, int]] = set()
    while True:
        walk = _walk(entry, wiring.out, wiring.target)
        nest = _nest(_bodies(walk, wiring.source, wiring.target), steps)
        wanted = set()
        for a, spec in enumerate(wiring.specs):
            for loop in nest.leaves(wiring.source[a], wiring.target[a])[:1] if spec.each_pass else ():
                wanted.add((wiring.target[a], nest.heads[loop]))
        new = {(step, head) for step, head in wanted - added if walk.met[head] < walk.met[step] < walk.left[head]}
        if not new:
            return walk, nest
        for step, head in sorted(new):
            wiring.add(step, head)
        added |= new


def _arc_loops(nest: _Nest, into: list[list[int]], wiring: _Wiring, holder: list[int]) -> tuple[ArcLoop, ...]:
    inner: list[list[int]] = [[] for _ in nest.heads]
    for loop, parent in enumerate(nest.parents):
        while parent >= 0:
            inner[parent].append(loop)
            parent = nest.parents[parent]
    members = Counter(nest.parents) + Counter(nest.loop_of)
    held: list[list[int]] = [[] for _ in nest.heads]
    for a, loop in enumerate(holder):
        if loop >= 0:
            held[loop].append(a)
    loops = []
    for loop, body in enumerate(nest.bodies):
        arcs = [(a, wiring.source[a] in body) for s in sorted(body) for a in into[s]]
        inside = tuple(a for a, starts_inside in arcs if starts_inside)
        waits = Counter(wiring.target[a] for a in inside)
        feeds = Counter(target for _, target in dict.fromkeys((wiring.source[a], wiring.target[a]) for a in inside))
        loops.append(
            ArcLoop(
                head=nest.heads[loop],
                parent=nest.parents[loop],
                fresh=tuple((s, waits[s], feeds[s]) for s in sorted(body)),
                members=members[loop],
                inner=tuple(inner[loop]),
                inside=inside,
                inside_held=tuple(a for a in inside if holder[a] >= 0),
                outside=tuple(a for a, starts_inside in arcs if not starts_inside),
                held=tuple(held[loop]),
            )
        )
    return tuple(loops)


def _twins(into: list[list[int]], source: list[int]) -> dict[int, tuple[int, ...]]:
    twins = {}
    for arcs in into:
        if len(arcs) < 2:
            continue
        by_source: dict[int, list[int]] = {}
        for a in arcs:
            by_source.setdefault(source[a], []).append(a)
        for same in by_source.values():
            if len(same) > 1:
                twins.update({a: tuple(b for b in same if b != a) for a in same})
    return twins


def _plainly(step: Step, arcs: Iterable[int]) -> frozenset[int] | None:
    taken: list[int] = []
    for a, arc in zip(arcs, step.arcs, strict=True):
        if arc.on == "timeout":
            return None
        if arc.on == "failure" or (taken and step.mode == "exclusive"):
            continue
        if arc.when is not None or arc.set or arc.input:
            return None
        taken.append(a)
    return None if step.set else frozenset(taken)


def _through(walk: _Walk, wiring: _Wiring, forward: list[int]) -> dict[int, int]:
    """Per reachable step, targets before sources: the nearest step that all its forward paths lead into, or -1."""
    ahead: dict[int, list[int]] = {s: [] for s, met in enumerate(walk.met) if met >= 0}
    for a in forward:
        ahead[wiring.source[a]].append(wiring.target[a])
    through: dict[int, int] = {}
    depth = {-1: 0}
    for s in sorted(ahead, key=lambda s: (walk.left[s], -walk.met[s])):
        meet = ahead[s][0] if ahead[s] else -1
        for other in ahead[s][1:]:
            while meet != other:
                if depth[meet] < depth[other]:
                    meet, other = other, meet
                meet = through[meet]
        through[s], depth[s] = meet, depth[meet] + 1
    return through


class _Ranks(Struct):
    """An order of the steps in which those that can only lead into a step stand right behind it, and how many."""

    place: list[int]
    behind: list[int]


def _ranks(through: dict[int, int], steps: int) -> _Ranks:
    size = [1] * steps
    for s, to in reversed(through.items()):
        if to >= 0:
            size[to] += size[s]
    free = 0
    place, inner = [-1] * steps, [0] * steps  # inner: the first free place behind a step
    for s in (*through, *(s for s in range(steps) if s not in through)):
        to = through.get(s, -1)
        if to >= 0:
            place[s] = inner[to]
            inner[to] += size[s]
        else:
            place[s] = free
            free += size[s]
        inner[s] = place[s] + 1
    return _Ranks(place, [each - 1 for each in size])


def _ends(
    nest: _Nest, wiring: _Wiring, forward: list[int], holder: list[int], into: list[list[int]]
) -> tuple[list[int], list[list[int]]]:
    """Per arc the loop that holds it, and per step the arcs into it."""
    for a in forward:
        left = nest.leaves(wiring.source[a], wiring.target[a])
        holder[a] = left[-1] if left else -1
        into[wiring.target[a]].append(a)
    return holder, into


def analyse(plan: Plan) -> Graph:
    """Index the plan, or raise InvalidPlan with everything that makes it unfit to run."""
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
    forward = [a for a in range(real) if reached[wiring.source[a]] and not walk.back[a]]
    loop_of_head = {head: loop for loop, head in enumerate(nest.heads)}
    holder, into = _ends(nest, wiring, forward, [-1] * real, [[] for _ in names])
    sources = [len({wiring.source[a] for a in arcs}) for arcs in into]
    for s, step in enumerate(plan.steps):
        if isinstance(step.join, int) and reached[s] and s != entry and step.join > sources[s]:
            problems.append(f"step {step.name!r} waits for {step.join} sources but has {sources[s]}")
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
        source=tuple(wiring.source[:real]),
        target=tuple(wiring.target[:real]),
        back=tuple(loop_of_head[wiring.target[a]] if walk.back[a] else -1 for a in range(real)),
        holder=tuple(holder),
        loose=bytes(not walk.back[a] and holder[a] < 0 for a in range(real)),
        out=tuple(map(tuple, wiring.out)),
        into=tuple(map(tuple, into)),
        need=tuple(step.join if isinstance(step.join, int) else int(step.join != "all") for step in plan.steps),
        sources=tuple(sources),
        twins=_twins(into, wiring.source),
        reached=reached,
        loops=_arc_loops(nest, into, wiring, holder),
        loop_by_head={names[head]: loop for head, loop in loop_of_head.items()},
        loop_of=tuple(nest.loop_of),
        plainly=tuple(_plainly(step, arcs) for step, arcs in zip(plan.steps, wiring.out, strict=True)),
        order=tuple(sorted(range(len(ranks.place)), key=ranks.place.__getitem__)),
        place=tuple(ranks.place),
        losers={s: range(ranks.place[s] + 1, ranks.place[s] + 1 + ranks.behind[s]) for s in races},
        windows=tuple(1 if step.loop is None or step.loop.sequential else step.loop.window for step in plan.steps),
        finalizers=frozenset(index[name] for name in finalizers_of(plan)),
        entry=entry,
        secret=frozenset(s for s, step in enumerate(plan.steps) if is_secret(step.work)),
        gates=frozenset(s for s, step in enumerate(plan.steps) if isinstance(step.work, Gate)),
        repeats=frozenset(s for s in polled if isinstance(plan.steps[s].work, Call)),
        waits=frozenset(s for s, step in enumerate(plan.steps) if not isinstance(step.work, Call)).union(polled),
        takers=_takers(plan),
        timed=frozenset(s for s, step in enumerate(plan.steps) if step.collect and step.collect.timeout is not None),
        by_events=bool(plan.events),
    )


def _takers(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {
        event.name: tuple(s for s, step in enumerate(plan.steps) if {event.name, *event.bases} & {*step.accepts})
        for event in plan.events
    }
