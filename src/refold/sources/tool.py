"""The tool `source`: returns one page of a source to a loop."""

from collections.abc import Callable, Mapping
from typing import Any

from refold.core.codec import check_value
from refold.errors import InvalidValue
from refold.ports import Page, Pull, Source, ToolCall
from refold.registry import LazyRegistry
from refold.sources.services import Services
from refold.sources.settings import Read, did_you_mean, settings_of
from refold.tool_api import ToolInfo, refused

MOST = 500  # items of a page, if nobody says how many


class SourceTool:
    """Returns `{items, cursor}`. `catalog` describes the kinds of `sources`."""

    def __init__(
        self, sources: LazyRegistry[Source], catalog: Mapping[str, ToolInfo], read: Read | None = None
    ) -> None:
        self._sources, self._catalog, self._read = sources, catalog, read

    async def __call__(self, call: ToolCall) -> dict[str, Any]:
        asked = call.input
        if not isinstance(asked, dict) or not isinstance(asked.get("kind"), str):
            raise refused("the input of `source` is a map of `kind`, `settings`, `cursor`, `most` and `owner`")
        kind = asked["kind"]
        info, source = self._found(kind)
        pull = Pull(
            settings=await settings_of(info, _map(asked.get("settings")), self._read),
            cursor=asked.get("cursor"),
            most=_most(asked.get("most", MOST)),
            owner=asked.get("owner") or call.idempotency_key,
        )
        return _told(kind, pull, await source(pull))

    async def close(self) -> None:
        await self._sources.close()

    def _found(self, kind: str) -> tuple[ToolInfo, Any]:
        if kind not in self._catalog or kind not in self._sources:
            hint = did_you_mean(kind, self._sources) or f"; there are {', '.join(self._sources)}"
            raise refused(f"there is no source of the kind {kind!r}{hint}", "no_source")
        try:
            return self._catalog[kind], self._sources[kind]
        except InvalidValue as error:
            raise refused(str(error), "no_source") from None


def _map(given: Any) -> Mapping[str, Any]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    raise refused("`settings` of a source must be a map")


def _most(given: Any) -> int:
    if isinstance(given, int) and given >= 1:
        return int(given)
    raise refused("`most` must be a number of items, at least 1")


def _told(kind: str, pull: Pull, page: Any) -> dict[str, Any]:
    """Return the page after checking what a loop relies on:

    JSON data, not too many items, and a cursor that advances.
    """
    if not isinstance(page, Page):
        raise _misbehaved(kind, f"it gave a {type(page).__name__} and no Page")
    items = list(page.items)
    if len(items) > pull.most:
        raise _misbehaved(kind, f"it gave {len(items)} items, and {pull.most} were wanted")
    if page.cursor is not None and page.cursor == pull.cursor:
        raise _misbehaved(kind, f"its cursor does not move on: {page.cursor!r} comes after itself")
    told = {"items": items, "cursor": page.cursor}
    try:
        check_value(told["items"], "items")
        check_value(told["cursor"], "cursor")
    except InvalidValue as error:
        raise refused(f"the source {kind}: {error}", "invalid_value") from None
    return told


def _misbehaved(kind: str, why: str) -> Exception:
    return refused(f"the source {kind} cannot be used: {why}", "bad_source")


def source_makers(services: Services) -> dict[str, Callable[[], Source]]:
    """Return a maker for each source of the catalog. Its module is loaded when a loop first needs it."""

    def from_list() -> Source:
        from refold.sources.lists import from_list

        return from_list

    def from_range() -> Source:
        from refold.sources.lists import from_range

        return from_range

    def from_csv() -> Source:
        from refold.sources.text_files import from_csv

        return from_csv

    def from_jsonl() -> Source:
        from refold.sources.text_files import from_jsonl

        return from_jsonl

    def from_parquet() -> Source:
        from refold.sources.sql import ParquetSource

        return ParquetSource(services.ask)

    def from_glob() -> Source:
        from refold.sources.glob_files import from_glob

        return from_glob

    def from_sql() -> Source:
        from refold.sources.sql import SqlSource

        return SqlSource(services.ask, services.tokens)

    def from_http() -> Source:
        from refold.sources.http_pages import HttpSource

        return HttpSource(services.ask)

    def from_python() -> Source:
        from refold.sources.python_items import PythonSource

        return PythonSource(services.lane)

    return {
        "list": from_list,
        "range": from_range,
        "csv": from_csv,
        "jsonl": from_jsonl,
        "parquet": from_parquet,
        "glob": from_glob,
        "sql": from_sql,
        "http": from_http,
        "python": from_python,
    }
