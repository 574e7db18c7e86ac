"""Reads a JamJet file, whatever its form: to the plan of the workflow that was asked for."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core.plan import Plan
from refold.names import did_you_mean
from refold.playbooks.jamjet.agents import read_agent_file
from refold.playbooks.jamjet.compile import NodePlaces, compile_graph
from refold.playbooks.jamjet.drafts import GraphDraft
from refold.playbooks.jamjet.fleet import FilesBeside, Fleet
from refold.playbooks.jamjet.graph import read_graph
from refold.playbooks.jamjet.ir import read_ir
from refold.playbooks.jamjet.listed import read_list
from refold.playbooks.jamjet.work import ChildPlans
from refold.playbooks.problems import Place
from refold.playbooks.reader.reading import Reading
from refold.playbooks.yaml.text import Node


class JamjetWorkflow(Struct, frozen=True):
    """The workflow of a file: its plan, the places of its nodes, and plans that it starts from the same file."""

    plan: Plan
    places: Mapping[str, Place]
    metadata: dict[str, Any]
    children: tuple["JamjetWorkflow", ...] = ()


READERS: dict[str, Callable[[Reading, Node], GraphDraft]] = {
    "ir": read_ir,
    "graph": read_graph,
    "list": read_list,
    "agent": read_agent_file,
}


def read_jamjet(reading: Reading, root: Node, form: str, unit: str | None = None) -> JamjetWorkflow | None:
    """Return the workflow; None if there is none, which was reported."""
    if form == "other":
        hint = "it has `workflow:` and `nodes:`, or `agent:`, or `agents:`, or is JSON with `workflow_id` and `nodes`"
        reading.at(root, "not-a-workflow", "this file of JamJet has no workflow in it", hint)
        return None
    if form == "fleet":
        return _read_fleet(reading, root, unit)
    if unit:
        reading.at(root, "unknown-unit", f"this file has no unit `{unit}`: it has one workflow", "leave the name out")
        return None
    return _found(reading, READERS[form](reading, root), FilesBeside(reading))


def _found(reading: Reading, draft: GraphDraft, children: ChildPlans) -> JamjetWorkflow:
    return JamjetWorkflow(compile_graph(reading, draft, children), NodePlaces(draft), draft.metadata)


def _read_fleet(reading: Reading, root: Node, unit: str | None) -> JamjetWorkflow | None:
    """All units are checked, whichever is asked for; None: any of them will do."""

    def compiled(draft: GraphDraft, children: ChildPlans) -> Plan:
        return compile_graph(reading, draft, children)

    fleet = Fleet(reading, root, compiled)
    names = [*fleet.units]
    if not names or (unit == "" and len(names) > 1) or (unit and unit not in names):
        known = ", ".join(f"`{name}`" for name in names) or "none"
        message = f"this fleet has no unit `{unit}`" if unit else f"this fleet has {len(names)} units: {known}"
        hint = did_you_mean(unit, names) if unit else "name one of them: `refold run FILE UNIT`"
        reading.at(root, "unknown-unit", message, hint)
        return None
    unit = unit or names[0]
    for name in names:
        fleet.plan(name)
    others = tuple(
        JamjetWorkflow(fleet.plans[name], NodePlaces(fleet.drafts[name]), fleet.drafts[name].metadata)
        for name in names
        if name != unit
    )
    chosen = fleet.drafts[unit]
    return JamjetWorkflow(fleet.plans[unit], NodePlaces(chosen), chosen.metadata, others)
