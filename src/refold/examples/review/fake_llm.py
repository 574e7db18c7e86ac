"""A fake language model with the API of OpenAI: it knows one note, in a long and a short form."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONG = {
    "title": "Logs that follow you",
    "text": "Logs can now be followed live, and retries no longer come all at once.",
}
SHORT = {"title": "Live logs", "text": "Live logs; retries with jitter."}


class Model(BaseHTTPRequestHandler):
    """`POST /v1/chat/completions`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = " ".join(message["content"] for message in asked["messages"])
        content = json.dumps(SHORT if "shorter" in words else LONG)
        used = {"prompt_tokens": len(words.split()), "completion_tokens": len(content.split())}
        answer = {
            "model": asked["model"],
            "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
            "usage": {**used, "total_tokens": sum(used.values())},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8703), Model)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
