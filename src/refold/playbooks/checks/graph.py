"""Checks of the graph: steps that nothing reaches, loops that never end, joins that never fire, arcs that surprise.

Each step has a name of its own, and every step that is named exists. Arcs surprise where they can never be taken, or
where their conditions can never hold.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct

from refold import templates
from refold.core.expressions import CannotEvaluate
from refold.core.graph import ArcLoop, Graph, analyse
from refold.core.plan import Arc, Step
from refold.errors import InvalidPlan
from refold.names import did_you_mean
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Fields, Reading, cut
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.steps import PlaybookDraft, StepDraft
from refold.playbooks.yaml.positions import place_at
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
        hint = "take away what is never done, or fix the condition"
        reading.warn(fields.node, "never-holds", f"this condition of `{draft.block}` never holds", hint)
        return
    node = fields.node.nodes["when"] if "when" in _keys(fields) else target_node(fields)
    reading.warn(node, "dead-arc", "this arc is never taken: its condition never holds", "leave the arc out, or fix it")


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


# What the plan's own analysis says of a step: the key it is about, the code, the hint.
UNFIT = (("sources but has", "join", "join-too-large", "lower `at_least`, or lead more steps here"),)

UNREACHED = "lead an arc here, or take the step away"


class _Known(Struct):
    """The graph with the arcs as they were written."""

    playbook: PlaybookDraft
    graph: Graph
    arcs: list[Fields]


def check_graph(reading: Reading, playbook: PlaybookDraft) -> None:
    try:
        graph = analyse(playbook.plan)
    except InvalidPlan as unfit:
        for said in unfit.problems:
            _place_it(reading, playbook, said)
        return
    known = _Known(playbook, graph, [arc for draft in playbook.drafts for arc in draft.arcs])
    for rule in (_unreachable, _endless, _late_exits, _side_entries, _starved_joins, _idle_keys):
        rule(reading, known)


def _place_it(reading: Reading, playbook: PlaybookDraft, said: str) -> None:
    """Report what the analysis of the plan found, at the step that it names."""
    found = re.search(r"step '([^']+)'", said)
    names = playbook.names()
    if found is None or found.group(1) not in names:
        reading.at(playbook.fields.node, "invalid-plan", said, "fix what it names")
        return
    node = playbook.draft(found.group(1)).node
    for words, key, code, hint in UNFIT:
        if words in said and key in node.nodes:
            reading.at(node.nodes[key], code, said.replace("'", "`"), hint)
            return
    reading.at(node.nodes["step"], "invalid-plan", said.replace("'", "`"), "fix what it names")


def _has_other_mistakes(reading: Reading) -> bool:
    """Return whether keys were not understood: they may be what should have led to a step."""
    return any(each.severity == "error" and each.code in ("unknown-key", "wrong-type") for each in reading.problems)


def _unreachable(reading: Reading, known: _Known) -> None:
    graph = known.graph
    quiet: set[int] = set()  # what stands in a block that was told of, or behind it
    for s, draft in enumerate(known.playbook.drafts):
        if graph.reached[s] or s in graph.finalizers:
            continue
        if s in quiet or draft.block:
            quiet.update(graph.target[a] for a in graph.out[s])
        if s not in quiet and not _has_other_mistakes(reading):
            name = draft.block or draft.name
            message = f"`{name}` cannot be reached from `{_entry_name(known)}`"
            hint = f"lead an arc here, such as `next: {name}`, or take the block away" if draft.block else UNREACHED
            before = known.playbook.drafts[s - 1] if s else draft
            if not before.arcs and not draft.block and s - 1 not in graph.finalizers:
                hint = f"write `next: {name}` in `{before.block or before.name}`, or take the step away"
            reading.useless(draft.node.nodes["step"], "unreachable-step", message, hint)


def _entry_name(known: _Known) -> str:
    first = known.playbook.drafts[known.graph.entry]
    return first.block or first.name


def _endless(reading: Reading, known: _Known) -> None:
    """Report loops without an exit in which every step always takes an arc: each pass is followed by another."""
    graph = known.graph
    if not graph.loops:
        return
    ways_out = _ways_out(graph)
    backs: dict[int, int] = {}
    for a, loop in enumerate(graph.back):
        backs.setdefault(loop, a)
    for number, it in enumerate(graph.loops):
        if not ways_out[number]:
            head, back = graph.name(it.head), backs[number]
            message = f"this goes back to `{head}` for ever: nothing leads out of the loop"
            hint = "give the arc a `when`, or add one that leads out"
            reading.useless(target_node(known.arcs[back]), "endless-loop", message, hint)


def _ways_out(graph: Graph) -> list[int]:
    """For each loop, the steps after which it may end. A step counts for all loops that it may leave."""
    count = [0] * (len(graph.loops) + 1)  # the last is for what is outside of all
    for s, around in enumerate(graph.loop_of):
        if around >= 0:
            count[around] += 1
            count[_stays_in(graph, s)] -= 1
    for loop in range(len(graph.loops) - 1, -1, -1):  # those inside come before
        parent = graph.loops[loop].parent
        if parent >= 0:
            count[parent] += count[loop]
    return count[:-1]


def _stays_in(graph: Graph, s: int) -> int:
    """The innermost loop that certainly has another pass after this step, or -1."""
    live = [a for a, lives in zip(graph.out[s], live_arcs(graph.step(s)), strict=True) if lives]
    if not any(is_sure(graph.specs[a]) and graph.specs[a].on in ("success", "both") for a in live):
        return -1
    loop = graph.loop_of[s]
    for a in live:
        if loop >= 0 and graph.target[a] not in graph.loops[loop]:
            loop = graph.around(loop, graph.target[a])
    return loop


def _late_exits(reading: Reading, known: _Known) -> None:
    graph = known.graph
    for a, arc in enumerate(known.arcs):
        holder, source = graph.exit_of[a], graph.origin[a]
        if holder >= 0 and graph.step(source).mode == "inclusive":
            loop, target = graph.loops[holder], graph.name(graph.target[a])
            message = f"`{target}` runs once, after the loop {_way(known, loop)}"
            hint = (
                "to run it in every pass, write `each_pass: true`, or lead it into the step that decides about the next"
            )
            reading.warn(target_node(arc), "late-exit", message, hint)


def _way(known: _Known, loop: ArcLoop) -> str:
    """The steps of a loop as text, in the order of the file."""
    graph = known.graph
    names = [graph.name(s) for s in sorted(loop.steps(), key=lambda s: (s != loop.head, s))]
    shown = names if len(names) <= 4 else [*names[:2], "…", names[-1]]
    return " -> ".join([*shown, names[0]])


def _side_entries(reading: Reading, known: _Known) -> None:
    graph = known.graph
    for a, target in enumerate(graph.target):
        for loop in _entered(graph, a):
            if target == loop.head:
                continue
            message = f"this enters the loop of `{graph.name(loop.head)}` beside its head"
            if any(graph.need[s] for s in loop.steps()):
                message += "; with `any` or `at_least` inside, timing decides in which pass it counts"
            reading.warn(target_node(known.arcs[a]), "side-entry", message, "lead the arc to the head of the loop")


def _entered(graph: Graph, a: int) -> Iterator[ArcLoop]:
    """The loops that a forward arc leads into, innermost first."""
    if graph.back[a] >= 0 or not graph.reached[graph.origin[a]]:
        return
    loop = graph.loop_of[graph.target[a]]
    while loop >= 0 and graph.origin[a] not in graph.loops[loop]:
        yield graph.loops[loop]
        loop = graph.loops[loop].parent


def _starved_joins(reading: Reading, known: _Known) -> None:
    """Report joins whose sources exclude each other: an exclusive step outside of loops takes one arc only."""
    graph = known.graph
    joins = [s for s, need in enumerate(graph.need) if need > 1 and graph.reached[s]]
    if not joins:
        return
    choices, live = _choices(graph), _live(graph)
    for s in joins:
        at_most = _at_most(graph, s, choices, live)
        if at_most < graph.need[s] and not known.playbook.drafts[s].block:
            message = f"`{graph.name(s)}` waits for {graph.need[s]} steps, of which at most {at_most} are ever taken"
            node = known.playbook.drafts[s].node.nodes["join"]
            reading.at(node, "join-never", message, "lower `at_least`, or let the step before them be inclusive")


Choice = tuple[int, int]  # a step, and the arc of it that every way from the entry takes


def _choices(graph: Graph) -> dict[int, frozenset[Choice]]:
    """For each step, the choices that every path to it has in common."""
    found: dict[int, frozenset[Choice]] = {graph.entry: frozenset()}
    waits = {s: len(graph.into[s]) for s in range(len(graph.into))}
    todo = [graph.entry]
    while todo:
        source = todo.pop()
        for a in graph.out[source]:
            if graph.back[a] >= 0:
                continue
            here, to = _after(graph, a, found[source]), graph.target[a]
            found[to] = found[to] & here if to in found else here
            waits[to] -= 1
            if not waits[to]:
                todo.append(to)
    return found


def _after(graph: Graph, a: int, choices: frozenset[Choice]) -> frozenset[Choice]:
    source = graph.origin[a]
    chooses = graph.step(source).mode == "exclusive" and len(graph.out[source]) > 1 and graph.loop_of[source] < 0
    return choices | {(source, a)} if chooses else choices


def _live(graph: Graph) -> set[int]:
    """The arcs that can be taken, of steps that can be entered."""
    live: set[int] = set()
    met, todo = {graph.entry}, [graph.entry]
    while todo:
        s = todo.pop()
        for a, lives in zip(graph.out[s], live_arcs(graph.step(s)), strict=True):
            if lives:
                live.add(a)
                if graph.target[a] not in met:
                    met.add(graph.target[a])
                    todo.append(graph.target[a])
    return live


def _at_most(graph: Graph, s: int, choices: dict[int, frozenset[Choice]], live: set[int]) -> int:
    """The largest number of sources that can be taken together: for each choice, those after one of its arcs."""
    behind: dict[int, Counter[int]] = defaultdict(Counter)
    sources: dict[int, frozenset[Choice]] = {}
    for a in live.intersection(graph.into[s]):
        made = _after(graph, a, choices[graph.origin[a]])
        sources[graph.origin[a]] = sources.get(graph.origin[a], made) & made
    for made in sources.values():
        for step, arc in made:
            behind[step][arc] += 1
    lost = (sum(arcs.values()) - max(arcs.values()) for arcs in behind.values())
    return len(sources) - max(lost, default=0)


def _idle_keys(reading: Reading, known: _Known) -> None:
    graph = known.graph
    for a, arc in enumerate(known.arcs):
        if arc.get("each_pass") and graph.loop_of[graph.origin[a]] < 0:
            reading.warn(arc.node.nodes["each_pass"], "no-effect", "this arc leaves no loop", "leave `each_pass` out")
    draft = known.playbook.drafts[graph.entry]
    if "join" in draft.fields.values and not graph.into[graph.entry]:
        message = f"`{draft.name}` is entered at the start; no arc leads there"
        reading.warn(draft.node.nodes["join"], "no-effect", message, "leave `join` out")
