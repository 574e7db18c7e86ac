"""Durations as people write them."""

from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.core.plan import LONGEST
from refold.core.times import seconds, show
from refold.errors import InvalidValue


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1d", 86400.0),
        ("1w", 604800.0),
        ("1d2h3m4s5ms", 93784.005),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        ("0s", 0.0),
        ("90", 90.0),
        ("0.5", 0.5),
        (" 30s ", 30.0),
        ("PT5M", 300.0),
        ("PT1H30M", 5400.0),
        ("P1DT12H", 129600.0),
        ("P2W", 1209600.0),
        ("PT0.25S", 0.25),
        (30, 30.0),
        (0.25, 0.25),
        (0, 0.0),
        (LONGEST, LONGEST),
    ],
)
def test_a_duration_is_read(written: Any, meant: float) -> None:
    assert seconds(written) == pytest.approx(meant, rel=1e-12)


NO_UNITS = ["", "s", "5M", "5S", "1e3", "inf", "nan", "1" * 100, "4" * 30, "٣s", "{{ x }}"]
BADLY_PUT = ["5 minutes", "1m1h", "1m1m", "-5s", "5s5", "1h 30m", "1,5h", "5s\n5s", "36501d"]
NO_ISO = ["P", "PT", "P1DT", "P1Y", "P1M", "pt5m"]
NO_NUMBERS = [-1, float("nan"), float("inf"), LONGEST * 2, True, None, [1], {"s": 1}]


@pytest.mark.parametrize("written", [*NO_UNITS, *BADLY_PUT, *NO_ISO, *NO_NUMBERS], ids=repr)
def test_what_is_no_duration_is_refused(written: Any) -> None:
    with pytest.raises(InvalidValue, match="no duration"):
        seconds(written)


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (0.0005, "0.5ms"),
        (1, "1s"),
        (2.5, "2.5s"),
        (59.9999999, "1m"),
        (60, "1m"),
        (5400, "1h30m"),
        (86400, "1d"),
        (93784.5, "1d2h3m4.5s"),
    ],
)
def test_a_duration_is_shown_in_the_units_that_fit_it(span: float, shown: str) -> None:
    assert show(span) == shown


@for_all(st.floats(0, LONGEST))
def test_what_is_shown_is_read_back(span: float) -> None:
    assert seconds(show(span)) == pytest.approx(span, abs=1e-6)
