"""The rules of a fan-out once more, as slowly and plainly as possible: sets, a loop, and nothing of the engine."""

from dataclasses import dataclass, field
from math import ceil, floor

BAD = {"failed", "skipped", "cancelled"}


@dataclass
class Rules:
    policy: str = "all"  # stop: none is begun after a failure; halt: all of the rest is stopped; ignore
    window: int = 4
    tries: int = 1
    tolerate: int | str | None = None
    min_success: int | str | None = None
    ordered: bool = False
    drops: bool = False  # what would close a circle is not waited for


@dataclass
class Referee:
    rules: Rules
    streamed: bool = False
    keys: list[str] = field(default_factory=list)
    after: list[list[str]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    all_known: bool = False
    broken: bool = False  # its source is, for good
    asked: bool = False  # a page is on its way
    kept: list[tuple[list[tuple[str, list[str]]], bool]] = field(default_factory=list)  # came when all was over

    def learn(self, items: list[tuple[str, list[str]]], last: bool) -> None:
        """More items: what they are called and whom they wait for. A second one of the same name is none."""
        self.asked = False
        if self._stops() and "running" not in self.status:
            self.kept.append((items, last))
            return
        for key, after in items:
            if key not in self.keys:
                self.keys.append(key)
                self.after.append(after)
                self.status.append("waiting")
                self.tried.append(0)
        self.all_known = last

    def lose_source(self) -> None:
        self.broken, self.asked = True, False

    def report(self, item: int, well: bool) -> None:
        assert self.status[item] == "running"
        self.tried[item] += 1
        if well:
            self.status[item] = "completed"
        elif self.tried[item] >= self.rules.tries:
            self.status[item] = "failed"

    def cancel(self, item: int) -> None:
        self.status[item] = "cancelled"

    def run_again(self, items: list[int]) -> None:
        """With what was cut off. Whoever was skipped may be so once more, if nothing has changed for it."""
        for item in range(len(self.keys)):
            if item in items or self.status[item] in ("skipped", "stopped"):
                self.status[item], self.tried[item] = "waiting", 0
        while self.kept and not self._stops():
            self.learn(*self.kept.pop())

    def settle(self) -> set[int]:
        """All that follows; the items that are begun."""
        if self.refused() or (self.rules.ordered and not self.all_known):
            return set()
        self._skip()
        if self._stops() and self.rules.policy == "halt":
            self.status = ["stopped" if each in ("running", "waiting") else each for each in self.status]
            self.asked = False
        return set() if self._stops() else self._begin()

    def _skip(self) -> None:
        """Whoever waits for one that will never complete, over and over until nothing changes."""
        for _ in self.status:
            for item, status in enumerate(self.status):
                if status == "waiting" and any(self.status[other] in BAD for other in self.blockers(item)):
                    self.status[item] = "skipped"

    def _begin(self) -> set[int]:
        begun: set[int] = set()
        for item, status in enumerate(self.status):
            free = all(self.status[other] == "completed" for other in self.blockers(item))
            if status == "waiting" and free and self.status.count("running") < self.rules.window:
                self.status[item] = "running"
                begun.add(item)
        return begun

    def _stops(self) -> bool:
        return self.rules.policy in ("stop", "halt") and "failed" in self.status

    def blockers(self, item: int) -> set[int]:
        if not self.rules.ordered:
            return set()
        cut = self.cut() if self.rules.drops else set()
        others = {self.keys.index(key) for key in self.after[item] if key in self.keys}
        return {other for other in others if (item, other) not in cut}

    def cut(self) -> set[tuple[int, int]]:
        """The waits that close a circle, met on a walk through the items in their order."""
        gone, over = set[tuple[int, int]](), set[int]()

        def walk(item: int, way: list[int]) -> None:
            for key in self.after[item]:
                other = self.keys.index(key)
                if other in [*way, item]:
                    gone.add((item, other))
                elif other not in over:
                    walk(other, [*way, item])
            over.add(item)

        for item in range(len(self.keys)):
            if item not in over:
                walk(item, [])
        return gone

    def refused(self) -> bool:
        """Somebody would wait for ever: for nobody, or for himself."""
        if not self.rules.ordered or not self.all_known:
            return False
        if any(key not in self.keys for after in self.after for key in after):
            return True
        return not self.rules.drops and bool(self.cut())

    def verdict(self) -> str:
        """Empty while it goes on."""
        if "running" in self.status or self.asked:
            return ""
        if self.refused() or (self.broken and self.rules.ordered):
            return "failed"
        cut = "waiting" in self.status or "stopped" in self.status
        if not self._stops() and (cut or not (self.all_known or self.broken)):
            return ""
        if self.broken or (cut and self.rules.policy != "ignore"):
            return "failed"
        if self.rules.policy == "ignore":
            return "completed"
        return "completed" if self._enough() else "failed"

    def _enough(self) -> bool:
        count, failed, done = len(self.status), self.status.count("failed"), self.status.count("completed")
        most = count if self.rules.min_success is not None else 0
        if self.rules.tolerate is not None:
            most = _share(self.rules.tolerate, count, floor)
        least = 0 if self.rules.min_success is None else _share(self.rules.min_success, count, ceil)
        return failed <= most and done >= least


def _share(value: int | str, count: int, whole: object) -> int:
    """In whole numbers, so that a hundredth of a hundred is one."""
    if isinstance(value, int):
        return value
    number, rest = divmod(count * int(value.rstrip("%")), 100)
    return number + (whole is ceil and rest > 0)
