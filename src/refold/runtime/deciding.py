"""Judges a person's decision at a gate: the first one counts, and whoever comes later is told of it."""

from refold.core.decision import Decision
from refold.core.facts import GateDecided
from refold.core.gates import told_end
from refold.core.plan import Gate
from refold.core.state import TERMINAL, OpenCommand
from refold.errors import Conflict, InvalidValue, NotFound
from refold.ports import StoreTurn
from refold.runtime.forms import check_form


def decision(d: Decision, turn: StoreTurn, asked: GateDecided) -> GateDecided:
    """The decision as a fact; one for visit 0 is for the last visit. Raises why it does not count."""
    s = d.graph.index.get(asked.step)
    gate = None if s is None else d.graph.step(s).work
    if s is None or not isinstance(gate, Gate):
        raise NotFound(f"{asked.step!r} is no gate of run {d.state.run}")
    visit = asked.visit or d.state.steps[s].visits
    opened = d.state.open.get(f"{asked.step}/{visit}")
    if opened is None or opened.held:
        raise Conflict(_too_late(d, turn, gate, asked.step, visit))
    if asked.option not in gate.options:
        raise Conflict(f"gate {asked.step!r} knows {', '.join(gate.options)}, not {asked.option!r}")
    if asked.option not in gate.refuse:
        _check_person(gate, opened, asked)
        if gate.form is not None:
            check_form(gate.form, {} if asked.feedback is None else asked.feedback)
    return GateDecided(asked.step, visit, asked.option, asked.by, asked.feedback)


def _too_late(d: Decision, turn: StoreTurn, gate: Gate, step: str, visit: int) -> str:
    """Who was first; the log knows it, and so does what this turn has said already."""
    log = [(at, fact) for _, at, fact in turn.facts(d.state.run)] + [(d.now, fact) for fact in d.facts]
    end = told_end(gate, step, visit, log)
    if end:
        return f"gate {step!r} (visit {visit}) {end}"
    if d.state.life in TERMINAL:
        return f"run {d.state.run} is {d.state.life}"
    return f"gate {step!r} is not waiting for a decision (visit {visit})"


def _check_person(gate: Gate, opened: OpenCommand, asked: GateDecided) -> None:
    """Each person counts once."""
    if gate.min_approvals == 1:
        return
    if not asked.by:
        raise InvalidValue("by", f"gate {asked.step!r} wants {gate.min_approvals} different people; say who decides")
    for each in opened.progress or ():
        if each["by"] == asked.by:
            raise Conflict(f"{asked.by} has decided at gate {asked.step!r} already, at {each['at']}: {each['option']}")
