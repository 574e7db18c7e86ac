"""Computes every projection again from the logs alone: rows, commands and timers. Snapshots are not written."""

from contextlib import nullcontext

from refold.core.commands import Command, Held, LetterReport
from refold.core.decide.decision import Decision
from refold.core.decide.migrate import Graphs, replay
from refold.core.expressions import Contained, Evaluate, Languages, unknown
from refold.core.graph import Graph
from refold.core.read.summary import summarize
from refold.core.state import TERMINAL, RunState
from refold.errors import NotFound
from refold.ports import Store, StoreTurn, Writes
from refold.queries.reading import stored_graph
from refold.runtime.loading import loaded_dead, with_loaded


def rebuild(store: Store, evaluate: Evaluate, languages: Languages = unknown) -> dict[str, Exception | None]:
    """Rebuild all runs in one commit. Returns each run with its error; a run with an error has no row afterwards."""
    graphs: dict[str, Graph] = {}

    def graph_of(plan: str) -> Graph:
        if plan not in graphs:
            data = store.plan(plan)
            if data is None:
                raise NotFound(f"there is no workflow {plan}")
            graphs[plan] = stored_graph(plan, data)
        return graphs[plan]

    told: dict[str, Exception | None] = {}
    with store.turn([]) as turn:
        for run in turn.forget():
            try:
                turn.write(projected(turn, run, graph_of, evaluate, languages))
                told[run] = None
            except Exception as error:  # a log that cannot be read must not affect other runs
                told[run] = error
    return told


def projected(turn: StoreTurn, run: str, graph_of: Graphs, evaluate: Evaluate, languages: Languages) -> Writes:
    """Return everything that a store must hold of a run next to its log."""
    state = RunState(run=run)
    graph = replay(graph_of, turn.facts(run), state)
    language = graph.plan.language
    d = Decision(graph, state, state.at, Contained(languages(language) if language else evaluate), lambda: 0.0)
    if state.life not in TERMINAL:
        d.touch_open()
    return Writes(
        run=run,
        turn="",
        expected=state.seq,
        at=state.at,
        facts=(),
        summary=summarize(graph, state),
        commands=_commands(turn, d, _reported(turn, run)),
        timers={key: due for key, due in d.timers().items() if due is not None},
        dead=loaded_dead(turn, d),
    )


def _reported(turn: StoreTurn, run: str) -> frozenset[str]:
    """Commands whose report is kept and was not folded yet: they must not be run again."""
    return frozenset(each.body.command for each in turn.letters(run) if isinstance(each.body, LetterReport))


def _commands(turn: StoreTurn, d: Decision, reported: frozenset[str]) -> dict[str, Command | Held | None]:
    """Return every open command of the run except those that were reported; values for their inputs are loaded."""
    orders = with_loaded(lambda: nullcontext(turn), d.state.run, d.loaded, d.commands)
    return {id: order for id, order in orders.items() if order is not None and id not in reported}
