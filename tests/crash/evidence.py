"""What a file says after a crash, read with plain SQL and JSON; only the fold is the engine's own."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct, json

from refold.core.codec import decode_fact
from refold.core.fold.apply import fold
from refold.core.graph import analyse
from refold.core.plan import read_plan
from refold.core.state import RunState

Command = tuple[str, str]  # run, command


class Settled(Struct, frozen=True):
    """One report that was accepted, as the log has it."""

    run: str
    command: str
    attempt: int
    outcome: str
    generation: int
    at: int
    losses: int


class Fact(Struct, frozen=True):
    number: int
    at: int
    data: bytes
    turn: str | None

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.decode(self.data)
        return told


class Evidence(Struct, frozen=True):
    logs: dict[str, list[Fact]]
    plans: dict[str, bytes]
    heads: dict[str, int]
    commands: dict[Command, tuple[str, int]]  # state and generation
    integrity: str

    def settled(self) -> list[Settled]:
        return [each for run, log in self.logs.items() for fact in log for each in _reports(run, fact)]

    def successes(self) -> set[Command]:
        return {(each.run, each.command) for each in self.settled() if each.outcome == "succeeded"}

    def states(self) -> dict[str, RunState]:
        return {run: folded(run, log, self.plans) for run, log in self.logs.items()}

    def check(self) -> None:
        """Sound as a database, each log without a gap, each row of the list at the end of its log."""
        assert self.integrity == "ok", self.integrity
        for run, log in self.logs.items():
            assert [fact.number for fact in log] == list(range(1, len(log) + 1)), run
        assert self.heads == {run: len(log) for run, log in self.logs.items()}
        doubles = Counter((each.run, each.command) for each in self.settled() if each.outcome == "succeeded")
        assert not [command for command, times in doubles.items() if times > 1]


def read(path: Path, *, quick: bool = False) -> Evidence:
    """A file that was never opened well has nothing to say."""
    if not path.exists() or path.stat().st_size == 0:
        return Evidence({}, {}, {}, {}, "ok")
    db = apsw.Connection(str(path))
    try:
        db.set_busy_timeout(10_000)
        integrity = db.execute("pragma quick_check" if quick else "pragma integrity_check").get
        if not db.execute("select count(*) from sqlite_schema where name = 'facts'").get:
            return Evidence({}, {}, {}, {}, integrity)
        logs: dict[str, list[Fact]] = {}
        for run, *fact in db.execute("select run, number, at, data, turn from facts order by run, number"):
            logs.setdefault(run, []).append(Fact(*fact))
        return Evidence(
            logs,
            dict(db.execute("select hash, data from plans")),
            dict(db.execute("select run, head from runs")),
            {(run, id): rest for run, id, *rest in db.execute("select run, id, state, generation from commands")},
            integrity,
        )
    finally:
        db.close()


def folded(run: str, log: list[Fact], plans: dict[str, bytes]) -> RunState:
    graph = analyse(read_plan(plans[log[0].told()["plan"]]))
    return fold(graph, [(fact.number, fact.at, decode_fact(fact.data)) for fact in log], RunState(run=run))


def ending(state: RunState) -> dict[str, Any]:
    """What must be the same however often the run was interrupted."""
    return {
        "life": state.life,
        "result": state.result,
        "visits": [step.visits for step in state.steps],
        "context": state.ctx,
        "usage": state.usage,
        "open": sorted(state.open),
    }


def lines(path: Path) -> Iterator[list[str]]:
    """Whole lines only: the last one may have been cut."""
    if path.exists():
        text = path.read_text()
        yield from (line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines())


def effects(folder: Path) -> list[tuple[int, int, Command, int]]:
    """When, in which process, of which command and try a body began."""
    return [(int(at), int(pid), (run, id), int(n)) for at, pid, run, id, n in lines(folder / "effects")]


def acked(folder: Path) -> dict[str, int]:
    """The last fact of each run that a process was told of."""
    heads: dict[str, int] = {}
    for run, number in lines(folder / "acks"):
        heads[run] = max(heads.get(run, 0), int(number))
    return heads


def _reports(run: str, fact: Fact) -> Iterator[Settled]:
    told = fact.told()
    match told["type"]:
        case "step_settled":
            yield _settled(run, fact, told, told["report"])
        case "items_settled":
            for report in told["reports"]:
                yield _settled(run, fact, told, report)


def _settled(run: str, fact: Fact, told: dict[str, Any], report: dict[str, Any]) -> Settled:
    command = f"{told['step']}/{told['visit']}"
    if report.get("item") is not None:
        command = f"{command}/{report['item']}"
    outcome = report["outcome"]["type"]
    losses = report.get("losses", 0)
    return Settled(run, command, report["attempt"], outcome, report.get("generation", 0), fact.at, losses)
