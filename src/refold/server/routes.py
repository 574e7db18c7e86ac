"""What a route is, and how an address finds its route. The table of all routes is in `table.py`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from msgspec import Struct

from refold.server.access import Credential, Need

if TYPE_CHECKING:
    from refold.server.service import Service

Method = Literal["GET", "POST", "PUT", "DELETE"]
API = "/api/v1"
NAMESPACE = f"{API}/ns/{{ns}}"
BODY_LIMIT = 1024 * 1024
DEFINITION_LIMIT = 256 * 1024
BATCH_LIMIT = 8 * 1024 * 1024
IMPORT_LIMIT = 64 * 1024 * 1024
LONGEST_ADDRESS = 8192  # bytes


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a route whose address takes no parameters."""


class Answer(Struct, frozen=True):
    """What a route gives back: data that becomes JSON, bytes as they are, or a stream of events."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    raw: bytes | None = None
    media: str = "application/json"
    stream: AsyncIterator[bytes] | None = None
    by: str = ""  # who was found to have sent the request, if it came without a credential


class Call(Struct, frozen=True):
    """One request, after its credential was checked and its parts were read."""

    service: "Service"
    route: "Route"
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    credential: Credential
    trace_id: str
    content: bytes = b""  # the body as it came, where the route reads messages
    chunks: AsyncIterator[bytes] | None = None  # the body of a route that reads it as it comes
    has_left: Callable[[], Awaitable[bool]] | None = None  # whether the client has closed the connection
    address: str = ""  # where it came from
    session: str = ""  # of a browser that has signed in; empty: the request brought a token


Handler = Callable[[Call], Awaitable[Answer]]


class Route(Struct, frozen=True):
    """One line of the table, from which serving, authorization, OpenAPI, reference and tests are made."""

    method: Method
    path: str
    need: Need
    handler: Handler
    about: str  # one sentence for people
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    reply: Any = None  # its type, for OpenAPI; None: nothing
    status: int = 200
    limit: int = BODY_LIMIT  # bytes of the body
    is_stream: bool = False
    is_download: bool = False  # a browser may follow a link to it: it changes nothing
    media: str = "application/json"  # of the answer
    takes: Literal["json", "message", "bytes"] = "json"  # what the body is: bytes are read as they come
    keeps_answer: bool = True  # False: it sees to repeated requests itself, or its answer is a secret
    is_audited: bool = True  # False: a program calls it all the time, and only a refusal is worth a row

    @property
    def is_repeatable(self) -> bool:
        """Whether a request with an `Idempotency-Key` that comes again gets the answer of the first one."""
        return self.method == "POST" and self.keeps_answer and self.need not in ("open", "ticket", "work")

    @property
    def name(self) -> str:
        """The label of metrics and log lines."""
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


class RouteMatch(Struct, frozen=True):
    """What an address means: a route with the parameters in it, or the methods that the address has."""

    route: Route | None = None
    path: Mapping[str, str] = {}
    allowed: tuple[str, ...] = ()


class RouteTable:
    """Finds routes by exact segments. An address that is written in an unusual way (another case, empty segments, dots,
    encoded slashes) finds nothing."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_length: dict[int, list[tuple[tuple[str, ...], Route]]] = {}
        for route in self.routes:
            parts = tuple(route.path.split("/"))
            known = self._by_length.setdefault(len(parts), [])
            if any(other == parts and each.method == route.method for other, each in known):
                raise ValueError(f"the route {route.name} is in the table twice")
            known.append((parts, route))

    def find(self, method: str, raw_path: bytes) -> RouteMatch:
        parts = _segments(raw_path)
        if parts is None:
            return RouteMatch()
        fitting = [
            (pattern, route)
            for pattern, route in self._by_length.get(len(parts), ())
            if all(each.startswith("{") or each == part for each, part in zip(pattern, parts, strict=True))
        ]
        if not fitting:
            return RouteMatch()
        exact = max(sum(not each.startswith("{") for each in pattern) for pattern, _ in fitting)
        best = [pair for pair in fitting if sum(not each.startswith("{") for each in pair[0]) == exact]
        for pattern, route in best:
            if route.method == method:
                pairs = zip(pattern, parts, strict=True)
                return RouteMatch(route, {each[1:-1]: part for each, part in pairs if each.startswith("{")})
        return RouteMatch(allowed=tuple(sorted({route.method for _, route in best})))


def _segments(raw_path: bytes) -> list[str] | None:
    """Return the segments of an address, each decoded once; None if one of them is not plain."""
    if len(raw_path) > LONGEST_ADDRESS or not raw_path.isascii():
        return None
    parts = raw_path.decode("ascii").split("/")
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        return None
    for part in decoded[1:]:
        if (
            part in (".", "..")
            or "/" in part
            or "\\" in part
            or any(ord(each) < 32 or ord(each) == 127 for each in part)
        ):
            return None
        if not part and len(decoded) != 2:
            return None
    return decoded
