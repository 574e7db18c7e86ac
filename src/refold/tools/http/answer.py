"""The response of a server, as the result of a step or as the reason of its failure."""

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
from refold.tools.http.unpack import BodyReader, CutOff

KINDS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}
WORTH_ANOTHER_TRY = {408, 425, 429}
LONGEST_WAIT = 3_600.0  # seconds that a server may ask us to wait
LONGEST_TYPE = 1_000  # characters of a `content-type` that are looked at
LONGEST_DATE = 100  # the same of a date
CHARSETS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le", "ascii"),
    *("big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "shift_jis"),
    *("koi8-r", "koi8-u", "mac-roman", "tis-620"),
)
CHARSET_FAMILIES = ("iso8859-", "cp125", "cp874")
SHOWN = 16 * 1024  # bytes of a body that a failure tells


async def read(response: httpx2.Response, most: int) -> bytes:
    """Return the unpacked body. Raises ToolFailed as soon as it is larger than allowed, or if it ends too early."""
    what = shown(response.request)
    try:
        body = BodyReader(response.headers.get("content-encoding", ""), most, what)
        async for part in response.aiter_raw():
            body.take(part)
        return body.whole()
    except CutOff:
        why = f"the body of {what} ends too early: its encoding is not complete"
        raise ToolFailed(Fault("connection", why, code="CONN_ERROR", retryable=True)) from None
    finally:
        await response.aclose()


def result(response: httpx2.Response, body: bytes, form: str, elapsed: float) -> dict[str, Any]:
    return {**_told(response, body, form), "url": address_of(response.request), "elapsed": elapsed}


def _told(response: httpx2.Response, body: bytes, form: str, strict: bool = True) -> dict[str, Any]:
    data, text = _decoded(response, body, form, strict)
    return {"status_code": response.status_code, "headers": dict(response.headers), "data": data, "text": text}


def _decoded(response: httpx2.Response, body: bytes, form: str, strict: bool) -> tuple[Any, str | None]:
    """Return the data of a JSON body, and the text of any other.

    Unless it is strict, an unknown charset is read as UTF-8.
    """
    if form == "base64":
        return base64.b64encode(body).decode(), None
    if form == "json" or (form == "auto" and _says_json(response)):
        try:
            return msgspec.json.decode(body), None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            if form == "json":
                fault = Fault("parse", f"the answer of {shown(response.request)} is not JSON: {error}")
                raise ToolFailed(fault) from None
    return None, body.decode(_charset(response) if strict else _known_charset(response) or "utf-8", "replace")


def _says_json(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _charset(response: httpx2.Response) -> str:
    found = _known_charset(response)
    if found is None:
        named = repr(_named_charset(response)[:40])
        why = f"the answer of {shown(response.request)} is text in the charset {named}, which is not read here"
        raise ToolFailed(Fault("parse", f"{why}; `response: base64` gives its bytes", retryable=False))
    return found


def _known_charset(response: httpx2.Response) -> str | None:
    """Return the charset if it is decoded in linear time. Others, such as punycode, are not used."""
    name = _named_charset(response)
    if len(name) > 40 or not name.isascii():
        return None
    try:
        found = codecs.lookup(name or "utf-8").name
    except (LookupError, ValueError):
        return None
    return found if found in CHARSETS or found.startswith(CHARSET_FAMILIES) else None


def _named_charset(response: httpx2.Response) -> str:
    """Return the charset of the header.

    Python's `email` parser is not used: its time grows with the square of the header.
    """
    for part in response.headers.get("content-type", "")[:LONGEST_TYPE].split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").strip().lower()
    return ""


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
        return _told(response, body, "auto", strict=False)
    told = _told(response, body[:SHOWN], "text", strict=False)
    return {**told, "text": told["text"].rstrip("\ufffd") + LEFT_OUT}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait. A date is compared with the server's own clock, if the response has it."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text[:9]), LONGEST_WAIT)
    until, now = _moment(text), _moment(headers.get("date", ""))
    if until is None:
        return None
    return min(max(until - (now if now is not None else time.time()), 0.0), LONGEST_WAIT)


def _moment(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text[:LONGEST_DATE]).timestamp()
    except (ValueError, OverflowError):
        return None


def fault_of_error(error: Exception, request: httpx2.Request) -> Fault:
    """Return the fault of a connection that could not be made, or broke."""
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
    return Fault("connection", f"{what} failed: {error or type(error).__name__}", code=code, retryable=True)


def _is_refused(causes: list[BaseException]) -> bool:
    return any(isinstance(each, ConnectionRefusedError) or "refused" in str(each).lower() for each in causes)


def _causes(error: BaseException | None) -> Any:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def shown(request: httpx2.Request) -> str:
    return f"{request.method} {address_of(request)}"


def address_of(request: httpx2.Request) -> str:
    """Return the address without its query, which may contain secrets."""
    url = request.url
    return f"{url.scheme}://{url.netloc.decode()}{url.raw_path.partition(b'?')[0].decode()}"
