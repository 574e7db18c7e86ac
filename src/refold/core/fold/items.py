"""How facts about the items of a list loop, and about the pages of its source, change the state."""

from collections.abc import Sequence

from refold.core.commands import command_id, page_id
from refold.core.facts import (
    FanOutEntered,
    ItemsCancelled,
    ItemsGivenUp,
    ItemsIssued,
    ItemsReopened,
    ItemsRetried,
    ItemsSettled,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
)
from refold.core.fold import dependencies, fanout, visits, waits
from refold.core.graph import Graph
from refold.core.outcomes import Failed, Succeeded
from refold.core.plan import Child, Loop
from refold.core.state import (
    ASKED,
    AT_END,
    BROKEN,
    CAME,
    ITEM_RUNNING,
    MORE,
    FanOut,
    ItemOrder,
    OpenCommand,
    RunState,
    SourceState,
)
from refold.errors import Corrupt


def issued(graph: Graph, state: RunState, fact: ItemsIssued) -> None:
    s = graph.index[fact.step]
    fan = state.steps[s].fan
    assert fan is not None
    items: Sequence[int] = fact.items or range(fact.first, fact.first + fact.count)
    if items[0] != (fan.todo[0] if fan.todo else fan.next):
        raise Corrupt(f"item {items[0]} of {fact.step} was issued after item {fan.next - 1}")
    fanout.issue(fan, items, fact.capture)
    for item in items:
        state.open[f"{fact.step}/{fact.visit}/{item}"] = OpenCommand(s, fact.visit, item)
    if isinstance(graph.step(s).work, Child):
        for item in items:
            waits.await_child(graph, state, f"{fact.step}/{fact.visit}/{item}")
    if not fanout.has_work(graph, s, fan):
        state.filling.pop(s, None)


def put_in_order(fan: FanOut, loop: Loop, fact: FanOutEntered) -> None:
    """Give the items their order. The items of a list are known now, those of a source when its last page was taken."""
    fan.order = ItemOrder()
    dependencies.note(fan.order, 0, fact.keys, fact.after)
    if fact.source is None:
        dependencies.begin(fan, loop)


def withdraw(state: RunState, opened: OpenCommand) -> None:
    """Stop an item, or the request for a page, because the run is ending."""
    fan = state.steps[opened.step].fan
    assert fan is not None
    if opened.item is not None:
        fanout.stop(fan, opened.item)
    elif fan.pulls is not None:
        fan.pulls.life = MORE


def retried(graph: Graph, state: RunState, fact: ItemsRetried) -> None:
    for item, attempt, not_before in fact.items:
        command = command_id(fact.step, fact.visit, item)
        visits.clear_obligation(state.judge, command)
        opened = state.open[command]
        opened.attempt, opened.child, opened.deadline = attempt, "", None
        visits.postpone(opened, not_before)
        visits.dismiss(state, command)
        if not not_before and isinstance(graph.step(opened.step).work, Child):
            waits.await_child(graph, state, command)
        fan = state.steps[opened.step].fan
        assert fan is not None
        fan.retried[item] = attempt


def settled(graph: Graph, state: RunState, fact: ItemsSettled) -> None:
    s = graph.index[fact.step]
    for report in fact.reports:
        command = f"{fact.step}/{fact.visit}/{report.item}"
        if command not in state.open:
            raise Corrupt(f"{command} was settled but is not open")
        if isinstance(report.outcome, Failed):
            state.children.pop(command, None)  # a child reports by letter; this one never started
        if graph.secret:
            visits.note_sealed(graph, state, s, report.outcome)
        visits.report_item(graph, state, command, report)
        if type(report.outcome) is not Succeeded:
            waits.put_aside(state, command, report)
    visits.after_items(graph, state, s)


def given_up(graph: Graph, state: RunState, fact: ItemsGivenUp) -> None:
    s = graph.index[fact.step]
    fan = state.steps[s].fan
    assert fan is not None
    for item in fact.items:
        visits.close_command(state, command_id(fact.step, fact.visit, item))
    fanout.give_up(fan, fact.items)
    visits.after_items(graph, state, s, max(fan.report_facts[item] for item in fact.items))


def cancelled(graph: Graph, state: RunState, fact: ItemsCancelled) -> None:
    s = graph.index[fact.step]
    fan = state.steps[s].fan
    assert fan is not None
    for item in fact.items:
        if fan.status[item] == ITEM_RUNNING:
            visits.close_command(state, command_id(fact.step, fact.visit, item))
    if fact.halts:
        fanout.halt(fan)
    else:
        fanout.cancel(fan, fact.items)
    if fact.page and fan.pulls is not None:
        visits.close_command(state, page_id(fact.step, fact.visit, fact.page))
        fan.pulls.life = MORE
    visits.after_items(graph, state, s)


def reopened(graph: Graph, state: RunState, fact: ItemsReopened) -> None:
    s = graph.index[fact.step]
    fan = state.steps[s].fan
    assert fan is not None
    fanout.make_wait(fan, sorted(dependencies.with_skipped_dependents(fan, fact.items)))
    visits.after_items(graph, state, s)


def _of(graph: Graph, state: RunState, step: str) -> tuple[int, FanOut, SourceState]:
    s = graph.index[step]
    fan = state.steps[s].fan
    if fan is None or fan.pulls is None:
        raise Corrupt(f"{step} has no source")
    return s, fan, fan.pulls


def asked(graph: Graph, state: RunState, fact: PageAsked) -> None:
    s, _, pulls = _of(graph, state, fact.step)
    command = page_id(fact.step, fact.visit, fact.page)
    if command in state.open:
        visits.clear_obligation(state.judge, command)
        state.open[command].attempt = fact.attempt
        visits.postpone(state.open[command], fact.not_before)
    else:
        pulls.life, pulls.page = ASKED, fact.page
        state.open[command] = OpenCommand(s, fact.visit, page=fact.page)
    visits.after_items(graph, state, s)


def came(graph: Graph, state: RunState, fact: PageCame) -> None:
    """Note that a page came. A rule takes it later, unless the loop has ended by then."""
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
        visits.hold_for_judgement(state, command, fact.report.outcome)


def taken(graph: Graph, state: RunState, fact: PageTaken) -> None:
    s, fan, pulls = _of(graph, state, fact.step)
    loop = graph.step(s).loop
    assert loop is not None
    pulls.pages.append((fan.count, pulls.came, state.seq))
    pulls.cursor, pulls.life = fact.cursor, MORE if fact.cursor is not None else AT_END
    pulls.seen.update(fact.keys)
    if fan.order is not None:
        dependencies.note(fan.order, fan.count, fact.keys, fact.after)
    fan.count += fact.count
    fan.status.extend(bytes(fact.count))
    fan.report_facts.extend([0] * fact.count)
    if fan.order is not None and pulls.life == AT_END:
        dependencies.begin(fan, loop)
    visits.after_items(graph, state, s)


def source_given_up(graph: Graph, state: RunState, fact: PagesGivenUp) -> None:
    s, fan, pulls = _of(graph, state, fact.step)
    command = page_id(fact.step, fact.visit, fact.page)
    if command in state.open:
        visits.close_command(state, command)
    pulls.life, fan.fault = BROKEN, fact.fault
    visits.after_items(graph, state, s)
