"""Tokens, sessions of browsers and sign-in tickets, kept as documents of the store, and the check of a request."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie

from msgspec import Struct, json, structs

from refold.core.outcomes import SECOND, Instant
from refold.errors import Conflict, InvalidValue, NotFound
from refold.server import access
from refold.server.access import AccessToken, Credential
from refold.server.documents import Documents
from refold.server.problems import HttpProblem, unauthenticated

TOKENS, SESSIONS, TICKETS = "token", "session", "ticket"  # kinds of documents
DAY = 24 * 3600 * SECOND
TOKEN_FOR = 90 * DAY
SESSION_FOR = 12 * 3600 * SECOND
RENEWED_AFTER = SESSION_FOR // 12
TICKET_FOR = 600 * SECOND
MINUTE = 60 * SECOND
FAILURES = 10  # refused credentials of an address in a minute
ADDRESSES = 10_000  # whose failures are counted at a time
MARK = "x-refold"  # the header without which a cookie does not count


class BrowserSession(Struct, frozen=True):
    """A browser that has signed in: what its cookie stands for."""

    token: str
    until: Instant


class Ticket(Struct, frozen=True):
    """What a sign-in link carries; it is used once."""

    token: str
    until: Instant


class Failures:
    """Refused credentials by the address they came from. Nobody is locked out by name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, list[float]] = {}

    def count(self, address: str) -> None:
        if len(self._seen) >= ADDRESSES:
            self._seen.clear()
        self._seen.setdefault(address, []).append(self._clock())

    def check(self, address: str) -> None:
        """Raises HttpProblem if this address was refused too often."""
        recent = [at for at in self._seen.get(address, ()) if self._clock() - at < 60]
        if len(recent) >= FAILURES:
            wait = max(1, round(60 - (self._clock() - recent[0])))
            why = f"{FAILURES} credentials of this address were refused within a minute; wait {wait} s"
            raise HttpProblem(
                429, "too_many_failures", "Too many refused credentials", why, headers={"retry-after": str(wait)}
            )
        if recent:
            self._seen[address] = recent
        else:
            self._seen.pop(address, None)


class Credentials:
    def __init__(self, documents: Documents, now: Callable[[], Instant], port: int, failures: Failures) -> None:
        self._documents, self._now, self._failures = documents, now, failures
        self.cookie = f"refold-{port}"  # cookies do not know ports, so the name has the port

    async def create(self, token: AccessToken) -> tuple[AccessToken, str]:
        """Store a new token; return it and its text, which is shown once and kept nowhere."""
        secret = access.new_secret()
        while True:
            made = structs.replace(token, id=access.new_id(), hash=access.hash_of(secret), created_at=self._now())
            with suppress(Conflict):  # the id is taken
                await self._documents.put(TOKENS, made.id, json.encode(made))
                return made, access.written_token(made.id, secret)

    async def tokens(self) -> list[AccessToken]:
        return [json.decode(each.data, type=AccessToken) for each in await self._documents.all(TOKENS)]

    async def revoke(self, id: str) -> None:
        """Delete a token. It ends sessions and streams too, because each of them asks for it. Raises NotFound."""
        while True:
            found = await self._documents.get(TOKENS, id)
            if found is None:
                raise NotFound(f"there is no token {id}; `refold token list` shows them")
            with suppress(Conflict):  # its last use was noted meanwhile
                await self._documents.delete(TOKENS, id, found.version)
                return

    async def of_request(self, headers: Mapping[str, str], address: str, *, is_link: bool) -> tuple[Credential, str]:
        """Return the credential of a request, and the session it belongs to (empty: a token). Raises HttpProblem.

        A cookie counts only with the header `X-Refold: 1`, which another origin cannot send without asking first;
        `is_link`: a download, which changes nothing and goes without.
        """
        self._failures.check(address)
        authorization = headers.get("authorization", "")
        if authorization:
            scheme, _, text = authorization.partition(" ")
            token = await self.of_token(text.strip()) if scheme.lower() == "bearer" else None
            if token is None:
                self._failures.count(address)
                raise unauthenticated("the token is not valid, has expired or was revoked")
            return token.credential(), ""
        secret = self._cookie(headers.get("cookie", ""))
        if not secret:
            raise unauthenticated("send `Authorization: Bearer TOKEN`; `refold token create` makes one")
        if headers.get(MARK) != "1" and not is_link:
            raise unauthenticated("a cookie counts only together with the header `X-Refold: 1`")
        session = access.hash_of(secret)
        credential = await self.of_session(session)
        if credential is None:
            self._failures.count(address)
            raise unauthenticated("the session has ended: sign in again")
        return credential, session

    def _cookie(self, header: str) -> str:
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    async def of_token(self, text: str) -> AccessToken | None:
        """The valid token that is written so. An unknown one costs as much time as a wrong one."""
        parts = access.read_token(text)
        found = await self._documents.get(TOKENS, parts[0]) if parts is not None else None
        stored = json.decode(found.data, type=AccessToken) if found is not None else None
        right = access.is_secret_of(stored.hash if stored is not None else "", parts[1] if parts is not None else text)
        if stored is None or found is None or not right or not stored.is_valid(self._now()):
            return None
        if stored.used_at is None or self._now() - stored.used_at >= MINUTE:
            with suppress(Conflict):  # another request has noted it, or it was revoked just now
                used = structs.replace(stored, used_at=self._now() // MINUTE * MINUTE)
                await self._documents.put(TOKENS, stored.id, json.encode(used), found.version)
        return stored

    async def of_session(self, session: str) -> Credential | None:
        found = await self._documents.get(SESSIONS, session)
        if found is None:
            return None
        stored = json.decode(found.data, type=BrowserSession)
        token = await self._token(stored.token)
        if token is None or stored.until <= self._now():
            await self.sign_out(session)
            return None
        if stored.until - self._now() < SESSION_FOR - RENEWED_AFTER:
            with suppress(Conflict):
                renewed = BrowserSession(stored.token, self._now() + SESSION_FOR)
                await self._documents.put(SESSIONS, session, json.encode(renewed), found.version)
        return token.credential()

    async def _token(self, id: str) -> AccessToken | None:
        found = await self._documents.get(TOKENS, id)
        token = json.decode(found.data, type=AccessToken) if found is not None else None
        return token if token is not None and token.is_valid(self._now()) else None

    async def is_valid(self, credential: Credential, session: str) -> bool:
        """Whether a credential still holds: streams ask again and again."""
        if session:
            return await self.of_session(session) is not None
        return await self._token(credential.id) is not None

    async def new_ticket(self, token: str) -> str:
        """Make a sign-in ticket for a token; it is valid once, for ten minutes."""
        secret = access.new_secret()
        await self._documents.put(TICKETS, access.hash_of(secret), json.encode(Ticket(token, self._now() + TICKET_FOR)))
        return secret

    async def sign_in(self, ticket: str, address: str) -> tuple[str, Credential]:
        """Use up a ticket; return the secret of a new session. Raises HttpProblem."""
        self._failures.check(address)
        id = access.hash_of(ticket)
        found = await self._documents.get(TICKETS, id)
        stored = json.decode(found.data, type=Ticket) if found is not None else None
        token = await self._token(stored.token) if stored is not None else None
        try:
            if found is None or stored is None or token is None or stored.until <= self._now():
                raise Conflict("the ticket is unknown, has expired or was used")
            await self._documents.delete(TICKETS, id, found.version)
        except Conflict:
            self._failures.count(address)
            raise unauthenticated(
                "this sign-in link was used or has expired: `refold token link` makes another"
            ) from None
        secret = access.new_secret()
        session = BrowserSession(token.id, self._now() + SESSION_FOR)
        await self._documents.put(SESSIONS, access.hash_of(secret), json.encode(session))
        return secret, token.credential()

    async def sign_out(self, session: str) -> None:
        found = await self._documents.get(SESSIONS, session)
        if found is not None:
            with suppress(Conflict):
                await self._documents.delete(SESSIONS, session, found.version)

    async def tidy(self) -> None:
        """Remove sessions and tickets that have ended."""
        forms: tuple[tuple[str, type[BrowserSession | Ticket]], ...] = ((SESSIONS, BrowserSession), (TICKETS, Ticket))
        for kind, form in forms:
            for each in await self._documents.all(kind):
                if json.decode(each.data, type=form).until <= self._now():
                    with suppress(Conflict):
                        await self._documents.delete(kind, each.id, each.version)


def expiry(text: str | None, now: Instant, seconds: Callable[[str], float]) -> Instant | None:
    """Return when a token ends: after 90 days, after a span such as `30d`, or never if that is said."""
    if text is None:
        return now + TOKEN_FOR
    if text == "never":
        return None
    span = seconds(text)
    if span <= 0:
        raise InvalidValue("expires", f"{text!r} is not a span such as 30d; `never` is one without an end")
    return now + round(span * SECOND)


def fingerprint(text: str) -> str:
    """A short name for something that must not be printed."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
