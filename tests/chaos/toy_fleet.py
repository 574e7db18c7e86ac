"""A small fleet in one thread, with the faults that matter: only to show that the judge finds what a broken one does.

It shares no code with the engine. `without` names a guard that is left out.
"""

import random
from dataclasses import dataclass, field

from tests.chaos.history import FAILED, OK, UNKNOWN, Call, Entry, History, Hold, Read, Settled

GUARDS = ("fence", "generation", "turn_id", "final_read", "poll", "counted_slots", "horizon")
RUNS, LIMIT = 8, 2


@dataclass
class Lease:
    run: str
    generation: int
    began: float
    expired: bool = False


@dataclass
class Fleet:
    seed: int
    without: str = ""
    history: History = field(default_factory=lambda: History(limits={"K": LIMIT}))
    now: float = 0.0
    late: list[tuple[str, Entry, float]] = field(default_factory=list)  # commits that are carried out later
    positions: list[tuple[int, str, int]] = field(default_factory=list)  # what is visible, by position
    hidden: list[tuple[int, str, int]] = field(default_factory=list)  # positions that are not visible yet
    used: int = 0  # the counter of slots

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.next_position = 0
        self.waiting: list[str] = []
        self.leases: list[Lease] = []
        self.generations: dict[str, int] = {}
        self.rung: set[str] = set()
        self.history.feed = []
        self.seen_position = 0

    def tick(self) -> float:
        self.now += self.chance.uniform(0.1, 1.0)
        return self.now

    def append(self, run: str, kind: str, data: dict[str, object], turn: str, expected: int | None = None) -> bool:
        """One commit of one fact. Another writer may have been first."""
        log = self.history.logs.setdefault(run, [])
        number = (len(log) if expected is None else expected) + 1
        if number != len(log) + 1 and self.without != "fence":
            return False
        log.append(Entry(number, self.tick(), kind, data, turn))
        self.next_position += 1
        place = (self.next_position, run, number)
        (self.hidden if self.chance.random() < 0.3 else self.positions).append(place)
        return True

    def commit(self, kind: str, run: str, key: object, fact: str, data: dict[str, object]) -> None:
        """A call of a client whose answer may be lost: the commit was carried out, or will be, or will not be."""
        began, turn, fault = self.tick(), f"t{self.next_position}-{self.now}", self.chance.random()
        result = OK
        if fault < 0.2:  # the answer is lost
            self.append(run, fact, data, turn)
            if self.without == "turn_id":
                self.append(run, fact, data, turn)
        elif fault < 0.35:  # the cut session is still at it
            if self.without == "final_read":
                self.late.append((run, Entry(0, 0, fact, data, turn), self.now + 3))
                result = FAILED
            else:  # it is ended first, and then the answer is final
                result = self.chance.choice([FAILED, UNKNOWN])
        else:
            self.append(run, fact, data, turn)
        self.history.calls.append(Call(kind, run, key, began, self.tick(), result))

    def start_runs(self) -> None:
        for n in range(RUNS):
            run = f"r{n}"
            self.commit("start", run, f"k{n}", "run_started", {"key": f"k{n}"})
            if run not in self.history.logs:
                continue
            for id in range(2):
                self.commit("signal", run, id, "signal_received", {"name": "go", "value": {"id": id}})
            self.waiting.append(run)
            if self.chance.random() < 0.7:
                self.rung.add(run)  # the other rings are lost

    def claim(self) -> None:
        free = LIMIT - (self.used if self.without == "counted_slots" else len(self._live()))
        known = [run for run in self.waiting if self.without != "poll" or run in self.rung]
        if free <= 0 or not known:
            return
        run = self.chance.choice(known)
        self.waiting.remove(run)
        self.used += 1
        self.generations[run] = self.generations.get(run, 0) + 1
        self.leases.append(Lease(run, self.generations[run], self.tick()))

    def _live(self) -> list[Lease]:
        return [lease for lease in self.leases if not lease.expired]

    def lose(self) -> None:
        """A worker is stopped beyond its lease: the command goes to another one, and it comes back."""
        live = self._live()
        if live:
            lease = self.chance.choice(live)
            lease.expired = True
            self.used -= 1
            self.history.holds.append(Hold(lease.run, "a/1", lease.generation, lease.began, self.tick(), "K"))
            self.waiting.append(lease.run)
            self.rung.add(lease.run)

    def settle(self) -> None:
        if not self.leases:
            return
        lease = self.chance.choice(self.leases)
        self.leases.remove(lease)
        self.used -= 1  # a zombie gives its slot back too: that is why slots are counted
        done = Settled("a", 1, 1, lease.generation)
        began = self.tick()
        result = FAILED
        if not lease.expired or self.without == "generation":
            head = len(self.history.logs[lease.run])
            if self.chance.random() < 0.4:  # another process writes between the look and the commit
                self.append(lease.run, "noted", {}, f"n{self.now}")
            report = {"attempt": 1, "generation": lease.generation, "outcome": {"type": "succeeded"}}
            data: dict[str, object] = {"step": "a", "visit": 1, "report": report}
            if not self.append(lease.run, "step_settled", data, f"s{self.now}", head):
                self.append(lease.run, "step_settled", data, f"s{self.now}")  # taken again, after a look
            self.append(lease.run, "run_ended", {}, f"e{self.now}")
            result = OK
        self.history.calls.append(Call("report", lease.run, done, began, self.tick(), result))
        if not lease.expired:
            self.history.holds.append(Hold(lease.run, "a/1", lease.generation, lease.began, self.tick(), "K"))

    def follow(self) -> None:
        """The reader of the feed: it stays below what may still become visible, or it remembers a position."""
        self.positions += [each for each in self.hidden if self.chance.random() < 0.5]
        self.hidden = [each for each in self.hidden if each not in self.positions]
        horizon = min((position for position, _, _ in self.hidden), default=self.next_position + 1)
        assert self.history.feed is not None
        for position, run, number in sorted(self.positions):
            if position > self.seen_position and (position < horizon or self.without == "horizon"):
                self.seen_position = position
                self.history.feed.append((run, number))

    def late_commits(self, end: bool = False) -> None:
        due = [each for each in self.late if end or each[2] <= self.now]
        self.late = [each for each in self.late if each not in due]
        for run, entry, _ in due:
            self.append(run, entry.kind, dict(entry.data), str(entry.turn))

    def read(self) -> None:
        for run, log in self.history.logs.items():
            seen = tuple((entry.number, entry.kind) for entry in log)
            self.history.reads.append(Read("reader", run, self.tick(), seen))

    def run(self) -> History:
        self.start_runs()
        for _ in range(60):
            self.chance.choice([self.claim, self.claim, self.lose, self.settle, self.follow, self.late_commits])()
            if self.chance.random() < 0.1:
                self.read()
        self.late_commits(end=True)
        for _ in range(200):  # the faults are over
            self.claim()
            self.settle()
        self.hidden, self.positions = [], self.positions + self.hidden
        self.follow()
        return self.history
