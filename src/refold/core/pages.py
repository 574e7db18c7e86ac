"""Pages of the source of a loop as their facts tell of them: asked for, brought, taken, given up."""

from refold.core import ordering, visits
from refold.core.commands import page_id
from refold.core.facts import PageAsked, PageCame, PagesGivenUp, PageTaken
from refold.core.loops import Graph
from refold.core.outcomes import Succeeded
from refold.core.state import ASKED, AT_END, BROKEN, CAME, MORE, FanOut, OpenCommand, Pulls, RunState
from refold.errors import Corrupt


def _of(graph: Graph, state: RunState, step: str) -> tuple[int, FanOut, Pulls]:
    s = graph.index[step]
    fan = state.steps[s].fan
    if fan is None or fan.pulls is None:
        raise Corrupt(f"{step} has no source")
    return s, fan, fan.pulls


def asked(graph: Graph, state: RunState, fact: PageAsked) -> None:
    s, _, pulls = _of(graph, state, fact.step)
    command = page_id(fact.step, fact.visit, fact.page)
    if command in state.open:
        visits.discharge(state.judge, command)
        state.open[command].attempt = fact.attempt
        visits.postpone(state.open[command], fact.not_before)
    else:
        pulls.life, pulls.page = ASKED, fact.page
        state.open[command] = OpenCommand(s, fact.visit, page=fact.page)
    visits.after_items(graph, state, s)


def came(graph: Graph, state: RunState, fact: PageCame) -> None:
    """It is taken by a decision; what a worker brings to a loop that is over is left."""
    s, _, pulls = _of(graph, state, fact.step)
    command = page_id(fact.step, fact.visit, fact.page)
    if command not in state.open:
        raise Corrupt(f"{command} was settled but is not open")
    if fact.report.usage:
        visits.add_usage(state, fact.report.usage)
    if type(fact.report.outcome) is Succeeded:
        visits.close_command(state, command)
        pulls.life, pulls.came = CAME, state.seq
        visits.after_items(graph, state, s)
    else:
        visits.hold(state, command, fact.report.outcome)


def taken(graph: Graph, state: RunState, fact: PageTaken) -> None:
    s, fan, pulls = _of(graph, state, fact.step)
    loop = graph.step(s).loop
    assert loop is not None
    pulls.pages.append((fan.count, pulls.came, state.seq))
    pulls.cursor, pulls.life = fact.cursor, MORE if fact.cursor is not None else AT_END
    pulls.seen.update(fact.keys)
    if fan.order is not None:
        ordering.note(fan.order, fan.count, fact.keys, fact.after)
    fan.count += fact.count
    fan.status.extend(bytes(fact.count))
    fan.places.extend([0] * fact.count)
    if fan.order is not None and pulls.life == AT_END:
        ordering.begin(fan, loop.on_cycle == "drop")
    visits.after_items(graph, state, s)


def given_up(graph: Graph, state: RunState, fact: PagesGivenUp) -> None:
    s, fan, pulls = _of(graph, state, fact.step)
    command = page_id(fact.step, fact.visit, fact.page)
    if command in state.open:
        visits.close_command(state, command)
    pulls.life, fan.fault = BROKEN, fact.fault
    visits.after_items(graph, state, s)
