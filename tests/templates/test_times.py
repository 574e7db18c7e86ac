"""Filters of times."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from tests.templates.views import value

NIGHT = "'2026-03-28T21:00:00Z'"  # in Berlin the clock goes forward a few hours later


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{NIGHT} | add_time(days=1, hours=-2)", "2026-03-29T19:00:00Z"),
        (f"{NIGHT} | add_time('Europe/Berlin', days=1)", "2026-03-29T22:00:00+02:00"),
        (f"{NIGHT} | add_time('Europe/Berlin', hours=24)", "2026-03-29T23:00:00+02:00"),
        ("'2026-03-28T02:30:00+01:00' | add_time('Europe/Berlin', days=1)", "2026-03-29T03:30:00+02:00"),
        ("'2026-01-31' | add_time(months=1)", "2026-02-28"),
        ("'2024-02-29' | add_time(years=1)", "2025-02-28"),
        ("'2026-01-31' | add_time(months=-13)", "2024-12-31"),
        ("'2026-03-01' | add_time(weeks=2, days=-1)", "2026-03-14"),
        (f"{NIGHT} | start_of('day')", "2026-03-28T00:00:00Z"),
        (f"{NIGHT} | start_of('day', 'Asia/Tokyo')", "2026-03-29T00:00:00+09:00"),
        (f"{NIGHT} | start_of('week')", "2026-03-23T00:00:00Z"),
        (f"{NIGHT} | start_of('year')", "2026-01-01T00:00:00Z"),
        ("'2026-03-28T21:47:12.5Z' | start_of('hour')", "2026-03-28T21:00:00Z"),
        ("'2026-03-28T21:47:12.5Z' | start_of('minute')", "2026-03-28T21:47:00Z"),
        ("'2026-03-28' | start_of('week')", "2026-03-23"),
        (f"{NIGHT} | format_time", "2026-03-28"),
        (f"{NIGHT} | format_time('%H:%M %z', 'America/New_York')", "17:00 -0400"),
        (f"{NIGHT} | format_time('%a %A %b %B %d %y %j %u')", "Sat Saturday Mar March 28 26 087 6"),
        (f"{NIGHT} | format_time('%G-W%V %I%p %S.%f %%')", "2026-W13 09PM 00.000000 %"),
        ("'2026-03-28T21:00:00.25Z' | in_zone('UTC')", "2026-03-28T21:00:00.250000Z"),
        ("86400 | in_zone('UTC')", "1970-01-02T00:00:00Z"),
        (f"{NIGHT} | unix_time", 1774731600),
    ],
)
def test_filters_of_times_give_these_values(expression: str, expected: Any) -> None:
    assert value(f"{{{{ {expression} }}}}") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'2026-03-28T21:00:00' | in_zone('UTC')", "a time with a zone"),
        ("'soon' | format_time", "a time with a zone"),
        ("none | format_time", "a time with a zone"),
        (f"{NIGHT} | in_zone('Europe/Berln')", "did you mean Europe/Berlin"),
        (f"{NIGHT} | in_zone('local')", "IANA name"),
        (f"{NIGHT} | format_time('%Q')", "%Q is not a part"),
        (f"{NIGHT} | format_time('50%')", "is not a part"),
        ("'2026-03-28' | format_time('%H')", "a date has no %H"),
        ("'2026-03-28' | add_time(hours=1)", "a date has no hours"),
        (f"{NIGHT} | add_time(fortnights=1)", "no `fortnights`"),
        (f"{NIGHT} | add_time(days='1')", "is a number"),
        (f"{NIGHT} | add_time(years=9000)", "too far away"),
        (f"{NIGHT} | start_of('decade')", "one of year, month"),
    ],
)
def test_filters_of_times_refuse(expression: str, expected: str) -> None:
    with pytest.raises(CannotEvaluate, match=expected):
        value(f"{{{{ {expression} }}}}")
