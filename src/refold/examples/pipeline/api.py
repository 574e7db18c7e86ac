"""A fake API of meters: its first session expires at once, it is busy at first, and one day is empty."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

READINGS = {"2026-03-01": [1.5, 2.0, 1.0], "2026-03-03": [0.5, 3.5]}
SESSIONS: list[str] = []
BUSY: set[str] = set()


class Api(BaseHTTPRequestHandler):
    """`POST /session` returns a session; `GET /readings/DAY` needs one."""

    def do_POST(self) -> None:
        SESSIONS.append(f"session-{len(SESSIONS) + 1}")
        self.answer(200, {"session": SESSIONS[-1]})

    def do_GET(self) -> None:
        day = self.path.rsplit("/", 1)[1]
        if self.headers.get("X-Session", "") not in SESSIONS[1:]:
            return self.answer(401, {"error": "the session has ended"})
        if day not in BUSY:
            BUSY.add(day)
            return self.answer(503, {"error": "busy"})
        if day not in READINGS:
            return self.answer(404, {"error": "no readings"})
        return self.answer(200, {"values": READINGS[day]})

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
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8705), Api)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
