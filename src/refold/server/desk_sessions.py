"""Sessions of remote workers, as documents of the store: every server of the store knows them, and none is needed."""

import hashlib
from collections.abc import Sequence

from msgspec import Struct, json, structs

from refold.core.outcomes import SECOND, Instant
from refold.errors import Conflict
from refold.ports import Abilities, Views
from refold.server.access import Credential
from refold.server.documents import Documents, every_document
from refold.server.problems import HttpProblem, invalid
from refold.wire import PROTOCOLS, Hello

KIND = "desk-session"
SESSION_FOR = 600 * SECOND  # after the last sign of life
NOTED_EVERY = 60 * SECOND  # how exactly the last sign of life is known
LONGEST_NAME = 64
FIRST = "worker-"  # how the name of a worker begins that serves every run
BEATS = 3  # signs of life in the time for which a worker counts as alive


class DeskSession(Struct, frozen=True, omit_defaults=True):
    """A remote worker, with what its token lets it take. A document's id is the name of the worker."""

    id: str
    worker: str
    token: str
    tools: tuple[str, ...]
    queues: tuple[str, ...] | None
    slots: int
    release: str
    seen_at: Instant
    number: int = 1  # of the hello
    stop: bool = False  # it was asked to end

    def can(self, alive_for: float, full: Sequence[str] = ()) -> Abilities:
        places = tuple((kind, 0) for kind in full)
        return Abilities(self.worker, self.queues, frozenset(self.tools), places=places, alive_for=alive_for)


class DeskSessions:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def open(self, hello: Hello, credential: Credential, call: str, current: str, now: Instant) -> DeskSession:
        """Begin the session of a worker, or change what it can take in its current one. The same call gives the same
        session. Raises HttpProblem."""
        if not set(hello.protocols) & set(PROTOCOLS):
            spoken = ", ".join(map(str, PROTOCOLS))
            why = f"this server speaks protocol {spoken}: install the release of Refold that it has, {_release()}"
            raise HttpProblem(426, "other_protocol", "Another protocol", why, headers={"upgrade": f"refold/{spoken}"})
        name = hello.worker
        if not name.startswith(FIRST) or len(name) > LONGEST_NAME or not name.replace("-", "").isalnum():
            raise invalid("/worker", f"a worker is called `{FIRST}` and letters, digits or dashes behind it")
        made = DeskSession(
            hashlib.sha256(f"{credential.id}/{name}/{call}".encode()).hexdigest()[:32],
            name,
            credential.id,
            _tools(hello, credential),
            _queues(hello, credential),
            hello.slots,
            hello.release[:LONGEST_NAME],
            now,
            hello.number,
        )
        while True:
            found = await self._documents.get(KIND, name)
            known = None if found is None else json.decode(found.data, type=DeskSession)
            if known is not None and known.token != credential.id and known.seen_at > now - SESSION_FOR:
                raise HttpProblem(409, "name_taken", "The name is taken", "another worker has this name: take another")
            if known is not None and known.token == credential.id:
                if known.number >= hello.number:
                    return known  # it was answered, or comes late
                is_same = session_name(known) == current
                made = structs.replace(made, id=known.id if is_same else made.id, stop=known.stop and is_same)
            try:
                version = 0 if found is None else found.version
                await self._documents.put(KIND, name, json.encode(made), version, now + SESSION_FOR)
                return made
            except Conflict:
                continue  # the same hello came twice, or a beat was noted

    async def find(self, id: str, credential: Credential) -> DeskSession:
        """Raises HttpProblem: the session is gone."""
        name, _, secret = id.rpartition(".")
        found = await self._documents.get(KIND, name) if name else None
        session = None if found is None else json.decode(found.data, type=DeskSession)
        if session is None or session.id != secret or session.token != credential.id:
            raise HttpProblem(410, "session_gone", "The session is gone", "say hello again: this session has ended")
        return session

    async def is_stopping(self, session: DeskSession) -> bool:
        """Whether the worker was asked to end since this was read, or its session has ended."""
        found = await self._documents.get(KIND, session.worker)
        now = None if found is None else json.decode(found.data, type=DeskSession)
        return now is None or now.id != session.id or now.stop

    async def seen(self, session: DeskSession, now: Instant) -> None:
        """Note a sign of life, to the minute."""
        if session.seen_at > now - NOTED_EVERY:
            return
        found = await self._documents.get(KIND, session.worker)
        if found is None or json.decode(found.data, type=DeskSession).id != session.id:
            return
        try:
            noted = json.encode(structs.replace(session, seen_at=now))
            await self._documents.put(KIND, session.worker, noted, found.version, now + SESSION_FOR)
        except Conflict:
            return  # another server has noted it

    async def end(self, session: DeskSession) -> None:
        found = await self._documents.get(KIND, session.worker)
        if found is not None and json.decode(found.data, type=DeskSession).id == session.id:
            try:
                await self._documents.delete(KIND, session.worker, found.version)
            except Conflict:
                await self.end(session)  # a sign of life was noted just now

    async def ask_to_stop(self, worker: str) -> bool:
        """Let a worker end with its next beat. False: it is not a remote worker that is known here."""
        while True:
            found = await self._documents.get(KIND, worker)
            if found is None:
                return False
            stopping = structs.replace(json.decode(found.data, type=DeskSession), stop=True)
            try:
                await self._documents.put(KIND, worker, json.encode(stopping), found.version, found.due)
                return True
            except Conflict:
                continue  # a sign of life was noted just now


def remote_workers(views: Views) -> dict[str, DeskSession]:
    """The sessions that are known, by the name of the worker. Call it on a thread for readers."""
    return {each.id: json.decode(each.data, type=DeskSession) for each in every_document(views, KIND)}


def session_name(session: DeskSession) -> str:
    """What the worker sends with each call."""
    return f"{session.worker}.{session.id}"


def _release() -> str:
    from refold import __version__

    return __version__


def _tools(hello: Hello, credential: Credential) -> tuple[str, ...]:
    """The tools that the worker has and its token allows. The bodies of Python workflows are the tool `workflow`."""
    allowed = credential.tools
    if allowed is None:
        return tuple(sorted(hello.tools))
    return tuple(sorted(each for each in hello.tools if each in allowed or each.partition(":")[0] in allowed))


def _queues(hello: Hello, credential: Credential) -> tuple[str, ...] | None:
    """Raises HttpProblem if the token allows none of the queues that the worker wants."""
    wanted, allowed = hello.queues, credential.queues
    if allowed is None or wanted is None:
        return wanted if allowed is None else allowed
    both = tuple(each for each in wanted if each in allowed)
    if not both:
        why = f"this token is for other queues: {', '.join(allowed)}"
        raise HttpProblem(403, "forbidden", "This is not allowed", why)
    return both
