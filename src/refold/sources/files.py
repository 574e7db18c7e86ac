"""Files as sources read them: from a position on, and only while they are unchanged since the first page."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, BinaryIO
from zlib import crc32

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.sources.settings import did_you_mean
from refold.tool_api import refused, type_name

LONGEST = 16 * 1024 * 1024  # bytes of a line
PAGE = 8 * 1024 * 1024  # bytes of a file after which a page is full, whatever it holds
HEAD = 4096  # bytes by which a file is known again


def located(settings: Mapping[str, Any], key: str = "path") -> str:
    """Return the path of a file, relative to the folder of the playbook, or to the working directory."""
    path: str = settings[key]
    if not path or "\0" in path:
        raise refused(f"`{key}` must be the path of a file, not {path!r}")
    if "://" in path:
        raise refused(f"`{key}` is a file, and {path!r} is an address; the source http reads one")
    return os.path.join(os.path.abspath(settings.get("folder") or "."), path)


def opened(path: str) -> BinaryIO:
    """Open a file. Raises ToolFailed."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise refused(f"{path} cannot be read: {error.strerror or error}", "storage_access") from None


def mark_of(path: str, file: BinaryIO) -> str:
    """Return a mark that changes with the file: its size, its time of change, and a checksum of its start."""
    found = os.fstat(file.fileno())
    file.seek(0)
    head = crc32(file.read(HEAD))
    return f"{found.st_size}-{found.st_mtime_ns}-{head:08x}"


def begun(cursor: Any, path: str, mark: str) -> Mapping[str, Any]:
    """Return the position that a cursor means. Raises ToolFailed if the file has changed since."""
    if cursor is None:
        return {}
    if not isinstance(cursor, Mapping) or not isinstance(cursor.get("at"), int):
        raise refused(f"{cursor!r} is not a cursor of this source", "bad_cursor")
    if cursor.get("file") != mark:
        why = f"{path} has changed since its first page was read, so that no place in it is what it was"
        hint = "do not change it while the loop is running, or read a copy"
        raise ToolFailed(Fault("source_changed", f"{why}; {hint}", retryable=False))
    return cursor


class Lines:
    """The lines of a file from a position on.

    It has the position of the next line, and the number of lines before it.
    """

    def __init__(self, file: BinaryIO, path: str, at: int = 0, line: int = 0) -> None:
        file.seek(at)
        self._file, self.path, self.at, self.line = file, path, at, line

    def __iter__(self) -> Iterator[bytes]:
        while raw := self._file.readline(LONGEST + 1):
            self.line += 1
            if len(raw) > LONGEST:
                raise self.wrong(f"it has more than {LONGEST >> 20} MiB")
            self.at += len(raw)
            yield raw.removeprefix(b"\xef\xbb\xbf") if self.at == len(raw) else raw

    @property
    def over(self) -> bool:
        return self.at >= os.fstat(self._file.fileno()).st_size

    def wrong(self, why: str) -> ToolFailed:
        return refused(f"{self.path}, line {self.line}: {why}", "parse")

    def cursor(self, mark: str) -> dict[str, Any] | None:
        """Return the position after the lines that were read, or None at the end of the file."""
        return None if self.over else {"at": self.at, "line": self.line, "file": mark}


Filter = Mapping[str, Collection[Any]]


def filter_of(given: Mapping[str, Any], read: Callable[[str, Any], Any] = lambda column, value: value) -> Filter:
    """Return the allowed values by column; `read` converts a wanted value to the form that it has in an item."""
    return {column: [read(column, each) for each in _wanted(column, values)] for column, values in given.items()}


def check_columns(given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for column in given:
        if column not in known:
            hint = did_you_mean(column, known) or f"; there are {', '.join(f'`{each}`' for each in known)}"
            raise refused(f"`{what}`: there is no column `{column}`{hint}")


def fits(item: Mapping[str, Any], wanted: Filter) -> bool:
    return all(any(_same(item.get(column), each) for each in values) for column, values in wanted.items())


def _wanted(column: str, values: Any) -> Iterator[Any]:
    for each in values if isinstance(values, list) else [values]:
        if isinstance(each, (list, Mapping)):
            raise refused(f"`filter.{column}` must be a value or a list of values, not {type_name(each)}")
        yield each


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; True is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
