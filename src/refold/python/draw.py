"""Turns a workflow of events into one of arcs, to draw it: which step sends which event to which."""

from refold.core.plan import START, Arc, Call, Plan, Step
from refold.python.definition import Body, Definition
from refold.python.events import received_as


def arcs_of_events(definition: Definition) -> Plan:
    """Return a plan whose first step is the start of a run and whose arcs are named by the events."""
    begin = _step(START, "start", [Arc(to=name) for name in _takers(definition, START)])
    steps = (
        _step(name, "step" if body.policy.collect is None else "collect", _arcs(definition, body))
        for name, body in definition.bodies.items()
    )
    return Plan(name=definition.plan.name, steps=(begin, *steps))


def _step(name: str, kind: str, arcs: list[Arc]) -> Step:
    return Step(name=name, work=Call(tool=kind), arcs=tuple(arcs), mode="inclusive")


def _takers(definition: Definition, type: str) -> list[str]:
    bases = next((each.bases for each in definition.plan.events if each.name == type), ())
    return [step.name for step in definition.plan.steps if {type, *bases} & {*step.accepts}]


def _arcs(definition: Definition, body: Body) -> list[Arc]:
    sent = (*(body.signature.sends or ()), *body.policy.sends)
    sends = [definition.names[received_as(each)] for each in sent]
    arcs = [Arc(to=to, when=type) for type in dict.fromkeys(sends) for to in _takers(definition, type)]
    if body.policy.on_error is not None:
        type = definition.names[body.policy.on_error]
        arcs += [Arc(to=to, on="failure", when=type) for to in _takers(definition, type)]
    return arcs
