"""The tools of a process, by their names; those that take time to load are made when they are first used."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from refold.ports import Tool


class Shelf(Mapping[str, Tool]):
    def __init__(self, ready: Mapping[str, Tool], makers: Mapping[str, Callable[[], Tool]]) -> None:
        """A tool that is ready is taken before a maker of that name."""
        self._ready = dict(ready)
        self._makers = {name: make for name, make in makers.items() if name not in ready}
        self._made: list[Tool] = []

    def __getitem__(self, name: str) -> Tool:
        tool = self._ready.get(name)
        if tool is None:
            tool = self._makers[name]()
            self._ready[name] = tool
            self._made.append(tool)
        return tool

    def __contains__(self, name: Any) -> bool:
        return name in self._ready or name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter({**self._ready, **self._makers})

    def __len__(self) -> int:
        return len({**self._ready, **self._makers})

    def add(self, name: str, tool: Tool) -> None:
        """One that became known later."""
        self._ready[name] = tool

    async def close(self) -> None:
        """What was made here ends here; tools that were given are their owner's."""
        for tool in self._made:
            await end(tool)


async def end(tool: Tool) -> None:
    """A tool that keeps nothing open has no `close`."""
    close = getattr(tool, "close", None)
    if close is not None:
        await close()
