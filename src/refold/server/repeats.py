"""Requests with an `Idempotency-Key`: the same request again gets the answer that the first one got, for a day."""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct, json

from refold.core.outcomes import SECOND, Instant
from refold.errors import Conflict
from refold.server.documents import Documents
from refold.server.problems import HttpProblem, invalid

REQUEST = "request"  # the kind of documents
KEPT = 24 * 3600 * SECOND
UNDER_WAY = 60 * SECOND  # after which a request whose server has died may be sent again
LONGEST_KEY = 255  # characters


class Answered(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class RequestRecord(Struct, frozen=True):
    """A request, and its answer as soon as there is one."""

    digest: str
    at: Instant
    answer: Answered | None = None  # None: it is under way


class Repeats:
    """`now` is the store's time."""

    def __init__(self, documents: Documents, now: Callable[[], Instant]) -> None:
        self._documents, self._now = documents, now

    async def once(
        self, who: str, key: str, request: bytes, work: Callable[[], Awaitable[Answered]]
    ) -> tuple[Answered, bool]:
        """Do the work of a request once for a key of a credential; return its answer, and whether it was given before.

        Raises HttpProblem if the key was used for another
        request, or if the first one is under way. A request that was refused may be sent again."""
        if len(key) > LONGEST_KEY or not key.isprintable():
            raise invalid("Idempotency-Key", f"a key has at most {LONGEST_KEY} characters that can be printed")
        id, digest = hashlib.sha256(f"{who}/{key}".encode()).hexdigest(), hashlib.sha256(request).hexdigest()
        version = 0
        found = await self._documents.get(REQUEST, id)
        if found is not None:
            known = json.decode(found.data, type=RequestRecord)
            if self._holds(known):
                return _repeated(known, digest), True
            version = found.version
        try:
            version = await self._documents.put(REQUEST, id, json.encode(RequestRecord(digest, self._now())), version)
        except Conflict:
            raise _under_way() from None
        try:
            answer = await work()
        except BaseException:
            with suppress(Conflict):
                await self._documents.delete(REQUEST, id, version)
            raise
        with suppress(Conflict):
            await self._documents.put(REQUEST, id, json.encode(RequestRecord(digest, self._now(), answer)), version)
        return answer, False

    def _holds(self, known: RequestRecord) -> bool:
        return self._now() < known.at + (UNDER_WAY if known.answer is None else KEPT)

    async def tidy(self) -> None:
        """Remove what is older than a day."""
        for each in await self._documents.all(REQUEST):
            if not self._holds(json.decode(each.data, type=RequestRecord)):
                with suppress(Conflict):
                    await self._documents.delete(REQUEST, each.id, each.version)


def _repeated(known: RequestRecord, digest: str) -> Answered:
    if known.digest != digest:
        why = "the Idempotency-Key was used with another request; take a new one for a new request"
        raise HttpProblem(422, "idempotency_key_reused", "The key was used for another request", why)
    if known.answer is None:
        raise _under_way()
    return known.answer


def _under_way() -> HttpProblem:
    why = "the first request with this Idempotency-Key has no answer yet; send it again in a moment"
    return HttpProblem(409, "under_way", "The request is under way", why, headers={"retry-after": "1"})
