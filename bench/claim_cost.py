"""Measures a claim beside much that waits: `python -m bench.claim_cost [--most N] [--only sqlite|postgres]`.

In front of the commands that a worker can take there are 100 others, and then very many: of one run or of many, for a
tool that it does not have, for later, or of a limit that is used up. A claim should cost at most twice as much. Each
claim is a turn of its own with its commit, in memory where there is such a folder: the disk is not what is measured.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from bench import raw_pg
from refold.core.commands import Command
from refold.core.facts import SignalReceived
from refold.core.outcomes import SECOND
from refold.core.plan import Plan, Step, canonical, plan_hash
from refold.core.read.summary import Summary
from refold.core.state import RUNNING
from refold.ports import Abilities, Limit, Store, Writes
from refold.stores.postgres.store import PostgresStore
from refold.stores.sqlite.store import SqliteStore

FEW, CLAIMS, WARM, TOGETHER = 100, 200, 10, 5000
MEMORY = "/dev/shm"
PLAN = Plan(name="claims", steps=(Step(name="a"),))
CAN = Abilities("w", tools=frozenset({"noop"}))


def command(id: str, **fields: object) -> Command:
    return Command(id=id, step="a", visit=1, attempt=1, **fields)  # type: ignore[arg-type]


def issue(store: Store, run: str, commands: dict[str, Command]) -> None:
    with store.turn([run]) as turn:
        row = Summary(run, PLAN.name, plan_hash(PLAN), RUNNING, created_at=turn.now)
        turn.write(
            Writes(
                run=run,
                turn="t",
                expected=turn.head(run),
                at=turn.now,
                facts=[SignalReceived("issued", None)],
                summary=row,
                commands=commands,
                new=list(commands),
                plan=canonical(PLAN),
            )
        )


def of_one_run(store: Store, count: int, **fields: object) -> None:
    for first in range(0, count, TOGETHER):
        ids = [f"c{n}" for n in range(first, min(first + TOGETHER, count))]
        issue(store, "front", {id: command(id, **fields) for id in ids})


def of_many_runs(store: Store, count: int, **fields: object) -> None:
    for n in range(count // 10):
        issue(store, f"front{n}", {f"c{m}": command(f"c{m}", **fields) for m in range(10)})


def limited(store: Store, count: int) -> None:
    store.set_limit(Limit(name="full", slots=0))
    of_one_run(store, count, limit="full")


Fill = Callable[[Store, int], None]
CASES: dict[str, Fill] = {
    "waiting, one run": of_one_run,
    "waiting, many runs": lambda store, count: of_many_runs(store, min(count, 20_000)),
    "unfit, one run": lambda store, count: of_one_run(store, count, tool="other"),
    "unfit, many runs": lambda store, count: of_many_runs(store, min(count, 20_000), tool="other"),
    "for later": lambda store, count: of_one_run(store, count, not_before=store.now() + 3600 * SECOND),
    "of a used-up limit": limited,
}


def cost(store: Store, fill: Fill, count: int) -> float:
    """Milliseconds."""
    fill(store, count)
    for first in range(0, CLAIMS + WARM, TOGETHER):
        ids = [f"own{n}" for n in range(first, min(first + TOGETHER, CLAIMS + WARM))]
        issue(store, "own", {id: command(id) for id in ids})
    store.begin_sweep(1.0, 30.0)
    times: list[float] = []
    for _ in range(CLAIMS + WARM):
        began = time.perf_counter()
        with store.turn([]) as turn:
            taken = turn.claim(CAN, 30.0, 1)
        times.append((time.perf_counter() - began) * 1000)
        assert len(taken) == 1
    return statistics.median(times[WARM:])


@contextmanager
def opened(kind: str, url: str, folder: Path, name: str) -> Iterator[Store]:
    store: Store
    if kind == "sqlite":
        store = SqliteStore(folder / f"{name}.db", lambda: time.time_ns() // 1000)
    else:
        store = PostgresStore(f"{url}?refold_namespace={quote(name)}")
    try:
        yield store
    finally:
        store.close()


def measure(kind: str, url: str, folder: Path, most: int) -> int:
    missed = 0
    for at, (name, fill) in enumerate(CASES.items()):
        costs = []
        for count in (FEW, most):
            with opened(kind, url, folder, f"{at}-{count}") as store:
                costs.append(cost(store, fill, count))
        ratio = costs[1] / costs[0]
        missed += ratio > 2
        print(f"{kind:8}  {name:20}  {costs[0]:6.2f} ms with {FEW}, {costs[1]:6.2f} ms with {most}: {ratio:4.2f} x")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.claim_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a server that is running")
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        Path(folder).chmod(0o755)
        if options.only != "postgres":
            missed += measure("sqlite", "", Path(folder), options.most)
        if options.only != "sqlite" and options.url:
            missed += measure("postgres", options.url, Path(folder), options.most)
        elif options.only != "sqlite":
            with raw_pg.server(folder, None, 18) as url:
                missed += measure("postgres", url, Path(folder), options.most)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
