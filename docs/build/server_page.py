"""The reference of the server's routes, from the table that serves them: `python -m docs.build.server_page` prints it.

`python -m docs.build.server_page openapi` prints the OpenAPI document.
"""

import sys
from collections.abc import Iterator

from msgspec import json, structs

from refold.server.access import PERMISSIONS, ROLES
from refold.server.openapi import document
from refold.server.routes import Route
from refold.server.table import ROUTES

HEAD = """\
# The server's API

This page is printed from the table of routes, by `python -m docs.build.server_page`; do not edit it.
[openapi.json](openapi.json) is the same as an OpenAPI 3.1 document, which a server also gives at `/openapi.json`.
[How to serve a team](../howto/server.md) shows the first steps.

`N` stands for `/api/v1/ns/default`; the namespace is the third part of an address, and a store has one today.

## Requests and answers

- Every route but the *open* ones needs `Authorization: Bearer TOKEN`. A browser that has signed in sends its cookie
  together with the header `X-Refold: 1`.
- Bodies and answers are JSON in UTF-8. Times are RFC 3339 in UTC. Fields, parameters and addresses that do not exist
  are errors.
- An error is a problem document (RFC 9457, `application/problem+json`): `code` is for programs, `detail` for people,
  `errors` names each wrong field with its `pointer`. `trace_id` is in the log of the server too.
- A list has at most `limit` rows (50, at most 200). If `more` is true, `next_cursor` given as `cursor` continues it. A
  cursor belongs to its list and its filter.
- Starting a run answers 201. A start with a `key`, or with the header `Idempotency-Key`, is one run however often it is
  sent. Steering answers when its turn is committed.
- The `ETag` of a run names its plan and its last fact. `If-Match` on a steering request answers 412 if the run has
  changed; `If-None-Match` on a read answers 304. `GET N/runs/ID?after=HEAD&wait=30` answers as soon as the run has
  changed.
- Values above 64 KiB come as `{"ref": …}` with their size and beginning; smaller ones as `{"value": …}`, and with
  `values=text` as JSON text, in which no number is rounded.
- Every POST takes `Idempotency-Key`: the same request again gets the same answer for 24 hours, with
  `Idempotent-Replayed: true`; another request with that key is 422. Answers above 1 KB are compressed for clients that
  send `Accept-Encoding: gzip`.
- Many runs at once are an operation: `POST N/operations` counts and pins what it would act on, and says what cannot be
  done; `…/go` acts on exactly these, at a rate, and has an outcome for each. What is not begun expires after 10
  minutes.
- Bodies have at most 1 MiB, definitions 256 KiB, batches 8 MiB.

## Roles

A token has a role; `plus` adds the permission `decide`, `minus` takes permissions away. It can be limited to some
workflows: runs of others do not exist for it. A token without `values` sees statuses, times and kinds of errors, and no
input, result, message or line.

"""


def page() -> str:
    return HEAD + "\n".join([*_roles(), "", "## Routes", "", *_routes(), *_streams()]) + "\n"


def _roles() -> Iterator[str]:
    yield "| role | " + " | ".join(PERMISSIONS) + " |"
    yield "| --- |" + " --- |" * len(PERMISSIONS)
    for role, permissions in ROLES.items():
        yield f"| `{role}` | " + " | ".join("yes" if each in permissions else "" for each in PERMISSIONS) + " |"


def _routes() -> Iterator[str]:
    yield "| route | permission | what it does | parameters or body |"
    yield "| --- | --- | --- | --- |"
    for route in ROUTES:
        path = route.path.replace("/api/v1/ns/{ns}", "N")
        yield f"| `{route.method} {path}` | {route.need} | {route.about} | {_takes(route)} |"


def _takes(route: Route) -> str:
    kind = route.body if route.body is not None else route.query
    return ", ".join(f"`{each.encode_name}`" for each in structs.fields(kind))


def _streams() -> Iterator[str]:
    yield """
## Streams

A stream is `text/event-stream` and stays open. `hello` comes first; a comment comes every 15 seconds; `bye` says that
the server stops, `revoked` that the credential is no more, `reset` that the reader was too slow.

- `GET N/runs/ID/stream` has the exact log: one event `fact` for each fact, whose `id` is its number. After a lost
  connection, send `Last-Event-ID` (or `from`), and it goes on after that fact; nothing is left out.
- `GET N/stream?topics=…` has up to 64 topics, separated by commas: `overview`, `runs` (with a filter, as in
  `runs?status=failed;limit=20`), `gates`, `run:ID`, `facts:ID`, `lines:ID`, `loop:ID/STEP`. `facts:ID@N` and
  `lines:ID@N` begin after number N. Each event has its `topic`. The first event of a run has all rows, and later
  ones, whose `all` is false, have those that changed. What changes in between is joined.

A credential has at most 8 streams at a time, a server 200."""


def openapi() -> str:
    """Without the version, which every release changes."""
    return json.format(json.encode(document(ROUTES, "")), indent=1).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi() if sys.argv[1:] == ["openapi"] else page())
