"""Python workflows on the command line: `module:Class`."""

from collections.abc import Iterable
from typing import Any

from refold.core.plan import Plan
from refold.playbooks.playbook import Playbook
from refold.python.definition import define, with_children
from refold.python.draw import arcs_of_events
from refold.python.load import load
from refold.queries.code import CodeHere


def as_playbook(target: str) -> Playbook:
    """For commands that go on with a plan; InvalidPlan says what is wrong with it."""
    first, *rest = with_children(define(load(target), target))
    children = tuple(Playbook(each.plan, target, "", {}) for each in rest)
    return Playbook(first.plan, target, "", {}, children=children)


def sketch(target: str) -> Plan:
    return arcs_of_events(define(load(target)))


def begun(target: str, input: dict[str, Any]) -> dict[str, Any]:
    """Inputs as they are stored. Raises InvalidValue for what the workflow does not take."""
    return define(load(target)).begun(input)


def plans(targets: Iterable[str]) -> dict[str, CodeHere]:
    """The plans whose code is found there."""
    return {
        each.hash: CodeHere(target, each.plan.name)
        for target in targets
        for each in with_children(define(load(target), target))
    }
