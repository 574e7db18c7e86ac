"""Drawings of a plan: lines and symbols for a terminal, and Mermaid for documents."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.core.graph import Graph, analyse
from refold.core.plan import Arc, Call, Child, Loop, Plan, Step, WorkerWork, tool_of

SYMBOLS = {
    "": "○",
    "pending": "○",
    "entered": "◐",
    "issued": "◐",
    "claimed": "◐",
    "started": "◐",
    "running": "◐",
    "waiting": "◷",
    "completed": "✔",
    "failed": "✘",
    "skipped": "⊘",
    "bypassed": "»",
    "cancelled": "⊗",
}
LONGEST_CONDITION = 32
PLACES = ("path", "pattern", "url", "database", "function", "items", "stop")  # of sources: what tells most of them

# Lines by where they go: up, down, left, right.
LINES = {
    (1, 1, 0, 0): "│",
    (0, 0, 1, 1): "─",
    (1, 1, 0, 1): "├",
    (1, 1, 1, 0): "┤",
    (1, 1, 1, 1): "┼",
    (0, 1, 1, 0): "╮",
    (0, 1, 1, 1): "┬",
    (1, 0, 1, 0): "╯",
    (1, 0, 1, 1): "┴",
    (0, 0, 0, 0): " ",
}


def draw(plan: Plan, status: Mapping[str, str] | None = None) -> str:
    """One line per step, sources before targets, with the arcs between them on the left; raises InvalidPlan."""
    graph = analyse(plan)
    rows = list(_rows(graph, status or {}))
    left = max((len(lanes) for lanes, _ in rows), default=0)
    names = max(len(step.name) for step in plan.steps)
    said = [f"{lanes:<{left}}  {_line(graph, s, names)}" if s is not None else lanes for lanes, s in rows]
    return "\n".join(line.rstrip() for line in said) + "\n"


def _rows(graph: Graph, status: Mapping[str, str]) -> Iterator[tuple[str, int | None]]:
    """The lanes of a drawing, each of which leads to a step; a line has a step, or shows where lanes part or meet."""
    lanes: list[int | None] = [graph.entry]
    for s in _order(graph):
        mine = [lane for lane, to in enumerate(lanes) if to == s]
        if len(mine) > 1:
            yield _bridge(lanes, mine, joins=True), None
            for lane in mine[1:]:
                lanes[lane] = None
        yield _step_row(lanes, mine[0], _symbol(graph, s, status)), s
        opened = _go_on(graph, s, lanes, mine[0])
        if len(opened) > 1:
            yield _bridge(lanes, sorted(opened), joins=False, source=mine[0]), None
        while lanes and lanes[-1] is None:
            lanes.pop()
    apart = [s for s in range(len(graph.into)) if s in graph.finalizers or not graph.reached[s]]
    yield from [("", None)] if apart else []
    yield from ((_symbol(graph, s, status), s) for s in apart)


def _go_on(graph: Graph, s: int, lanes: list[int | None], column: int) -> list[int]:
    """The lanes after a step: its own leads to its first target, and there is one for each other target."""
    targets = _targets(graph, s)
    lanes[column] = targets[0] if targets else None
    return [column, *(_open(lanes, to) for to in targets[1:])]


def _order(graph: Graph) -> list[int]:
    """Sources before targets, and each branch to its end before the next one, as far as joins allow."""
    waits = [len(graph.into[s]) for s in range(len(graph.into))]
    order, todo = [], [graph.entry]
    while todo:
        s = todo.pop()
        order.append(s)
        for a in reversed(graph.out[s]):
            to = graph.target[a]
            if graph.back[a] < 0:
                waits[to] -= 1
                if not waits[to]:
                    todo.append(to)
    return order


def _targets(graph: Graph, s: int) -> list[int]:
    return list(dict.fromkeys(graph.target[a] for a in graph.out[s] if graph.back[a] < 0))


def _open(lanes: list[int | None], to: int) -> int:
    for lane, taken in enumerate(lanes):
        if taken is None:
            lanes[lane] = to
            return lane
    lanes.append(to)
    return len(lanes) - 1


def _step_row(lanes: Sequence[int | None], column: int, symbol: str) -> str:
    cells = [symbol if lane == column else "│" if to is not None else " " for lane, to in enumerate(lanes)]
    return " ".join(cells)


def _bridge(lanes: Sequence[int | None], touched: Sequence[int], joins: bool, source: int = -1) -> str:
    """The line on which lanes meet, or part from their source."""
    first, last = touched[0], touched[-1]
    stays = first if joins else source
    cells = []
    for lane, to in enumerate(lanes):
        across = first <= lane <= last
        opens = lane in touched and lane != stays
        up = to is not None and not (opens and not joins)
        down = to is not None and not (opens and joins)
        line = (int(up), int(down), int(across and lane > first), int(across and lane < last))
        cells.append(LINES.get(line, "╭" if line == (0, 1, 0, 1) else "╰"))
        cells.append("─" if first <= lane < last else " ")
    return "".join(cells).rstrip()


def _symbol(graph: Graph, s: int, status: Mapping[str, str]) -> str:
    return SYMBOLS.get(status.get(graph.name(s), ""), SYMBOLS[""])


def _line(graph: Graph, s: int, width: int) -> str:
    step = graph.step(s)
    return f"{step.name:<{width}}  {_kind(step):<6}  {'; '.join(_notes(graph, s))}"


def _only_leads(step: Step) -> bool:
    """Whether the step only has arcs: it was generated for a block, or is a node that leads on."""
    return step.when is False and ("." in step.name or (step.work == Call() and step.input is None))


def _kind(step: Step) -> str:
    if _only_leads(step):
        return "·"
    return tool_of(step.work) if isinstance(step.work, WorkerWork) else type(step.work).__name__.lower()


def _notes(graph: Graph, s: int) -> Iterator[str]:
    step = graph.step(s)
    if s in graph.finalizers:
        yield _when_final(graph.plan, step.name)
    elif not graph.reached[s]:
        yield "cannot be reached"
    if step.loop is not None:
        yield f"⟳ each {', '.join(_loop_notes(step.loop))}"
    if step.when is not None and not _only_leads(step):
        yield f"only if {_short(step.when)}"
    if len(graph.into[s]) > 1 and step.join != "all":
        yield f"joins at least {step.join}" if isinstance(step.join, int) else f"joins {step.join}"
    yield from _ways(graph, s)


def _loop_notes(loop: Loop) -> Iterator[str]:
    """The items of a loop, how many run at a time, and which wait for others."""
    if loop.source is None:
        yield f"{loop.iterator} of {_short(loop.items)}"
    else:
        settings = loop.source.settings if isinstance(loop.source.settings, dict) else {}
        where = next((f" {_short(settings[name])}" for name in PLACES if name in settings), "")
        yield f"{loop.iterator} of {loop.source.kind}{where}"
    at_once = loop.max_in_flight if loop.computed_max_in_flight is None else _short(loop.computed_max_in_flight)
    yield "one by one" if loop.sequential else f"{at_once} at once"
    if loop.after is not None:
        yield f"after {_short(loop.after)}"


def _when_final(plan: Plan, name: str) -> str:
    if name == plan.final_step:
        return "at the end, if all went well"
    if name == plan.on_budget:
        return "at the end, if the budget is used up"
    return "at the end, if the run failed" if name in plan.on_fail else "at the end"


def _ways(graph: Graph, s: int) -> Iterator[str]:
    """The arcs that need a text: conditions, failures, and arcs that lead back."""
    for a in graph.out[s]:
        arc, back = graph.specs[a], graph.back[a] >= 0
        label = arc_label(arc)
        if back or label:
            yield f"{'↺' if back else '→'} {arc.to}{' ' if label else ''}{label}"


def arc_label(arc: Arc) -> str:
    said = {"success": "", "both": "in any case"}.get(arc.on, f"on {arc.on}")
    return " ".join(filter(None, [said, f"if {_short(arc.when)}" if arc.when is not None else ""]))


JAMJET_FORMS = frozenset({"$if", "$unless", "$timer", "$asked", "$action"})


def _jamjet_condition(when: Mapping[str, Any]) -> str:
    """A condition of a JamJet file, with what was known before it was looked at."""
    parts = [str(when["$if"])] if when.get("$if") else []
    parts += [f"not ({each})" for each in when.get("$unless", ())]
    parts += ["time is up" if when["$timer"] else "a signal came"] if "$timer" in when else []
    parts += ["the agent asks back"] if when.get("$asked") else []
    parts += [f"the verdict is to {when['$action']}"] if "$action" in when else []
    return _short(" and ".join(parts))


def _short(template: Any) -> str:
    """A template without its braces, cut if it is long."""
    if isinstance(template, list):
        return f"{len(template)} items"
    if isinstance(template, dict) and JAMJET_FORMS.intersection(template):
        return _jamjet_condition(template)
    if isinstance(template, dict) and len(template) == 1:  # `$enough_succeeded`: a condition that no file can write
        return " ".join(str(each).removeprefix("$").replace("_", " ") for each in template)
    text = " ".join(str(template).split()) if not isinstance(template, bool) else str(template).lower()
    if text.startswith("{{") and text.endswith("}}"):
        text = text[2:-2].strip()
    return text if len(text) <= LONGEST_CONDITION else f"{text[: LONGEST_CONDITION - 1]}…"


def mermaid(plan: Plan) -> str:
    """A flow chart in Mermaid's language; raises InvalidPlan."""
    graph = analyse(plan)
    lines = ["flowchart TD"]
    for s, step in enumerate(plan.steps):
        lines.append(f"    s{s}{_shape(step)}")
    for a, arc in enumerate(graph.specs):
        label = " ".join(filter(None, ["↺" if graph.back[a] >= 0 else "", arc_label(arc)]))
        line = "-.->" if arc.on == "failure" else "-->"
        lines.append(f"    s{graph.origin[a]} {line}{f'|{_quoted(label)}|' if label else ''} s{graph.target[a]}")
    if graph.finalizers:
        lines += [
            "    subgraph end_of_run [at the end]",
            *(f"        s{s}" for s in sorted(graph.finalizers)),
            "    end",
        ]
    return "\n".join(lines) + "\n"


def _shape(step: Step) -> str:
    lines, loop = [step.name, _kind(step)], step.loop
    if loop is not None and (loop.source is not None or loop.after is not None):
        lines.append(f"each {', '.join(_loop_notes(loop))}")
    label = _quoted("\n".join(lines))
    if loop is not None:
        return f"[[{label}]]"
    if _only_leads(step):
        return f"{{{{{_quoted(step.name)}}}}}"
    return f"[{label}]" if isinstance(step.work, WorkerWork | Child) else f"([{label}])"


def _quoted(text: str) -> str:
    for char, escaped in (("#", "#35;"), ("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("|", "#124;")):
        text = text.replace(char, escaped)
    return '"' + text.replace("\n", "<br>") + '"'
