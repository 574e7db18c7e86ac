"""Sources that packages add: found by their entry points, checked, documented and pulled like any other."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.build.sources_page import page
from refold.errors import InvalidValue
from refold.registry import SOURCES, EntryPoints
from refold.sources.catalog import CATALOG, installed_sources
from tests.sources.pulls import Sources, opened

MODULE = """\
from refold.tool_api import Page, Pull, ToolInfo, ToolKey

class Letters:
    text = ToolKey(name="text", type="text", required=True, about="whose letters")
    token = ToolKey(name="token", type="any", secret=True, about="that is asked for")
    info = ToolInfo(kind="letters", about="One letter after the other.", keys=(text, token), result="letters")

    async def __call__(self, pull: Pull) -> Page:
        begin = pull.cursor or 0
        end = begin + pull.most
        text = pull.settings["text"] + str(len(pull.settings.get("token", "")))
        return Page(list(text[begin:end]), end if end < len(text) else None)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "acme_letters.py").write_text(MODULE)
    about = tmp_path / "acme_letters-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-letters\nVersion: 1.0\n")
    points = "[refold.sources]\nletters = acme_letters:Letters\ncsv = acme_letters:Letters\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("acme_letters", None)


async def test_an_added_source_is_pulled_like_any_other(installed: Path) -> None:
    async with opened() as sources:
        assert await sources.all("letters", {"text": "abc"}, 2) == ["a", "b", "c", "0"]
        secret = {"text": "x", "token": {"secret": "api"}}
        assert await sources.all("letters", secret, 1) == ["x", "2", "3"]
        fault = await sources.fault("letters", {"txet": "abc"})
        assert fault.message == "the source letters has no key `txet`; did you mean `text`?"


async def test_it_is_not_there_without_its_package(sources: Sources) -> None:
    assert (await sources.fault("letters", {"text": "abc"})).kind == "no_source"


def test_it_is_documented_with_the_others_and_takes_no_kind_of_refold(installed: Path) -> None:
    catalog = installed_sources()
    assert list(EntryPoints(SOURCES, CATALOG)) == ["letters"]
    assert (list(catalog)[-1], catalog["csv"]) == ("letters", CATALOG["csv"])
    assert "## `letters`\n\nOne letter after the other.\n" in page(catalog)


async def test_one_that_cannot_be_loaded_is_named_with_its_package(installed: Path) -> None:
    (installed / "acme_letters.py").write_text("raise SystemError('broken')")
    why = r"source 'letters' \(acme_letters:Letters of acme-letters\): it cannot be loaded: SystemError: broken"
    with pytest.raises(InvalidValue, match=why):
        installed_sources()["letters"]
    async with opened() as sources:
        fault = await sources.fault("letters", {"text": "abc"})
        assert fault.kind == "no_source" and "acme-letters" in fault.message
