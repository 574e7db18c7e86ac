"""Follows a run that a server executes, to its end, as if it were executed here; and starts workflows of a server."""

import signal
import time
from typing import Any

from msgspec import convert, to_builtins

from refold.cli import exits, output, words
from refold.cli.commands.execute import Execution, RunResult, ways_on, why_left
from refold.cli.progress import Screen
from refold.cli.settings import channel, server
from refold.client.connection import NAMESPACE, segment
from refold.core.graph import Graph
from refold.core.outcomes import Queueing
from refold.core.plain_values import to_plain_data
from refold.core.plan import Plan
from refold.core.read.summary import progress
from refold.core.state import TERMINAL, RunState
from refold.errors import Stopped
from refold.ports import Views
from refold.queries.idle import moving_run
from refold.queries.items import first_failure
from refold.queries.reading import RunReader, stored_value
from refold.queries.runs import error_text, is_timed_out, run_object

EVERY = 0.25  # seconds between two looks


def follow(views: Views, order: Execution, screen: Screen) -> RunResult:
    """Show a run until it has ended, or until it is paused or, if the order says so, waits. Ctrl-C ends the watching
    and not the run."""
    try:
        graph, state = _watched(views, order, screen)
        is_left = state.life not in TERMINAL
        if is_left:
            screen.say(why_left(views, state.run))
        screen.close(progress(graph, state, state.ended_at or words.now()))
    except KeyboardInterrupt:
        screen.close()
        output.print_message(f"the run continues on the server; to see it: {order.again}")
        raise Stopped(signal.SIGINT) from None
    finally:
        screen.close()
    if is_left:
        for way in ways_on(views, order):
            output.print_message(way)
    return _result(views, graph, state, order.objects)


def _watched(views: Views, order: Execution, screen: Screen) -> tuple[Graph, RunState]:
    reading = RunReader(views, order.run)
    while True:
        graph, state = reading.read()
        if state.successor:
            reading = RunReader(views, state.successor)
            continue
        if state.life in TERMINAL:
            return graph, state
        screen.show(progress(graph, state, words.now()))
        leaves = state.paused or order.until_waiting
        if leaves and moving_run(views, (), {state.run}) is None:
            return graph, state
        time.sleep(EVERY)


def _result(views: Views, graph: Graph, state: RunState, with_object: bool) -> RunResult:
    late = is_timed_out(views, state)
    cause = first_failure(views, graph, state)
    error = "" if state.error is None else "; ".join(filter(None, (error_text(state.error), cause)))
    result = state.result if state.blob is None else stored_value(views, state.run, state.blob.hash)
    status = "paused" if state.paused else state.life if state.life in TERMINAL else "waiting"
    return RunResult(
        status,
        to_plain_data(result) if graph.by_events else result,
        error,
        exits.code_of_run(status, late),
        run_object(views, graph, state, words.now()) if with_object else None,
        cause,
    )


class Offered:
    """A workflow of the catalogue of a server."""

    def __init__(self, name: str) -> None:
        """Raises NotFound."""
        self.name, self._channel = name, channel(server())
        found = self._channel.ask("GET", f"{NAMESPACE}/workflows/{segment(name)}")
        self.plan: Plan = convert(found["plan"], Plan)

    def start(
        self, run: str, name: str, key: str, input: dict[str, Any], labels: dict[str, str], queueing: Queueing
    ) -> str:
        """Return the id of the run, which is another one if the key had its run already."""
        body = {"workflow": self.name, "input": input, "name": name, "labels": labels}
        body |= to_builtins(queueing)
        body |= {"key": key} if key else {"id": run}
        started: str = self._channel.ask("POST", f"{NAMESPACE}/runs", body)["id"]
        return started
