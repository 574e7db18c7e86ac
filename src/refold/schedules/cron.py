"""Lines of cron: what is wrong with one, and the wall-clock times that it names, without any zone."""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

FIELDS = ("minute", "hour", "day of month", "month", "day of week")
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
LONGEST = 200  # characters of a line
NO_MATCH = "it names no time that ever comes"
BEGIN = datetime.fromisoformat("2024-01-01")  # without a zone


class CronFlaw(Struct, frozen=True):
    """What is wrong with a line, and the characters of it that are meant."""

    message: str
    hint: str = ""
    start: int = 0
    length: int = 1


def cron_flaw(line: str) -> CronFlaw | None:
    """Return what is wrong with a line, or None."""
    if len(line) > LONGEST:
        return CronFlaw(f"a line of cron has at most {LONGEST} characters", length=len(line))
    if line.startswith("@"):
        hint = f"known: {', '.join(SHORT)}; `every: 10m` counts real time"
        return None if line in SHORT else CronFlaw(f"{line!r} is not a line of cron", hint, 0, len(line))
    words = _words(line)
    if len(words) == 6:
        hint = "a field for seconds does not exist here; `every: 20s` counts seconds"
        return CronFlaw("this line of cron has 6 fields, and there are 5", hint, length=len(line))
    if len(words) != 5:
        hint = "minute, hour, day of month, month, day of week: for example `30 2 * * *`"
        return CronFlaw(f"a line of cron has 5 fields, not {len(words)}", hint, length=max(len(line), 1))
    return _bad_field(words) or _never(line)


def cron_warning(line: str) -> str:
    """Return what a line means that people may not expect, or an empty text."""
    words = SHORT.get(line, line).split()
    if len(words) == 5 and not any(word.startswith("*") for word in (words[2], words[4])):
        return "day of month and day of week are both restricted: a day fits if one of them does, as in cron"
    return ""


def is_hourly(line: str) -> bool:
    """Whether a line names every hour: then it follows real time where the clock changes."""
    from cronsim.cronsim import Field

    return set(range(24)) <= set(Field.HOUR.parse(SHORT.get(line, line).upper().split()[1]))


def wall_times(line: str, after: datetime) -> Iterator[datetime]:
    """Yield the times after this one that a line names, on a clock that never changes."""
    from cronsim import CronSim

    return CronSim(SHORT.get(line, line), after)


def _words(line: str) -> list[tuple[int, str]]:
    words: list[tuple[int, str]] = []
    at = 0
    for word in line.split():
        at = line.index(word, at)
        words.append((at, word))
        at += len(word)
    return words


def _bad_field(words: list[tuple[int, str]]) -> CronFlaw | None:
    from cronsim import CronSimError
    from cronsim.cronsim import Field

    for (start, word), name, field in zip(words, FIELDS, list(Field)[1:], strict=True):
        try:
            field.parse(word.upper())
        except (CronSimError, ValueError, AssertionError, TypeError):
            return CronFlaw(f"{word!r} does not name a {name}", _EXAMPLES[name], start, len(word))
    return None


_EXAMPLES = {
    "minute": "0 to 59, for example `0`, `0,30`, `*/15`",
    "hour": "0 to 23, for example `2`, `8-18`, `*/2`",
    "day of month": "1 to 31, `L` (the last day) or `LW` (the last weekday), for example `1`, `1,15`",
    "month": "1 to 12 or JAN to DEC, for example `*/3`",
    "day of week": "0 to 7 (0 and 7 are Sunday) or SUN to SAT, for example `MON-FRI`, `MON#2`, `5L`",
}


def _never(line: str) -> CronFlaw | None:
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(line, BEGIN))
    except (CronSimError, StopIteration):
        return CronFlaw(NO_MATCH, "for example 30 February does not exist", length=len(line))
    return None
