"""Time zones by their IANA names, and which rules of zones are in use."""

import os
from functools import lru_cache
from zoneinfo import ZoneInfo

from refold.errors import InvalidValue


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Raises InvalidValue if there is no zone of this name."""
    try:
        if name and name.lower() != "local":
            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        pass  # answered below
    raise InvalidValue("zone", f"{name!r} is not the IANA name of a time zone; {_hint(name)}")


def _hint(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    near = get_close_matches(name[:40], available_timezones(), 1, 0.8)
    return f"did you mean {near[0]}?" if near else "for example Europe/Berlin or UTC"


def zone_rules() -> str:
    """Return the version of the rules of zones that are in use: those of the system, or of the package `tzdata`."""
    from zoneinfo import TZPATH

    for folder in TZPATH:
        try:
            with open(os.path.join(folder, "tzdata.zi"), encoding="ascii") as file:
                return f"{file.readline().removeprefix('# version').strip()} (system)"
        except OSError:
            if os.path.exists(os.path.join(folder, "UTC")):
                return "of the system"
    from importlib.metadata import version

    return f"{version('tzdata')} (package tzdata)"
