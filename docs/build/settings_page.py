"""The reference of settings, from the classes that have them: `python -m docs.build.settings_page` prints it."""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from refold.cli.settings import OTHER_VARIABLES, CommandSettings
from refold.settings import Settings, variable

HEAD = """\
# All settings

This page is printed from the source, by `python -m docs.build.settings_page`; do not edit it.

A key is written in [`refold.toml`](../howto/settings.md), or its variable is set in the environment, which wins. Lists
are separated by commas or spaces in the environment. Values of `true` and `false` are written so. An empty variable is
the same as none. `refold settings` prints what is in force.
"""

DIFFERENT = {
    "retention": "all are kept",
    "private_addresses": "`false`; `true` for commands, which run on your own machine",
}


def page() -> str:
    return "\n".join(
        [
            HEAD,
            *_table("What commands use", CommandSettings),
            *_table("What an engine and its worker use", Settings),
            *_others(),
        ]
    )


def _table(title: str, kind: Any) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | variable | default | meaning |"
    yield "| --- | --- | --- | --- |"
    abouts = comments(kind)
    for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True):
        shown = DIFFERENT.get(name) or _default(default)
        yield f"| `{name}` | `{variable(name)}` | {shown} | {abouts[name]} |"
    yield ""


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value in ("", None, ()) else f"`{value:,}`" if isinstance(value, int | float) else f"`{value}`"


def comments(kind: Any) -> dict[str, str]:
    """Return the comment behind each field of a class."""
    lines = [line.strip() for line in inspect.getsource(kind).splitlines()]
    fields = [(line.partition(":")[0], line.partition("  # ")[2]) for line in lines]
    return {name: about for name, about in fields if name in kind.__struct_fields__}


def _others() -> Iterator[str]:
    yield "## Other variables\n"
    yield "| variable | meaning |"
    yield "| --- | --- |"
    for name, about in OTHER_VARIABLES.items():
        yield f"| `{name}` | {about} |"
    yield "| `NO_COLOR`, `FORCE_COLOR` | colours are never, or always used. `NO_COLOR` wins |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
