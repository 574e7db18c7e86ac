"""The source `python`: the values of an iterator in Python code.

A cursor counts the items that were read. Each loop has a process of its own, which keeps the iterator between pages. If
that process has ended, the code starts again and the items that were read are skipped.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from refold.ports import Page, Pull
from refold.sources.services import SourceInterpreter
from refold.tool_api import refused

BODY = "refold.sources.python_process:page_of"
CODE = {  # who runs Python code, by name: it is loaded in the other process only
    "make": "refold.tools.python.body:made",
    "telling": "refold.tools.python.body:errors_told",
    "plain": "refold.tools.python.body:plain",
}
LANES = 8  # loops whose iterators are kept


class PythonSource:
    def __init__(self, lane: Callable[[], SourceInterpreter] | None) -> None:
        self._lane = lane
        self._lanes: OrderedDict[str, SourceInterpreter] = OrderedDict()
        self._busy: set[str] = set()

    async def __call__(self, pull: Pull) -> Page:
        if self._lane is None:
            raise refused("the source python needs processes, and this worker has none")
        lane = self._lanes.pop(pull.owner, None) or self._lane()
        self._lanes[pull.owner] = lane
        self._busy.add(pull.owner)
        try:
            told = await lane.run(BODY, _order(pull))
        finally:
            self._busy.discard(pull.owner)
        page = Page(told["items"], told["cursor"])
        if page.cursor is None:
            await self._end(pull.owner)
        while len(self._lanes) > LANES and (idle := [each for each in self._lanes if each not in self._busy]):
            await self._end(idle[0])
        return page

    async def close(self) -> None:
        for owner in list(self._lanes):
            await self._end(owner)

    async def _end(self, owner: str) -> None:
        lane = self._lanes.pop(owner, None)
        if lane is not None:
            await lane.close()


def _order(pull: Pull) -> dict[str, Any]:
    keys = pull.settings
    run, _, place = pull.owner.partition("/")
    step = place.rpartition("/")[0] or "source"
    code = {"code": keys["code"]} if "code" in keys else {"entry": keys["function"]}
    body = {"step": step, "input": dict(keys.get("args", {})), "context": {"run": run, "step": step}, **code}
    return {**CODE, "owner": pull.owner, "body": body, "cursor": pull.cursor or 0, "most": pull.most}
