"""Formats times, durations and reasons for people at a terminal, in their time zone."""

import time
from datetime import datetime

from refold.core import times
from refold.core.outcomes import SECOND, Instant
from refold.core.read.why import Reason
from refold.core.read.why_text import KINDS as KINDS
from refold.core.read.why_text import span as span
from refold.core.read.why_text import took as took
from refold.core.read.why_text import why_text


def now() -> Instant:
    return time.time_ns() // 1000


def stamp(at: Instant) -> str | None:
    """Format a time for programs; None if it has not happened."""
    return times.stamp(at) if at else None


def moment(at: Instant) -> str:
    """Format a time for people, in their time zone."""
    if not at:
        return ""
    try:
        return datetime.fromtimestamp(at / SECOND).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return times.stamp(at)  # the year is beyond the machine's calendar


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def until(at: Instant, now: Instant) -> str:
    """Format a future time and how long it is from now."""
    if at <= now:
        return f"{clock(at, now)} (due)"
    return f"{clock(at, now)} (in {took(now, at)})"


def clock(at: Instant, now: Instant) -> str:
    """Format the time of day, with the date if it is not today."""
    shown, today = moment(at), moment(now)
    return shown[11:] if shown[:10] == today[:10] else shown


def why(reason: Reason, now: Instant) -> str:
    """Return a reason in words, with times in the zone of the user."""
    return why_text(reason, now, clock)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 run` and `2 runs`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
