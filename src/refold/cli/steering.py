"""How commands change runs, schedules and limits: in a database, or through a server."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, Protocol

from refold.cli import database
from refold.cli.options import who
from refold.cli.settings import channel, server
from refold.core.outcomes import NO_QUEUEING, Instant, Queueing
from refold.core.plan import Plan
from refold.core.read.summary import Summary
from refold.errors import Conflict, NotFound
from refold.ports import Limit, Store, Views
from refold.runtime.mail import Mail

if TYPE_CHECKING:
    from refold.runtime.mailroom import Intake
    from refold.runtime.schedule_changes import BackfillWanted
    from refold.schedules.documents import Backfill, Overlap, Schedule, TimeRecord

BATCH = 100  # runs removed in one commit


class Steering(Protocol):
    """What commands ask of runs, schedules and limits, wherever these are."""

    @property
    def views(self) -> Views: ...

    def send(self, run: str, mail: Mail) -> None:
        """Raises the reason for a refusal."""

    def register(self, plan: Plan) -> None: ...

    def start(
        self,
        plan: Plan,
        input: dict[str, Any],
        run: str,
        name: str = "",
        key: str = "",
        code: str = "",
        labels: Mapping[str, str] | None = None,
        folder: str = "",
        file: str = "",
        queueing: Queueing = NO_QUEUEING,
    ) -> bool:
        """Return False if the key has its run already."""

    def expire(self) -> None:
        """Take commands from workers that are dead, so that nobody waits for them."""

    def remove(self, rows: Sequence[Summary]) -> list[Summary]:
        """Remove runs; return those that were removed, for others may have been removed or reopened meanwhile."""

    def dismiss(self, fingerprints: Sequence[str]) -> None:
        """Take reasons off the list of dead letters."""

    def set_weight(self, share: str, weight: int | None) -> None: ...

    def set_limit(self, limit: Limit) -> None: ...

    def remove_limit(self, name: str) -> bool: ...

    def put_schedule(self, schedule: "Schedule", plans: Sequence[Plan], text: str, *, replace: bool) -> bool:
        """Return whether it is new. Raises Conflict if there is one and it is not to be replaced."""

    def put_calendar(self, name: str, days: Sequence[date]) -> None: ...

    def pause_schedule(self, id: str, note: str) -> "Schedule": ...

    def resume_schedule(self, id: str) -> "tuple[Schedule, Instant | None, int]": ...

    def trigger_schedule(self, id: str, overlap: "Overlap | None") -> "TimeRecord": ...

    def delete_schedule(self, id: str) -> None: ...

    def put_backfill(self, schedule: str, id: str, wanted: "BackfillWanted") -> "Backfill": ...

    def steer_backfill(self, schedule: str, id: str, action: Literal["pause", "resume", "stop"]) -> "Backfill": ...


@contextmanager
def steering(db: str, creates: bool = False) -> Iterator[Steering]:
    """Open an existing database to change it, or ask a server. `creates`: a file that is not there is made."""
    address = server()
    if address:
        from refold.client.steering import RemoteSteering

        yield RemoteSteering(channel(address))
        return
    from refold.wiring import open_intake

    if not creates:
        database.check_exists(db)
    with open_intake(db) as (intake, store):
        yield LocalSteering(intake, store)


class LocalSteering:
    def __init__(self, intake: "Intake", store: Store) -> None:
        self.intake, self.store, self.views = intake, store, store.views

    def send(self, run: str, mail: Mail) -> None:
        self.intake.send(run, mail)

    def register(self, plan: Plan) -> None:
        self.intake.register(plan)

    def start(
        self,
        plan: Plan,
        input: dict[str, Any],
        run: str,
        name: str = "",
        key: str = "",
        code: str = "",
        labels: Mapping[str, str] | None = None,
        folder: str = "",
        file: str = "",
        queueing: Queueing = NO_QUEUEING,
    ) -> bool:
        return self.intake.start(plan, input, run, name, key, code, labels, folder, file, queueing)

    def expire(self) -> None:
        from refold.runtime.background import LOSSES

        self.store.expire(LOSSES)

    def remove(self, rows: Sequence[Summary]) -> list[Summary]:
        removed = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            with self.store.turn([row.run for row in batch]) as turn:
                for row in batch:
                    try:
                        turn.remove(row.run)
                    except (NotFound, Conflict):
                        continue  # another process has removed it, or it runs again
                    removed.append(row)
        self.store.forget_workers()
        return removed

    def dismiss(self, fingerprints: Sequence[str]) -> None:
        from refold.queries.dead_letters import dismiss

        with self.store.turn([]) as turn:
            dismiss(turn, fingerprints, who())

    def set_weight(self, share: str, weight: int | None) -> None:
        self.store.set_weight(share, weight)

    def set_limit(self, limit: Limit) -> None:
        self.store.set_limit(limit)

    def remove_limit(self, name: str) -> bool:
        return self.store.remove_limit(name)

    def put_schedule(self, schedule: "Schedule", plans: Sequence[Plan], text: str, *, replace: bool) -> bool:
        from refold.runtime.schedule_changes import put_schedule

        for plan in plans:
            self.intake.register(plan)
        return put_schedule(self.store, schedule, replace=replace)

    def put_calendar(self, name: str, days: Sequence[date]) -> None:
        from refold.runtime.schedule_changes import put_calendar

        put_calendar(self.store, name, days)

    def pause_schedule(self, id: str, note: str) -> "Schedule":
        from refold.runtime.schedule_changes import pause_schedule

        return pause_schedule(self.store, id, note, who())

    def resume_schedule(self, id: str) -> "tuple[Schedule, Instant | None, int]":
        from refold.runtime.schedule_changes import resume_schedule

        return resume_schedule(self.store, id)

    def trigger_schedule(self, id: str, overlap: "Overlap | None") -> "TimeRecord":
        from refold.runtime.schedule_changes import trigger_schedule

        return trigger_schedule(self.intake, self.store, id, overlap)

    def delete_schedule(self, id: str) -> None:
        from refold.runtime.schedule_changes import delete_schedule

        delete_schedule(self.store, id)

    def put_backfill(self, schedule: str, id: str, wanted: "BackfillWanted") -> "Backfill":
        from refold.runtime.schedule_changes import put_backfill

        return put_backfill(self.store, schedule, id, wanted)

    def steer_backfill(self, schedule: str, id: str, action: Literal["pause", "resume", "stop"]) -> "Backfill":
        from refold.runtime.schedule_changes import steer_backfill

        return steer_backfill(self.store, schedule, id, action)
