"""Speaks MCP with a program over its stdin and stdout; itself a program, of the standard library alone.

The messages to send are the lines of stdin. After each that is a request it waits for the response, and prints it. In
between, what the program asks of us is answered that we have nothing to offer.
"""

import json
import subprocess
import sys
from typing import Any

METHOD_NOT_FOUND = -32601
GRACE = 0.5  # seconds for the program to see that nobody speaks with it any more


def main(argv: list[str]) -> int:
    messages = [json.loads(line) for line in sys.stdin]
    try:
        server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        print(f"{argv[0]!r} cannot be started: {error}", file=sys.stderr)
        return 1
    try:
        return _speak(server, messages)
    finally:
        _end(server)


def _speak(server: "subprocess.Popen[bytes]", messages: list[dict[str, Any]]) -> int:
    for message in messages:
        try:
            _send(server, message)
        except OSError:
            print("it ended before it was asked", file=sys.stderr)
            return 1
        if "id" in message:
            response = _response(server, message["id"])
            if response is None:
                print(f"it ended before it answered {message['method']}", file=sys.stderr)
                return 1
            print(json.dumps(response), flush=True)
    return 0


def _end(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdin is not None
    try:
        server.stdin.close()
        server.wait(GRACE)
    except (OSError, subprocess.TimeoutExpired):
        server.kill()


def _send(server: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def _response(server: "subprocess.Popen[bytes]", number: int) -> dict[str, Any] | None:
    assert server.stdout is not None
    for line in server.stdout:
        try:
            told = json.loads(line)
        except ValueError:
            print(line.decode("utf-8", "replace").rstrip(), file=sys.stderr)
            continue
        if not isinstance(told, dict):
            continue
        if told.get("id") == number and ("result" in told or "error" in told):
            return told
        if "method" in told and "id" in told:
            error = {"code": METHOD_NOT_FOUND, "message": "this client offers nothing"}
            _send(server, {"jsonrpc": "2.0", "id": told["id"], "error": error})
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
