"""The connection to a server: addresses, what is sent again, the errors that answers stand for, and a hidden token."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import json

from refold import errors
from refold.client.connection import Connection, error_of, is_private_way, problem_of, read_address
from refold.client.connection import ServerReply as Answered

TOKEN = "rfd_12345678_" + "s" * 43


class Scripted:
    """A server on loopback that gives the next answer of a list to each request."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []  # None: the connection is closed without an answer
        self.requests: list[bytes] = []
        self._serving: set[asyncio.Task[object] | None] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")), 0
                )
                self.requests.append(head + await reader.readexactly(size))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            await asyncio.gather(*filter(None, self._serving), return_exceptions=True)


def answer(status: int, body: object = None, *headers: str) -> bytes:
    data = b"" if body is None else json.encode(body)
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


@asynccontextmanager
async def connected(*answers: bytes | None) -> AsyncIterator[tuple[Connection, Scripted]]:
    scripted = Scripted()
    scripted.answers = list(answers)
    async with scripted.open() as address:
        connection = Connection(address, TOKEN, chance=lambda: 0.0)
        try:
            yield connection, scripted
        finally:
            await connection.close()


async def test_what_only_reads_is_sent_again_until_there_is_an_answer() -> None:
    async with connected(None, answer(503, {}, "retry-after: 0"), answer(200, {"a": 1})) as (connection, scripted):
        assert await connection.ask("GET", "/x", query={"n": 2, "m": None}) == {"a": 1}
    assert [each.split()[1] for each in scripted.requests] == [b"/x?n=2"] * 3


async def test_what_changes_something_is_sent_once_unless_it_has_a_key() -> None:
    async with connected(None) as (connection, scripted):
        with pytest.raises(errors.Unreachable):
            await connection.ask("POST", "/x", {"a": 1})
        assert len(scripted.requests) == 1
    async with connected(None, answer(201, {"id": "r"})) as (connection, scripted):
        assert await connection.ask("POST", "/x", {"a": 1}, headers={"Idempotency-Key": "k"}) == {"id": "r"}
    assert [each.rpartition(b"\r\n\r\n")[2] for each in scripted.requests] == [b'{"a":1}'] * 2


async def test_a_token_is_in_the_header_and_in_no_error_and_no_traceback() -> None:
    connection = Connection("http://127.0.0.1:1", TOKEN, chance=lambda: 0.0)
    assert TOKEN not in repr(connection)
    try:
        await connection.ask("GET", "/x")
    except errors.Unreachable as error:
        shown = "".join(traceback.format_exception(error)) + repr(error)
    assert "127.0.0.1:1 does not answer" in shown
    assert "rfd_" not in shown
    async with connected(answer(200, {})) as (connection, scripted):
        await connection.ask("GET", "/x")
    first, _, rest = scripted.requests[0].partition(b"\r\n")
    assert b"rfd_" not in first
    assert f"authorization: Bearer {TOKEN}".encode() in rest
    await connection.close()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"code": "unauthenticated", "detail": "no"}, errors.NotAllowed),
        (403, {"code": "forbidden", "detail": "no"}, errors.NotAllowed),
        (404, {"code": "not_found", "detail": "no"}, errors.NotFound),
        (409, {"code": "conflict", "detail": "no"}, errors.Conflict),
        (409, {"code": "key_taken", "detail": "no"}, errors.KeyTaken),
        (413, {"code": "too_large", "detail": "no"}, errors.InvalidValue),
        (503, {"code": "unavailable", "detail": "no"}, errors.Unavailable),
        (502, "<html>a proxy</html>", errors.Unavailable),
    ],
)
def test_an_answer_stands_for_the_error_that_a_database_would_give(
    status: int, body: object, kind: type[Exception]
) -> None:
    error = error_of(problem_of(Answered(status, {}, json.encode(body))), "http://here")
    assert type(error) is kind


def test_a_wrong_field_is_named() -> None:
    body = {"code": "invalid_value", "detail": "/name: it is empty", "errors": [{"pointer": "/name", "detail": "x"}]}
    error = error_of(problem_of(Answered(422, {}, json.encode(body))), "http://here")
    assert (str(error), isinstance(error, errors.InvalidValue)) == ("name: it is empty", True)


@pytest.mark.parametrize(
    "text", ["refold.example.org", "ftp://x", "http://", "http://me:secret@x", "http://x/?token=1", "http://x:0", ""]
)
def test_what_is_no_address_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidValue) as refused:
        read_address(text)
    assert "secret" not in str(refused.value).replace(text, "")


def test_an_address_loses_the_slash_at_its_end() -> None:
    assert read_address(" https://refold.example.org/ ") == "https://refold.example.org"
    private: Callable[[str], bool] = is_private_way
    assert [private(each) for each in ("https://a.b", "http://127.0.0.1:1", "http://[::1]", "http://a.b")] == [
        *(True, True, True),
        False,
    ]


@pytest.mark.parametrize("token", ["", "a b", "a\n", "ä"])
def test_what_is_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(errors.InvalidValue) as refused:
        Connection("http://x", token)
    assert not token or token not in str(refused.value)
