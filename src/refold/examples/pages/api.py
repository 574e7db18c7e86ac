"""A fake API of support tickets: 23 tickets, five on a page; its third page fails once."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TICKETS = [{"id": n, "state": ("open", "open", "closed")[n % 3], "hours": n * 7 % 30} for n in range(1, 24)]
SIZE = 5
FAILED: set[int] = set()


class Api(BaseHTTPRequestHandler):
    """`/tickets?page=2` returns a page, with the address of the next."""

    def do_GET(self) -> None:
        page = int(parse_qs(urlsplit(self.path).query).get("page", ["1"])[0])
        if page == 3 and not FAILED:
            FAILED.add(page)
            return self.answer(503, {"error": "too busy"})
        more = f"/tickets?page={page + 1}" if page * SIZE < len(TICKETS) else None
        return self.answer(200, {"tickets": TICKETS[(page - 1) * SIZE : page * SIZE], "next": more})

    def answer(self, status: int, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8701), Api)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
