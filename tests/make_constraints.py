"""Pins every package that Refold and its extras need, with hashes, and lists their licences: `make lock`.

Writes constraints.txt, constraints-build.txt and docs/reference/licences.md. Pins that still fit stay as they are;
`make lock UPGRADE=1` takes the newest versions. The index is the one that pip is configured for.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.pins import BUILD_FILE, FILE, LICENCES, ROOT, TARGETS, Target, read_pins

if TYPE_CHECKING:
    from packaging.requirements import Requirement

ENVIRONMENT_TOOLS = ("pip", "setuptools")  # what `python -m venv` brings in old versions

ABOUT = """\
# {what}. Made by `make lock` from the ranges in pyproject.toml.
# The hashes are those of the wheels for CPython {pythons} on {systems}.
"""

PAGE = """\
# Licences

The packages that Refold needs, with the licences that their own metadata names. Made by `make lock`; the versions are
those that are tested, and `constraints.txt` pins them.

What the column *needed for* says: `refold` is needed always; the others are extras (`pip install 'refold[postgres]'`);
`dev` is for work on Refold itself, and *environment* is what installs it. What is for `dev` or the environment alone is
no part of an installation.

| package | version | licence | needed for |
| --- | --- | --- | --- |
"""


class Found(NamedTuple):
    """A package as pip would install it."""

    name: str
    version: str
    licence: str
    requires: tuple[str, ...]


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        lock(upgrade="--upgrade" in sys.argv)
        return
    with tempfile.TemporaryDirectory() as folder:  # the newest pip, and nothing of the caller's
        venv.create(folder, with_pip=True)
        python = os.path.join(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "-q", "--upgrade", "pip", "packaging"], check=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [python, "-m", "tests.make_constraints", "--inside", *sys.argv[1:]]
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


def lock(upgrade: bool) -> None:
    """Inside an environment with a new pip, whose view of the index this takes, and what reads versions and markers."""
    wanted = written()
    everything = [each for group in wanted.values() for each in group]
    kept = [] if upgrade else fitting(read_pins(FILE, BUILD_FILE), everything)
    found = resolved(everything, kept)
    for _ in range(10):  # what other platforms need besides, with all that it needs
        missing = {text for target in TARGETS for text in needed(wanted, found, target).missing}
        if not missing:
            break
        found = resolved([*everything, *sorted(missing)], kept)
    else:
        sys.exit(f"no end is found to what other platforms need: {sorted(missing)}")
    hashes = {name: wheels(each) for name, each in found.items()}
    report_gaps(wanted, found, hashes)
    build = set().union(*(needed({"build": wanted["build"]}, found, target).names for target in TARGETS))
    write(BUILD_FILE, "What the environment is made with", build, wanted, found, hashes)
    write(FILE, "All that Refold and its extras need", set(found) - own_tools(), wanted, found, hashes)
    write_licences(wanted, found)


def written() -> dict[str, list[str]]:
    """Requirements by what needs them."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    build = [*ENVIRONMENT_TOOLS, *project["build-system"]["requires"]]
    return {"refold": project["project"]["dependencies"], **extras, "build": build}


def own_tools() -> set[str]:
    return {canonical(each) for each in ENVIRONMENT_TOOLS}


def fitting(pins: Mapping[str, str], requirements: Iterable[str]) -> list[str]:
    """Those pins that the ranges of the project still allow."""
    ranges = [requirement(each) for each in requirements]
    refused = {
        canonical(each.name) for each in ranges if not each.specifier.contains(pins.get(canonical(each.name), "0"))
    }
    return [f"{name}=={version}" for name, version in pins.items() if name not in refused]


def resolved(requirements: Sequence[str], kept: Sequence[str]) -> dict[str, Found]:
    """Packages by their canonical names, as pip resolves the requirements here."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = os.path.join(folder, "kept.txt"), os.path.join(folder, "report.json")
        Path(constraints).write_text("\n".join(kept), encoding="utf-8")
        how = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        command = [sys.executable, "-m", "pip", "install", *how, "--report", report, "-c", constraints, *requirements]
        if subprocess.run(command, check=False).returncode:
            sys.exit("pip finds no versions that fit together; `make lock UPGRADE=1` does not keep the old ones")
        installs = json.loads(Path(report).read_text(encoding="utf-8"))["install"]
    packages = [package(each["metadata"]) for each in installs]
    return {canonical(each.name): each for each in packages}


def package(metadata: dict[str, Any]) -> Found:
    return Found(metadata["name"], metadata["version"], licence(metadata), tuple(metadata.get("requires_dist", ())))


def licence(metadata: dict[str, Any]) -> str:
    """The expression, else what the classifiers say, else a short text."""
    if metadata.get("license_expression"):
        return str(metadata["license_expression"])
    prefix = "License :: "
    classifiers = [each for each in metadata.get("classifier", ()) if each.startswith(prefix)]
    named = [each.removeprefix(prefix).removeprefix("OSI Approved :: ") for each in classifiers]
    named = [each for each in named if each != "OSI Approved"]
    text = str(metadata.get("license") or "").strip()
    return ", ".join(named) or (text if text and "\n" not in text else "")


class Needed(NamedTuple):
    names: set[str]
    missing: set[str]  # requirements that nothing was found for


def needed(wanted: Mapping[str, Iterable[str]], found: Mapping[str, Found], target: Target) -> Needed:
    """What these requirements come to on a platform."""
    names: set[str] = set()
    missing: set[str] = set()
    todo = [(requirement(text), frozenset({""})) for group in wanted.values() for text in group]
    done: set[tuple[str, str]] = set()
    while todo:
        each, extras = todo.pop()
        marker = each.marker
        if marker is not None and not any(marker.evaluate({**target.markers, "extra": extra}) for extra in extras):
            continue
        name = canonical(each.name)
        if name not in found:
            missing.add(f"{each.name}{each.specifier}")
            continue
        names.add(name)
        asked = frozenset({"", *each.extras})
        for extra in asked:
            if (name, extra) not in done:
                done.add((name, extra))
                todo += [(requirement(text), asked) for text in found[name].requires]
    return Needed(names, missing)


@cache
def requirement(text: str) -> "Requirement":
    from packaging.requirements import Requirement

    return Requirement(text)


def wheels(found: Found) -> dict[str, str]:
    """File name -> hash, of those wheels of this version that one of the platforms can use."""
    from packaging.utils import parse_wheel_filename
    from pip._internal.index.collector import parse_links
    from pip._internal.models.link import Link

    collector = index()
    hashes: dict[str, str] = {}
    for url in collector.search_scope.get_index_urls_locations(found.name):
        page = collector.fetch_response(Link(url))
        for link in () if page is None else parse_links(page):
            if not link.filename.endswith(".whl") or link.hash_name != "sha256":
                continue
            try:
                _, version, _, tags = parse_wheel_filename(link.filename)
            except ValueError:
                continue  # a name from before there were rules
            if str(version) == found.version and any(target.takes(tags) for target in TARGETS):
                hashes[link.filename] = str(link.hash)
    return hashes


_INDEX: list[Any] = []


def index() -> Any:
    """The index as pip sees it, with its configuration, credentials and certificates."""
    from pip._internal.commands import create_command

    if not _INDEX:
        command: Any = create_command("download")
        options, _ = command.parse_args(["--quiet", "pip"])
        with command.main_context():
            session = command._build_session(options)
            _INDEX.append(command._build_package_finder(options, session)._link_collector)
    return _INDEX[0]


def report_gaps(
    wanted: Mapping[str, Iterable[str]], found: Mapping[str, Found], hashes: Mapping[str, Mapping[str, str]]
) -> None:
    """A platform that lacks a wheel could not install anything."""
    from packaging.utils import parse_wheel_filename

    gaps = [
        f"{found[name].name} {found[name].version} has no wheel for {target}"
        for target in TARGETS
        for name in sorted(needed(wanted, found, target).names)
        if not any(target.takes(parse_wheel_filename(each)[3]) for each in hashes[name])
    ]
    if gaps:
        sys.exit("\n".join(gaps))


def write(
    path: Path,
    what: str,
    names: Iterable[str],
    wanted: Mapping[str, Iterable[str]],
    found: Mapping[str, Found],
    hashes: Mapping[str, Mapping[str, str]],
) -> None:
    pythons, systems = (sorted({getattr(each, of) for each in TARGETS}) for of in ("version", "place"))
    lines = [ABOUT.format(what=what, pythons=", ".join(pythons), systems=", ".join(systems)).rstrip()]
    for name in sorted(names):
        pin = f"{found[name].name}=={found[name].version}{where(name, wanted, found)}"
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{each}" for each in sorted(set(hashes[name].values())))]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(lines) - 1} packages")


def where(name: str, wanted: Mapping[str, Iterable[str]], found: Mapping[str, Found]) -> str:
    """A marker, if not every platform needs it."""
    users = [target for target in TARGETS if name in needed(wanted, found, target).names]
    if len(users) == len(TARGETS):
        return ""
    for key in ("python_version", "sys_platform", "platform_machine"):
        values = sorted({target.markers[key] for target in users})
        if users == [target for target in TARGETS if target.markers[key] in values]:
            return " ; " + " or ".join(f'{key} == "{value}"' for value in values)
    return " ; " + " or ".join(f"({target.marker})" for target in users)


def write_licences(wanted: Mapping[str, Iterable[str]], found: Mapping[str, Found]) -> None:
    groups = {"environment" if group == "build" else group: {group: wanted[group]} for group in wanted}
    users = {
        group: set().union(*(needed(each, found, target).names for target in TARGETS)) for group, each in groups.items()
    }
    rows = []
    for name in sorted(found):
        each = found[name]
        if not each.licence:
            sys.exit(
                f"the metadata of {each.name} {each.version} names no licence: look it up, and say so in this file"
            )
        by = [group for group, names in users.items() if name in names]
        rows.append(f"| {each.name} | {each.version} | {each.licence} | {', '.join(by)} |")
    LICENCES.write_text(PAGE + "\n".join(rows) + "\n", encoding="utf-8")
    print(f"{LICENCES.relative_to(ROOT)}: {len(rows)} packages")


@cache
def canonical(name: str) -> str:
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


if __name__ == "__main__":
    main()
