"""Routes about the whole: what needs somebody, queues, workers, dead letters, workflows, and the server itself."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from msgspec import Struct, json, to_builtins

from refold.core.read.dead_letters import DeadLetter
from refold.errors import Conflict, NotFound
from refold.names import did_you_mean
from refold.ports import RunFilter, Views
from refold.queries.dead_letters import FailureGroup, dismiss, failure_groups, letters_of
from refold.queries.gates import waiting_for_people
from refold.queries.runs import STATUSES, stamp
from refold.server.catalogue import CatalogueEntry
from refold.server.desk_sessions import DeskSession, remote_workers
from refold.server.problems import HttpProblem
from refold.server.routes import Answer, Call
from refold.server.runs import ListQuery

RECENT = 20  # rows of each part of the overview


class DefinitionBody(Struct, frozen=True, forbid_unknown_fields=True):
    definition: str  # the text of a playbook


async def overview(call: Call) -> Answer:
    """Counts by status, what waits for people, what failed, and the queues."""
    views = call.service.views

    def look() -> dict[str, Any]:
        counts = {status: _count(views, status, call) for status in STATUSES}
        waiting = [row for row, _ in waiting_for_people(views) if call.credential.sees(row.workflow)]
        groups = list(failure_groups(views, call.credential.sees))
        return {
            "runs": {status: {"count": number, "capped": capped} for status, (number, capped) in counts.items()},
            "gates": len(waiting),
            "dead_letters": [group_object(each, call) for each in groups[:RECENT]],
            "queues": _queues(call),
            "workers": len(views.workers()),
        }

    return Answer(await call.service.read(look))


def _count(views: Views, status: str, call: Call) -> tuple[int, bool]:
    """How many runs of the workflows that the credential sees have a status."""
    if call.credential.workflows is None:
        return views.count(RunFilter(status=status))
    counts = [views.count(RunFilter(status=status, workflow=each)) for each in sorted(call.credential.workflows)]
    return sum(number for number, _ in counts), any(capped for _, capped in counts)


def group_object(group: FailureGroup, call: Call) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(group)
    found["last"] = stamp(group.last)
    if not call.credential.may("values"):
        del found["message"]
    return found


async def list_dead_letters(call: Call) -> Answer:
    query: ListQuery = call.query
    limit = query.checked_limit()
    first = int(call.service.cursors.read(query.cursor, "dead")) if query.cursor else 0
    groups = await call.service.read(lambda: list(failure_groups(call.service.views, call.credential.sees)))
    rows = [group_object(each, call) for each in groups[first : first + limit]]
    cursor = call.service.cursors.written(str(first + limit), "dead") if len(groups) > first + limit else None
    return Answer({"items": rows, "next_cursor": cursor, "more": cursor is not None})


async def show_dead_letter(call: Call) -> Answer:
    return Answer({"items": [_letter_object(each, call) for each in await _letters(call)]})


async def _letters(call: Call) -> list[DeadLetter]:
    """The letters of one reason, without those of workflows that this credential does not see. Raises NotFound."""
    fingerprint = call.path["fingerprint"]
    found = await call.service.read(lambda: letters_of(call.service.views, fingerprint))
    letters = [each for each in found if call.credential.sees(each.workflow)]
    if not letters:
        raise NotFound(f"nothing has failed with the fingerprint {fingerprint!r}")
    return letters


async def dismiss_dead_letter(call: Call) -> Answer:
    """Take a reason off the list. What fails for it later is listed again."""
    letters, engine = await _letters(call), call.service.engine
    if call.credential.workflows is not None:
        raise HttpProblem(403, "forbidden", "This is not allowed", "the reason may be one of other workflows too")

    def write() -> None:
        with engine.store.turn([]) as turn:
            dismiss(turn, {each.fingerprint for each in letters}, call.credential.name)

    await engine.advance(write)
    return Answer(status=204)


def _letter_object(letter: DeadLetter, call: Call) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(letter)
    found["at"] = stamp(letter.at)
    if not call.credential.may("values"):
        found = {name: found[name] for name in ("run", "fingerprint", "tool", "kind", "at", "count") if name in found}
    return found


async def list_queues(call: Call) -> Answer:
    return Answer({"items": await call.service.read(lambda: _queues(call))})


def _queues(call: Call) -> list[dict[str, Any]]:
    queues = call.service.views.queues()
    return [{**to_builtins(each), "oldest": stamp(each.oldest or 0)} for each in queues]


async def list_workers(call: Call) -> Answer:
    def look() -> list[dict[str, Any]]:
        views = call.service.views
        claimed: dict[str, list[dict[str, str]]] = {}
        for lease in views.leases():
            claimed.setdefault(lease.worker, []).append({"run": lease.run, "command": lease.command})
        remote = remote_workers(views)
        return [
            {
                "worker": each.can.worker,
                **_session_object(remote.get(each.can.worker)),
                "queues": None if each.can.queues is None else list(each.can.queues),
                "tools": None if each.can.tools is None else len(each.can.tools),
                "leases": claimed.get(each.can.worker, []),
                "beat_at": stamp(each.beat_at),
            }
            for each in views.workers()
        ]

    return Answer({"items": await call.service.read(look)})


def _session_object(session: DeskSession | None) -> dict[str, Any]:
    """What only a remote worker has told; one next to the database has no session."""
    if session is None:
        return {"is_remote": False, "draining": False, "version": None, "slots": None}
    return {"is_remote": True, "draining": session.stop, "version": session.release, "slots": session.slots}


async def list_workflows(call: Call) -> Answer:
    entries = await call.service.catalogue.entries()
    return Answer({"items": [_entry_object(each) for each in _visible(entries, call)]})


def _visible(entries: Iterable[CatalogueEntry], call: Call) -> list[CatalogueEntry]:
    return [each for each in entries if call.credential.sees(each.name)]


def _entry_object(entry: CatalogueEntry) -> dict[str, Any]:
    plan = entry.plan
    return {
        "name": entry.name,
        "origin": entry.origin,
        "version": entry.version or None,
        "problem": entry.problem or None,
        "steps": None if plan is None else [step.name for step in plan.steps],
        "inputs": None if plan is None else [to_builtins(each) for each in plan.inputs],
    }


async def show_workflow(call: Call) -> Answer:
    name = call.path["name"]
    entries = {entry.name: entry for entry in _visible(await call.service.catalogue.entries(), call)}
    if name not in entries:
        raise NotFound(f"there is no workflow {name!r}; {did_you_mean(name, entries)}")
    entry = entries[name]
    found = _entry_object(entry) | ({"source": entry.source} if call.credential.may("values") else {})
    found["plan"] = None if entry.plan is None else to_builtins(entry.plan)
    return Answer(found, headers={"etag": f'"{entry.version}"'} if entry.version else {})


async def put_workflow(call: Call) -> Answer:
    """Store a playbook. A change names the version that it replaces with If-Match; a new one needs none."""
    name, body = call.path["name"], call.body
    if not call.credential.sees(name):
        raise NotFound(f"there is no workflow {name!r}")
    known = {entry.name: entry for entry in await call.service.catalogue.entries()}.get(name)
    stored = known.version if known is not None else 0
    if stored:
        wanted = call.headers.get("if-match", "").strip('"')
        if not wanted:
            why = "send If-Match with the ETag of the version that you replace"
            raise HttpProblem(428, "precondition_required", "The version is missing", why)
        if wanted != str(stored):
            raise HttpProblem(412, "changed_meanwhile", "The workflow has changed", f"its version is {stored} now")
    try:
        entry = await call.service.catalogue.put(name, body.definition, call.credential.name, stored)
    except Conflict:
        raise HttpProblem(412, "changed_meanwhile", "The workflow has changed", "read it again") from None
    return Answer(_entry_object(entry), 200 if stored else 201, {"etag": f'"{entry.version}"'})


async def show_schema(call: Call) -> Answer:
    """The JSON Schema of playbooks, with the tools and sources that are installed here."""
    return Answer(raw=await call.service.read(encoded_schema), headers={"cache-control": "private, max-age=3600"})


@cache
def encoded_schema() -> bytes:
    from refold.playbooks.schema import schema
    from refold.sources.catalog import installed_sources
    from refold.tools.catalog import installed_tools

    return json.encode(schema(installed_tools(), installed_sources()))


async def check_workflow(call: Call) -> Answer:
    """Check a playbook without storing it."""
    from refold.errors import InvalidPlan
    from refold.server.catalogue import StoredDefinition, checked_text
    from refold.server.problems import of_error

    try:
        entry = await call.service.read(
            lambda: checked_text(StoredDefinition(call.body.definition, call.credential.name))
        )
    except InvalidPlan as error:
        return Answer({"valid": False, "problems": of_error(error).problems, "workflow": None})
    return Answer({"valid": True, "problems": [], "workflow": _entry_object(entry)})


async def me(call: Call) -> Answer:
    credential = call.credential
    return Answer(
        {
            "name": credential.name,
            "role": credential.role,
            "permissions": sorted(credential.permissions),
            "namespaces": sorted(credential.namespaces),
            "workflows": None if credential.workflows is None else sorted(credential.workflows),
            "expires_at": stamp(credential.expires_at or 0),
        }
    )
