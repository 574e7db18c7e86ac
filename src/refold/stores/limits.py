"""What every store knows of limits: how many commands may start by its clock, and which settings are valid."""

import math
from collections.abc import Callable

from msgspec import Struct

from refold.core.commands import RATE
from refold.core.outcomes import SECOND, Instant
from refold.errors import InvalidValue
from refold.ports import MOST_WEIGHT, Limit, LimitUse

MOST_SLOTS = 1_000_000
MOST_RATE = 1_000_000.0
LONGEST_NAME = 1024  # bytes of UTF-8


class Bucket(Struct, frozen=True):
    """The tokens of a limit with a rate at a moment. A start takes one, and a hand-back does not bring it back."""

    tokens: float
    at: Instant

    def filled(self, limit: Limit, now: Instant) -> "Bucket":
        """What it holds now. A clock that was set back brings no tokens and takes none."""
        if limit.rate is None or now <= self.at:
            return self
        return Bucket(min(limit.burst, self.tokens + (now - self.at) / SECOND * limit.rate), now)

    def again(self, limit: Limit) -> Instant:
        """Return when the next command may start, for a bucket that holds less than one token."""
        assert limit.rate is not None
        return self.at + math.ceil((1 - self.tokens) / limit.rate * SECOND)


class Rooms:
    """How many commands of each limit may start in one claim. Slots are counted from the leases: none is lost."""

    def __init__(
        self, limit_of: Callable[[str], Limit | None], leased: Callable[[str], int], bucket: Callable[[str], Bucket]
    ) -> None:
        self._limit_of, self._leased, self._bucket = limit_of, leased, bucket
        self._left: dict[str, int | None] = {}
        self.taken: dict[str, tuple[Limit, int]] = {}
        self.again: Instant | None = None  # when the first rate that kept commands back allows more

    def is_open(self, name: str) -> bool:
        left = self._known(name)
        return left is None or left > 0

    def take(self, name: str) -> None:
        left = self._known(name)
        if left is not None:
            self._left[name] = left - 1
            limit, taken = self.taken[name]
            self.taken[name] = limit, taken + 1

    def _known(self, name: str) -> int | None:
        if name not in self._left:
            limit = self._limit_of(name)
            self._left[name] = None if limit is None else self._room(limit)
            if limit is not None:
                self.taken[name] = limit, 0
        left = self._left[name]
        if left is not None and left <= 0:
            self._note_again(name)
        return left

    def _room(self, limit: Limit) -> int:
        room = MOST_SLOTS
        if limit.slots is not None:
            room = min(room, limit.slots - self._leased(limit.name))
        if limit.rate is not None:
            room = min(room, whole(self._bucket(limit.name).tokens))
        return room

    def _note_again(self, name: str) -> None:
        limit, taken = self.taken[name]
        if limit.rate is None:
            return
        bucket = self._bucket(name)
        if bucket.tokens - taken < 1 - ALMOST:
            again = Bucket(bucket.tokens - taken, bucket.at).again(limit)
            self.again = again if self.again is None else min(self.again, again)


ALMOST = 1e-9  # what the sums of floats may lose


def whole(tokens: float) -> int:
    return math.floor(tokens + ALMOST)


def limit_use(limit: Limit, leased: int, waiting: int, bucket: Bucket | None, now: Instant) -> LimitUse:
    again: Instant | None = None
    if bucket is not None and limit.rate is not None:
        filled = bucket.filled(limit, now)
        again = None if whole(filled.tokens) else filled.again(limit)
    return LimitUse(limit, leased, waiting, again)


def check_weight(share: str, weight: int | None) -> None:
    check_name("share", share)
    if weight is not None and (type(weight) is not int or not 1 <= weight <= MOST_WEIGHT):
        raise InvalidValue(f"share {share}", f"the weight {weight!r} is not a whole number from 1 to {MOST_WEIGHT}")


def check_limit(limit: Limit) -> None:
    check_name("limit", limit.name)
    if limit.name.startswith(RATE):
        raise InvalidValue("limit", f"the name {limit.name} is one of a loop with a rate: choose another one")
    where = f"limit {limit.name}"
    slots, rate, burst = limit.slots, limit.rate, limit.burst
    if slots is None and rate is None:
        raise InvalidValue(where, "it has neither slots nor a rate")
    if slots is not None and (type(slots) is not int or not 0 <= slots <= MOST_SLOTS):
        raise InvalidValue(where, f"{slots!r} is not a number of slots, from 0 to {MOST_SLOTS}")
    if rate is not None and not _is_between(rate, 1e-6, MOST_RATE):
        raise InvalidValue(where, f"{rate!r} is not a rate, which is a number of starts in a second")
    if not _is_between(burst, 1, MOST_RATE):
        raise InvalidValue(where, f"{burst!r} is not a burst, which is a number from 1 on")


def check_name(what: str, name: str) -> None:
    if type(name) is not str or not name or "\0" in name:
        raise InvalidValue(what, f"{name!r} is not a name: it must be a text that is not empty and has no NUL")
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
        raise InvalidValue(what, f"the name {name[:40]}… is longer than {LONGEST_NAME} bytes")


def _is_between(number: float, least: float, most: float) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and least <= number <= most
