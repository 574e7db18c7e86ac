"""The sources of a process, by their kinds: each is loaded when a loop first needs it."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from refold.ports import Source
from refold.sources.means import Means

Maker = Callable[[], Source]


class Shelf(Mapping[str, Source]):
    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self._makers = makers
        self._made: dict[str, Source] = {}

    def __getitem__(self, kind: str) -> Source:
        if kind not in self._made:
            self._made[kind] = self._makers[kind]()
        return self._made[kind]

    def __contains__(self, kind: Any) -> bool:
        return kind in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    async def close(self) -> None:
        made, self._made = self._made, {}
        for source in made.values():
            close = getattr(source, "close", None)
            if close is not None:
                await close()


def own_makers(means: Means) -> dict[str, Maker]:
    """Of the kinds in the catalog."""
    return {
        "list": lambda: _loaded("listed", "from_list"),
        "range": lambda: _loaded("listed", "from_range"),
        "csv": lambda: _loaded("csv_file", "from_csv"),
        "jsonl": lambda: _loaded("jsonl_file", "from_jsonl"),
        "parquet": lambda: _loaded("parquet_file", "ParquetSource")(means.ask),
        "glob": lambda: _loaded("glob_files", "from_glob"),
        "sql": lambda: _loaded("sql", "SqlSource")(means.ask, means.tokens),
        "http": lambda: _loaded("http_pages", "HttpSource")(means.ask),
        "python": lambda: _loaded("python_items", "PythonSource")(means.lane),
    }


def _loaded(module: str, name: str) -> Any:
    return getattr(import_module(f"refold.sources.{module}"), name)
