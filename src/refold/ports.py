"""Every port on one page: what the engine asks of the outside world, so that each part can be replaced.

Store and StoreTurn keep logs: one lock and one commit, so that what must change together does.
Views reads them: on any thread, so that no reader delays the writer.
Desk hands out work: a worker needs nothing else, so it can run in another process.
Doorbell and Clock wait: a test replaces them and needs no real time.
Tool, Executor and Programs do the work: in this process, in one of its own, or as a program.
Source brings items page by page: a loop never holds more of them than it needs.
Secrets, Entries and Discretion guard what must not be stored or printed.
Advance runs turns: on a thread of its own, because a commit waits for a disk.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

from refold.core.commands import Command, Held, Letter
from refold.core.facts import Fact
from refold.core.fold.apply import Record
from refold.core.outcomes import Awaited, Fault, Instant, Outcome, Sent, Write
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.core.state import FAILED
from refold.errors import Corrupt, StaleWrite


class Memory(Struct, frozen=True):
    """The context of a run and its recorded durable calls at the moment when one of its commands was claimed."""

    ctx: Mapping[str, Any] = {}
    versions: Mapping[str, int] = {}
    recorded: Mapping[str, Outcome] = {}
    awaited: frozenset[str] = frozenset()  # calls that the run waits for
    count: int = 0  # how many calls the run has recorded for this command
    is_cancelled: bool = False  # the run is cancelled, and the body may clean up


class Lease(Struct, frozen=True, gc=False):
    """The right to run a command until a moment; the generation makes a late report recognisable."""

    run: str
    command: Command
    worker: str
    generation: int
    until: Instant
    claimed_at: Instant
    plan: str
    losses: int = 0
    deadline: Instant | None = None  # the end of the command's timeout, by the store's clock
    beat_at: Instant = 0  # the last sign of life, a claim or a heartbeat; one after the deadline: the command hangs
    memory: Memory | None = None  # of a workflow of events, if it was at hand

    def hangs(self) -> bool:
        """Whether the deadline has passed although the holder is alive. The lease of a dead holder expires instead, and
        that is a loss."""
        return self.deadline is not None and self.beat_at > self.deadline


Place = tuple[str, str, int]
"""What identifies a lease: its run, its command and its generation."""


class Abilities(Struct, frozen=True):
    """What a worker can take: its queues (None: all, by their names), its tools (None: any), the runs it serves
    (None: all), and its free places by kind of executor; a kind that is not named has as many as are wanted.

    A remote worker takes its commands through a server. The process that claims for it says nothing about whether it is
    alive: it is, for `alive_for` seconds after each `enrol`, and its leases only end by their time."""

    worker: str
    queues: tuple[str, ...] | None = ("default",)
    tools: frozenset[str] | None = None
    runs: frozenset[str] | None = None
    places: tuple[tuple[str, int], ...] = ()
    alive_for: float | None = None  # seconds for which a remote worker is alive after it enrols; None: like its process

    def full(self) -> tuple[str, ...]:
        """The kinds of executors that have no free place."""
        return tuple(kind for kind, free in self.places if free <= 0) if self.places else ()


class Offer(Struct, frozen=True, gc=False):
    """Free slots of a worker in the process of the store: commands that a turn issues can be leased to it in the same
    commit."""

    can: Abilities
    slots: int
    number: int  # which offer this is


class Hint(Struct, frozen=True, gc=False):
    """What the caller of a turn remembers of a run whose mail concerns it alone. A store may begin the turn without
    reading, and verify this when it commits."""

    head: int  # the facts that are folded
    held: Mapping[str, int] = {}  # commands that are reported, with the generations of their holders
    is_fresh: bool = False  # the run starts, under an id that was never used


class Limit(Struct, frozen=True, kw_only=True):
    """How many commands with this limit may run at a time, and how many may start in a second. None: any number."""

    name: str
    slots: int | None = None
    rate: float | None = None
    burst: float = 1.0  # how many may start at once after a pause


class LimitUse(Struct, frozen=True):
    """A limit and what it allows now."""

    limit: Limit
    leased: int = 0
    waiting: int = 0
    again: Instant | None = None  # with a rate: when the next command may start; None: now


class Share(Struct, frozen=True):
    """A share that has a weight or commands to do."""

    name: str
    weight: int = 1  # commands in a round
    waiting: int = 0
    leased: int = 0


MOST_WEIGHT = 1000


class ClaimRequest(Struct, gc=False):
    """Commands that a turn is to lease when everything else is written."""

    can: Abilities
    lease_for: float
    limit: int
    leases: Sequence[Lease] = ()  # known after the commit
    heads: dict[str, int] = {}  # of the runs of these leases: the number of the last fact
    again: Instant | None = None  # a limit kept commands back, and allows more at this moment


class Writes(Struct, gc=False):
    """All that one turn changes for one run; written together or not at all.

    A command is issued and free to claim, behind the others of its run; if there is one with its id, only generation
    and losses are kept. `Held` frees it and keeps it from being claimed. None removes it permanently: an id is never
    used again. A timer is set or moved; None clears it. A letter is left out if its receiver has an unread one with
    the same key; letters that were read are removed last.
    """

    run: str
    turn: str  # random; tells after an ambiguous commit whether it was applied
    expected: int  # the number of the last fact before this turn
    at: Instant
    facts: Sequence[Fact]
    summary: Summary
    commands: Mapping[str, Command | Held | None] = {}
    new: Collection[str] = ()  # those of the commands that were never issued before
    timers: Mapping[str, Instant | None] = {}
    letters: Sequence[Letter] = ()
    read_letters: Collection[str] = ()
    blobs: Mapping[str, bytes] = {}
    plan: bytes | None = None  # of a run that starts
    dead: Sequence[DeadLetter] | None = None  # all that the run has; None: they are what they were
    lines: Sequence[Any] = ()  # for the run's side stream


HAND_BACKS = 100  # of one command: then they are a loss


class Expired(Struct, frozen=True):
    """A command that hangs or has lost too many workers; its holder keeps it until a turn of its run decides."""

    run: str
    command: str
    generation: int


class Document(Struct, frozen=True):
    """Something small that belongs to no run: a schedule, a calendar, an entry of a catalogue."""

    kind: str
    id: str
    version: int  # grows with every put; a document that is made again does not get a version that it had before
    data: bytes
    due: Instant | None = None  # when somebody has to look at it; None: never


MOST_DATA = 1024 * 1024  # bytes of one document


class Ring(Struct, frozen=True, gc=False):
    """What other processes may have to look at. It is a hint and carries no data: those who hear it ask the store."""

    kind: str = ""  # work, ended, withdrawn, runs or documents; empty: anything
    key: str = ""  # the queue of work, otherwise the run; empty: any of them


ANYTHING = Ring()
RING_KINDS = ("work", "ended", "withdrawn", "runs", "documents")


class FleetBell(Protocol):
    """Rings other processes and hears them. A ring that is lost, doubled, late, foreign or garbled costs time, and
    nothing else: each process also looks by itself now and then."""

    def ring(self, rings: Collection[Ring]) -> None:
        """Return at once, from any thread. What cannot be sent is dropped."""

    def listen(self, heard: "Heard") -> None:
        """Call this, on a thread of the bell, when another process has rung."""

    def close(self) -> None: ...


Heard = Callable[[Collection[Ring]], None]


class StoreTurn(Protocol):
    """What a turn may do while it holds the lock on its runs; it sees what it has written itself.

    Leaving it without an error commits; any error undoes all of it, claims and the order of waiting commands included.
    """

    now: Instant  # does not change until the turn ends, and is never before that of an earlier turn

    def head(self, run: str) -> int:
        """The number of the run's last fact; 0 if there is no such run."""

    def facts(self, run: str, after: int = 0) -> Sequence[Record]: ...

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        """Those of these numbers that exist, in their order."""

    def blob(self, run: str, hash: str) -> bytes:
        """Return a blob of any run, locked or not. Raises NotFound."""

    def letters(self, run: str) -> Sequence[Letter]:
        """The unread ones, in the order in which they were written."""

    def due_timers(self, run: str) -> Sequence[str]:
        """Keys of timers whose time has come, in order of due time."""

    def generations(self, run: str, commands: Collection[str]) -> Mapping[str, int]:
        """The generation under which each of these commands is held; a command that no worker holds is missing."""

    def lease(self, run: str, command: str) -> Lease | None:
        """Return the lease of a command: it lasts until the command is settled, handed back, held, or taken back by
        `expire`."""

    def claimed(self, run: str) -> frozenset[str]:
        """The run's commands that are leased."""

    def write(self, writes: Writes) -> None:
        """Raises Conflict if the head is not the expected one. Whatever it raises, it has written nothing, and the
        turn may continue without it."""

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        """Lease what waits, of any run that is not paused, each under the next generation.

        The highest priority first, then by the order of the worker's queues. There the shares go round, each with as
        many commands as its weight, and a claimer continues the round where it stopped. In a share the runs take turns,
        and each goes in the order of issue, which a hand-back or a loss does not change. What has no free place in the
        worker is passed over, and so is what a limit keeps back: no more commands of a limit are leased at any moment
        than it has slots, and no more start than its rate allows. The cost does not grow with the backlog.
        A command that prefers another worker is left to that one until `prefer_until`, or shorter if the store knows
        that its process has ended.
        """

    def ask(self, can: Abilities, lease_for: float, limit: int) -> ClaimRequest:
        """Claim when the turn has written everything: the leases are known after the commit, and nothing in the turn
        depends on them. A store that is far away answers in the round trip of the commit."""

    def remove(self, run: str) -> None:
        """Remove a run that is over, with all that belongs to it; its id may be used again.

        Raises NotFound, or Conflict if the run is not over or the run that started it is not.
        """

    def forget(self) -> Sequence[str]:
        """Remove every row, command, timer, snapshot and dead letter; return the runs that have a log, from which they
        can be written again.

        Generations continue above every earlier one, so that no report of a former holder is believed. Documents stay:
        they follow from nothing else.
        """

    def document(self, kind: str, id: str) -> Document | None:
        """Return a document, which nobody else changes until this turn has ended."""

    def put_document(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        """Write a document if it has this version, 0 if there must be none; return its new version.

        Raises Conflict, or InvalidValue if it is larger than MOST_DATA; then it has written nothing, and the turn may
        continue.
        """

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        """Do the same as `Store.publish`, in the commit of this turn, which must have locked the run of the lease."""

    def delete_document(self, kind: str, id: str, version: int) -> None:
        """Delete a document if it has this version. Raises Conflict, and the turn may continue."""


class Store(Protocol):
    """Keeps logs and what follows from them. Synchronous, called only on the advancing thread; readers use `views`.

    Any text without a NUL is a name, the empty one too. What is read is a copy: changing it changes nothing here.
    """

    @property
    def takes_hints(self) -> bool:
        """Whether `turn_from` saves anything here."""

    @property
    def views(self) -> "Views":
        """What this store has committed, for readers on any thread."""

    def turn(self, runs: Sequence[str]) -> AbstractContextManager[StoreTurn]:
        """Lock these runs: no other turn holds one of them at the same time."""

    def turn_from(self, hints: Mapping[str, Hint]) -> AbstractContextManager[StoreTurn]:
        """The same for runs of which the caller remembers everything. A store may begin without a lock; then its commit
        verifies the hints, and raises Outdated if one is wrong, and has written nothing. Letters and timers that have
        come meanwhile are left for the next turn."""

    def now(self) -> Instant:
        """The store's time, from any thread. It follows the machine's clock, but never back."""

    def plan(self, hash: str) -> bytes | None: ...

    def put_plan(self, hash: str, data: bytes) -> None: ...

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]: ...

    def turn_of(self, run: str, number: int) -> str | None:
        """The id of the turn that wrote this fact, if it began one: settles what an ambiguous commit did."""

    def was_applied(self, run: str, number: int, turn: str) -> bool:
        """Whether this turn wrote the fact with this number, after a commit of which that is not known. The answer is
        final: the former commit cannot be carried out any more. Raises Unavailable."""

    def summary(self, run: str) -> Summary | None: ...

    def snapshot(self, run: str) -> bytes | None: ...

    def put_snapshot(self, run: str, data: bytes) -> None: ...

    def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        """One heartbeat for all leases of the worker, also expired ones that were not taken back yet; a lease that is
        not returned is lost. `left`: how many seconds of its timeout the body of a lease still has, which moves its
        deadline, because a body may start long after the claim; without it the timeout counts from the claim."""

    def leases_of(self, worker: str) -> Sequence[Lease]:
        """All leases of the worker, unchanged."""

    def hand_back(self, lease: Lease, lost: bool = False) -> bool:
        """Free the command for another worker; no try and no loss is counted. False if the lease is stale.

        With `lost` the lease expires now instead and cannot be extended: the next `expire` counts a loss, or reports
        that there were too many. The same happens after HAND_BACKS of one command, so that a worker cannot take it and
        give it back forever.
        """

    def begin_sweep(self, every: float, lease_for: float) -> bool:
        """Whether this process is to look for expired leases and due runs now. Of the processes on a server one does it
        in each interval. After an outage, leases that were not over before it get their time again."""

    def expire(self, losses: int) -> Sequence[Expired]:
        """Take back expired leases, each a loss; return what hangs or would be lost more often than allowed."""

    def due(self, limit: int) -> tuple[Sequence[str], Instant | None]:
        """Runs that have a letter, then those with a due timer that are not paused, the longest due first, each once;
        and the next moment after now at which a timer is due."""

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        """Append to the run's side stream, numbered from 1; False if the lease is stale."""

    def enrol(self, can: Abilities) -> None:
        """Let others know of a worker before it has claimed anything, or because it can take more than before. A remote
        worker enrols with each sign of life; with `alive_for` 0 it says that it has ended."""

    def forget_workers(self) -> int:
        """Remove the rows of workers that have ended in good order and hold nothing; return how many."""

    def foreign_writes(self) -> int:
        """Return a number that changes when another process has written."""

    def set_weight(self, share: str, weight: int | None) -> None:
        """Set how many commands of a share are claimed in a round, from 1 to MOST_WEIGHT; None: 1, as without this. It
        counts from the next turn of the share. Raises InvalidValue."""

    def set_limit(self, limit: Limit) -> None:
        """Set a limit; it counts from the next claim. Raises InvalidValue."""

    def remove_limit(self, name: str) -> bool:
        """Remove a limit, so that its commands are not limited. False: there is none."""

    def listen(self, heard: Heard) -> bool:
        """Have this called, on any thread, soon after another process has written, and maybe after this one has.
        Without rings: ask `foreign_writes` what it means. False: the store cannot call, and has to be asked."""

    def compact(self) -> None:
        """Give the space of removed runs back. Takes as long as writing everything again; other writers wait."""

    def close(self) -> None:
        """End the store and its views; what was committed stays."""


RunCursor = tuple[Instant, str]
"""A place in the list of runs: the start and the id of the run before it."""


class RunFilter(Struct, frozen=True):
    """Which runs a list shows: those that fit everything that is given here."""

    status: str | None = None
    workflow: str | None = None
    name: str | None = None
    key: str | None = None
    labels: tuple[tuple[str, str], ...] = ()  # a run has all of them, and may have others
    since: Instant | None = None  # started at this moment or later
    until: Instant | None = None  # started before this moment
    parent: str | None = None  # the run that has started it; empty: no run has
    error: str = ""  # a part of the message of the error with which it failed

    def fits(self, row: Summary) -> bool:
        return (
            self.status in (None, row.status)
            and self.workflow in (None, row.workflow)
            and self.name in (None, row.name)
            and self.key in (None, row.key)
            and self.parent in (None, row.parent)
            and (not self.error or self.error.lower() in _error_of(row).lower())
            and (self.since is None or row.created_at >= self.since)
            and (self.until is None or row.created_at < self.until)
            and all(row.labels.get(key) == value for key, value in self.labels)
        )


def _error_of(row: Summary) -> str:
    """Return the message of the error with which a run failed; empty: it has not failed."""
    if row.error is None or row.status != FAILED:
        return ""
    return row.error.fault.message if row.error.fault is not None else row.error.why


ALL_RUNS = RunFilter()


class RunPage(Struct, frozen=True):
    """A part of the list of runs, and where the next part begins."""

    rows: Sequence[Summary]
    after: RunCursor | None = None  # pass it on to get the next part
    more: bool = False  # whether there may be a next part


ChangePosition = tuple[int, int]
"""The number of a change, and the head of its run then: a run that changes several times in a row may keep its number.
(0, 0) is before everything."""


class RunChanges(Struct, frozen=True):
    """Runs whose logs have grown, each once."""

    position: ChangePosition  # pass it on to get what changes after it
    heads: Mapping[str, int] = {}  # by run, the number of its last fact; the run that changed first comes first


class FeedFact(Struct, frozen=True):
    """A fact of any run, as the feed brings it."""

    run: str
    number: int
    at: Instant
    fact: Fact
    cursor: str  # pass it on to get what comes behind this fact


class Leased(Struct, frozen=True):
    """A command that a worker has claimed and not settled."""

    run: str
    command: str
    worker: str  # empty: the worker has given it up, and that is not counted as a loss yet
    until: Instant
    is_alive: bool  # whether the worker's process is running
    claimed_at: Instant = 0


class LiveWorker(Struct, frozen=True):
    """A worker whose process is running."""

    can: Abilities
    leases: int = 0
    beat_at: Instant = 0  # the last sign of life that its leases show


class Queue(Struct, frozen=True):
    """What a queue has to do."""

    name: str
    waiting: int = 0  # commands that a worker may claim, now or at their moment
    leased: int = 0
    oldest: Instant | None = None  # when the first of those that wait was issued


class Health(Struct, frozen=True):
    """How a store stands, read back from where it keeps its data."""

    schema: int = 0
    size: int = 0  # bytes
    is_ours: bool = True  # the schema is that of this release: another one may have changed it meanwhile
    is_writable: bool = True
    is_durable: bool = True  # whether a commit survives a loss of power
    damage: tuple[str, ...] = ()
    details: Mapping[str, str | int] = {}  # what this kind of store has to say besides


MOST_SCANNED = 5000  # rows read for one part of a list


class Views(Protocol):
    """Reading. Any thread may call it, at any time: it has connections of its own, never waits for the writer's lock,
    and sees what is committed and nothing else.

    A row that cannot be read harms nothing but its own run: lists leave it out and report it.
    """

    def now(self) -> Instant:
        """The store's time."""

    def runs(self, wanted: RunFilter = ALL_RUNS, after: RunCursor | None = None, limit: int = 100) -> RunPage:
        """The newest runs first, by the time of their start. Reads at most MOST_SCANNED rows: the page may be shorter
        than the limit although there are more runs."""

    def called(self, text: str, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        """The runs with this name, or with an id that begins so, the newest first: what people type."""

    def count(self, wanted: RunFilter = ALL_RUNS, most: int = 10_000) -> tuple[int, bool]:
        """How many runs there are, and whether counting stopped at `most`."""

    def changed(self, since: ChangePosition | None = None, limit: int = 1000) -> RunChanges:
        """The runs that have changed since a position; None: the present position alone. A commit gets its position
        under the writer's lock, so a later one never comes before it, and none is missed. If there are as many runs
        as the limit, there may be more."""

    def feed(self, cursor: str = "", limit: int = 500) -> Sequence[FeedFact]:
        """The facts of all runs behind a cursor, about as many as the limit; none: there are no more now. Each fact
        comes once for a reader who passes on the cursor of the last one, those of a run in their order, and a commit
        that becomes visible late is not missed. An empty cursor is before everything. Facts of removed runs do not
        come.

        Raises InvalidValue for what is not a cursor of this store, as after it was restored from a backup.
        """

    def feed_end(self) -> str:
        """The cursor behind everything that the feed has now."""

    def summary(self, run: str) -> Summary | None: ...

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]: ...

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        """Those of these numbers that exist, in their order."""

    def blob(self, run: str, hash: str) -> bytes:
        """Raises NotFound."""

    def snapshot(self, run: str) -> bytes | None: ...

    def lines(self, run: str, after: int = 0, limit: int | None = None, search: str = "") -> Sequence[tuple[int, Any]]:
        """What the steps of a run printed and published, with numbers from 1; `search`: only lines with this text."""

    def last_lines(self, run: str, before: int | None = None, limit: int = 100) -> Sequence[tuple[int, Any]]:
        """Lines with numbers below `before`, or of the whole stream, the last one first."""

    def plan(self, hash: str) -> bytes | None: ...

    def plans(self, beginning: str, limit: int = 10) -> Sequence[str]:
        """Hashes of plans that begin so."""

    def queues(self) -> Sequence[Queue]:
        """Every queue that has something to do, by name."""

    def shares(self) -> Sequence[Share]:
        """Every share that has a weight or something to do, by name."""

    def limits(self) -> Sequence[LimitUse]:
        """Every limit, by name."""

    def workers(self) -> Sequence[LiveWorker]:
        """The workers that are alive, by name."""

    def leases(self, run: str | None = None) -> Sequence[Leased]:
        """Every claimed command, or those of one run."""

    def dead(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        """Dead letters, those of the runs that ended last first; within a run in the order in which they were
        written."""

    def document(self, kind: str, id: str) -> Document | None: ...

    def documents(self, kind: str, after: str = "", limit: int = 100) -> Sequence[Document]:
        """The documents of a kind whose ids come after this one, in the order of their ids."""

    def due_documents(self, kind: str, limit: int = 100) -> tuple[Sequence[Document], Instant | None]:
        """The documents of a kind whose moment has come, the longest due first, and the next moment after now. The cost
        does not grow with the documents that are not due."""

    def health(self, thorough: bool = False) -> Health:
        """`thorough` reads everything and names what is damaged."""

    def sizes(self) -> Mapping[str, int]:
        """How many rows there are, by table."""

    def backup(self, target: str) -> None:
        """Write everything that is committed to a new file, while others read and write.

        Raises Conflict if the file exists, or Unusable if this store has no file or the target cannot be written.
        """

    def report(self, error: Corrupt) -> None:
        """Take note of something that cannot be used, as of a row that cannot be read."""

    def close(self) -> None: ...


class Desk(Protocol):
    """Where a worker takes commands and hands in outcomes."""

    async def claim(self, can: Abilities, lease_for: float) -> Lease | None: ...

    async def settle(self, lease: Lease, done: "Done", then: Abilities | None = None) -> Lease | None:
        """Raises LeaseLost if another holder owns the command now. Returns the next claim, of the same commit."""

    async def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]: ...

    async def leases_of(self, worker: str) -> Sequence[Lease]: ...

    async def interrupted(self, leases: Sequence[Lease]) -> Collection[Place]:
        """Those of these leases whose run was cancelled while their body was running, so that it may clean up."""

    async def hand_back(self, lease: Lease, lost: bool = False) -> None: ...

    async def publish(self, lease: Lease, lines: Sequence[Any]) -> None: ...

    async def recall(self, lease: Lease) -> Memory: ...

    async def record(self, lease: Lease, key: str, outcome: Outcome) -> None: ...

    async def expect(self, lease: Lease, calls: Sequence[Awaited]) -> None:
        """The body keeps running, and waits for these durable calls."""

    async def wake(self, lease: Lease) -> None:
        """Let the command be claimed again whose body was parked under this lease. Raises LeaseLost if the command is
        over or another worker has it."""


class Meanwhile(Protocol):
    """What a body can do before its try is over. What it records is there when the command is run again."""

    async def recall(self) -> Memory: ...

    async def recorded_before(self) -> Mapping[str, Outcome]:
        """Return what was recorded under earlier leases; this costs nothing under the first."""

    async def record(self, key: str, outcome: Outcome) -> None: ...

    async def publish(self, lines: Sequence[Any]) -> None: ...


class Sleeper(Protocol):
    """A body that can be parked, as the worker sees it."""

    def resumed(self, memory: Memory) -> None:
        """The body has a lease again: it gets what was recorded meanwhile and continues."""

    def interrupted(self) -> None:
        """The run of the body is cancelled while it runs: it gets CancelledError, and may clean up."""

    def dropped(self) -> None:
        """Another holder owns the command, or nobody does: what this body still does has no effect."""


class Parking(Protocol):
    """Lets a body wait without a slot and without a lease, while its coroutine stays where it is."""

    has_lease: bool

    def attach(self, sleeper: Sleeper | None) -> None:
        """Once, when the body begins. None: it cannot be parked."""

    def park(self, done: "Done") -> None:
        """Report that the body waits. From now on it has no lease."""

    async def leased(self) -> bool:
        """Return True when the body has a lease; a parked one asks for its command. False: it was dropped."""

    async def expect(self, calls: Sequence[Awaited]) -> None:
        """The body keeps running, and waits for these durable calls."""

    async def news(self) -> Memory:
        """Return what is recorded now."""


class Done(Struct, frozen=True):
    """The outcome of one try, with what the try wrote, used, sent and printed."""

    outcome: Outcome
    started_at: Instant = 0
    writes: tuple[Write, ...] = ()
    usage: dict[str, int | float] = {}
    events: tuple[Sent, ...] = ()
    renew: Callable[[StaleWrite], "Done"] | None = None  # what to report instead, if another write came first
    lines: tuple[Any, ...] = ()  # what was printed last, for the run's side stream
    unasked: tuple[str, ...] = ()  # recorded durable calls that the body did not ask for


class Doorbell(Protocol):
    """Wakes those who wait for work. A lost ring costs a poll, never a run."""

    def ring(self) -> None: ...

    async def wait(self, timeout: float) -> None: ...


class Clock(Protocol):
    def now(self) -> Instant: ...

    async def sleep(self, seconds: float) -> None: ...


Say = Callable[[str, str], None]
"""Takes what a body prints, `stdout` or `stderr` and a line, from any thread; its failures do not reach the body."""


class Piece(str):
    """A piece of a line that is too long to be passed on at once: the next text of its stream continues it."""


class LeftOut(str):
    """A note of Refold in a stream, not printed by a body: the stream is cut at this place."""


class Ending(Enum):
    """What follows the texts of a stream."""

    MORE = "more"  # other texts may
    OVER = "over"  # nothing
    CUT = "cut"  # texts that are left out


StreamRedaction = Callable[[Sequence[str], Ending], Sequence[str]]
"""Takes the next texts of a stream and returns them without secrets. If more may follow, it can return fewer texts than
it was given: the last ones may hold the beginning of a secret, and must be passed again with those that follow."""


class ToolCall(Struct, frozen=True):
    """One try of a command, as a tool sees it."""

    run: str
    command: Command
    settings: Mapping[str, Any]
    say: Say | None = None  # to the run's side stream
    meanwhile: Meanwhile | None = None
    parking: Parking | None = None

    @property
    def input(self) -> Any:
        return self.command.input

    @property
    def idempotency_key(self) -> str:
        """The same for every try of this command, so that the far side can recognise a repetition."""
        return f"{self.run}/{self.command.id}"


Tool = Callable[[ToolCall], Awaitable[Any]]
"""Returns a result, or a `Done` or an outcome to say more; raises to fail."""


class Executor(Protocol):
    """Where the body of a step runs: in this process or in one of its own."""

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        """Call `module:function` with the input of the step, or without if it has no parameter.

        Raises what the body raises, or ToolFailed instead. Cancelling stops the body as far as possible: a coroutine is
        cancelled, a process is killed with all that it started, a thread continues and its result is dropped.
        """


class ClusterNeeds(Struct, frozen=True, kw_only=True):
    """What a body needs of a cluster, and where it may run."""

    cpus: float = 1
    gpus: float = 0
    memory: int = 0  # bytes; 0: not counted
    custom: Mapping[str, float] = {}
    runtime_env: Mapping[str, Any] = {}
    strategy: str = ""  # `spread`, or the default of the cluster
    labels: Mapping[str, str] = {}  # of the node
    pending_timeout: float | None = None  # seconds until a body that has not started fails


class Cluster(Protocol):
    """Runs bodies on other machines. It never tries one again, and leaves time limits to the worker."""

    async def run(self, call: str, input: Any, needs: ClusterNeeds, say: Say | None = None) -> Any:
        """Call `module:function` there with an input; only JSON goes there and back.

        Raises ToolFailed for what the body raises, and BodyLost if its process, its node or its data has died.
        Cancelling kills the body.
        """

    async def close(self) -> None: ...


class Program(Struct, frozen=True, kw_only=True):
    """A program to start, with all it gets; `env` is merged over what programs see of the environment."""

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] = {}
    stdin: bytes = b""
    keep: int = 1024 * 1024  # bytes of each stream that are kept: half of them from its beginning, half from its end
    stdout_file: str = ""  # the file that gets the standard output; it is neither kept nor passed on as lines then


class ProgramEnd(Struct, frozen=True, kw_only=True):
    """How a program ended: its exit code, or minus the signal that killed it, and what was kept of its output: all of
    it, or the beginning and the end."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_end: bytes = b""  # its last bytes, if some between were left out
    stderr_end: bytes = b""
    stdout_left_out: int = 0  # bytes
    stderr_left_out: int = 0

    @property
    def left_out(self) -> int:
        return self.stdout_left_out + self.stderr_left_out


class Programs(Protocol):
    """Starts programs, and ends them with all they have started."""

    async def run(self, program: Program, say: Say | None = None) -> ProgramEnd:
        """Returns when the program itself has ended; what it left behind is ended too. Raises OSError, or ValueError
        for a NUL in what it gets, if it cannot be started. Cancelling kills everything, after a grace."""

    async def close(self) -> None:
        """Returns when nothing is left of what was started."""


class Secrets(Protocol):
    """Where secrets come from. Read in the worker, at the time of the call, and stored nowhere."""

    async def read(self, name: str) -> Any:
        """Return text, or a map of fields. Raises NotFound, which names the places that were asked."""

    def names(self) -> Collection[str] | None:
        """The names for checks before anything runs; None: they are not known."""


class Entries(Protocol):
    """The keychain of a playbook."""

    async def entry(self, alias: str) -> Mapping[str, Any]:
        """The fields of an entry, fetched when it is first used. Raises ToolFailed, which shows none of them."""


class Redaction(Protocol):
    """Keeps the secrets that were handed out in this process out of everything that is stored or printed."""

    def text(self, text: str) -> str:
        """Return the text with *** in the place of every secret."""

    def fault(self, fault: Fault) -> Fault: ...

    def value(self, value: Any) -> Any:
        """Return the value with *** in the place of every secret, in texts and in names."""

    def stream(self) -> StreamRedaction:
        """Redact one stream: a secret is found across its texts too."""

    def check_result(self, value: Any) -> None:
        """Raises ToolFailed, with the path, if the value holds a secret."""


class Advance(Protocol):
    """Runs the synchronous turn: on a thread of its own, or right here in a simulation.

    One turn at a time, whichever thread asks: the heartbeat has a thread and an event loop of its own.
    """

    async def __call__(self, work: Callable[[], Any]) -> Any: ...


AtOnce = Callable[[Callable[[], Any]], tuple[bool, Any]]
"""Runs the turn before it returns, if that is allowed; else returns (False, None), and nothing was done."""


class Pull(Struct, frozen=True, kw_only=True):
    """What a loop asks of a source: the items after a cursor."""

    settings: Mapping[str, Any] = {}  # as rendered when the loop was entered
    cursor: Any = None  # what the page before gave; None: from the beginning
    most: int = 500  # items
    owner: str = ""  # run, step and visit: the same for all pages of one loop


class Page(Struct, frozen=True):
    items: Sequence[Any]
    cursor: Any = None  # None: there are no more


Source = Callable[[Pull], Awaitable[Page]]
"""Where items come from, page by page; asking twice with the same cursor gives the same page. Raises ToolFailed."""
