"""What commands ask of runs and schedules behind a server: each request is a route, and the token says who asks."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Literal

from msgspec import to_builtins

from refold.client.connection import NAMESPACE, segment
from refold.client.views import Channel, RemoteViews
from refold.core.graph import prepare
from refold.core.outcomes import ANSWER, NO_QUEUEING, Instant, Queueing
from refold.core.plan import Plan
from refold.core.read.summary import Summary
from refold.core.times import stamp
from refold.errors import Conflict, InvalidValue, NotFound
from refold.ports import Limit, Views
from refold.runtime.mail import (
    Cancel,
    CancelItems,
    DecideGate,
    Mail,
    Migrate,
    Pause,
    Reopen,
    Resume,
    RetryItems,
    Signal,
)
from refold.runtime.schedule_changes import BackfillWanted, find_schedule, taken
from refold.schedules.documents import (
    BACKFILL,
    TIME,
    Backfill,
    Overlap,
    Schedule,
    TimeRecord,
    backfill_id,
    read_backfill,
    read_time,
)

Body = Mapping[str, Any]


class RemoteSteering:
    """The requests of a command."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.views: Views = RemoteViews(channel)

    def _post(self, path: str, body: Body) -> Any:
        return self._channel.ask("POST", f"{NAMESPACE}/{path}", body)

    def send(self, run: str, mail: Mail) -> None:
        """Send mail to a run; who sends it is the name of the token. Raises the reason for a refusal."""
        path, body = request_of(mail)
        self._post(f"runs/{segment(run)}/{path}", body)

    def register(self, plan: Plan) -> None:
        hash = prepare(plan).hash
        if self.views.plan(hash) is None:
            self._channel.ask("PUT", f"{NAMESPACE}/plans/{hash}", {"plan": to_builtins(plan)})

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
        """Start a run; return False if its key has its run already. Its steps run in the folder of the server."""
        self.register(plan)
        body = {"plan": prepare(plan).hash, "input": input, "name": name, "labels": dict(labels or {})}
        body |= to_builtins(queueing)
        if not key:
            self._post("runs", {**body, "id": run})
            return True
        is_new = self.views.summary(run) is None
        self._post("runs", {**body, "key": key})
        return is_new

    def expire(self) -> None:
        """Leases of dead workers are the concern of the server."""

    def remove(self, rows: Sequence[Summary]) -> list[Summary]:
        """Remove runs that are over; return those that were removed."""
        removed: list[Summary] = []
        for row in rows:
            try:
                self._channel.ask("DELETE", f"{NAMESPACE}/runs/{segment(row.run)}")
            except NotFound:
                if not removed:  # else it went with the run that started it
                    continue
            except Conflict:
                continue  # it runs again
            removed.append(row)
        return removed

    def dismiss(self, fingerprints: Sequence[str]) -> None:
        for fingerprint in fingerprints:
            self._post(f"dead-letters/{segment(fingerprint)}/dismiss", {})

    def set_weight(self, share: str, weight: int | None) -> None:
        self._channel.ask("PUT", f"{NAMESPACE}/shares", {"share": share, "weight": weight})

    def set_limit(self, limit: Limit) -> None:
        self._channel.ask("PUT", f"{NAMESPACE}/limits", to_builtins(limit))

    def remove_limit(self, name: str) -> bool:
        try:
            self._post("limits:remove", {"name": name})
        except NotFound:
            return False
        return True

    def put_schedule(self, schedule: Schedule, plans: Sequence[Plan], text: str, *, replace: bool) -> bool:
        """Make a schedule, or with `replace` change it; return whether it is new. `text` is what its file says."""
        path = f"{NAMESPACE}/schedules/{segment(schedule.id)}"
        known = self.views.document("schedule", schedule.id)
        if known is not None and not replace:
            raise taken(schedule.id)
        for plan in plans:
            self.register(plan)
        body = {"definition": text, "plan": schedule.target.plan, "code": schedule.target.code}
        self._channel.ask("PUT", path, body, {} if known is None else {"if-match": f'"{known.version}"'})
        return known is None

    def put_calendar(self, name: str, days: Sequence[date]) -> None:
        raise InvalidValue("--server", f"a calendar such as {name!r} is made where the database is: use --db there")

    def pause_schedule(self, id: str, note: str) -> Schedule:
        self._post(f"schedules/{segment(id)}/pause", {"note": note})
        return find_schedule(self.views, id)

    def resume_schedule(self, id: str) -> tuple[Schedule, Instant | None, int]:
        before = find_schedule(self.views, id)
        found = self._post(f"schedules/{segment(id)}/resume", {})
        return find_schedule(self.views, id), before.paused_at if before.paused else None, found["passed"]

    def trigger_schedule(self, id: str, overlap: Overlap | None) -> TimeRecord:
        self._post(f"schedules/{segment(id)}/trigger", {} if overlap is None else {"overlap": overlap})
        records = self.views.documents(TIME, f"{id}/", 1000)
        return read_time([each for each in records if each.id.startswith(f"{id}/")][-1])

    def delete_schedule(self, id: str) -> None:
        find_schedule(self.views, id)
        document = self.views.document("schedule", id)
        version = 0 if document is None else document.version
        path = f"{NAMESPACE}/schedules/{segment(id)}"
        self._channel.ask("DELETE", path, None, {"if-match": f'"{version}"'})

    def put_backfill(self, schedule: str, id: str, wanted: BackfillWanted) -> Backfill:
        body = {
            "from": stamp(wanted.since),
            "until": stamp(wanted.until),
            "only": wanted.only,
            "overlap": wanted.overlap,
            "at_once": wanted.at_once,
            "order": wanted.order,
            "id": id,
        }
        self._post(f"schedules/{segment(schedule)}/backfill", body)
        return self._backfill(schedule, id)

    def steer_backfill(self, schedule: str, id: str, action: Literal["pause", "resume", "stop"]) -> Backfill:
        self._post(f"schedules/{segment(schedule)}/backfills/{segment(id)}/{action}", {})
        return self._backfill(schedule, id)

    def _backfill(self, schedule: str, id: str) -> Backfill:
        document = self.views.document(BACKFILL, backfill_id(schedule, id))
        if document is None:
            raise NotFound(f"schedule {schedule} has no backfill {id!r}")
        return read_backfill(document)


def request_of(mail: Mail) -> tuple[str, Body]:
    """Return the route of a run, and the body, that stand for mail."""
    match mail:
        case Pause():
            return "pause", {}
        case Resume(budget=budget):
            return "resume", {"budget": budget}
        case Cancel(reason=reason, command=""):
            return "cancel", {"reason": reason}
        case Reopen(step=step, budget=budget, to=to):
            return "retry", {"from": step, "budget": budget, "plan": "" if to is None else to.plan}
        case RetryItems(step="", follow=follow):
            return "retry", {"tolerated": True, "follow": follow}
        case RetryItems(step=step, items=items, follow=follow):
            return f"loops/{segment(step)}/items:retry", {"items": items, "follow": follow}
        case CancelItems(step=step, items=items):
            return f"loops/{segment(step)}/items:cancel", {"items": items}
        case Signal(name=name, value=value) if name.startswith(ANSWER):
            return f"questions/{segment(name.removeprefix(ANSWER))}", {"value": value}
        case Signal(name=name, value=value):
            return f"signals/{segment(name)}", {"value": value}
        case DecideGate(visit=visit):
            body = {"option": mail.option, "feedback": mail.feedback, "choices": mail.choices}
            return f"gates/{segment(mail.step)}/{'last' if visit is None else visit}", body
        case Migrate(plan=plan):
            return "migrate", {"to": plan}
    raise InvalidValue("--server", f"a server has no route for {type(mail).__name__}")
