"""The views of a store behind a server: commands read them as they read a database."""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from msgspec import Raw, Struct, json

from refold.client.connection import NAMESPACE, Connection, ServerReply, error_of, problem_of, segment
from refold.core import codec
from refold.core.fold.apply import Record
from refold.core.outcomes import Instant
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.errors import Corrupt, InvalidValue, NotFound, UnknownFact
from refold.ports import (
    ALL_RUNS,
    ChangePosition,
    Document,
    FeedFact,
    Health,
    Leased,
    LimitUse,
    LiveWorker,
    Queue,
    RunChanges,
    RunCursor,
    RunFilter,
    RunPage,
    Share,
)

T = TypeVar("T")
VIEWS = f"{NAMESPACE}/views"
MOST = 1000  # rows of one answer
SOME = 100  # facts that one request names
Pairs = Sequence[tuple[str, Any]]


class RowPage(Struct, frozen=True):
    items: list[Raw]
    more: bool


class Channel:
    """A connection for commands, which do one thing after the other: each request is waited for."""

    def __init__(self, address: str, token: str) -> None:
        self._runner = asyncio.Runner()
        self.connection = Connection(address, token)

    @property
    def address(self) -> str:
        return self.connection.address

    def get(self, path: str, pairs: Pairs = ()) -> ServerReply:
        """Raises the error that the answer stands for."""
        reply = self._runner.run(self.connection.repeated("GET", path, query=pairs))
        if not reply.is_good:
            raise error_of(problem_of(reply), self.address)
        return reply

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Any:
        """Change something, once however often it has to be sent."""
        named = {"idempotency-key": os.urandom(16).hex(), **headers} if method == "POST" else headers
        return self._runner.run(self.connection.ask(method, path, body, headers=named))

    def close(self) -> None:
        self._runner.run(self.connection.close())
        self._runner.close()


class RemoteViews:
    """The port `Views`, without what needs the database itself."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def _get(self, path: str, kind: type[T], pairs: Pairs = ()) -> T:
        found = self._channel.get(f"{VIEWS}/{path}", [(name, value) for name, value in pairs if value is not None])
        return json.decode(found.body, type=kind)

    def now(self) -> Instant:
        return self._get("now", int)

    def runs(self, wanted: RunFilter = ALL_RUNS, after: RunCursor | None = None, limit: int = 100) -> RunPage:
        place: Pairs = [] if after is None else [("after_at", after[0]), ("after_run", after[1])]
        return self._get("runs", RunPage, [*_pairs(wanted), *place, ("limit", min(limit, MOST))])

    def called(self, text: str, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        return self._get("runs:called", list[Summary], [("text", text), ("status", status), ("limit", limit)])

    def count(self, wanted: RunFilter = ALL_RUNS, most: int = 10_000) -> tuple[int, bool]:
        return self._get("runs:count", tuple[int, bool], [*_pairs(wanted), ("most", most)])

    def changed(self, since: ChangePosition | None = None, limit: int = 1000) -> RunChanges:
        _only_here("what has changed since a position")

    def feed(self, cursor: str = "", limit: int = 500) -> Sequence[FeedFact]:
        _only_here("the feed")

    def feed_end(self) -> str:
        _only_here("the feed")

    def summary(self, run: str) -> Summary | None:
        return self._get(f"runs/{segment(run)}", Summary | None) if _is_segment(run) else None  # type: ignore[arg-type]

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        found: list[Record] = []
        while limit is None or len(found) < limit:
            most = MOST if limit is None else min(limit - len(found), MOST)
            pairs = [("after", found[-1][0] if found else after), ("limit", most)]
            part = self._get(f"runs/{segment(run)}/facts", RowPage, pairs)
            found += map(_record, part.items)
            if not part.more or not part.items:
                break
        return found

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        found: list[Record] = []
        wanted = sorted(numbers)
        while wanted:
            pairs = [("number", each) for each in wanted[:SOME]]
            part = self._get(f"runs/{segment(run)}/facts", RowPage, pairs)
            found += map(_record, part.items)
            last = found[-1][0] if part.more else wanted[:SOME][-1]
            wanted = [each for each in wanted if each > last]
        return found

    def blob(self, run: str, hash: str) -> bytes:
        return self._channel.get(f"{NAMESPACE}/runs/{segment(run)}/values/{segment(hash)}").body

    def snapshot(self, run: str) -> bytes | None:
        return None  # the log has everything

    def lines(self, run: str, after: int = 0, limit: int | None = None, search: str = "") -> Sequence[tuple[int, Any]]:
        return list(self._lines(run, [("after", after), ("search", search or None)], limit, "after"))

    def last_lines(self, run: str, before: int | None = None, limit: int = 100) -> Sequence[tuple[int, Any]]:
        return list(self._lines(run, [("before", before), ("backwards", "true")], limit, "before"))

    def _lines(self, run: str, pairs: Pairs, limit: int | None, place: str) -> Iterator[tuple[int, Any]]:
        asked, seen = dict(pairs), 0
        while limit is None or seen < limit:
            asked["limit"] = MOST if limit is None else min(limit - seen, MOST)
            part = self._get(f"runs/{segment(run)}/lines", RowPage, list(asked.items()))
            for each in part.items:
                number, line = json.decode(each, type=tuple[int, Any])
                asked[place], seen = number, seen + 1
                yield number, line
            if not part.more or not part.items:
                return

    def plan(self, hash: str) -> bytes | None:
        try:
            return self._channel.get(f"{VIEWS}/plans/{segment(hash)}").body
        except NotFound:
            return None

    def plans(self, beginning: str, limit: int = 10) -> Sequence[str]:
        return self._get("plans", list[str], [("beginning", beginning), ("limit", limit)])

    def queues(self) -> Sequence[Queue]:
        return self._get("queues", list[Queue])

    def shares(self) -> Sequence[Share]:
        return self._get("shares", list[Share])

    def limits(self) -> Sequence[LimitUse]:
        return self._get("limits", list[LimitUse])

    def workers(self) -> Sequence[LiveWorker]:
        return self._get("workers", list[LiveWorker])

    def leases(self, run: str | None = None) -> Sequence[Leased]:
        return self._get("leases", list[Leased], [("run", run)])

    def dead(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        return self._get("dead-letters", list[DeadLetter], [("fingerprint", fingerprint), ("limit", limit)])

    def document(self, kind: str, id: str) -> Document | None:
        return next(iter(self._get("documents", list[Document], [("kind", kind), ("id", id)])), None)

    def documents(self, kind: str, after: str = "", limit: int = 100) -> Sequence[Document]:
        return self._get("documents", list[Document], [("kind", kind), ("after", after), ("limit", limit)])

    def due_documents(self, kind: str, limit: int = 100) -> tuple[Sequence[Document], Instant | None]:
        _only_here("which documents are due")

    def health(self, thorough: bool = False) -> Health:
        _only_here("how the store stands")

    def sizes(self) -> Mapping[str, int]:
        _only_here("how large the tables are")

    def backup(self, target: str) -> None:
        _only_here("a backup")

    def report(self, error: Corrupt) -> None:
        raise error

    def close(self) -> None:
        self._channel.close()


def _record(raw: Raw) -> Record:
    number, at, fact = json.decode(raw, type=tuple[int, int, Raw])
    try:
        return number, at, codec.decode_fact(bytes(fact))
    except UnknownFact as error:
        raise UnknownFact(f"the server is newer than this command: {error}") from None


def _pairs(wanted: RunFilter) -> list[tuple[str, Any]]:
    return [
        ("status", wanted.status),
        ("workflow", wanted.workflow),
        ("name", wanted.name),
        ("key", wanted.key),
        *(("label", f"{name}:{value}") for name, value in wanted.labels),
        ("since", wanted.since),
        ("until", wanted.until),
        ("parent", wanted.parent),
        ("error", wanted.error or None),
    ]


def _is_segment(text: str) -> bool:
    """Whether an address can name it; nothing has another id."""
    return bool(text) and text not in (".", "..") and not any(each in "/\\" or not each.isprintable() for each in text)


def _only_here(what: str) -> NoReturn:
    raise InvalidValue("--server", f"{what} is told by the database alone: use --db where it is")
