"""Python workflows that a playbook starts: what it is told of one, and whether what it gives to it can fit."""

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


class Coded(Struct, frozen=True):
    """A Python workflow, as far as a playbook knows it: nothing here can run it."""

    target: str  # where it was found, as module:name
    plans: tuple[Plan, ...]  # its own, then those of all that it may start
    inputs: tuple[Input, ...] = ()
    others: bool = True  # whether inputs of other names are taken too
    misfit: Callable[[str, Any], str] = _fits  # why an input cannot have this value; empty if it can


Code = Callable[[str], Coded]
"""The workflow of that name; raises a RefoldError that says why there is none. Only then is code imported."""


def check_coded(reading: Reading, step: Fields, coded: Coded) -> None:
    """Inputs that are missing, that nobody knows, or that cannot fit as they are written; the rest shows at the start.

    In a loop without `input` the item is given.
    """
    check_given(reading, step, coded.target, structs.replace(coded.plans[0], inputs=coded.inputs))
    given = list(given_to(step))
    loop: Fields | None = step.get("loop")
    names = [(name, holder.place_of(name)) for holder in given for name in holder.nodes]
    if not names and loop is not None:
        names = [(loop.get("iterator", "item"), loop.node.place)]
    known = [each.name for each in coded.inputs]
    for name, place in names if not coded.others else ():
        if name not in known:
            message = f"`{coded.target}` has no input `{name}`"
            reading.say(Problem("unknown-input", message, place, did_you_mean(name, known), length=len(name)))
    for holder in given:
        for name, node in holder.nodes.items():
            why = "" if any(templates_in(node)) else coded.misfit(name, node.value)
            if why:
                message = f"`{coded.target}` does not take this as `{name}`: {why}"
                reading.at(node, "wrong-input", message, "its code declares what it takes")
