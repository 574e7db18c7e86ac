"""Python workflows that a playbook starts: what a playbook knows of one, and whether its inputs can fit."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from refold.core.plan import Input, Plan
from refold.names import did_you_mean
from refold.playbooks.inputs import check_given, given_to
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.reader.templates import templates_in


def _fits(name: str, value: Any) -> str:
    return ""


class PythonWorkflow(Struct, frozen=True):
    """What a playbook knows of a Python workflow; this cannot run it."""

    target: str  # where it was found, as module:name
    plans: tuple[Plan, ...]  # its own, then those of all that it may start
    inputs: tuple[Input, ...] = ()
    others: bool = True  # whether inputs of other names are taken too
    misfit: Callable[[str, Any], str] = _fits  # why an input cannot have this value; empty if it can


FindWorkflow = Callable[[str], PythonWorkflow]
"""Finds the workflow of that name and imports its code; raises a RefoldError with the reason if there is none."""


def check_python_inputs(reading: Reading, step: Fields, workflow: PythonWorkflow) -> None:
    """Report inputs that are missing, unknown, or do not fit as written; templates are checked when the run starts.

    In a loop without `input` the input is the item.
    """
    check_given(reading, step, workflow.target, structs.replace(workflow.plans[0], inputs=workflow.inputs))
    given = list(given_to(step))
    loop: Fields | None = step.get("loop")
    names = [(name, holder.place_of(name)) for holder in given for name in holder.nodes]
    if not names and loop is not None:
        names = [(loop.get("iterator", "item"), loop.node.place)]
    known = [each.name for each in workflow.inputs]
    for name, place in names if not workflow.others else ():
        if name not in known:
            message = f"`{workflow.target}` has no input `{name}`"
            reading.say(Problem("unknown-input", message, place, did_you_mean(name, known), length=len(name)))
    for holder in given:
        for name, node in holder.nodes.items():
            why = "" if any(templates_in(node)) else workflow.misfit(name, node.value)
            if why:
                message = f"`{workflow.target}` does not take this as `{name}`: {why}"
                reading.at(node, "wrong-input", message, "its code declares what it takes")
