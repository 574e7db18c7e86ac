"""Where in a playbook something stands, to show it beside an error."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from refold.cli.output import printable


class Source(Struct, frozen=True):
    """A playbook's text with the places of what it says; `places` has paths such as `steps.fetch`."""

    file: str = ""
    lines: Sequence[str] = ()
    places: Mapping[str, tuple[int, int]] = {}

    def of_step(self, step: str) -> list[str]:
        """Its position, and the line; nothing if the playbook is not at hand."""
        place = self.places.get(f"steps.{step}")
        if place is None:
            return []
        line, column = place
        shown = [f"{self.file}:{line}:{column}"]
        if 0 < line <= len(self.lines):
            shown.append(f"{line} | {printable(self.lines[line - 1].rstrip())}")
        return shown


NOWHERE = Source()
