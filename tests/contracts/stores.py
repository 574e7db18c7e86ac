"""The stores under contract, and the builders that the contract tests share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from refold.core.commands import Command, Letter, LetterCancel
from refold.core.facts import Fact, SignalReceived
from refold.core.outcomes import SECOND, Instant
from refold.core.plan import Plan, Step, canonical, plan_hash
from refold.core.read.summary import Summary
from refold.core.state import RUNNING
from refold.ports import Abilities, Lease, Store, StoreTurn, Writes
from refold.stores.clock import Steady
from refold.stores.memory import MemoryStore
from refold.stores.postgres.store import PostgresStore
from refold.stores.sqlite.store import SqliteStore
from tests.postgres_server import server_url

STORES: dict[str, Callable[[Path, "FakeClock"], Store]] = {
    "memory": lambda folder, clock: MemoryStore(clock, clock.steady),
    "sqlite": lambda folder, clock: SqliteStore(folder / "refold.db", clock, clock.steady),
    "postgres": lambda folder, clock: PostgresStore(postgres_url(folder), clock, clock.steady),
}

NOON: Instant = 1_704_110_400 * SECOND
LEASE = 30.0
PLAN = Plan(name="contract", steps=(Step(name="a"),))
PLAN_BYTES, PLAN_HASH = canonical(PLAN), plan_hash(PLAN)


class FakeClock:
    """The clocks of a machine, moved by the test alone; microseconds. One can be set, the steady one cannot."""

    def __init__(self, at: Instant = NOON, boot: str = "this start") -> None:
        self.at, self.since_boot = at, 7 * SECOND
        self.steady: Steady = Steady(lambda: self.since_boot, boot)

    def __call__(self) -> Instant:
        return self.at

    def forward(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self.at += round(seconds * SECOND)

    def elapse(self, seconds: float) -> None:
        """Time passes."""
        self.forward(seconds)
        self.since_boot += round(seconds * SECOND)


def postgres_url(folder: Path) -> str:
    """A namespace for this folder, on the server of the session."""
    return f"{server_url()}?refold_namespace={quote(str(folder))}"


@contextmanager
def opened(name: str, folder: Path, clock: FakeClock) -> Iterator[Store]:
    """A store of this kind; closed afterwards if it knows how."""
    folder.mkdir(parents=True, exist_ok=True)
    store = STORES[name](folder, clock)
    try:
        yield store
    finally:
        close: Callable[[], None] = getattr(store, "close", lambda: None)
        close()


def note(text: str = "note", value: Any = None) -> Fact:
    return SignalReceived(text, value)


def order(id: str = "a/1", **fields: Any) -> Command:
    return Command(id=id, step=id.partition("/")[0], visit=1, attempt=fields.pop("attempt", 1), **fields)


def letter(key: str, to: str, reason: str = "", sender: str = "sender") -> Letter:
    return Letter(key=key, sender=sender, to=to, body=LetterCancel(reason))


def put(
    turn: StoreTurn, run: str, /, *facts: Fact, status: str = RUNNING, expected: int | None = None, **parts: Any
) -> None:
    """Write with the right expected head, unless another is given."""
    began = turn.some_facts(run, [1])
    created_at = began[0][1] if began else turn.now
    row = Summary(run, "contract", PLAN_HASH, status, created_at=created_at)
    parts = {"turn": "turn", "at": turn.now, "summary": row, **parts}
    turn.write(Writes(run=run, expected=turn.head(run) if expected is None else expected, facts=facts, **parts))


def commit(store: Store, run: str, *facts: Fact, **parts: Any) -> None:
    with store.turn([run]) as turn:
        put(turn, run, *facts, **parts)


def issue(store: Store, run: str, *commands: Command, **parts: Any) -> None:
    commit(store, run, note("issued"), commands={command.id: command for command in commands}, **parts)


def change(store: Store, run: str, command: str, to: Any) -> None:
    """Hold it, remove it, or put another in its place."""
    commit(store, run, note("changed"), commands={command: to})


def claim(store: Store, limit: int = 1, worker: str = "w", lease_for: float = LEASE, **can: Any) -> Sequence[Lease]:
    with store.turn([]) as turn:
        return turn.claim(Abilities(worker, **can), lease_for, limit)


def claim_one(store: Store, worker: str = "w", lease_for: float = LEASE, **can: Any) -> Lease:
    (lease,) = claim(store, 1, worker, lease_for, **can)
    return lease


def ids(leases: Iterable[Lease]) -> list[str]:
    return [lease.command.id for lease in leases]


def claimed_ids(store: Store, limit: int = 100, **can: Any) -> list[str]:
    return ids(claim(store, limit, **can))


def holder(store: Store, run: str, command: str) -> Lease | None:
    with store.turn([run]) as turn:
        return turn.lease(run, command)


def unread(store: Store, run: str) -> list[str]:
    with store.turn([run]) as turn:
        return [each.key for each in turn.letters(run)]


def due_keys(store: Store, run: str) -> list[str]:
    with store.turn([run]) as turn:
        return list(turn.due_timers(run))


def due_runs(store: Store, limit: int = 100) -> list[str]:
    return list(store.due(limit)[0])
