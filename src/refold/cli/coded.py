"""Python workflows on the command line: `module:Class`, found as `python -m` would find the module."""

import os
import sys
from collections.abc import Iterable
from typing import Any

from refold.authoring.drawn import drawn
from refold.authoring.names import a, did_you_mean
from refold.authoring.playbook import Playbook
from refold.authoring.workflows.definition import define, family, is_workflow
from refold.cli.served import Found
from refold.core.plan import Plan
from refold.errors import InvalidValue, NotFound
from refold.executors.resolve import imported


def load(target: str) -> Any:
    """The workflow. Raises NotFound or InvalidValue; what the module raises comes out as it is."""
    module, _, path = target.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = imported(module)
    if found is None:
        raise NotFound(f"there is no module {module!r} here or among the installed ones")
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name, each in vars(found).items() if is_workflow(each)]
            raise NotFound(f"module {module!r} has no {path!r}: {did_you_mean(part, known)}")
        found = getattr(found, part)
    if not is_workflow(found):
        raise InvalidValue(target, f"is {a(type(found).__name__)} and no workflow")
    return found


def as_playbook(target: str) -> Playbook:
    """For commands that go on with a plan; InvalidPlan says what is wrong with it."""
    first, *rest = family(define(load(target), target))
    children = tuple(Playbook(each.plan, target, "", {}) for each in rest)
    return Playbook(first.plan, target, "", {}, children=children)


def sketch(target: str) -> Plan:
    return drawn(define(load(target)))


def begun(target: str, input: dict[str, Any]) -> dict[str, Any]:
    """Inputs as they are stored. Raises InvalidValue for what the workflow does not take."""
    return define(load(target)).begun(input)


def plans(targets: Iterable[str]) -> dict[str, Found]:
    """The plans whose code is found there."""
    return {
        each.hash: Found(target, each.plan.name) for target in targets for each in family(define(load(target), target))
    }
