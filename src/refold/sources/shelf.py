"""The sources of a process, by their kinds: each is loaded when a loop first needs it."""

from collections.abc import Callable

from refold.ports import Source
from refold.sources.means import Means

Maker = Callable[[], Source]


def own_makers(means: Means) -> dict[str, Maker]:
    """Return what makes each source of the catalog. Its module is loaded when a loop first needs it."""

    def from_list() -> Source:
        from refold.sources.listed import from_list

        return from_list

    def from_range() -> Source:
        from refold.sources.listed import from_range

        return from_range

    def from_csv() -> Source:
        from refold.sources.csv_file import from_csv

        return from_csv

    def from_jsonl() -> Source:
        from refold.sources.jsonl_file import from_jsonl

        return from_jsonl

    def from_parquet() -> Source:
        from refold.sources.parquet_file import ParquetSource

        return ParquetSource(means.ask)

    def from_glob() -> Source:
        from refold.sources.glob_files import from_glob

        return from_glob

    def from_sql() -> Source:
        from refold.sources.sql import SqlSource

        return SqlSource(means.ask, means.tokens)

    def from_http() -> Source:
        from refold.sources.http_pages import HttpSource

        return HttpSource(means.ask)

    def from_python() -> Source:
        from refold.sources.python_items import PythonSource

        return PythonSource(means.lane)

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
