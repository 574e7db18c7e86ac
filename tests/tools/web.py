"""A web site on the loopback address, whose answers the test writes, and which remembers what it was asked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""


def says(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, {"content-type": "application/json", **headers}, msgspec.json.encode(value))


def sends_to(location: str, status: int = 302) -> Answer:
    return Answer(status, {"location": location})


Route = Callable[[Asked], Answer]


class Site:
    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.asked: list[Asked] = []
        self.connections = 0
        self.stop = Event()  # lets go of answers that wait

    def __setitem__(self, path: str, answer: Answer | Route) -> None:
        self.routes[path] = (lambda _: answer) if isinstance(answer, Answer) else answer

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return self.routes[asked.path](asked) if asked.path in self.routes else Answer(404)


@contextmanager
def served(site: Site) -> Iterator[str]:
    """The address at which the site is served."""

    class Visit(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            site.connections += 1
            super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def reply(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = site.answer(Asked(self.command, parts.path, parse_qs(parts.query), headers, body))
            try:
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value.encode().decode("latin-1"))
                if not {"content-length", "transfer-encoding"} & set(answer.headers):
                    self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else answer.body)
            except OSError:
                self.close_connection = True  # the other side does not want to hear more

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = reply

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 200

    server = Server(("127.0.0.1", 0), Visit)
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        site.stop.set()
        server.shutdown()
        thread.join()
        server.server_close()
