"""Checks a workflow of events before anything runs: events that no step takes, steps that nothing reaches."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.python.events import ErrorEvent, InputRequestEvent, StartEvent, StopEvent, received_as


class Sketch(Struct, frozen=True):
    """The events that a step takes and sends."""

    name: str
    takes: tuple[type, ...]
    sends: tuple[type, ...] | None  # None: it does not say
    on_error: type | None
    as_list: bool
    gathers: tuple[type, ...] | None  # the types of its Collect


def problems_of(workflow: str, steps: Sequence[Sketch]) -> Iterator[str]:
    if not steps:
        yield f"workflow {workflow!r} has no steps: mark its methods with @step"
        return
    for each in steps:
        yield from _own_problems(each)
        for sent in (*(each.sends or ()), *([each.on_error] if each.on_error is not None else [])):
            if not issubclass(sent, StopEvent) and not _takers(received_as(sent), steps):
                yield f"step {each.name!r} sends {sent.__name__}, {_untaken(sent, steps)}"
    if not any(_takes(each, StartEvent) for each in steps) and not _starts(steps):
        yield f"no step of {workflow!r} takes StartEvent, so that nothing would ever begin"
        return
    own = dict.fromkeys(each for step in steps for each in step.takes if issubclass(each, StartEvent))
    own.pop(StartEvent, None)
    if len(own) > 1:
        yield f"a run begins with one event, and {_listed(tuple(own))} are several"
    reached = _reached(steps)
    yield from (
        f"nothing leads to step {each.name!r}: no step sends {_listed(each.takes)}; name what `ctx.send` sends in "
        f"`sends=`"
        for each in steps
        if each not in reached
    )
    ends = [each for each in reached if each.sends is None or any(issubclass(sent, StopEvent) for sent in each.sends)]
    if not ends:
        yield f"no step of {workflow!r} sends StopEvent, so that no run of it could end"


def _untaken(sent: type, steps: Sequence[Sketch]) -> str:
    answer = received_as(sent)
    if answer is sent:
        return "which no step takes"
    taken = {each for step in steps for each in step.takes if issubclass(each, answer)}
    hint = "".join(
        f"; if it is {each.__name__}, write `class {sent.__name__}(…, answer={each.__name__})`" for each in taken
    )
    return f"whose answer is {answer.__name__}, which no step takes{hint}"


def _own_problems(step: Sketch) -> Iterator[str]:
    if step.on_error is not None and not issubclass(step.on_error, ErrorEvent):
        yield f"step {step.name!r}: on_error is {step.on_error.__name__}, which is not a subclass of refold.ErrorEvent"
    if any(issubclass(each, StopEvent) for each in step.takes):
        yield f"step {step.name!r} takes StopEvent, with which the run is over"
    for each in step.takes:
        if issubclass(each, InputRequestEvent):
            yield f"step {step.name!r} takes {each.__name__}, which a person answers: take {received_as(each).__name__}"
    if step.gathers is None and step.as_list:
        collect = f"@step(collect=Collect({_listed(step.takes)}, n=…))"
        yield f"step {step.name!r} takes a list and collects nothing: write {collect}"
    if step.gathers is not None and not step.as_list:
        wanted = " | ".join(each.__name__ for each in step.gathers)
        yield f"step {step.name!r} collects events, so it takes list[{wanted}]"
    if step.gathers is not None and {*step.gathers} != {*step.takes}:
        yield f"step {step.name!r} takes {_listed(step.takes)} and collects {_listed(step.gathers)}"


def _listed(types: Sequence[type]) -> str:
    return ", ".join(each.__name__ for each in types)


def _takes(step: Sketch, event: type) -> bool:
    return any(issubclass(event, each) for each in step.takes)


def _takers(event: type, steps: Sequence[Sketch]) -> list[Sketch]:
    return [step for step in steps if _takes(step, event)]


def _starts(steps: Sequence[Sketch]) -> list[Sketch]:
    """Return the steps that take an event which a person or another process can send first."""
    return [step for step in steps if any(issubclass(each, StartEvent) for each in step.takes)]


def _reached(steps: Sequence[Sketch]) -> list[Sketch]:
    found = [step for step in steps if _takes(step, StartEvent) or step in _starts(steps)]
    for step in found:
        if step.sends is None:
            return list(steps)  # it may send anything
        for sent in (*step.sends, *([step.on_error] if step.on_error is not None else [])):
            found += [each for each in _takers(received_as(sent), steps) if each not in found]
    return [step for step in steps if step in found]
