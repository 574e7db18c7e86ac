"""A run with everything that the page asks about it, and the one HTML file that shows it without a server.

A recording is made of the answers of the API, so the file shows what the page of a server shows. If it is too large,
values go first, then lines: what remains is whole.
"""

import hashlib
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, json, structs

from refold.core.times import stamp
from refold.errors import Unusable
from refold.server import graphs, history, runs, timeline
from refold.server.page_files import BUILD, FOLDER
from refold.server.routes import Answer, Call

SCRIPT, STYLE = FOLDER / "file.js", FOLDER / "file.css"
LARGEST = 20 * 1024 * 1024  # bytes of a recording
MOST_LINES = 10_000
AT_ONCE = 500  # facts, frames or lines of one answer
MOST_ITEMS = 200  # of a loop
FORM = 1  # of recordings, which grows when an older page cannot read them

Handler = Callable[[Call], Awaitable[Answer]]


class Recording(Struct, frozen=True):
    """What was recorded, as JSON, and what was left out because it would have been too large."""

    data: bytes
    left_out: tuple[str, ...]


async def recorded(call: Call, largest: int = LARGEST) -> Recording:
    """Record a run. Its smaller parts come first, and each larger one only if there is room for it."""
    head = await _ask(call, runs.show_run, runs.RunQuery())
    number = head["head"]
    parts: dict[str, Any] = {
        "form": FORM,
        "version": call.service.version,
        "at": stamp(call.service.now()),
        "namespace": call.path["ns"],
        "run": head,
        "graph": await _ask(call, graphs.show_graph, graphs.MomentQuery()),
        "timeline": await _ask(call, timeline.show_timeline, timeline.TimelineQuery()),
        "time": await _ask(call, timeline.show_time),
        "usage": await _ask(call, history.show_usage),
        "family": (await _ask(call, runs.list_runs, runs.RunsQuery(limit=200, parent=head["id"], why=True)))["items"],
        "loops": {each["step"]: await _loop(call, each["step"]) for each in head["steps"] if each["count"]},
        "frames": await _frames(call, number),
        "facts": await _facts(call, number, "none"),
        "steps": {},
        "values": {},
        "lines": [],
    }
    left_out: list[str] = []
    size = len(json.encode(parts))
    larger: list[tuple[str, str, Callable[[], Awaitable[Any]]]] = [
        ("steps", "inputs and results of steps", lambda: _steps(call, head["steps"])),
        ("values", "input, result and context", lambda: _values(call)),
        ("facts", "values in the history", lambda: _facts(call, number, "inline")),
        ("lines", "log lines", lambda: _lines(call)),
    ]
    for name, words, record in larger:
        found = await record()
        more = len(json.encode(found))
        if size + more > largest:
            left_out.append(words)
        else:
            parts[name], size = found, size + more
    return Recording(json.encode({**parts, "left_out": left_out}), tuple(left_out))


async def _ask(call: Call, handler: Handler, query: Any = None, **path: str) -> Any:
    """What a route answers, as it is after a browser has read it."""
    asked = structs.replace(call, query=query, path={**call.path, **path}, headers={})
    return json.decode(json.encode((await handler(asked)).body))


async def _frames(call: Call, last: int) -> list[dict[str, Any]]:
    """The frames in the windows in which the page asks for them."""
    found: list[dict[str, Any]] = []
    after = 0
    while after < last:
        query = history.FramesQuery(after=after, limit=AT_ONCE - after % AT_ONCE)
        piece = await _ask(call, history.show_frames, query)
        if not piece["frames"]:
            break
        found.append({"after": after, **piece})
        after = piece["frames"][-1]["number"]
    return found


async def _facts(call: Call, last: int, values: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while not found or found[-1]["number"] < last:
        after = found[-1]["number"] if found else 0
        page = (await _ask(call, runs.show_facts, runs.FactsQuery(after, AT_ONCE, values=values)))["items"]
        if not page:
            break
        found += page
    return found


async def _steps(call: Call, rows: list[dict[str, Any]]) -> dict[str, Any]:
    query = graphs.StepQuery(values="text")
    return {each["step"]: await _ask(call, graphs.show_step, query, step=each["step"]) for each in rows}


async def _values(call: Call) -> dict[str, Any]:
    query = runs.ValueQuery(values="text")
    handlers = {"input": runs.show_input, "result": runs.show_result, "context": runs.show_context}
    return {name: await _ask(call, handler, query) for name, handler in handlers.items()}


async def _loop(call: Call, step: str) -> dict[str, Any]:
    return {
        "strip": await _ask(call, timeline.show_strip, timeline.StripQuery(), step=step),
        "items": (await _ask(call, runs.show_items, runs.ItemsQuery(limit=MOST_ITEMS), step=step))["items"],
    }


async def _lines(call: Call) -> list[dict[str, Any]]:
    """The last lines, the oldest first."""
    found: list[dict[str, Any]] = []
    before = 2**53
    while len(found) < MOST_LINES:
        page = await _ask(call, runs.show_lines, runs.LinesQuery(before=before, limit=AT_ONCE))
        found = page["items"] + found
        if not page["more"] or not page["items"]:
            break
        before = page["items"][0]["number"]
    return found[-MOST_LINES:]


def one_file(recording: Recording) -> bytes:
    """An HTML file that shows a recording by itself. Raises Unusable if this copy of Refold has no page."""
    if not SCRIPT.exists():
        raise Unusable(f"the page is not built: `{BUILD}` builds it")
    script, style = SCRIPT.read_bytes().strip(), STYLE.read_bytes().strip()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types refold"
    )
    data = (
        recording.data.replace(b"<", b"\\u003c")
        .replace(b"\xe2\x80\xa8", b"\\u2028")
        .replace(b"\xe2\x80\xa9", b"\\u2029")
    )
    return b"".join(
        (
            b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'.encode(),
            b'<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            b'<meta name="color-scheme" content="light dark">\n<title>Refold</title>\n',
            b"<style>" + style + b"</style>\n</head>\n<body>\n",
            b'<div id="page"><noscript>This page needs JavaScript.</noscript></div>\n',
            b'<script type="application/json" id="recording">' + data + b"</script>\n",
            b"<script>" + script + b"</script>\n</body>\n</html>\n",
        )
    )


def _digest(text: bytes) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text).digest()).decode()}"
