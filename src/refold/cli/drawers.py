"""How progress is written down: not at all, as lines for people, as objects for machines."""

import sys
from typing import Protocol

from msgspec import json

from refold.cli import out
from refold.cli.changes import Changes
from refold.cli.source import Source
from refold.core.progress import Progress


class Drawer(Protocol):
    """Raises OSError when nobody looks any more."""

    def draw(self, progress: Progress) -> None: ...

    def say(self, line: str) -> None: ...

    def end(self, progress: Progress | None) -> None:
        """The last frame, which stays."""


class Silent:
    """Messages, and nothing else."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def draw(self, progress: Progress) -> None:
        pass

    def say(self, line: str) -> None:
        write(line)

    def end(self, progress: Progress | None) -> None:
        pass


class Lines(Silent):
    """One line for each change."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.changes = Changes(source)

    def draw(self, progress: Progress) -> None:
        for line in self.changes.lines(progress):
            write(line)

    def end(self, progress: Progress | None) -> None:
        if progress is not None:
            self.draw(progress)


class JsonLines(Lines):
    """One object for each change, on a line."""

    def draw(self, progress: Progress) -> None:
        for each in self.changes.objects(progress):
            _write(out.harmless_json(json.encode(each).decode()))

    def say(self, line: str) -> None:
        _write(out.harmless_json(json.encode({"message": line}).decode()))


def write(line: str) -> None:
    _write(out.harmless(line))


def _write(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
