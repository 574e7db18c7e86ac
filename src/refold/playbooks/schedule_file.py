"""Reads files of `kind: Schedule` and `kind: Calendar`, or reports everything that is wrong with them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from typing import Any

from msgspec import Struct

from refold.core import times
from refold.core.outcomes import Instant
from refold.errors import InvalidValue
from refold.names import MOST_LABELS
from refold.playbooks.key_types import READERS
from refold.playbooks.language.schedule import SCHEDULE_TABLES
from refold.playbooks.problems import InvalidPlaybook, Place, Problem, in_order
from refold.playbooks.reader.reading import Fields, Reading, TooMany, cut, kind_of
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.schedules.cron import cron_flaw, cron_warning
from refold.schedules.documents import SCHEDULE_ID, Rules
from refold.schedules.times import When
from refold.templates import problem_of, uses_of
from refold.time_zones import zone_of

KINDS = ("Schedule", "Calendar")
OWN_LABELS = 2  # that Refold gives to the runs of schedules
LONGEST_CATCH_UP = 31 * 86_400.0
PARTS = ("id", "planned", "previous", "backfill")


class ScheduleFile(Struct, frozen=True, kw_only=True):
    """A schedule as a file says it."""

    name: str
    workflow: str
    when: When
    rules: Rules
    input: dict[str, Any] = {}
    labels: dict[str, str] = {}
    paused: bool = False
    note: str = ""
    file: str = ""
    source: str = ""
    warnings: tuple[Problem, ...] = ()
    places: Mapping[str, Place] = {}  # of the workflow and the input


class CalendarFile(Struct, frozen=True, kw_only=True):
    name: str
    days: tuple[date, ...]
    file: str = ""
    source: str = ""
    warnings: tuple[Problem, ...] = ()


def kind_of_file(text: bytes, file: str) -> str:
    """Return the `kind` of a file, or an empty text if it has none that is a text. Raises InvalidPlaybook."""
    root = yaml_text.read(yaml_text.decode(text, file), file)
    kind = root.value.get("kind") if isinstance(root.value, dict) else None
    return kind if isinstance(kind, str) else ""


def read_schedule_file(text: bytes, file: str) -> ScheduleFile | CalendarFile:
    """Raise InvalidPlaybook with every error and warning that was found."""
    source = yaml_text.decode(text, file)
    root = yaml_text.read(source, file)
    reading = Reading(source, SCHEDULE_TABLES, READERS)
    is_calendar = isinstance(root.value, dict) and root.value.get("kind") == "Calendar"
    if not isinstance(root.value, dict):
        reading.table(root, "schedule")  # says what is there instead
        raise InvalidPlaybook(in_order(reading.problems), file, source)
    found: ScheduleFile | CalendarFile | None = None
    with suppress(TooMany):  # a hundred of them are enough to begin with
        found = _calendar(reading, root, file) if is_calendar else _schedule(reading, root, file)
    problems = in_order(reading.problems)
    if found is None or reading.failed():
        raise InvalidPlaybook(problems, file, source)
    return _with_warnings(found, problems)


def _with_warnings(found: ScheduleFile | CalendarFile, problems: tuple[Problem, ...]) -> ScheduleFile | CalendarFile:
    from msgspec import structs

    return structs.replace(found, warnings=problems)


def _calendar(reading: Reading, root: Node, file: str) -> CalendarFile:
    fields = reading.table(root, "calendar")
    days = _each(reading, fields, "days", _day, "a list of days") if "days" in fields.values else ()
    return CalendarFile(name=_name(fields), days=tuple(days), file=file, source=reading.source)


def _schedule(reading: Reading, root: Node, file: str) -> ScheduleFile:
    fields = reading.table(root, "schedule")
    if "input" in fields.values:
        _check_input(reading, fields.node.nodes["input"])
    labels = {name: _label(value) for name, value in fields.get("labels", {}).items()}
    if len(labels) > MOST_LABELS - OWN_LABELS:
        why = f"a schedule gives at most {MOST_LABELS - OWN_LABELS} labels, and these are {len(labels)}"
        reading.at_key(fields.node, "labels", "out-of-range", why, f"{OWN_LABELS} more are given by Refold")
    return ScheduleFile(
        name=_name(fields),
        workflow=fields.get("workflow", ""),
        when=_when(reading, fields),
        rules=_rules(reading, fields),
        input=fields.get("input", {}),
        labels=labels,
        paused=fields.get("paused", False),
        note=fields.get("note", ""),
        file=file,
        source=reading.source,
        places={name: each.place for name, each in fields.node.nodes.items() if name in ("workflow", "input")},
    )


def _label(value: Any) -> str:
    return {True: "true", False: "false", None: ""}[value] if isinstance(value, bool | None) else str(value)


def _name(fields: Fields) -> str:
    metadata = fields.get("metadata")
    return metadata.get("name", "") if isinstance(metadata, Fields) else ""


def _when(reading: Reading, fields: Fields) -> When:
    cron = _lines(reading, fields)
    at = _each(reading, fields, "at", _moment, "a moment, or a list of them") if "at" in fields.values else ()
    every = fields.get("every", 0.0)
    if every and every < 1:
        reading.at(fields.node.nodes["every"], "out-of-range", "`every` is at least 1 s", "for example `every: 20s`")
    if isinstance(fields.node.value, dict) and not {"cron", "every", "at"} & fields.node.nodes.keys():
        hint = 'add `cron: "30 2 * * *"`, `every: 10m` or `at: [2026-12-24T18:00:00Z]`'
        reading.at_place(fields.node.place, "missing-key", "a schedule needs `cron`, `every` or `at`", hint)
    begin, end = _one_moment(reading, fields, "from"), _one_moment(reading, fields, "until")
    if begin is not None and end is not None and end < begin:
        reading.at_key(fields.node, "until", "out-of-range", "`until` is before `from`", "exchange them")
    return When(
        cron=tuple(cron),
        every=every,
        at=tuple(sorted(set(at))),
        zone=_zone(reading, fields),
        anchor=begin or 0,
        starts=begin is not None,
        until=end,
        leave_out=_names(reading, fields, "except"),
        only=_names(reading, fields, "only"),
        gap=fields.get("gap", "shift"),
        repeat=fields.get("repeat", "first"),
    )


def _names(reading: Reading, fields: Fields, key: str) -> tuple[str, ...]:
    return (
        tuple(_each(reading, fields, key, _calendar_name, "a name, or a list of them")) if key in fields.values else ()
    )


def _calendar_name(reading: Reading, node: Node) -> str | None:
    if isinstance(node.value, str) and SCHEDULE_ID.fullmatch(node.value):
        return node.value
    reading.at(node, "bad-name", f"{cut(str(node.value))!r} is not the name of a calendar", "for example `holidays`")
    return None


def _zone(reading: Reading, fields: Fields) -> str:
    zone: str = fields.get("zone", "UTC")
    try:
        zone_of(zone)
    except InvalidValue as error:
        message, _, hint = str(error).removeprefix("zone: ").partition("; ")
        reading.at(fields.node.nodes["zone"], "unknown-zone", message, hint)
        return "UTC"
    return zone


def _lines(reading: Reading, fields: Fields) -> list[str]:
    if "cron" not in fields.values:
        return []
    lines = _each(reading, fields, "cron", _line, "a line of cron, or a list of them")
    return list(dict.fromkeys(lines))


def _line(reading: Reading, node: Node) -> str | None:
    if not isinstance(node.value, str):
        reading.at(node, "bad-cron", f"a line of cron is text, not {kind_of(node.value)}", 'write `cron: "30 2 * * *"`')
        return None
    line = " ".join(node.value.split()) if node.value.strip() else ""
    flaw = cron_flaw(node.value.strip()) if line else cron_flaw("")
    if flaw is not None:
        shift = len(node.value) - len(node.value.lstrip())
        quote = reading.source[node.start.index : node.start.index + 1] in ("'", '"')
        place = node.place
        if place.line == node.place.line:
            place = type(place)(place.line, place.column + int(quote) + shift + flaw.start)
        reading.at_place(place, "bad-cron", flaw.message, flaw.hint, flaw.length)
        return None
    warning = cron_warning(line)
    if warning:
        reading.warn(node, "either-day", warning, "write `*` for one of them, or two lines")
    return line


def _moment(reading: Reading, node: Node) -> Instant | None:
    try:
        if isinstance(node.value, str):
            return times.instant(node.value)
    except ValueError:
        pass  # answered below
    hint = "for example `2026-12-24T18:00:00+01:00`"
    reading.at(node, "bad-moment", f"{cut(str(node.value))!r} is not a moment in ISO format with a zone", hint)
    return None


def _one_moment(reading: Reading, fields: Fields, key: str) -> Instant | None:
    return _moment(reading, fields.node.nodes[key]) if key in fields.values else None


def _day(reading: Reading, node: Node) -> date | None:
    try:
        return date.fromisoformat(str(node.value))
    except ValueError:
        reading.at(node, "bad-day", f"{cut(str(node.value))!r} is not a day", "for example `2026-12-25`")
        return None


def _each(reading: Reading, fields: Fields, key: str, read: Callable[[Reading, Node], Any], wanted: str) -> list[Any]:
    """Read one value, or a list of them."""
    node = fields.node.nodes[key]
    if isinstance(node.value, dict) or node.value in ([], None, ""):
        reading.at(node, "wrong-type", f"`{key}` must be {wanted}, not empty or a map")
        return []
    nodes = list(node.nodes) if isinstance(node.value, list) else [node]
    values = [read(reading, each) for each in nodes]
    return [value for value in values if value is not None]


def _rules(reading: Reading, fields: Fields) -> Rules:
    catch_up, within, most = "last", 86_400.0, 100
    if "catch_up" in fields.values:
        node = fields.node.nodes["catch_up"]
        if isinstance(node.value, dict):
            given = reading.table(node, "catch_up")
            catch_up = given.get("policy", catch_up)
            within, most = given.get("within", within), given.get("most", most)
            if within > LONGEST_CATCH_UP:
                reading.at(node.nodes["within"], "out-of-range", "`within` is at most 31 days", "write `within: 31d`")
        elif node.value in ("none", "last", "all"):
            catch_up = node.value
        else:
            hint = "for example `catch_up: {policy: all, within: 24h}`"
            reading.at(node, "bad-choice", "`catch_up` must be `none`, `last` or `all`, or a map", hint)
    return Rules(
        overlap=fields.get("overlap", "skip"),
        catch_up=catch_up,  # type: ignore[arg-type]
        within=within,
        most=most,
        jitter=fields.get("jitter", 0.0),
        start_within=fields.get("start_within"),
        pause_after=fields.get("pause_after"),
    )


def _check_input(reading: Reading, node: Node) -> None:
    """Check the templates of the inputs: they can read `schedule` alone."""
    for each in templates_in(node):
        problem = problem_of(each.value)
        if problem is not None:
            place = place_inside(reading.source, each, problem.line, problem.column)
            reading.at_place(place, "bad-template", problem.message, problem.hint)
            continue
        for use in uses_of(each.value):
            place = place_inside(reading.source, each, use.line, use.column)
            if use.path[0] != "schedule":
                message = f"`{cut(use.path[0])}` is not defined here"
                reading.at_place(place, "unknown-name", message, "the input of a schedule can read `schedule` alone")
            elif len(use.path) > 1 and use.path[1] not in PARTS:
                from refold.names import did_you_mean

                message = f"there is no `schedule.{cut(use.path[1])}`"
                reading.at_place(place, "unknown-name", message, did_you_mean(use.path[1], PARTS))
