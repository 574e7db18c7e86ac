"""A run as one JSON text, to be carried to another store: its log is all that it is."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from refold.core import codec
from refold.core.expressions import Evaluate, Languages
from refold.core.facts import RunStarted
from refold.core.fold import Record, fold
from refold.core.loops import Graph, analyse
from refold.core.outcomes import Blob
from refold.core.plan import canonical, hash_of, read_plan
from refold.core.state import RunState
from refold.core.summary import summarize
from refold.errors import Conflict, Corrupt, InvalidPlan, InvalidValue
from refold.ports import Store, Writes
from refold.runtime.rebuild import projected

FORMAT, VERSION = "refold.run", 1


class Carried(Struct, frozen=True, kw_only=True):
    format: str
    version: int
    run: str
    plan: msgspec.Raw
    facts: tuple[tuple[int, msgspec.Raw], ...]  # each with its time
    blobs: dict[str, str] = {}
    live: dict[str, tuple[str, str]] = {}


class Unpacked(Struct, frozen=True):
    run: str
    plan: bytes
    records: list[Record]
    blobs: dict[str, bytes]
    live: Mapping[str, tuple[str, str]]


def packed(store: Store, run: str, live: Mapping[str, tuple[str, str]]) -> bytes:
    """Raises Conflict for a run that is tied to others which are under way."""
    records = store.facts(run)
    first = records[0][2] if records else None
    if not isinstance(first, RunStarted):
        raise Conflict(f"there is no run {run}")
    plan = store.plan(first.plan)
    assert plan is not None
    state = fold(analyse(read_plan(plan)), records, RunState(run=run, plan=first.plan))
    if first.parent is not None or state.children or state.orphans:
        raise Conflict(f"run {run} belongs to others: export the one that has started it, once its child runs are over")
    with store.turn(()) as turn:
        blobs = {each.hash: b64encode(turn.blob(run, each.hash)).decode() for each in _blobs([r[2] for r in records])}
    facts = tuple((at, msgspec.Raw(codec.encode_fact(fact))) for _, at, fact in records)
    carried = Carried(
        format=FORMAT,
        version=VERSION,
        run=run,
        plan=msgspec.Raw(plan),
        facts=facts,
        blobs=blobs,
        live=dict(live),
    )
    return msgspec.json.encode(carried)


def _blobs(value: Any) -> Iterator[Blob]:
    if isinstance(value, Blob):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _blobs(getattr(value, name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _blobs(each)


def unpacked(data: bytes | str) -> Unpacked:
    """Raises InvalidValue for what is no run, or one of a newer Refold."""
    try:
        carried = msgspec.json.decode(data, type=Carried)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue("export", f"this is no run: {error}") from None
    if carried.format != FORMAT or not carried.run:
        raise InvalidValue("export", f"this is no run, but {carried.format!r}")
    if carried.version != VERSION:
        raise InvalidValue("export", f"it is of version {carried.version}, and this Refold reads version {VERSION}")
    try:
        facts = [(number, at, codec.decode_fact(bytes(raw))) for number, (at, raw) in enumerate(carried.facts, 1)]
        blobs = {hash: b64decode(text, validate=True) for hash, text in carried.blobs.items()}
    except (Corrupt, ValueError) as error:
        raise InvalidValue("export", str(error)) from None
    plan = _plan(bytes(carried.plan))
    first = facts[0][2] if facts else None
    if not isinstance(first, RunStarted) or first.plan != hash_of(plan):
        raise InvalidValue("export", "its log and its workflow do not belong together")
    if any(hash_of(value) != hash for hash, value in blobs.items()):
        raise InvalidValue("export", "a value is not what its name says")
    return Unpacked(carried.run, plan, facts, blobs, carried.live)


def _plan(data: bytes) -> bytes:
    """In its one form, whoever has set it anew."""
    try:
        return canonical(read_plan(data))
    except msgspec.MsgspecError as error:
        raise InvalidValue("export", f"its workflow cannot be read: {error}") from None


def put_back(
    store: Store, data: bytes | str, evaluate: Evaluate, languages: Languages, new_id: Callable[[], str]
) -> str:
    """The run as it was when it was packed; returns its id. Raises Conflict if it is there already."""
    found = unpacked(data)
    run, plan, records, blobs = found.run, found.plan, found.records, found.blobs
    try:
        graph = analyse(read_plan(plan))
        state = fold(graph, records, RunState(run=run, plan=hash_of(plan)))
    except (Corrupt, InvalidPlan, msgspec.MsgspecError, LookupError) as error:
        raise InvalidValue("export", f"its log cannot be read: {error!r}") from None
    with store.turn([run]) as turn:
        if turn.head(run):
            raise Conflict(f"run {run} is here already")
        for writes in _in_parts(graph, state, records, plan, blobs, new_id):
            turn.write(writes)
        turn.write(projected(turn, run, lambda _: graph, evaluate, languages))
    return run


def _in_parts(
    graph: Graph,
    state: RunState,
    records: Sequence[Record],
    plan: bytes,
    blobs: dict[str, bytes],
    new_id: Callable[[], str],
) -> Iterator[Writes]:
    """What happened at one moment is written at once."""
    expected, summary = 0, summarize(graph, state)
    for at, some in groupby(records, key=lambda record: record[1]):
        facts = [fact for _, _, fact in some]
        first = expected == 0
        yield Writes(
            run=state.run,
            turn=new_id(),
            expected=expected,
            at=at,
            facts=facts,
            summary=summary,
            blobs=blobs if first else {},
            plan=plan if first else None,
        )
        expected += len(facts)
