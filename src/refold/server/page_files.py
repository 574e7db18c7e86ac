"""The files of the page, which `make page` builds, and the headers of every answer.

The files hold no data: the page shows what the API says. All but the first carry the digest of their content in their
names, so a browser keeps them for a year.
"""

import re
import secrets
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from refold.server.problems import not_found
from refold.server.routes import Answer, Call

FOLDER = Path(__file__).with_name("page")
INDEX = FOLDER / "index.html"
ASSETS = FOLDER / "assets"
BUILD = "make page"
NONCE = b"__NONCE__"  # in the first file, where the editor finds what its style sheet needs
NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*\.(js|css|svg)", re.ASCII)
MEDIA = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}

NOT_BUILT = b"""\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Refold</title></head>
<body><h1>Refold</h1>
<p>The page is not built in this copy of the source: <code>make page</code> builds it. The API is served all the same;
<a href="openapi.json">openapi.json</a> describes it.</p></body>
</html>
"""


def policy(nonce: str = "") -> str:
    """The Content-Security-Policy: nothing but the page's own files, and no text that becomes markup or a program."""
    style = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
    return (
        f"default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types refold"
    )


HEADERS = {
    "content-security-policy": policy(),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every answer, errors included."""


def is_built() -> bool:
    return INDEX.exists()


async def show_index(call: Call) -> Answer:
    """The page, with a nonce of its own for the style sheet of the editor."""
    nonce = secrets.token_urlsafe(16)
    text = INDEX.read_bytes() if is_built() else NOT_BUILT
    headers = {"content-security-policy": policy(nonce)}
    return Answer(raw=text.replace(NONCE, nonce.encode()), media="text/html; charset=utf-8", headers=headers)


async def show_file(call: Call) -> Answer:
    name = call.path["file"]
    found = NAME.fullmatch(name)
    plain, packed = contents(name) if found is not None else (None, None)
    if found is None or plain is None:
        raise not_found()
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if packed is not None and takes_gzip(call.headers):
        return Answer(raw=packed, media=MEDIA[found[1]], headers={**headers, "content-encoding": "gzip"})
    return Answer(raw=plain, media=MEDIA[found[1]], headers=headers)


@cache
def contents(name: str) -> tuple[bytes | None, bytes | None]:
    """A file of the page as it is and packed: its name stands for its content, so it is read once."""
    plain, packed = ASSETS / name, ASSETS / f"{name}.gz"
    return (plain.read_bytes() if plain.is_file() else None, packed.read_bytes() if packed.is_file() else None)


def takes_gzip(headers: Mapping[str, str]) -> bool:
    """Whether gzip is among the encodings that the client takes, and not with weight 0."""
    for each in headers.get("accept-encoding", "").split(","):
        coding, _, weight = each.partition(";")
        if coding.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
