"""The source `glob`: files that match a pattern, sorted by the parts of their paths. A cursor is the last path."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from refold.core.faults import text_of
from refold.logs import WARNING, event, logger
from refold.ports import Page, Pull
from refold.sources.files import check_columns, filter_of, fits
from refold.tool_api import refused

log = logger("sources")

COLUMNS = ("path", "name", "size", "modified")
ANY_DEPTH = "**"


async def from_glob(pull: Pull) -> Page:
    return await asyncio.to_thread(_page, pull)


def _page(pull: Pull) -> Page:
    keys = pull.settings
    check_columns(keys.get("filter", {}), COLUMNS, "filter")
    wanted = filter_of(keys.get("filter", {}))
    root, parts = _pattern(os.path.abspath(keys.get("folder") or "."), keys["pattern"])
    if not os.path.isdir(root):
        raise refused(f"`pattern`: there is no folder {root}", "storage_access")
    after: Sequence[str] = pull.cursor.split("/") if isinstance(pull.cursor, str) else ()
    items: list[dict[str, Any]] = []
    last = ""
    for found in _walk(root, "", frozenset({0}), parts, after):
        item = _item(os.path.join(root, found))
        if item is None or not fits(item, wanted):
            continue
        if len(items) == pull.most:
            return Page(items, last)
        items.append(item)
        last = found
    return Page(items)


def _pattern(folder: str, pattern: str) -> tuple[str, Sequence[str]]:
    """Return the folder to start from, and the patterns of the parts below it."""
    if not pattern or "\0" in pattern:
        raise refused(f"`pattern` must be the pattern of a path, not {pattern!r}")
    parts = os.path.normpath(os.path.join(folder, pattern)).split(os.sep)
    plain = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts) - 1)
    return os.sep.join(parts[:plain]) or os.sep, [
        part for i, part in enumerate(parts[plain:], plain) if part != ANY_DEPTH or parts[i - 1] != ANY_DEPTH
    ]


def _walk(root: str, folder: str, states: frozenset[int], parts: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield matching files in order.

    `states` are the parts of the pattern that a name in this folder may match next. `after` is the rest of the cursor's
    path: names before it were read already.
    """
    for name, is_folder, is_link in _entries(root, folder):
        if after and name < after[0]:
            continue
        matched = _matched(name, states, parts)
        path = f"{folder}/{name}" if folder else name
        if is_folder:
            onward = frozenset(i for i, deeper in matched if i < len(parts) and not (is_link and deeper))
            if onward:
                yield from _walk(root, path, onward, parts, after[1:] if after[:1] == [name] else ())
        elif any(i == len(parts) for i, _ in matched) and list(after) != [name]:
            yield path


def _matched(name: str, states: frozenset[int], parts: Sequence[str]) -> set[tuple[int, bool]]:
    """Return the parts that follow once this name is taken, and whether `**` took it, which follows no links."""
    found: set[tuple[int, bool]] = set()
    for state in states:
        if parts[state] == ANY_DEPTH:
            if not name.startswith("."):
                found.add((state, True))
                if state == len(parts) - 1:
                    found.add((len(parts), True))
            found |= _matched(name, frozenset({state + 1}), parts) if state + 1 < len(parts) else set()
        elif fnmatchcase(name, parts[state]) and (not name.startswith(".") or parts[state].startswith(".")):
            found.add((state + 1, False))
    return found


def _entries(root: str, folder: str) -> list[tuple[str, bool, bool]]:
    """Return the entries of a folder by name. One that has gone meanwhile has none. The folder to start from must be
    readable; one below it that is not is left out, with a line in the log."""
    path = os.path.join(root, folder)
    try:
        with os.scandir(path) as found:
            return sorted((each.name, each.is_dir(), each.is_symlink()) for each in found)
    except FileNotFoundError:
        return []
    except OSError as error:
        if not folder:
            raise refused(f"`pattern`: the folder {root} cannot be read: {error.strerror}", "storage_access") from error
        event(log, WARNING, "folder left out", folder=path, why=error.strerror or text_of(error))
        return []


def _item(path: str) -> dict[str, Any] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None  # it has gone in the meantime, or is a link to nothing
    modified = datetime.fromtimestamp(found.st_mtime, UTC).isoformat()
    return {"path": path, "name": os.path.basename(path), "size": found.st_size, "modified": modified}
