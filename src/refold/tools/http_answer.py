"""What a server answered, as the result of a step or as the reason of its failure."""

import base64
import codecs
import email.utils
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpcore2
import httpx2
import msgspec

from refold.core.faults import LEFT_OUT
from refold.core.outcomes import Fault
from refold.errors import ToolFailed

KINDS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}
WORTH_ANOTHER_TRY = {408, 425, 429}
LONGEST_WAIT = 86_400.0  # seconds that a server may ask us to wait
SHOWN = 16 * 1024  # bytes of a body that a failure tells


async def read(response: httpx2.Response, most: int) -> bytes:
    """The body, unpacked. Raises ToolFailed if it is larger, without reading on."""
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > most:
                why = f"the body of {shown(response.request)} has more than {most} bytes"
                raise ToolFailed(Fault("too_large", why, retryable=False))
    except httpx2.DecodingError as error:
        raise ToolFailed(Fault("parse", f"the body cannot be unpacked: {error}")) from None
    finally:
        await response.aclose()
    return bytes(body)


def result(response: httpx2.Response, body: bytes, form: str, elapsed: float) -> dict[str, Any]:
    return {**_told(response, body, form), "url": address_of(response.request), "elapsed": elapsed}


def _told(response: httpx2.Response, body: bytes, form: str) -> dict[str, Any]:
    data, text = _decoded(response, body, form)
    return {"status_code": response.status_code, "headers": dict(response.headers), "data": data, "text": text}


def _decoded(response: httpx2.Response, body: bytes, form: str) -> tuple[Any, str | None]:
    """Data, if it is JSON, or else text."""
    if form == "base64":
        return base64.b64encode(body).decode(), None
    if form == "json" or (form == "auto" and _says_json(response)):
        try:
            return msgspec.json.decode(body), None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            if form == "json":
                fault = Fault("parse", f"the answer of {shown(response.request)} is no JSON: {error}")
                raise ToolFailed(fault) from None
    return None, body.decode(_charset(response), "replace")


def _says_json(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _charset(response: httpx2.Response) -> str:
    try:
        return codecs.lookup(response.charset_encoding or "utf-8").name
    except LookupError:
        return "utf-8"


def fault_of_status(response: httpx2.Response, body: bytes) -> Fault:
    status = response.status_code
    kind = KINDS.get(status) or ("server_error" if status >= 500 else "client_error")
    return Fault(
        kind=kind if status >= 400 else "unexpected_status",
        message=f"{shown(response.request)} answered {status} {_phrase(status)}".strip(),
        code=f"HTTP_{status}",
        retryable=status in WORTH_ANOTHER_TRY or status >= 500,
        retry_after=_retry_after(response.headers),
        data=_beginning(response, body),
    )


def _beginning(response: httpx2.Response, body: bytes) -> dict[str, Any]:
    if len(body) <= SHOWN:
        return _told(response, body, "auto")
    told = _told(response, body[:SHOWN], "text")
    return {**told, "text": told["text"].rstrip("\ufffd") + LEFT_OUT}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, or a date, which is read by the server's own clock if it tells that."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text[:9]), LONGEST_WAIT)
    until, now = _moment(text), _moment(headers.get("date", ""))
    if until is None:
        return None
    return min(max(until - (now if now is not None else time.time()), 0.0), LONGEST_WAIT)


def _moment(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def fault_of_error(error: Exception, request: httpx2.Request) -> Fault:
    """A connection that did not come about, or broke."""
    what = shown(request)
    causes = list(_causes(error))
    names = {type(each).__name__ for each in causes}
    if isinstance(error, (TimeoutError, httpcore2.TimeoutException)):
        return Fault("timeout", f"{what} took too long", code="CONN_TIMEOUT", retryable=True)
    if isinstance(error, httpcore2.LocalProtocolError):
        return Fault("invalid_request", f"{what} cannot be sent: {error}", retryable=False)
    if "SSLCertVerificationError" in names:
        return Fault("tls", f"{what}: {error}", code="CERTIFICATE", retryable=False)
    code = "DNS_ERROR" if "gaierror" in names else "CONN_REFUSED" if _is_refused(causes) else "CONN_ERROR"
    return Fault("connection", f"{what} did not come about: {error or type(error).__name__}", code=code, retryable=True)


def _is_refused(causes: list[BaseException]) -> bool:
    return any(isinstance(each, ConnectionRefusedError) or "refused" in str(each).lower() for each in causes)


def _causes(error: BaseException | None) -> Any:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def shown(request: httpx2.Request) -> str:
    return f"{request.method} {address_of(request)}"


def address_of(request: httpx2.Request) -> str:
    """Without the query, which may hold what nobody else should read."""
    url = request.url
    return f"{url.scheme}://{url.netloc.decode()}{url.raw_path.partition(b'?')[0].decode()}"
