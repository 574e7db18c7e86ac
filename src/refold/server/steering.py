"""Routes that start and steer runs, and decide what waits for people. Each answers when its turn is committed."""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from msgspec import UNSET, MsgspecError, Struct, UnsetType, json

from refold.core.graph import prepare
from refold.core.outcomes import ANSWER
from refold.core.plan import read_plan
from refold.core.read.gates import OpenGate, open_gates, why_no_answer
from refold.core.read.summary import Summary
from refold.core.state import TERMINAL
from refold.errors import Conflict, InvalidValue, NotFound, RefoldError
from refold.names import label_flaw
from refold.queries.gates import find_question, waiting_for_people, waiting_object
from refold.queries.reading import stored_plan
from refold.server.problems import HttpProblem, forbidden, of_error
from refold.server.routes import Answer, Call
from refold.server.runs import may_see, run_head, run_row, shown_row

MOST_STARTS = 1000  # of one batch
AT_ONCE = 100  # starts that are sent together
LAST = "last"  # in place of the number of a visit
RUN_ID = re.compile(r"[0-9a-f]{32}")


Find = Callable[["StartBody"], Awaitable[Any]]
"""Returns what a body starts."""


class StartBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What starts: a workflow of the catalogue, or a stored plan."""

    workflow: str = ""
    input: dict[str, Any] = {}
    key: str = ""
    name: str = ""
    labels: dict[str, str] = {}
    plan: str = ""  # the hash of a stored plan, in place of a workflow of the catalogue
    queue: str = ""  # of the steps that name none; nothing: `default`
    priority: int | None = None
    share: str = ""
    limit: str = ""
    id: str = ""  # of the run: 32 hexadecimal digits; nothing: one is made


class PlanBody(Struct, frozen=True, forbid_unknown_fields=True):
    plan: dict[str, Any]  # as `GET plans/{hash}` shows it


class BatchBody(Struct, frozen=True, forbid_unknown_fields=True):
    runs: list[StartBody]


class CancelBody(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str = ""


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    budget: dict[str, float] = {}


class RetryBody(Struct, frozen=True, forbid_unknown_fields=True, rename={"step": "from"}):
    step: str = ""
    budget: dict[str, float] = {}
    plan: str = ""  # the hash of the plan that the run follows from here on
    tolerated: bool = False  # only items that failed in a run that has completed
    follow: bool = False  # then visit the steps behind their loops again


class MigrateBody(Struct, frozen=True, forbid_unknown_fields=True):
    to: str  # the hash of a plan


class SignalBody(Struct, frozen=True, forbid_unknown_fields=True):
    value: Any = None


class ItemsBody(Struct, frozen=True, forbid_unknown_fields=True):
    items: tuple[int, ...] = ()  # empty: all that failed or were cancelled
    follow: bool = False  # visit the steps behind the loop again, with the new values


class DecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    option: str
    feedback: Any = None
    choices: tuple[str, ...] = ()  # those of the gate's choices that are taken


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    value: Any | UnsetType = UNSET


class NoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a request that needs no body; an empty one and `{}` are the same."""


async def start(call: Call) -> Answer:
    row, is_new = await _start(call, call.body, call.headers.get("idempotency-key", ""), partial(_wanted, call))
    where = f"/api/v1/ns/{call.path['ns']}/runs/{row.run}"
    headers = {"location": where} | ({} if is_new else {"idempotent-replayed": "true"})
    return Answer(shown_row(row, call.credential), 201, headers)


async def _start(call: Call, body: StartBody, request: str, find: Find) -> tuple[Summary, bool]:
    """Start a run; return its row, and whether this request has started it.

    A start with a key, and one whose request has a key, is one run however often it is sent: the id of the run follows
    from the key.
    """
    workflow = await find(body)
    if flaw := label_flaw(body.labels):
        raise InvalidValue("labels", flaw)
    if body.id and (body.key or not RUN_ID.fullmatch(body.id)):
        raise InvalidValue("id", "the id of a run has 32 hexadecimal digits, and a run with a key has no other id")
    engine = call.service.engine
    run = body.id
    if not run and not body.key and request:
        run = hashlib.sha256(f"{call.credential.id}/{request}".encode()).hexdigest()[:32]
    before = await call.service.read(lambda: call.service.views.summary(run)) if run else None
    starter = engine.options(
        key=body.key,
        name=body.name,
        run=run,
        labels=body.labels,
        queue=body.queue,
        priority=body.priority,
        share=body.share,
        limit=body.limit,
    )
    try:
        handle = await starter.start(workflow, **body.input)
    except Conflict:
        if not run:
            raise
        if before is None:
            before = await call.service.row(run)
        may_see(call, before)
        await _check_same(call, before, body)
        return before, False
    row = await call.service.row(handle.id)
    may_see(call, row)
    return row, True


async def _wanted(call: Call, body: StartBody) -> Any:
    """Return what a body starts. Raises NotFound for a workflow that this credential does not see."""
    if bool(body.workflow) == bool(body.plan):
        raise InvalidValue("workflow", "name the workflow to start, or the hash of a stored plan with `plan`")
    if body.plan:
        data = await call.service.read(lambda: call.service.views.plan(body.plan))
        plan = None if data is None else stored_plan(body.plan, data)
        if plan is None or not call.credential.sees(plan.name):
            raise NotFound(f"there is no plan {body.plan}")
        return plan
    if not call.credential.sees(body.workflow):
        raise NotFound(f"there is no workflow {body.workflow!r}")
    return (await call.service.catalogue.find(body.workflow)).workflow


async def put_plan(call: Call) -> Answer:
    """Store a plan under its hash, for runs to follow it."""
    try:
        plan = read_plan(json.encode(call.body.plan))
    except (MsgspecError, RecursionError) as error:
        raise InvalidValue("plan", f"it is not a plan: {error}") from None
    if not call.credential.sees(plan.name):
        raise NotFound(f"there is no workflow {plan.name!r}")
    hash = await call.service.read(lambda: prepare(plan).hash)
    if hash != call.path["hash"]:
        raise InvalidValue("plan", f"its hash is {hash}, and its address says {call.path['hash']}")
    await call.service.engine.register(plan)
    return Answer({"plan": hash, "workflow": plan.name})


async def _check_same(call: Call, row: Summary, body: StartBody) -> None:
    """A request key that comes again with another body is a mistake of the caller."""
    records = await call.service.read(lambda: call.service.views.facts(row.run, 0, 1))
    started = records[0][2] if records else None
    known = getattr(started, "input", None)
    is_other = row.plan != body.plan if body.plan else row.workflow != body.workflow
    if is_other or row.name != body.name or {**(known or {}), **body.input} != known:
        why = "the Idempotency-Key was used with another request; take a new one for a new request"
        raise HttpProblem(422, "idempotency_key_reused", "The key was used for another request", why)


async def start_batch(call: Call) -> Answer:
    """Start many; each has its own outcome at its place."""
    body: BatchBody = call.body
    if len(body.runs) > MOST_STARTS:
        raise InvalidValue("runs", f"at most {MOST_STARTS} runs start at once, and these are {len(body.runs)}")
    request = call.headers.get("idempotency-key", "")
    outcomes: list[dict[str, Any]] = []
    found: dict[tuple[str, str], asyncio.Task[Any]] = {}  # each workflow is looked for once

    async def find(body: StartBody) -> Any:
        name = body.workflow, body.plan
        if name not in found:
            found[name] = asyncio.create_task(_wanted(call, body))
        return await asyncio.shield(found[name])

    for first in range(0, len(body.runs), AT_ONCE):
        part = body.runs[first : first + AT_ONCE]
        keys = [f"{request}/{first + number}" if request else "" for number in range(len(part))]
        pairs = zip(part, keys, strict=True)
        outcomes += await asyncio.gather(*(_outcome(call, each, key, find) for each, key in pairs))
    return Answer({"items": outcomes}, 200)


async def _outcome(call: Call, body: StartBody, request: str, find: Find) -> dict[str, Any]:
    try:
        row, _ = await _start(call, body, request, find)
    except HttpProblem as problem:
        return {"problem": problem.document(call.trace_id)}
    except RefoldError as error:
        return {"problem": of_error(error).document(call.trace_id)}
    return {"run": shown_row(row, call.credential)}


async def steerable(call: Call) -> Summary:
    """The run, if what the caller has seen of it still holds. Raises HttpProblem (412) if not."""
    row = await run_row(call)
    wanted = call.headers.get("if-match", "")
    if wanted and wanted not in ("*", f'"{row.plan[:16]}-{row.seq}"'):
        why = f"the run is at fact {row.seq} now; read it again before you decide"
        raise HttpProblem(412, "changed_meanwhile", "The run has changed", why)
    return row


async def _answer(call: Call, run: str) -> Answer:
    row = await call.service.row(run)
    return Answer(
        await call.service.read(lambda: run_head(call, row)), headers={"etag": f'"{row.plan[:16]}-{row.seq}"'}
    )


async def pause(call: Call) -> Answer:
    row = await steerable(call)
    await call.service.engine.pause(row.run, call.credential.name)
    return await _answer(call, row.run)


async def resume(call: Call) -> Answer:
    row = await steerable(call)
    await call.service.engine.resume(row.run, call.credential.name, dict(call.body.budget))
    return await _answer(call, row.run)


async def cancel(call: Call) -> Answer:
    row = await steerable(call)
    if row.status in TERMINAL:
        raise Conflict(f"run {row.run} is {row.status}")
    await call.service.engine.cancel(row.run, call.body.reason, call.credential.name)
    return await _answer(call, row.run)


async def retry(call: Call) -> Answer:
    row = await steerable(call)
    engine, body, by = call.service.engine, call.body, call.credential.name
    if body.tolerated:
        if body.step or body.budget or body.plan:
            raise InvalidValue(
                "tolerated", "items are run again by the plan of their loop: it goes with `follow` alone"
            )
        await engine.retry_items(row.run, "", (), by, body.follow)
        return await _answer(call, row.run)
    if body.follow:
        raise InvalidValue("follow", "it goes with items of a loop, or with `tolerated`")
    if body.plan:
        await _check_plan(call, body.plan)
    await engine.retry(row.run, body.step, by, dict(body.budget), body.plan)
    return await _answer(call, row.run)


async def migrate(call: Call) -> Answer:
    row = await steerable(call)
    await _check_plan(call, call.body.to)
    await call.service.engine.migrate(row.run, call.body.to, call.credential.name)
    return await _answer(call, row.run)


async def _check_plan(call: Call, hash: str) -> None:
    """Raises NotFound for a plan that is not stored, or whose workflow this credential does not see."""
    data = await call.service.read(lambda: call.service.views.plan(hash))
    if data is None or not call.credential.sees(stored_plan(hash, data).name):
        raise NotFound(f"there is no plan {hash}")


async def signal(call: Call) -> Answer:
    """Send a signal. Answers to questions are signals too, and need the permission to decide."""
    row = await steerable(call)
    if call.path["name"].startswith(ANSWER) and not call.credential.may("decide"):
        raise forbidden("decide")
    if row.status in TERMINAL:
        raise Conflict(f"run {row.run} is {row.status}")
    await call.service.engine.signal_stored(row.run, call.path["name"], call.body.value, call.credential.name)
    return await _answer(call, row.run)


async def retry_items(call: Call) -> Answer:
    row = await steerable(call)
    body: ItemsBody = call.body
    await call.service.engine.retry_items(
        row.run, call.path["step"], body.items, call.credential.name, follow=body.follow
    )
    return await _answer(call, row.run)


async def cancel_items(call: Call) -> Answer:
    row = await steerable(call)
    if not call.body.items:
        raise InvalidValue("items", "name the items to cancel")
    await call.service.engine.cancel_items(row.run, call.path["step"], call.body.items, call.credential.name)
    return await _answer(call, row.run)


async def decide(call: Call) -> Answer:
    """Decide a gate as the person of this credential. The first decision counts."""
    row = await steerable(call)
    step = call.path["step"]
    visit = None if call.path["visit"] == LAST else _visit(call.path["visit"])

    def look() -> tuple[OpenGate | None, int | None]:
        graph, state = call.service.folded(row.run)
        s = graph.index.get(step)
        gate = next((each for each in open_gates(graph, state) if each.step == step), None)
        return gate, state.steps[s].visits if s is not None else None

    gate, last = await call.service.read(look)
    if gate is None and visit is None:
        visit = last  # which the run refuses; a later visit may be for somebody else
    if gate is not None and visit is not None and gate.visit != visit:
        raise Conflict(f"gate {step!r} waits for a decision on visit {gate.visit}, not on visit {visit}")
    if gate is not None and gate.assignee and gate.assignee != call.credential.name:
        why = f"gate {step!r} waits for {gate.assignee}, and this credential is {call.credential.name}"
        raise HttpProblem(403, "not_the_assignee", "Somebody else has to decide", why)
    body: DecisionBody = call.body
    engine = call.service.engine
    await engine.decide(
        row.run,
        step,
        body.option,
        by=call.credential.name,
        feedback=body.feedback,
        visit=visit,
        choices=body.choices,
    )
    return await _answer(call, row.run)


def _visit(text: str) -> int:
    if not text.isdecimal():
        raise NotFound(f"{text!r} is not the number of a visit")
    return int(text)


async def answer_question(call: Call) -> Answer:
    row = await steerable(call)
    found = await call.service.read(lambda: find_question(call.service.views, row, call.path["id"]))
    if found is None:
        raise NotFound(f"run {row.run} does not ask {call.path['id']!r}")
    if call.body.value is UNSET:
        raise InvalidValue("value", "the answer is missing")
    asking, question = found
    why = "" if question.request is None else why_no_answer(question.request.asks, call.body.value)
    if why:
        raise InvalidValue("value", why)
    name = f"{ANSWER}{question.id}"
    await call.service.engine.signal_stored(asking.run, name, call.body.value, call.credential.name)
    return await _answer(call, row.run)


class GatesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    assignee: str | None = None
    order: Literal["deadline", "created"] = "deadline"


async def list_gates(call: Call) -> Answer:
    """Everything that waits for a person."""
    query: GatesQuery = call.query

    def look() -> list[dict[str, Any]]:
        pairs = waiting_for_people(call.service.views)
        return [waiting_object(row, each) for row, each in pairs if call.credential.sees(row.workflow)]

    found = await call.service.read(look)
    if query.assignee is not None:
        found = [each for each in found if each.get("assignee") == query.assignee]
    if query.order == "deadline":
        found.sort(key=lambda each: each["deadline"] or "9")
    if not call.credential.may("values"):
        hidden = ("prompt", "choices", "metadata", "data", "approvals")
        found = [{name: value for name, value in each.items() if name not in hidden} for each in found]
    return Answer({"items": found})
