"""Exports a run as one JSON text, with the child runs it waits for, and imports it into another store."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct, structs

from refold.core import codec
from refold.core.commands import Letter, LetterReport
from refold.core.decide.migrate import replay
from refold.core.expressions import Evaluate, Languages
from refold.core.facts import RunMigrated, RunStarted
from refold.core.fold.apply import Record
from refold.core.graph import Graph, analyse
from refold.core.outcomes import Blob
from refold.core.plan import canonical, hash_of, read_plan
from refold.core.read.summary import summarize
from refold.core.state import RunState
from refold.errors import Conflict, Corrupt, InvalidPlan, InvalidValue, NotFound
from refold.ports import Store, StoreTurn, Writes
from refold.queries.reading import plan_data, replayed, stored_blob, stored_graph
from refold.runtime.rebuild import projected

FORMAT, VERSION = "refold.run", 1


class RunArchive(Struct, frozen=True, kw_only=True):
    format: str
    version: int
    run: str
    plan: msgspec.Raw
    plans: tuple[msgspec.Raw, ...] = ()  # plans that it was migrated to
    facts: tuple[tuple[int, msgspec.Raw], ...]  # each fact with its time
    blobs: dict[str, str] = {}
    live: dict[str, tuple[str, str]] = {}
    below: "tuple[RunArchive, ...]" = ()  # child runs that have not ended, and theirs
    letters: tuple[Letter, ...] = ()  # unread letters of all these runs


class OpenedArchive(Struct, frozen=True):
    run: str
    plans: dict[str, bytes]  # by their hashes, the first one first
    records: list[Record]
    blobs: dict[str, bytes]
    live: Mapping[str, tuple[str, str]]
    below: "list[OpenedArchive]" = []
    letters: tuple[Letter, ...] = ()


def export_run(store: Store, run: str, live: Mapping[str, tuple[str, str]]) -> bytes:
    """Return the archive of a run. Raises NotFound, or Conflict for a run whose parent waits for it."""
    runs = {run}
    while True:
        with store.turn(sorted(runs)) as turn:
            carried = {each: _packed(store, turn, each) for each in runs}
            states = [each[1] for each in carried.values() if each is not None]
            found = {child for state in states for child in (*state.children.values(), *state.orphans)}
            letters = tuple(letter for each in sorted(runs) for letter in turn.letters(each))
        if found <= runs:
            break
        runs |= found
    first = carried.pop(run)
    if first is None:
        raise NotFound(f"there is no run {run}")
    parent = first[1].parent
    if parent is not None:
        raise Conflict(f"run {run} belongs to run {parent.run}: export that one, which takes its child runs along")
    below = tuple(each[0] for each in carried.values() if each is not None)
    return msgspec.json.encode(structs.replace(first[0], live=dict(live), below=below, letters=letters))


def _packed(store: Store, turn: StoreTurn, run: str) -> tuple[RunArchive, RunState] | None:
    """Return the archive of one run without its children, and its state; None if it has not started."""
    records = turn.facts(run)
    first = records[0][2] if records else None
    if not isinstance(first, RunStarted):
        return None
    plans = {hash: plan_data(store, hash) for hash in named_plans(records)}
    state = RunState(run=run)
    replayed(lambda hash: stored_graph(hash, plans[hash]), records, state)
    named = named_blobs([fact for _, _, fact in records])
    blobs = {blob.hash: b64encode(stored_blob(turn, run, blob.hash)).decode() for blob in named}
    facts = tuple((at, msgspec.Raw(codec.encode_fact(fact))) for _, at, fact in records)
    plan, *more = map(msgspec.Raw, plans.values())
    carried = RunArchive(
        format=FORMAT, version=VERSION, run=run, plan=plan, plans=tuple(more), facts=facts, blobs=blobs
    )
    return carried, state


def named_plans(records: Sequence[Record]) -> Iterator[str]:
    """The plans that the run has followed, in order."""
    return (fact.plan for _, _, fact in records if isinstance(fact, RunStarted | RunMigrated))


def named_blobs(value: Any) -> Iterator[Blob]:
    """The large values that facts name."""
    if isinstance(value, Blob):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from named_blobs(getattr(value, name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from named_blobs(each)


def read_archive(data: bytes | str) -> OpenedArchive:
    """Decode an archive. Raises InvalidValue if it is not an archive of a run, or one of a newer Refold."""
    try:
        carried = msgspec.json.decode(data, type=RunArchive)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue("export", f"this is not a run: {error}") from None
    return _checked(carried)


def _checked(carried: RunArchive) -> OpenedArchive:
    if carried.format != FORMAT or not carried.run:
        raise InvalidValue("export", f"this is not a run, but {carried.format!r}")
    if carried.version != VERSION:
        raise InvalidValue("export", f"it is of version {carried.version}, and this Refold reads version {VERSION}")
    try:
        facts = [(number, at, codec.decode_fact(bytes(raw))) for number, (at, raw) in enumerate(carried.facts, 1)]
        blobs = {hash: b64decode(text, validate=True) for hash, text in carried.blobs.items()}
    except (Corrupt, ValueError) as error:
        raise InvalidValue("export", str(error)) from None
    plans = {hash_of(plan): plan for plan in map(_plan, (carried.plan, *carried.plans))}
    first = facts[0][2] if facts else None
    if not isinstance(first, RunStarted) or [*plans] != list(dict.fromkeys(named_plans(facts))):
        raise InvalidValue("export", "its log and its workflow do not belong together")
    if any(hash_of(value) != hash for hash, value in blobs.items()):
        raise InvalidValue("export", "a value is not what its name says")
    below = [_checked(each) for each in carried.below]
    return OpenedArchive(carried.run, plans, facts, blobs, carried.live, below, carried.letters)


def _plan(data: msgspec.Raw) -> bytes:
    """Return the canonical bytes of a plan, because a user may have formatted the JSON again."""
    try:
        return canonical(read_plan(bytes(data)))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue("export", f"its workflow cannot be read: {error}") from None


def import_run(
    store: Store, data: bytes | str, evaluate: Evaluate, languages: Languages, new_id: Callable[[], str]
) -> str:
    """Write the run into this store as it was when it was exported, and return its id. Raises Conflict if it exists."""
    found = read_archive(data)
    read = [_read(each) for each in (found, *found.below)]
    for hash, plan in (named for each in (found, *found.below) for named in each.plans.items()):
        store.put_plan(hash, plan)
    with store.turn(sorted(state.run for _, _, state in read)) as turn:
        for each, graphs, state in read:
            if turn.head(state.run):
                raise Conflict(f"run {state.run} is here already")
            for writes in _in_parts(graphs[state.plan], state, each.records, each.blobs, new_id):
                turn.write(writes)
            written = projected(turn, state.run, graphs.__getitem__, evaluate, languages)
            own = (letter.body for letter in found.letters if letter.to == state.run)
            reported = {body.command for body in own if isinstance(body, LetterReport)}
            commands = {id: order for id, order in written.commands.items() if id not in reported}
            turn.write(structs.replace(written, commands=commands, letters=each.letters))
    return found.run


def _read(found: OpenedArchive) -> tuple[OpenedArchive, dict[str, Graph], RunState]:
    state = RunState(run=found.run)
    try:
        graphs = {hash: analyse(read_plan(plan)) for hash, plan in found.plans.items()}
        replay(graphs.__getitem__, found.records, state)
    except (Corrupt, InvalidPlan, msgspec.MsgspecError, LookupError) as error:
        raise InvalidValue("export", f"its log cannot be read: {error!r}") from None
    return found, graphs, state


def _in_parts(
    graph: Graph, state: RunState, records: Sequence[Record], blobs: dict[str, bytes], new_id: Callable[[], str]
) -> Iterator[Writes]:
    """Facts of one moment are written together."""
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
        )
        expected += len(facts)
