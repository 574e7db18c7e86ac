"""Every package that an installation can bring is pinned with its hashes, and its licence is known."""

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.make_constraints import ENVIRONMENT_TOOLS, Found, needed, package, written
from tests.pins import BUILD_FILE, FILE, LICENCES, PIN, ROOT, TARGETS, Target, read_pins

WANTED = written()
PINS = read_pins(FILE)
BUILD_PINS = read_pins(BUILD_FILE)


INSTALLED: dict[str, Found] = {canonicalize_name(each.name): package(each.metadata.json) for each in distributions()}
ALL_PINS = {**BUILD_PINS, **PINS}
KNOWN = {name: Found(name, version, "", ()) for name, version in ALL_PINS.items()} | {
    name: each for name, each in INSTALLED.items() if name in ALL_PINS
}
"""What is installed, and what only other platforms need: of that nothing is known but its pin."""


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("extra", [each for each in WANTED if each != "build"])
def test_all_that_an_extra_needs_is_pinned(extra: str, target: Target) -> None:
    found = {name: each for name, each in KNOWN.items() if name in PINS}
    result = needed({extra: WANTED[extra]}, found, target)
    assert (result.missing, result.names - PINS.keys()) == (set(), set())


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_all_that_the_environment_is_made_with_is_pinned(target: Target) -> None:
    found = {name: each for name, each in KNOWN.items() if name in BUILD_PINS}
    result = needed({"build": WANTED["build"]}, found, target)
    assert (result.missing, result.names) == (set(), set(BUILD_PINS))


def test_nothing_is_pinned_that_nobody_needs() -> None:
    names = set().union(*(needed(WANTED, KNOWN, target).names for target in TARGETS))
    assert names == PINS.keys() | BUILD_PINS.keys()


@pytest.mark.parametrize("file", [FILE, BUILD_FILE], ids=lambda file: file.name)
def test_every_pin_has_hashes_and_every_line_belongs_to_a_pin(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert [each["name"] for each in PIN.finditer(text) if "--hash=sha256:" not in each["hashes"]] == []
    assert re.sub(r"^#.*\n", "", PIN.sub("", text), flags=re.M).strip() == ""
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in re.findall(r"--hash=(\S+)", text))


def test_pins_are_within_the_ranges_of_the_project() -> None:
    ranges = [Requirement(text) for group in WANTED.values() for text in group]
    wrong = [str(each) for each in ranges if not each.specifier.contains(ALL_PINS[canonicalize_name(each.name)])]
    assert wrong == []


def test_the_two_files_agree() -> None:
    assert {name for name in PINS.keys() & BUILD_PINS.keys() if PINS[name] != BUILD_PINS[name]} == set()
    assert BUILD_PINS.keys() - PINS.keys() == set(ENVIRONMENT_TOOLS)


def test_pins_hold_on_the_platforms_that_need_them_and_on_no_other() -> None:
    """A package that some platforms lack has a marker, and the marker says which do not."""
    wanted = {group: each for group, each in WANTED.items() if group != "build"}
    users = {str(target): needed(wanted, KNOWN, target).names for target in TARGETS}
    for each in PIN.finditer(FILE.read_text(encoding="utf-8")):
        name = canonicalize_name(each["name"])
        marker = None if each["marker"] is None else Marker(each["marker"])
        for target in TARGETS:
            is_needed = name in users[str(target)]
            assert is_needed == (marker is None or marker.evaluate(dict(target.markers))), (name, str(target))


def test_the_environment_is_made_of_pinned_wheels_alone() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\n$(READY):")[2]
    installs = re.findall(r"\$\((?:PIP|PINNED)\).*", recipe)
    assert installs == [
        "$(PINNED) constraints-build.txt",
        "$(PINNED) constraints.txt",
        "$(PIP) --no-deps --no-build-isolation --editable .",
    ]
    assert "PINNED := $(PIP) --require-hashes --only-binary :all: --requirement\n" in (ROOT / "Makefile").read_text()


def test_the_page_of_licences_names_every_package_as_it_is_pinned() -> None:
    rows = re.findall(r"^\| (\S+) \| (\d\S*) \| ([^|]+) \| [^|]+ \|$", LICENCES.read_text(encoding="utf-8"), re.M)
    listed: dict[str, tuple[str, str]] = {canonicalize_name(name): (version, named) for name, version, named in rows}
    assert {name: version for name, (version, _) in listed.items()} == ALL_PINS
    for name, each in INSTALLED.items():
        if ALL_PINS.get(name) == each.version:
            assert listed[name][1] == each.licence != "", name
