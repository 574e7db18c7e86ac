"""What makes a plan unfit to run, by name."""

from collections import Counter
from collections.abc import Iterator
from math import inf

from refold.core.plan import LONGEST, START, Call, Gate, Loop, Plan, Poll, Quality, Step, Wait, Work, durations


def finalizers_of(plan: Plan) -> tuple[str, ...]:
    diverted = (plan.on_budget,) if plan.on_budget not in ("pause", "fail") else ()
    return (*plan.always, *plan.on_fail, *((plan.final_step,) if plan.final_step else ()), *diverted)


def problems_of(plan: Plan) -> Iterator[str]:
    if not plan.steps:
        yield f"workflow {plan.name!r} has no steps"
    known: set[str] = set()
    for step in plan.steps:
        if step.name in known:
            yield f"two steps are called {step.name!r}"
        known.add(step.name)
        yield from _step_problems(step)
    finalizers = finalizers_of(plan)
    for name in (*finalizers, plan.entry):
        if name and name not in known:
            yield f"there is no step {name!r}"
    yield from (f"{name!r} is a finalizer twice" for name, times in Counter(finalizers).items() if times > 1)
    if plan.steps and (plan.entry or plan.steps[0].name) in finalizers:
        yield f"the entry {plan.entry or plan.steps[0].name!r} is a finalizer"
    yield from (f"the budget of {unit} is {limit:g}" for unit, limit in plan.budget.items() if not 0 <= limit < inf)
    times = (each for each in durations(plan) if not 0 <= each[1] <= LONGEST)
    yield from (f"{what} is {seconds:g} s; it must lie between 0 and 100 years" for what, seconds in times)
    yield from _arc_problems(plan, known, finalizers)
    yield from _event_problems(plan, finalizers)


def _arc_problems(plan: Plan, known: set[str], finalizers: tuple[str, ...]) -> Iterator[str]:
    for step in plan.steps:
        goes_elsewhere = isinstance(step.work, Gate) and step.work.on_timeout == "goto"
        if goes_elsewhere != any(arc.on == "timeout" for arc in step.arcs):
            yield f"step {step.name!r}: a gate that goes elsewhere on its timeout has arcs for that, and no other step"
        for arc in step.arcs:
            if arc.to not in known:
                yield f"step {step.name!r} leads to {arc.to!r}, which does not exist"
            if arc.to in finalizers or step.name in finalizers:
                yield f"arc {step.name!r} -> {arc.to!r}: a finalizer has no arcs"


def _step_problems(step: Step) -> Iterator[str]:
    if not step.name or "/" in step.name or "#" in step.name:
        yield f"{step.name!r} is no name for a step: it must not be empty or contain '/' or '#'"
    if isinstance(step.join, int) and step.join < 1:
        yield f"step {step.name!r} waits for {step.join} sources; at least 1 is needed"
    if step.retry.attempts < 1:
        yield f"step {step.name!r} has {step.retry.attempts} attempts; at least 1 is needed"
    if step.visit_limit < 1:
        yield f"step {step.name!r} has a visit limit of {step.visit_limit}; at least 1 is needed"
    if isinstance(step.work, Gate):
        yield from _gate_problems(step.name, step.work)
    if step.poll is not None:
        yield from _poll_problems(step, step.poll)
    if step.loop is not None:
        yield from _loop_problems(step.name, step.work, step.loop)


def _event_problems(plan: Plan, finalizers: tuple[str, ...]) -> Iterator[str]:
    """Steps follow either arcs or events."""
    types = {each.name for each in plan.events}
    if plan.events and finalizers:
        yield f"workflow {plan.name!r} follows events, so it has no finalizer such as {finalizers[0]!r}"
    if plan.events and not any(START in step.accepts for step in plan.steps):
        yield f"no step takes {START}, so that nothing would ever begin"
    for step in plan.steps:
        if bool(step.accepts) != bool(plan.events):
            yield f"step {step.name!r} " + ("takes no event" if plan.events else "takes events, and there are none")
        if step.accepts:
            yield from _taker_problems(step, types)


def _taker_problems(step: Step, types: set[str]) -> Iterator[str]:
    for each in (*step.accepts, *([step.on_error] if step.on_error else [])):
        if each not in types:
            yield f"step {step.name!r} names the event {each!r}, which is not among those of the workflow"
    if step.arcs or step.loop or step.poll or not isinstance(step.work, Call):
        yield f"step {step.name!r} takes events: it is a plain call, without arcs, a loop or a poll"
    if step.workers < 0:
        yield f"step {step.name!r} has {step.workers} workers; 0 means many"
    if step.collect is not None and isinstance(step.collect.n, int) and step.collect.n < 1:
        yield f"step {step.name!r} gathers {step.collect.n} events; at least 1 is needed"


def _gate_problems(name: str, gate: Gate) -> Iterator[str]:
    if not gate.options:
        yield f"gate {name!r} has no options"
    for option in (*gate.refuse, *gate.labels):
        if option not in gate.options:
            yield f"gate {name!r} has no option {option!r}"
    if gate.min_approvals < 1:
        yield f"gate {name!r} wants {gate.min_approvals} approvals; at least 1 is needed"


def _poll_problems(step: Step, poll: Poll) -> Iterator[str]:
    if poll.every <= 0:
        yield f"step {step.name!r} looks again every {poll.every:g} s; that must be more than 0"
    if step.loop is not None:
        yield f"step {step.name!r} loops over a poll, which has no items"
    if not (isinstance(step.work, Call) or step.work == Wait()):
        yield f"step {step.name!r}: only a call can be made again until something holds"


def _loop_problems(name: str, work: Work, loop: Loop) -> Iterator[str]:
    if loop.window < 1:
        yield f"step {name!r} has a window of {loop.window}; at least 1 is needed"
    if isinstance(work, Wait | Gate | Quality):
        yield f"step {name!r} loops over a {type(work).__name__.lower()}, which has no items"
