"""Checks of arcs: those that can never be taken, and conditions that can never hold."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from refold import templates
from refold.core.expressions import CannotEvaluate
from refold.core.plan import Arc, Step
from refold.playbooks.checks.names import target_node
from refold.playbooks.draft import PlaybookDraft
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.steps import StepDraft
from refold.playbooks.yaml.positions import place_at

CALL = re.compile(r"\w\s*\(")  # what a function gives may change
PATH = re.compile(r"\s*\{\{\s*(?:not\s+)?(?!(?:true|false|none|not)\b)[a-z_]\w*\s*[.\[=<>!|}]", re.I)
"""Matches conditions that begin with a name, as most do: they depend on its value."""


def constant(condition: Any) -> bool | None:
    """Return whether a condition always or never holds; None if it depends on the run."""
    if condition is None:
        return True
    if isinstance(condition, bool):
        return condition
    return _folded(condition) if isinstance(condition, str) and not PATH.match(condition) else None


@lru_cache(maxsize=1024)
def _folded(text: str) -> bool | None:
    if "{{" not in text or CALL.search(text) or templates.uses_of(text) or templates.problem_of(text) is not None:
        return None
    try:
        return bool(templates.Templates().truth(text, {}))  # the engine is loaded only where it is needed
    except CannotEvaluate:
        return None


STATUSES = ("ok", "error")
WORD = r"""(?P<quote>['"])(?P<word>[^'"]*)(?P=quote)"""
ASKED = (re.compile(rf"\boutput\.status\s*[!=]=\s*{WORD}"), re.compile(rf"{WORD}\s*[!=]=\s*output\.status\b"))


def live_arcs(step: Step) -> Iterator[bool]:
    """For each arc, whether it can be taken. In an exclusive step no arc after one that always holds can be taken."""
    closed: set[str] = set()
    for arc in step.arcs:
        listens = {"success", "failure"} if arc.on == "both" else {arc.on}
        holds = constant(arc.when)
        yield holds is not False and not listens <= closed
        if step.mode == "exclusive" and holds:
            closed |= listens


def check_arcs(reading: Reading, playbook: PlaybookDraft) -> None:
    for draft in playbook.drafts:
        cannot_fail = _cannot_fail(draft)
        for fields, arc, live in zip(draft.arcs, draft.step.arcs, live_arcs(draft.step), strict=True):
            if constant(arc.when) is False:
                _never(reading, draft, fields)
            elif not live and _is_written(fields):
                hint = "put it before the arc without `when`, or write `spec: {mode: inclusive}`"
                reading.warn(target_node(fields), "dead-arc", "this arc is never taken: one before it always is", hint)
            elif cannot_fail and arc.on == "failure" and "on" in _keys(fields):
                message = f"this arc is never taken: `{draft.name}` does nothing that could fail"
                reading.warn(fields.node.nodes["on"], "dead-arc", message, "leave the arc out")
        if reading.strict:
            _statuses(reading, draft)


def _keys(fields: Fields) -> Iterator[str]:
    return iter(fields.node.nodes) if isinstance(fields.node.value, dict) else iter(())


def _is_written(fields: Fields) -> bool:
    """Whether the arc is in the file as such; problems of generated arcs are reported for their block."""
    return isinstance(fields.node.value, dict) or bool(fields.node.style)


def _never(reading: Reading, draft: StepDraft, fields: Fields) -> None:
    if draft.block and not isinstance(fields.node.value, dict):
        hint = "take away what is never done, or mend the condition"
        reading.warn(fields.node, "never-holds", f"this condition of `{draft.block}` never holds", hint)
        return
    node = fields.node.nodes["when"] if "when" in _keys(fields) else target_node(fields)
    reading.warn(
        node, "dead-arc", "this arc is never taken: its condition never holds", "leave the arc out, or mend it"
    )


def _cannot_fail(draft: StepDraft) -> bool:
    """Whether a step has no tool, so that its result is empty except on arcs for a failure."""
    if draft.block or "tool" in draft.node.nodes or draft.step.timeout is not None:
        return False
    listening = [arc for arc in draft.arcs if arc.get("on") == "failure" and isinstance(arc.node.value, dict)]
    then = [id(arc.node.nodes[key]) for arc in listening for key in ("when", "set") if key in arc.node.nodes]
    return not any(True for value in draft.values if id(value.node) not in then for _ in templates_in(value.node))


def _statuses(reading: Reading, draft: StepDraft) -> None:
    for value in draft.values:
        for node in templates_in(value.node) if value.scope == "outcome" else ():
            for found in (match for asked in ASKED for match in asked.finditer(node.value)):
                word = found["word"]
                if word not in STATUSES:
                    place = place_at(reading.source, node, found.start("word"))
                    message = f"`output.status` is `ok` or `error`, and never `{word}`"
                    hint = "write `output.status == 'error'`, or let the arc listen with `on: failure`"
                    reading.say(Problem("never-holds", message, place, hint, "warning", len(word) or 1))


def is_sure(arc: Arc) -> bool:
    return constant(arc.when) is True
