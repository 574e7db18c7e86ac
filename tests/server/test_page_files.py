"""The files of the page: what a browser may keep, what it gets packed, and what the policy lets it do."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.server import page_files
from tests.server.conftest import Server

SCRIPT = "export const a = 1;\n" * 100


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A page in a folder of its own."""
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text('<meta name="nonce" content="__NONCE__"><script src="assets/main-abc.js">')
    (folder / "assets" / "main-abc.js").write_text(SCRIPT)
    (folder / "assets" / "main-abc.js.gz").write_bytes(gzip.compress(SCRIPT.encode()))
    (folder / "assets" / "page-1.css").write_text("body { margin: 0 }")
    (folder / "made-from.js").write_text("not a file of the page")
    monkeypatch.setattr(page_files, "INDEX", folder / "index.html")
    monkeypatch.setattr(page_files, "ASSETS", folder / "assets")
    page_files.contents.cache_clear()
    yield folder
    page_files.contents.cache_clear()


async def test_the_page_has_a_new_nonce_each_time_and_only_styles_may_use_it(server: Server, built: Path) -> None:
    async with server.client() as client:
        answers = [await client.get("/"), await client.get("/")]
    nonces = [each.text.partition('content="')[2].partition('"')[0] for each in answers]
    assert nonces[0] != nonces[1] and all(len(each) >= 20 for each in nonces)
    for nonce, answer in zip(nonces, answers, strict=True):
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["style-src"] == f"'self' 'nonce-{nonce}'"
        assert (policy["script-src"], policy["default-src"], policy["base-uri"]) == ("'self'", "'none'", "'none'")
        assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "refold")
        assert answer.headers["cache-control"] == "no-store"


async def test_files_are_kept_for_a_year_and_sent_packed_to_those_who_take_it(server: Server, built: Path) -> None:
    async with server.client() as client:
        packed = await client.get("/assets/main-abc.js", headers={"accept-encoding": "br, gzip;q=0.5"})
        plain = await client.get("/assets/main-abc.js", headers={"accept-encoding": "gzip;q=0, identity"})
        style = await client.get("/assets/page-1.css", headers={"accept-encoding": "gzip"})
    assert (packed.headers["content-encoding"], packed.text) == ("gzip", SCRIPT)
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) == len(SCRIPT)
    assert "content-encoding" not in plain.headers and "content-encoding" not in style.headers
    for answer in (packed, plain, style):
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["vary"] == "accept-encoding"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert packed.headers["content-type"] == "text/javascript; charset=utf-8"
    assert style.headers["content-type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize(
    "name",
    [
        "none.js",
        "index.html",
        "main-abc.js.gz",
        "..%2Fmade-from.js",
        "%2e%2e",
        "made-from",
        ".js",
        "a%00.js",
        "MAIN-ABC.js",
    ],
)
async def test_nothing_but_a_file_of_the_page_is_found(server: Server, built: Path, name: str) -> None:
    async with server.client() as client:
        assert (await client.get(f"/assets/{name}")).status_code in (401, 404)


async def test_a_copy_without_a_page_says_how_it_is_built(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_files, "INDEX", tmp_path / "index.html")
    async with server.client() as client:
        answer = await client.get("/")
    assert answer.status_code == 200 and "<code>make page</code>" in answer.text and "<script" not in answer.text
