"""Requests to a server: its address, the token, what is sent again, and the errors that its answers stand for.

The token is sent in a header and shown nowhere: not in an address, an error, a log line or a `repr`.
"""

import asyncio
import ipaddress
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from msgspec import DecodeError, Struct, json

from refold import errors
from refold.logs import DEBUG, event, logger

log = logger("client")

NAMESPACE = "/api/v1/ns/default"
CONNECT_WITHIN = 5.0  # seconds
ANSWER_WITHIN = 30.0  # seconds, in addition to what a request asks the server to wait
TRIES = 4  # of a request that may be repeated
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries, before chance makes them shorter
BUSY = (429, 502, 503, 504)  # the same request may be answered later
LONGEST_DETAIL = 1000  # characters of an answer that is not a problem document


class ServerReply(Struct, frozen=True):
    """An answer of the server, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_good(self) -> bool:
        return self.status < 400


class ServerProblem(Struct, frozen=True):
    """An error as the server describes it."""

    status: int = 0
    code: str = ""
    title: str = ""
    detail: str = ""
    errors: Sequence[dict[str, Any]] = ()
    extra: Mapping[str, Any] = {}  # what a route says besides


def read_address(text: str, where: str = "server") -> str:
    """Return the address of a server without a slash at its end. Raises InvalidValue."""
    found = text.strip().rstrip("/")
    try:
        parts = urlsplit(found)
        port = parts.port
    except ValueError as error:
        raise errors.InvalidValue(where, f"{text!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise errors.InvalidValue(where, f"{text!r} is not an address such as https://refold.example.org")
    if parts.username is not None or parts.password is not None:
        raise errors.InvalidValue(where, "an address is no place for a password; the token goes into REFOLD_TOKEN")
    if parts.query or parts.fragment:
        raise errors.InvalidValue(where, "the address of a server ends before `?` and `#`")
    return found


def is_private_way(address: str) -> bool:
    """Whether nobody on the way can read what is sent: https, or this machine."""
    parts = urlsplit(address)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


class Connection:
    """To one server. It belongs to one event loop: the heartbeat of a worker has one of its own."""

    def __init__(
        self, address: str, token: str, *, chance: Callable[[], float] = random.random, most: int = 100
    ) -> None:
        """Raises InvalidValue for an address or a token that cannot be one."""
        self.address = read_address(address)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise errors.InvalidValue(
                "REFOLD_TOKEN", "a token is needed; `refold token create` of the server makes one"
            )
        self._chance = chance
        self._client = httpx2.AsyncClient(
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(ANSWER_WITHIN, connect=CONNECT_WITHIN),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=most, keepalive_expiry=4.0),
            trust_env=False,
            follow_redirects=False,
        )

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        query: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
        headers: Mapping[str, str] = {},
        waits: float = 0.0,
    ) -> ServerReply:
        """Send one request once. `waits`: seconds for which the server may hold the answer back. Raises Unreachable."""
        pairs = list(query.items() if isinstance(query, Mapping) else query)
        try:
            answer = await self._client.request(
                method,
                self.address + path,
                content=body or None,
                params=[(name, value) for name, value in pairs if value is not None] or None,
                headers=dict(headers),
                timeout=httpx2.Timeout(ANSWER_WITHIN + waits, connect=CONNECT_WITHIN),
            )
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            why = str(error) or type(error).__name__
            raise errors.Unreachable(f"{self.address} does not answer: {why}") from None
        return ServerReply(answer.status_code, dict(answer.headers), answer.content)

    async def repeated(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
        headers: Mapping[str, str] = {},
        waits: float = 0.0,
        tries: int = TRIES,
    ) -> ServerReply:
        """Send a request that does no harm when it arrives twice, until the server answers it. Raises Unreachable."""
        for number in range(1, tries + 1):
            pause = self._pause(number)
            try:
                reply = await self.send(method, path, body, query=query, headers=headers, waits=waits)
                if reply.status not in BUSY or number == tries:
                    return reply
                pause = max(pause, min(_retry_after(reply), LONGEST_PAUSE))
                event(log, DEBUG, "request is sent again", path=path, status=reply.status)
            except errors.Unreachable as error:
                if number == tries:
                    raise
                event(log, DEBUG, "request is sent again", path=path, why=str(error))
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
        headers: Mapping[str, str] = {},
        waits: float = 0.0,
    ) -> Any:
        """Send JSON, and return the answer as data. What only reads, or has an `Idempotency-Key`, is sent again if it
        gets no answer. Raises the error that the answer stands for."""
        data = b"" if body is None else json.encode(body)
        typed = dict(headers) if body is None else {**headers, "content-type": "application/json"}
        is_safe = method == "GET" or any(name.lower() == "idempotency-key" for name in headers)
        send = self.repeated if is_safe else self.send
        reply = await send(method, path, data, query=query, headers=typed, waits=waits)
        return self.data_of(reply)

    def data_of(self, reply: ServerReply) -> Any:
        """Return the JSON of an answer; None if it has none. Raises the error that it stands for."""
        if not reply.is_good:
            raise error_of(problem_of(reply), self.address)
        return json.decode(reply.body) if reply.body else None

    async def close(self) -> None:
        await self._client.aclose()

    def _pause(self, number: int) -> float:
        """Full jitter: those who lost one server do not come back all at once."""
        return min(FIRST_PAUSE * 2.0 ** (2 * (number - 1)), LONGEST_PAUSE) * self._chance()


def segment(text: str) -> str:
    """One segment of an address."""
    return quote(text, safe="")


def problem_of(reply: ServerReply) -> ServerProblem:
    """Read a problem document, or describe an answer that is none: a proxy may have written it."""
    try:
        found = json.decode(reply.body)
    except (DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("code"), str):
        text = reply.body[:LONGEST_DETAIL].decode(errors="replace").strip()
        return ServerProblem(reply.status, "", f"status {reply.status}", text)
    known = {"type", "title", "status", "detail", "code", "trace_id", "errors"}
    return ServerProblem(
        reply.status,
        found["code"],
        str(found.get("title", "")),
        str(found.get("detail", "")),
        [each for each in found.get("errors") or () if isinstance(each, dict)],
        {name: value for name, value in found.items() if name not in known},
    )


def error_of(problem: ServerProblem, address: str) -> errors.RefoldError:
    """Return the error of Refold that a problem stands for, as if the database had been opened here."""
    text = problem.detail or problem.title
    match problem.status, problem.code:
        case 401 | 403 | 421, _:
            return errors.NotAllowed(f"{address}: {text}")
        case 404, _:
            return errors.NotFound(text)
        case 422, _:
            pointer = str(problem.errors[0].get("pointer", "")) if problem.errors else ""
            path = pointer.lstrip("/").replace("/", ".")
            why = text.removeprefix(f"{pointer}: ").removeprefix(f"{path}: ")
            return errors.InvalidValue(path or "request", why)
        case 409, "key_taken":
            return errors.KeyTaken(text, str(problem.extra.get("run", "")))
        case 409 | 410 | 412 | 428, _:
            return errors.Conflict(text)
        case 413, _:
            return errors.InvalidValue("request", text)
        case status, _ if status in BUSY or status >= 500:
            return errors.Unavailable(f"{address}: {text}")
    return errors.Conflict(f"{address} answered {problem.status}: {text}")


def _retry_after(reply: ServerReply) -> float:
    text: str = reply.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0
