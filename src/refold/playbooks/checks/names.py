"""Checks of names: each step has its own, and every step that is named exists."""

from collections import Counter

from refold.names import did_you_mean
from refold.playbooks.draft import PlaybookDraft
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Fields, Reading, cut
from refold.playbooks.yaml.text import Node


def check_names(reading: Reading, playbook: PlaybookDraft) -> bool:
    """Check the names, and return whether the steps form a graph."""
    before = len(reading.problems)
    _own_names(reading, playbook)
    _targets(reading, playbook)
    _entry(reading, playbook)
    _finalizers(reading, playbook)
    _shadows(reading, playbook)
    values = reading.problems[before:]
    return (
        all(playbook.names()) and len(playbook.names()) == len(playbook.drafts) > 0 and not any(map(_is_error, values))
    )


def _is_error(problem: Problem) -> bool:
    return problem.severity == "error"


def target_node(arc: Fields) -> Node:
    """The node that names the target of an arc; in the short forms an arc is only a name."""
    node: Node = arc.node.nodes["step"] if isinstance(arc.node.value, dict) else arc.node
    return node


def _own_names(reading: Reading, playbook: PlaybookDraft) -> None:
    first: dict[str, int] = {}
    for draft in playbook.drafts:
        if not draft.name:
            continue
        node = draft.node.nodes["step"]
        if draft.name in first:
            message = f"two steps are called `{draft.name}`; the first is in line {first[draft.name]}"
            reading.at(node, "duplicate-step", message, "give one of them another name")
        first.setdefault(draft.name, node.start.line + 1)


def _targets(reading: Reading, playbook: PlaybookDraft) -> None:
    names = playbook.written()
    known = set(playbook.names())
    for draft in playbook.drafts:
        for arc in draft.arcs:
            if arc.get("step") not in known:
                _unknown(reading, target_node(arc), names)


def _unknown(reading: Reading, node: Node, names: list[str]) -> None:
    reading.at(node, "unknown-step", f"there is no step `{cut(node.value)}`", did_you_mean(node.value, names))


def _entry(reading: Reading, playbook: PlaybookDraft) -> None:
    entry = playbook.executor("entry_step")
    if entry is not None and entry.value not in playbook.written():
        _unknown(reading, entry, playbook.written())


def _finalizers(reading: Reading, playbook: PlaybookDraft) -> None:
    named = playbook.finalizers()
    names = playbook.names()
    within = {draft.name: draft.within for draft in playbook.drafts if draft.within}
    for name, node in named:
        if name in playbook.blocks:
            hint = "let a step run at the end, one that starts a playbook if there is much to do"
            reading.at(node, "finalizer-block", f"`{name}` is a block, and no block can run at the end", hint)
        elif name in within:
            message = f"`{name}` is inside the block `{within[name]}` and cannot run at the end"
            reading.at(node, "finalizer-block", message, "put it outside of the block")
        elif name not in names:
            _unknown(reading, node, playbook.written())
    for name, times in Counter(name for name, _ in named).items():
        if times > 1:
            again = [node for each, node in named if each == name][1]
            reading.at(again, "finalizer-twice", f"`{name}` is to run at the end twice", "name it once")
    final = {name: node for name, node in named}
    first = playbook.plan.entry or (names[0] if names else "")
    if first in final:
        message = f"`{first}` is the entry and cannot also run at the end"
        reading.at(final[first], "finalizer-entry", message, "put another step first, or name one with `entry_step`")
    _arcs_of_finalizers(reading, playbook, set(final) - within.keys() - playbook.blocks.keys())


def _arcs_of_finalizers(reading: Reading, playbook: PlaybookDraft, final: set[str]) -> None:
    for draft in playbook.drafts:
        if draft.name in final and draft.arcs:
            message = f"`{draft.name}` runs at the end, so nothing can follow it"
            reading.at_key(draft.node, "next", "finalizer-arc", message, "leave `next` out")
        for arc in draft.arcs:
            if arc.get("step") in final and draft.name not in final:
                message = f"`{arc.get('step')}` runs at the end; no arc can lead there"
                reading.at(target_node(arc), "finalizer-arc", message, "leave the arc out")
        if draft.name in final and "join" in draft.fields.values:
            message = f"`{draft.name}` runs at the end; no arc leads there"
            reading.warn(draft.node.nodes["join"], "no-effect", message, "leave `join` out")


def _shadows(reading: Reading, playbook: PlaybookDraft) -> None:
    """Warn if a step has the name of an input: the bare name then means the result of the step."""
    inputs = playbook.fields.get("workload", {})
    for draft in playbook.drafts:
        if draft.name and draft.name in inputs:
            message = f"`{draft.name}` is also an input; when the step has run, the bare name means its result"
            reading.warn(draft.node.nodes["step"], "shadowed-name", message, f"read `workload.{draft.name}`")
