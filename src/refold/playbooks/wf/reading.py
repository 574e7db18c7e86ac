"""One `.wf` file while it is read: its text, its problems so far, and where to look for what it names."""

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Literal

from refold.playbooks.bindings import Bindings
from refold.playbooks.children import ChildReader
from refold.playbooks.problems import Place, Problem
from refold.playbooks.wf.nodes import Value

MOST_PROBLEMS = 100
NEW_LINE = re.compile("\n")


class TooMany(Exception):
    """There are so many problems that the reading ends."""


class WfReading:
    def __init__(self, source: str, file: str, child_reader: "ChildReader[Any]", bindings: Callable[[], Bindings]):
        self.source, self.file, self.child_reader = source, file, child_reader
        self.problems: list[Problem] = []
        self.unbound: list[Problem] = []
        self.unbound_in_children: list[Problem] = []  # told with the errors of this file: all names at once
        self.inputs: list[str] = []  # that the file declares
        self._find_bindings = bindings
        self._bindings: Bindings | None = None
        self._lines: list[int] | None = None

    @property
    def bindings(self) -> Bindings:
        """Who answers for names; looked up when the first name needs it."""
        if self._bindings is None:
            self._bindings = self._find_bindings()
        return self._bindings

    def place(self, at: int) -> Place:
        if self._lines is None:
            self._lines = [0, *(found.end() for found in NEW_LINE.finditer(self.source))]
        line = bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)

    def report(
        self,
        code: str,
        message: str,
        at: int,
        end: int,
        hint: str = "",
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        self.problems.append(self.problem(code, message, at, end, hint, severity))
        if len(self.problems) > MOST_PROBLEMS:
            raise TooMany

    def problem(
        self, code: str, message: str, at: int, end: int, hint: str, severity: Literal["error", "warning"]
    ) -> Problem:
        cut = self.source.find("\n", at, end)
        return Problem(code, message, self.place(at), hint, severity, max(1, (cut if cut >= 0 else end) - at))

    def at(self, value: Value, code: str, message: str, hint: str = "") -> None:
        self.report(code, message, value.at, value.end, hint)

    def warn(self, value: Value, code: str, message: str, hint: str = "") -> None:
        self.report(code, message, value.at, value.end, hint, "warning")

    def failed(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)
