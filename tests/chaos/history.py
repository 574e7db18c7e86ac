"""Judges what a fleet has done under faults, from what its clients, its workers and its logs say.

It imports nothing of Refold. The log of a run is a list with one writer at a time, so no search for an order is needed:
each rule is a count or a comparison.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
LAG = 1.0  # seconds by which the moment of a fact may be behind the clock of the machine
OVER = frozenset({"run_ended"})


@dataclass(frozen=True)
class Entry:
    """A fact as the log has it."""

    number: int
    at: float
    kind: str
    data: Mapping[str, Any]
    turn: str | None = None  # on the first fact of a turn


@dataclass(frozen=True)
class Call:
    """What a client asked, and what it was told. `report` is that of a worker: its key is a Settled."""

    kind: str  # start, signal or report
    run: str
    key: Any  # of a start; the id of a signal; what was settled
    began: float
    ended: float
    result: str


@dataclass(frozen=True)
class Settled:
    step: str
    visit: int
    attempt: int
    generation: int


@dataclass(frozen=True)
class Read:
    """A log as a reader saw it."""

    reader: str
    run: str
    began: float
    seen: tuple[tuple[int, str], ...]  # numbers and kinds


@dataclass(frozen=True)
class Hold:
    """A lease, from its claim to its settlement or its loss."""

    run: str
    command: str
    generation: int
    began: float
    ended: float
    limit: str = ""


@dataclass
class History:
    logs: dict[str, list[Entry]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    bodies: list[tuple[str, str, str, float]] = field(default_factory=list)  # run, step, begin or end, moment
    feed: list[tuple[str, int]] | None = None  # None: nobody has read it
    limits: dict[str, int] = field(default_factory=dict)
    must_be_over: bool = True


def violations(history: History) -> list[str]:
    return [f"{rule.__name__}: {text}" for rule in RULES for text in rule(history)]


def log_has_no_gap_and_no_turn_twice(history: History) -> Iterator[str]:
    for run, log in history.logs.items():
        numbers = [entry.number for entry in log]
        if numbers != list(range(1, len(log) + 1)):
            yield f"run {run} has the numbers {numbers[:20]}"
        for turn, count in Counter(entry.turn for entry in log if entry.turn is not None).items():
            if count > 1:
                yield f"run {run} has the turn {turn} {count} times"


def what_was_acknowledged_is_there_once(history: History) -> Iterator[str]:
    """Starts by their keys, signals by their ids, reports by their generations."""
    there = Counter(_identities(history.logs))
    told: dict[tuple[str, str, Any], set[str]] = defaultdict(set)
    for call in history.calls:
        told[call.kind, "" if call.kind == "start" else call.run, call.key].add(call.result)
    for identity, results in told.items():
        count = there[identity]
        if OK in results and count != 1:
            yield f"{identity} was acknowledged, and is there {count} times"
        elif count > 1:
            yield f"{identity} is there {count} times"
        elif results == {FAILED} and count:
            yield f"{identity} was said to have failed, and is there"


def _identities(logs: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, str, Any]]:
    for run, log in logs.items():
        for entry in log:
            if entry.kind == "run_started":
                yield "start", "", entry.data.get("key", "")
            elif entry.kind == "signal_received":
                value = entry.data.get("value")
                yield "signal", run, value.get("id") if isinstance(value, Mapping) else None
            elif entry.kind == "step_settled":
                yield "report", run, settled_of(entry)


def settled_of(entry: Entry) -> Settled:
    report = entry.data["report"]
    return Settled(entry.data["step"], entry.data.get("visit", 0), report["attempt"], report["generation"])


def a_try_is_settled_once_by_its_newest_holder(history: History) -> Iterator[str]:
    """The generation that is accepted is the newest at that moment."""
    claims: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for hold in history.holds:
        claims[hold.run, hold.command].append((hold.began, hold.generation))
    for known in claims.values():
        known.sort()
    for run, log in history.logs.items():
        tries = Counter[tuple[str, int, int]]()
        newest: dict[tuple[str, int], int] = {}
        for entry in log:
            if entry.kind != "step_settled":
                continue
            done = settled_of(entry)
            tries[done.step, done.visit, done.attempt] += 1
            if done.generation <= newest.get((done.step, done.visit), 0):
                yield f"run {run}: {done} came behind generation {newest[done.step, done.visit]}"
            newest[done.step, done.visit] = done.generation
            known = claims[run, f"{done.step}/{done.visit}"]
            before = known[: bisect_right(known, (entry.at, 0))]
            if any(generation > done.generation for _, generation in before):
                yield f"run {run}: {done} was accepted although generation {max(g for _, g in before)} had it"
        for which, count in tries.items():
            if count > 1:
                yield f"run {run}: the try {which} was settled {count} times"


def leases_exclude_each_other_and_keep_the_limits(history: History) -> Iterator[str]:
    by_command: dict[tuple[str, str], list[Hold]] = defaultdict(list)
    by_limit: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for hold in history.holds:
        by_command[hold.run, hold.command].append(hold)
        if hold.limit:
            by_limit[hold.limit] += [(hold.began, 1), (hold.ended, -1)]
    for which, holds in by_command.items():
        holds.sort(key=lambda hold: (hold.began, hold.generation))
        for before, after in pairwise(holds):
            if after.began < before.ended:
                yield f"{which} was held by two from {after.began} on"
            if after.generation <= before.generation:
                yield f"{which} was claimed under generation {after.generation} after {before.generation}"
    for name, changes in by_limit.items():
        held = 0
        for moment, change in sorted(changes):  # what is freed at a moment is free at that moment
            held += change
            if held > history.limits.get(name, held):
                yield f"{held} leases at {moment} under the limit {name} of {history.limits[name]}"
                break


def a_body_that_was_settled_does_not_run_again(history: History) -> Iterator[str]:
    over = {
        (run, entry.data["step"]): entry.at
        for run, log in history.logs.items()
        for entry in log
        if entry.kind == "step_settled" and entry.data["report"]["outcome"]["type"] == "succeeded"
    }
    begun = Counter[tuple[str, str]]()
    for run, step, what, at in history.bodies:
        begun[run, step] += what == "begin"
        if what == "begin" and begun[run, step] > 1 and at > over.get((run, step), at) + LAG:
            yield f"the body of {step} in run {run} began again {at - over[run, step]:.3f} s after it was settled"
    ends = {(run, step) for run, step, what, _ in history.bodies if what == "end"}
    if history.bodies:
        yield from (f"{which} was settled, and no body of it has ended" for which in over.keys() - ends)


def logs_only_grow_and_keep_what_was_acknowledged(history: History) -> Iterator[str]:
    heads: dict[tuple[str, str], int] = {}
    told: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.result == OK and call.kind == "start":
            told[call.run].append(call)
    for read in history.reads:
        log = [(entry.number, entry.kind) for entry in history.logs.get(read.run, [])]
        if list(read.seen) != log[: len(read.seen)]:
            yield f"{read.reader} has seen facts of run {read.run} that are others now"
        if len(read.seen) < heads.get((read.reader, read.run), 0):
            yield f"{read.reader} has seen the log of run {read.run} shrink"
        heads[read.reader, read.run] = len(read.seen)
        if not read.seen and any(call.ended <= read.began for call in told[read.run]):
            yield f"{read.reader} did not see run {read.run}, whose start was acknowledged before"


def the_feed_is_the_union_of_the_logs(history: History) -> Iterator[str]:
    if history.feed is None:
        return
    for which, count in Counter(history.feed).items():
        if count > 1:
            yield f"the feed has {which} {count} times"
    last: dict[str, int] = {}
    for run, number in history.feed:
        if number != last.get(run, 0) + 1:
            yield f"the feed has fact {number} of run {run} behind {last.get(run, 0)}"
        last[run] = number
    missing = {(run, entry.number) for run, log in history.logs.items() for entry in log} - set(history.feed)
    if missing:
        yield f"the feed lacks {len(missing)} facts, as {sorted(missing)[:3]}"


def every_run_is_over(history: History) -> Iterator[str]:
    if history.must_be_over:
        open_runs = [run for run, log in history.logs.items() if not any(entry.kind in OVER for entry in log)]
        if open_runs:
            yield f"{len(open_runs)} runs are stuck, as {open_runs[:3]}"


RULES = (
    log_has_no_gap_and_no_turn_twice,
    what_was_acknowledged_is_there_once,
    a_try_is_settled_once_by_its_newest_holder,
    leases_exclude_each_other_and_keep_the_limits,
    a_body_that_was_settled_does_not_run_again,
    logs_only_grow_and_keep_what_was_acknowledged,
    the_feed_is_the_union_of_the_logs,
    every_run_is_over,
)
