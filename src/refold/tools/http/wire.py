"""Requests on the wire: one pool of connections for all, each made to an address that was looked at before.

A name is resolved once for a connection, and the connection goes to the address that was checked, so that what a name
means cannot change in between. There are no proxies from the environment, and no cookies are kept.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import httpcore2
import httpx2

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.logs import DEBUG, event, logger
from refold.tool_api import refused

# Written out, because what `ipaddress` calls private differs from one Python to the next.
NOT_PUBLIC = [
    ip_network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # the metadata of a cloud
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),  # among them tunnels, which lead anywhere
    )
]
PUBLIC_IPV6 = ip_network("2000::/3")
STANDS_FOR_IPV4 = [ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96")]  # by its last 32 bits


def is_public(text: str) -> bool:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if any(address in network for network in STANDS_FOR_IPV4):
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    if isinstance(address, IPv6Address) and address not in PUBLIC_IPV6:
        return False
    return not any(address in network for network in NOT_PUBLIC)


log = logger("tools")

IDLE = 100  # connections that are kept
IDLE_FOR = 15.0  # seconds
REDIRECTS = 10
NEXT_ADDRESS_AFTER = 5.0  # seconds, while there is another to try
HARMLESS = {"accept", "accept-encoding", "accept-language", "content-type", "user-agent", "idempotency-key"}
REDIRECT = {301, 302, 303, 307, 308}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Checked(httpcore2.AsyncNetworkBackend):
    """Connects only to public addresses, unless private ones are allowed."""

    def __init__(
        self, private: bool, lookup: Resolve = resolve, inner: httpcore2.AsyncNetworkBackend | None = None
    ) -> None:
        self.private, self.lookup = private, lookup
        self.inner = inner if inner is not None else httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if self.private:
            return await self.inner.connect_tcp(host, port, timeout, local_address, socket_options)
        addresses = await self._addresses(host, port)
        for address in addresses[:-1]:
            try:
                return await self.inner.connect_tcp(address, port, NEXT_ADDRESS_AFTER, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                event(log, DEBUG, "the next address is tried", address=address, why=type(error).__name__)
        return await self.inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise refused("http has no unix sockets", "blocked_address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = await self.lookup(host.strip("[]"), port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host!r} is not known: {error}") from error
        if not addresses:
            raise httpcore2.ConnectError(f"{host!r} has no address")
        for address in addresses:
            if not is_public(address):
                why = f"{host!r} is {address}, which is not a public address; `private_addresses` allows it"
                raise refused(why, "blocked_address")
        return addresses


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class Wire:
    def __init__(self, backend: httpcore2.AsyncNetworkBackend) -> None:
        self._backend = backend
        self._pools: dict[bool | None, httpcore2.AsyncConnectionPool] = {}  # by whether certificates are checked

    async def exchange(self, request: httpx2.Request, *, follow: bool, verify: bool) -> httpx2.Response:
        """Return the response after all redirects, its body unread; `response.request` is the last request."""
        for _ in range(REDIRECTS + 1):
            response = await self._send(request, verify)
            if not follow or response.status_code not in REDIRECT or "location" not in response.headers:
                return response
            await response.aclose()
            request = redirected(request, response)
        why = f"more than {REDIRECTS} redirects"
        raise ToolFailed(Fault("too_many_redirects", why, retryable=False))

    async def close(self) -> None:
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    async def _send(self, request: httpx2.Request, verify: bool) -> httpx2.Response:
        url = request.url
        answer = await self._pool(verify if url.scheme == "https" else None).handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
            )
        )
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream), request=request)

    def _pool(self, verify: bool | None) -> httpcore2.AsyncConnectionPool:
        if verify not in self._pools:
            self._pools[verify] = httpcore2.AsyncConnectionPool(
                ssl_context=None if verify is None else httpx2.create_ssl_context(verify=verify),
                max_connections=None,
                max_keepalive_connections=IDLE,
                keepalive_expiry=IDLE_FOR,
                network_backend=self._backend,
            )
        return self._pools[verify]


def redirected(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    method, status = request.method, response.status_code
    keeps_body = status in (307, 308) or (method != "POST" and status != 303)
    if not keeps_body and method != "HEAD":
        method = "GET"
    return onward(request, response.headers["location"], method, request.content if keeps_body else b"")


def onward(request: httpx2.Request, location: str, method: str, body: bytes) -> httpx2.Request:
    """Return the next request, to an address from the response to this one. Another host gets no secrets."""
    url = address(request.url, location)
    headers = httpx2.Headers(request.headers)
    for name in ("host", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    if not _is_same_host(request.url, url):
        if body:
            why = f"{request.url.host} sends the body of the request on to {url.host}"
            raise ToolFailed(Fault("redirect_refused", why, retryable=False))
        headers = httpx2.Headers({name: headers[name] for name in headers if name in HARMLESS})
    if not body:
        headers.pop("content-type", None)
    return httpx2.Request(method, url, headers=headers, content=body or None)


def address(start: httpx2.URL | None, text: str) -> httpx2.URL:
    """Return an http or https address without user name and password. Raises ToolFailed."""
    try:
        url = httpx2.URL(text) if start is None else start.join(text)
    except (httpx2.InvalidURL, ValueError, TypeError) as error:
        raise refused(f"{text!r} is not an address: {error}", "invalid_url") from None
    if url.scheme not in ("http", "https") or not url.host or not 0 < (url.port or 80) < 65_536:
        raise refused(f"{text!r} is not an address that begins with http:// or https://", "invalid_url")
    if url.userinfo:
        raise refused("an address is no place for a name and a password; write `auth`", "invalid_url")
    return url


def _is_same_host(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether both addresses are of one host; a change from http:// to https:// keeps it."""
    if one.host != other.host:
        return False
    ports = [(url.scheme, url.port) for url in (one, other)]
    return ports[0] == ports[1] or ports == [("http", None), ("https", None)]
