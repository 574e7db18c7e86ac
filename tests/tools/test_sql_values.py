"""Values of databases: each arrives exactly, and only NULL is null."""

import datetime
import uuid
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from refold.core.codec import check_value
from refold.tools.sql.values import json_value, parsed
from tests.tools.databases import Database, opened


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Decimal("100.50"), 100.5),
        (Decimal("123456789012345"), 123456789012345),
        (Decimal("12345678901234567890"), "12345678901234567890"),
        (Decimal("0.1234567890123456"), "0.1234567890123456"),
        (Decimal("1E+20"), 1e20),
        (Decimal("-7.00"), -7),
        (Decimal("0"), 0),
        (Decimal("NaN"), "NaN"),
        (Decimal("-Infinity"), "-Infinity"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
        (2**80, 2**80),
        (b"\x00\xff", "AP8="),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), "2024-02-29T01:02:03.000004+00:00"),
        (datetime.time(1, 2, 3), "01:02:03"),
        (datetime.timedelta(days=1, hours=2, microseconds=5), "P1DT2H0.000005S"),
        (datetime.timedelta(minutes=-90), "-PT1H30M"),
        (datetime.timedelta(), "PT0S"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ((1, {"a": Decimal("1.5"), 2: None}), [1, {"a": 1.5, "2": None}]),
        (True, True),
        (None, None),
        (range(3), "range(0, 3)"),
    ],
)
def test_a_value_becomes_json_without_loss(value: Any, told: Any) -> None:
    assert json_value(value) == told
    assert type(json_value(value)) is type(told)
    check_value(json_value(value))


def test_numbers_in_json_are_as_exact_as_those_of_columns() -> None:
    assert parsed('{"a": 0.5, "b": 0.12345678901234567890}') == {"a": 0.5, "b": "0.12345678901234567890"}


@pytest.fixture
async def duck(tmp_path: Path) -> AsyncIterator[Database]:
    async with opened("duckdb", {}) as database:
        yield database


DUCK: list[tuple[str, Any]] = [
    ("timestamptz '2024-01-02 03:04:05+02'", "2024-01-02T01:04:05+00:00"),
    ("timestamp '2024-01-02 03:04:05.5'", "2024-01-02T03:04:05.5"),
    ("timestamp_ns '2024-01-01 00:00:00.123456789'", "2024-01-01T00:00:00.123456789"),
    ("date 'infinity'", "infinity"),
    ("interval '1 month 2 days'", "1 month 2 days"),
    ("170141183460469231731687303715884105727::hugeint", 2**127 - 1),
    ("1.10::decimal(10, 2)", 1.1),
    ("'a'::blob", "YQ=="),
    ("[date '2024-01-01', null]", ["2024-01-01", None]),
    ("{'a': 1, 'b': interval '1 month'}", {"a": 1, "b": "1 month"}),
    ("map {'k': 1}", {"k": 1}),
    ("'{\"a\": [1, 2.5]}'::json", {"a": [1, 2.5]}),
    ("'nan'::float", "NaN"),
    ("null::date", None),
    ("uuid '00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
]


async def test_every_type_of_duckdb_arrives(duck: Database) -> None:
    columns = ", ".join(sql for sql, _ in DUCK)
    [row] = await duck.rows(f"set timezone = 'UTC'; select {columns}")
    assert dict(zip((sql for sql, _ in DUCK), row, strict=True)) == dict(DUCK)


async def test_what_python_has_no_equal_of_and_duckdb_cannot_tell_is_refused(duck: Database) -> None:
    fault = await duck.fault("create table t (i interval); insert into t values (interval '1 month') returning i")
    assert fault.message == "DuckDB has no exact form for a type of this result; cast it to VARCHAR"


POSTGRES: list[tuple[str, Any]] = [
    ("timestamptz '2024-01-02 03:04:05.5+02' at time zone 'UTC'", "2024-01-02T01:04:05.5"),
    ("timestamp 'infinity'", "infinity"),
    ("timestamp '0044-03-15 12:00:00 BC'", "0044-03-15T12:00:00 BC"),
    ("date '2024-01-02'", "2024-01-02"),
    ("timetz '01:02:03+02'", "01:02:03+02:00"),
    ("time '01:02:03.5'", "01:02:03.5"),
    ("interval '1 month 2 days'", "P1M2D"),
    ("1.10::numeric", 1.1),
    ("12345678901234567890.123::numeric", "12345678901234567890.123"),
    ("'NaN'::numeric", "NaN"),
    ("'a'::bytea", "YQ=="),
    ("array[date '2024-01-01', null]", ["2024-01-01", None]),
    ("'{\"a\": 1.5}'::jsonb", {"a": 1.5}),
    ("'[1]'::json", [1]),
    ("'-infinity'::float8", "-Infinity"),
    ("'10.0.0.1'::inet", "10.0.0.1"),
    ("uuid '00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    ("point(1, 2)", "(1,2)"),
    ("true", True),
    ("2::bigint ^ 2", 4.0),
]


async def test_every_type_of_postgres_arrives(postgres: str) -> None:
    columns = ", ".join(sql for sql, _ in POSTGRES)
    async with opened("postgres", {"url": postgres}) as database:
        [row] = await database.rows(f"select {columns}")
        [[moment]] = await database.rows("set local timezone = 'UTC'; select timestamptz '2024-01-02 03:04:05+02'")
    assert dict(zip((sql for sql, _ in POSTGRES), row, strict=True)) == dict(POSTGRES)
    assert moment == "2024-01-02T01:04:05+00:00"
