"""A fake API that needs a token: it has orders, checks signatures, and returns more than it should."""

import hashlib
import hmac
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = os.environ.get("REFOLD_SECRET_SHOP_TOKEN", "")
ORDERS = [{"id": 1, "amount": 12.5}, {"id": 2, "amount": 40}]


class Api(BaseHTTPRequestHandler):
    """`/orders` and `/echo` with the token, `/signed` with a signature."""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if not TOKEN or not hmac.compare_digest(given, f"Bearer {TOKEN}"):
            return self.answer(401, {"error": "who are you?"})
        return self.answer(200, {"orders": ORDERS} if self.path == "/orders" else {"you_sent": given})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        right = hmac.new(TOKEN.encode(), body, hashlib.sha256).hexdigest()
        is_right = hmac.compare_digest(self.headers.get("X-Signature", ""), right)
        return self.answer(200, {"verdict": "genuine" if is_right else "forged"})

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
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8704), Api)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
