"""How long runs that are over are kept, by rules for all workflows and for single ones."""

from typing import Literal

from msgspec import Struct

from refold.core.outcomes import SECOND, Instant
from refold.core.state import TERMINAL
from refold.core.times import seconds

Ended = Literal["completed", "failed", "cancelled", "continued"]


class RetentionRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which runs that are over may be removed: those that are too old, and those that are too many."""

    age: str = ""  # since the end of the run, such as 30d; empty: any age is kept
    count: int = 0  # so many of the newest are kept; 0: any number
    status: tuple[Ended, ...] = ()  # only runs with one of these; empty: all that are over

    def __post_init__(self) -> None:
        if self.age:
            seconds(self.age)
        if self.count < 0:
            raise ValueError(f"`count` is a number of runs, not {self.count}")

    @property
    def removes(self) -> bool:
        return bool(self.age or self.count)

    def before(self, now: Instant) -> Instant | None:
        """The moment before which a run must have ended to be too old."""
        return now - round(seconds(self.age) * SECOND) if self.age else None

    def concerns(self, status: str) -> bool:
        """Return whether a run with this status may be removed."""
        return status in (self.status or TERMINAL)


class Retention(RetentionRule, frozen=True, kw_only=True):
    """The rule for all workflows, except those that have a rule of their own. The whole rule of a workflow counts."""

    workflow: dict[str, RetentionRule] = {}

    @property
    def is_empty(self) -> bool:
        return not any(rule.removes for rule in (self, *self.workflow.values()))
