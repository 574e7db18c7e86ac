"""The application: checks where a request comes from and who sends it, finds its route, and turns errors into problems.

It denies what it does not know. Nothing is parsed before the credential was checked.
"""

import gzip
import ipaddress
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct, json, to_builtins
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from refold.errors import RefoldError
from refold.logs import ERROR, INFO, event, logger
from refold.server.access import PERMISSIONS, Credential, Deed
from refold.server.page_files import HEADERS
from refold.server.problems import HttpProblem, forbidden, not_found, of_error, too_large, unauthenticated
from refold.server.repeats import Answered
from refold.server.requests import check_content, check_message, read_body, read_json, read_query
from refold.server.routes import Answer, Call, Route, RouteMatch
from refold.server.service import Service
from refold.server.table import TABLE
from refold.wire import decoded

log = logger("server")

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
NOBODY = Credential("", "", "", frozenset(), frozenset())
CHANGES = ("POST", "PUT", "DELETE")


PLAIN_BELOW = 1024  # bytes of answers that are not compressed
LONGEST_TARGET = 300  # characters


class Caller(Struct):
    """Who sends a request, as far as it is known by now."""

    address: str
    credential: Credential = NOBODY
    was_refused: bool = False  # it brought a credential that does not hold


class App:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.hosts, self.origins = own_addresses(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":  # there are no websockets
            await send({"type": "websocket.close", "code": 1008})
            return None
        request = Request(scope, receive)
        trace_id, began = secrets.token_hex(8), time.perf_counter()
        found = TABLE.find(request.method, scope.get("raw_path") or scope["path"].encode())
        caller = Caller(request.client.host if request.client is not None else "")
        try:
            answer = await self._answered(request, found, trace_id, caller)
        except HttpProblem as refused:
            answer = problem_answer(refused, trace_id)
        except RefoldError as error:
            problem = of_error(error)
            if problem.status >= 500:
                event(log, ERROR, "a request could not be answered", request=trace_id, error=error)
            answer = problem_answer(problem, trace_id)
        except ClientDisconnect:
            return None
        except Exception as error:
            event(log, ERROR, "internal error of a route", request=trace_id, error=error)
            why = f"the log of the server has the cause, under {trace_id}"
            answer = problem_answer(HttpProblem(500, "internal", "Internal error", why), trace_id)
        seconds = time.perf_counter() - began
        name = found.route.path if found.route is not None else "none"
        self.service.metrics.request(name, request.method if found.route else "other", answer.status, seconds)
        event(
            log,
            INFO,
            "request",
            route=name,
            method=request.method[:10],
            status=answer.status,
            seconds=round(seconds, 6),
            who=caller.credential.name,
            request=trace_id,
        )
        await self._note(request, found, answer, caller, trace_id)
        closes = answer.status >= 400 and carries_body(request)
        await _response(answer, trace_id, closes, takes_gzip(request, found))(scope, receive, send)
        return None

    async def _note(self, request: Request, found: RouteMatch, answer: Answer, caller: "Caller", trace_id: str) -> None:
        """Audit what changes something, gives a run away, or was refused for its credential."""
        note, route = self.service.note, found.route
        if note is None:
            return
        is_refused = caller.was_refused
        if not is_refused and (route is None or not (route.method in CHANGES or route.is_download)):
            return
        if not is_refused and route is not None and not route.is_audited:
            return
        who, action = caller.credential, route.name if route is not None else "none"
        names = [found.path[name] for name in found.path if name != "ns"]
        made = answer.headers.get("location", "").rpartition("/")[2]  # the run that was started or imported
        target = " ".join([*names, made]).strip()[:LONGEST_TARGET]
        try:
            await note(Deed(who.name or answer.by, who.id, caller.address, action, target, answer.status, trace_id))
        except RefoldError as error:
            event(log, ERROR, "the audit log could not be written", request=trace_id, action=action, error=error)

    async def _answered(self, request: Request, found: RouteMatch, trace_id: str, caller: "Caller") -> Answer:
        headers = _headers(request)
        self._check_host(headers)
        self._check_origin(request.method, headers)
        address, route, credential, session = caller.address, found.route, NOBODY, ""
        if route is None or route.need not in ("open", "ticket"):
            is_link = route is not None and route.is_download
            caller.was_refused = "authorization" in headers or "cookie" in headers
            credential, session = await self.service.credentials.of_request(headers, address, is_link=is_link)
            caller.credential, caller.was_refused = credential, False
        if route is None:
            raise _unknown(found)
        self._check_permission(route, credential, found.path)
        if session and request.method in CHANGES:
            check_same_site(headers)
        query = read_query(request.scope["query_string"], route.query)
        content, body = await self._body(request, route, headers)
        call = Call(
            self.service,
            route,
            found.path,
            query,
            body,
            headers,
            credential,
            trace_id,
            content,
            _counted(request, route, headers) if route.takes == "bytes" else None,
            request.is_disconnected,
            address,
            session,
        )
        key = headers.get("idempotency-key", "")
        if not key or not route.is_repeatable or self.service.repeats is None:
            return await route.handler(call)
        sent = json.encode([request.method, request.url.path, body])

        async def work() -> Answered:
            answer = await route.handler(call)
            data = answer.raw if answer.raw is not None else json.encode(answer.body)
            return Answered(answer.status, dict(answer.headers), data if answer.status != 204 else b"")

        answered, is_repeated = await self.service.repeats.once(credential.id, key, sent, work)
        more = {"idempotent-replayed": "true"} if is_repeated else {}
        return Answer(status=answered.status, headers={**answered.headers, **more}, raw=answered.body)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        if headers.get("host", "").lower() not in self.hosts:
            why = "the request names another host; use the address that the server was started with"
            raise HttpProblem(421, "misdirected", "Wrong host", why)

    def _check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Another site, and another port of this machine, must not use the browser of somebody who is signed in."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin.lower() not in self.origins:
            raise HttpProblem(403, "foreign_origin", "Wrong origin", "the request comes from another site")
        if site is not None and site not in ("same-origin", "none"):
            raise HttpProblem(403, "foreign_origin", "Wrong origin", "the request comes from another site")

    def _check_permission(self, route: Route, credential: Credential, path: Mapping[str, str]) -> None:
        if "ns" in path and path["ns"] not in credential.namespaces:
            raise not_found()
        if route.need in PERMISSIONS and route.need not in credential.permissions:
            raise forbidden(route.need)
        if route.need not in PERMISSIONS and route.need not in ("open", "ticket", "any"):
            raise unauthenticated("this route cannot be used")

    async def _body(self, request: Request, route: Route, headers: Mapping[str, str]) -> tuple[bytes, object]:
        """Return the body, and what it says."""
        if route.body is None:
            return b"", None
        data = await read_body(_chunks(request), headers.get("content-length"), route.limit)
        if route.takes == "message":
            check_message(headers.get("content-type", ""))
            return data, decoded(data, route.body)
        if data or headers.get("content-type"):
            check_content(headers.get("content-type", ""))
        return b"", read_json(data, route.body)


def own_addresses(service: Service) -> tuple[frozenset[str], frozenset[str]]:
    """The `Host` and `Origin` values that this server answers to."""
    options = service.options
    hosts: set[str] = set()
    origins: set[str] = set()
    if options.public_address:
        parts = urlsplit(options.public_address)
        hosts.add(parts.netloc.lower())
        origins.add(f"{parts.scheme}://{parts.netloc}".lower())
    names = [*LOOPBACK_NAMES] if is_loopback(options.host) or options.public_address else [options.host]
    for name in names:
        hosts |= {f"{name}:{options.port}", *([name] if options.port == 80 else [])}
        origins |= {f"http://{name}:{options.port}", *([f"http://{name}"] if options.port == 80 else [])}
    return frozenset(hosts), frozenset(origins)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_same_site(headers: Mapping[str, str]) -> None:
    """What a browser changes needs its Origin (checked before) and JSON. Raises HttpProblem."""
    if "origin" not in headers:
        raise HttpProblem(403, "foreign_origin", "Wrong origin", "a change with a cookie needs the header `Origin`")
    check_content(headers.get("content-type", ""))


def _headers(request: Request) -> dict[str, str]:
    """Each header once; one that decides something and stands twice is refused."""
    found: dict[str, str] = {}
    for raw_name, raw in request.headers.raw:
        name = raw_name.decode("latin-1").lower()
        if name in found and name in ("host", "authorization", "origin", "content-length", "content-type", "x-refold"):
            raise HttpProblem(
                400, "header_twice", "A header stands twice", f"the header `{name}` may be sent only once"
            )
        found[name] = f"{found[name]}; {raw.decode('latin-1')}" if name in found else raw.decode("latin-1")
    return found


def _unknown(found: RouteMatch) -> HttpProblem:
    if found.allowed:
        why = f"this address takes {', '.join(found.allowed)}"
        return HttpProblem(405, "method_not_allowed", "Wrong method", why, headers={"allow": ", ".join(found.allowed)})
    return not_found()


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        yield chunk


async def _counted(request: Request, route: Route, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield a body as it comes, up to the limit of its route. Raises HttpProblem."""
    declared, size = headers.get("content-length"), 0
    if declared is not None and declared.isdecimal() and int(declared) > route.limit:
        raise too_large("the body has too many bytes", route.limit)
    async for chunk in request.stream():
        size += len(chunk)
        if size > route.limit:
            raise too_large("the body has too many bytes", route.limit)
        yield chunk


def problem_answer(problem: HttpProblem, trace_id: str) -> Answer:
    data = json.encode(to_builtins(problem.document(trace_id)))
    return Answer(status=problem.status, headers=problem.headers, raw=data, media="application/problem+json")


def carries_body(request: Request) -> bool:
    """Whether the client may still be sending: after an error its connection is closed, so that nothing more of the
    body is taken."""
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


def _response(answer: Answer, trace_id: str, closes: bool, gzips: bool) -> Response:
    headers = {"cache-control": "no-store", **HEADERS, "x-request-id": trace_id, **answer.headers}
    if closes:
        headers["connection"] = "close"
    if answer.stream is not None:
        headers["x-accel-buffering"] = "no"
        return StreamingResponse(answer.stream, answer.status, headers, media_type="text/event-stream")
    if answer.status in (204, 304):
        return Response(status_code=answer.status, headers=headers)
    data = answer.raw if answer.raw is not None else json.encode(answer.body)
    if gzips and len(data) > PLAIN_BELOW and "content-encoding" not in headers:
        data = gzip.compress(data, compresslevel=1)
        headers |= {"content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(data, answer.status, {**headers, "content-type": answer.media})


def takes_gzip(request: Request, found: RouteMatch) -> bool:
    """Whether the client has asked for a compressed answer. What workers exchange is small or is compressed already."""
    if found.route is not None and found.route.need == "work":
        return False
    parts = (each.partition(";") for each in request.headers.get("accept-encoding", "").split(","))
    return any(name.strip() == "gzip" and "q=0" not in more.replace(" ", "").split(";") for name, _, more in parts)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        kind = message["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
