"""The keys of files of `kind: Schedule` and `kind: Calendar`."""

from collections.abc import Mapping

from refold.playbooks.language.tables import Key, Table

SCHEDULE = Table(
    "schedule",
    "a schedule",
    "When a workflow is started, and what happens when its times overlap or are missed.",
    (
        Key(
            name="apiVersion",
            type="text",
            required=True,
            choices=("refold/v1",),
            example="refold/v1",
            about="the language that the file is written in",
        ),
        Key(name="kind", type="text", required=True, choices=("Schedule",), example="Schedule", about="what it is"),
        Key(
            name="metadata",
            type="table",
            of="schedule.metadata",
            required=True,
            example="{name: nightly}",
            about="its name and description",
        ),
        Key(
            name="workflow",
            type="text",
            required=True,
            example="report.yaml",
            about="what starts: a playbook, relative to this file, or a Python workflow `module:Class`",
        ),
        Key(
            name="input",
            type="map",
            example='{day: "{{ schedule.planned | format_time }}"}',
            about="the inputs of the runs; templates can read `schedule.id`, `.planned`, `.previous` and `.backfill`",
        ),
        Key(name="labels", type="labels", example="{team: data}", about="labels of the runs, at most 14"),
        Key(
            name="cron",
            type="any",
            example='"30 2 * * *"',
            about="a line of cron, or a list: 5 fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`",
        ),
        Key(name="every", type="duration", example="20s", about="an interval of real time, at least 1 s"),
        Key(
            name="at",
            type="any",
            example='["2026-12-24T18:00:00+01:00"]',
            about="single moments, in ISO format with a zone",
        ),
        Key(name="zone", type="text", example="Europe/Berlin", about="the zone of the clock, by its IANA name (UTC)"),
        Key(
            name="from",
            type="text",
            example="2026-01-01T00:00:00Z",
            about="no time is before it, and intervals are counted from it (1970-01-01T00:00:00Z)",
        ),
        Key(name="until", type="text", example="2027-01-01T00:00:00Z", about="no time is after it"),
        Key(name="except", type="any", example="[holidays]", about="calendars whose days do not count"),
        Key(name="only", type="any", example="[bank_days]", about="calendars of which one must have the day"),
        Key(
            name="gap",
            type="text",
            choices=("shift", "skip"),
            example="shift",
            about="a time that the clock skips comes at the first moment after the gap (`shift`) or not at all",
        ),
        Key(
            name="repeat",
            type="text",
            choices=("first", "second", "both"),
            example="first",
            about="when a time comes that the clock shows twice; the default is the first time",
        ),
        Key(
            name="overlap",
            type="text",
            choices=("skip", "buffer_one", "buffer_all", "allow", "cancel_other", "terminate_other"),
            example="skip",
            about="what happens to a time while a run of the schedule is not over (`skip`)",
        ),
        Key(
            name="catch_up",
            type="any",
            example="{policy: all, within: 24h, most: 100}",
            about="times that were missed because nobody served: `none`, `last` (the default) or `all`; as a map also"
            " how old they may be (24h) and how many `all` starts (100)",
        ),
        Key(
            name="jitter",
            type="duration",
            example="10m",
            about="a run starts up to so much later, the same for the same time, and before the next time",
        ),
        Key(name="start_within", type="duration", example="1h", about="a start that is later than this is missed"),
        Key(
            name="pause_after",
            type="integer",
            least=1,
            most=1000,
            example="3",
            about="failed runs in a row after which the schedule pauses itself",
        ),
        Key(name="paused", type="bool", example="true", about="no times are taken while it is true"),
        Key(name="note", type="text", example="until the move is done", about="why it is paused"),
    ),
    {
        "schedule": "write `cron`, `every` or `at` at the top of the file",
        "timezone": "write `zone`",
        "tz": "write `zone`",
        "interval": "write `every`",
        "playbook": "write `workflow`",
        "inputs": "write `input`",
        "start": "write `from`",
        "end": "write `until`",
        "name": "write `metadata: {name: …}`",
    },
)

METADATA = Table(
    "schedule.metadata",
    "metadata",
    "The name of the schedule, and information for people.",
    (
        Key(
            name="name",
            type="playbook name",
            required=True,
            example="nightly",
            about="letters, digits, `_`, `.` and `-`",
        ),
        Key(name="description", type="text", example="The report of the day.", about="a sentence for people"),
        Key(name="tags", type="texts", example="[daily]", about="words for people"),
    ),
)

CATCH_UP = Table(
    "catch_up",
    "catch_up",
    "What is done about times that were missed because nobody served.",
    (
        Key(
            name="policy",
            type="text",
            required=True,
            choices=("none", "last", "all"),
            example="all",
            about="which of them start",
        ),
        Key(name="within", type="duration", example="24h", about="how old a time may be; at most 31 days"),
        Key(name="most", type="integer", least=1, most=1000, example="100", about="how many `all` starts"),
    ),
)

CALENDAR = Table(
    "calendar",
    "a calendar",
    "A list of days, which schedules name in `except` and `only`.",
    (
        Key(
            name="apiVersion",
            type="text",
            required=True,
            choices=("refold/v1",),
            example="refold/v1",
            about="the language that the file is written in",
        ),
        Key(name="kind", type="text", required=True, choices=("Calendar",), example="Calendar", about="what it is"),
        Key(
            name="metadata",
            type="table",
            of="schedule.metadata",
            required=True,
            example="{name: holidays}",
            about="its name and description",
        ),
        Key(name="days", type="any", required=True, example="[2026-12-25, 2026-12-26]", about="the days"),
    ),
)

SCHEDULE_TABLES: Mapping[str, Table] = {table.name: table for table in (SCHEDULE, METADATA, CATCH_UP, CALENDAR)}
