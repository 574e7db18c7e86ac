"""What a step costs where it runs: a fresh interpreter, a warm process, this process; and a program beside a bare one.

Each ratio is that of two medians of one run, taken in turns so that a machine that is busy slows both.
"""

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from msgspec import Struct

from refold.core.commands import Command
from refold.executors.inline import Inline
from refold.executors.limits import environment
from refold.executors.process_services import ProcessServices
from refold.ports import ToolCall
from refold.settings import Settings
from refold.tools.python.tool import PythonTool
from refold.tools.shell.tool import ShellTool

CODE = "result = {'n': n + 1}"
BLOCKING = "import time\nresult = {'n': n + 1}"  # for all one knows
FRESH = "import asyncio, json, sys\nn = json.load(sys.stdin)['n']\nresult = {'n': n + 1}\njson.dump(result, sys.stdout)"
PROGRAM = ["/bin/sh", "-c", 'echo "$1"', "sh", "hello"]
CHUNKS = 10  # turns that each way has

WANTED = {"fresh / warm": 20.0, "warm / inline": 5.0, "shell / bare": 1.3}


class ProcessCost(Struct, frozen=True):
    """Median seconds of one call."""

    fresh: float  # an interpreter is started for it, with the modules an async program needs
    warm: float  # the tool `python`
    thread: float  # the same with `isolation: inline`, of code that may block
    inline: float  # and of code that only computes
    bare: float  # `subprocess.run`
    shell: float  # the tool `shell`

    def ratios(self) -> dict[str, float]:
        return {
            "fresh / warm": self.fresh / self.warm,
            "warm / inline": self.warm / self.inline,
            "shell / bare": self.shell / self.bare,
        }

    def missed(self) -> list[str]:
        found = self.ratios()
        too_low = [name for name in ("fresh / warm", "warm / inline") if found[name] < WANTED[name]]
        return too_low + (["shell / bare"] if found["shell / bare"] > WANTED["shell / bare"] else [])


async def measure(calls: int = 500, starts: int = 20) -> ProcessCost:
    settings = Settings()
    isolated = ProcessServices(1, 2.0, settings.tool_limits, environment({"PATH": "/usr/bin:/bin"}))
    inline = Inline(1)
    python, shell = PythonTool({"process": isolated, "inline": inline}), ShellTool(isolated.programs)
    taken = await _taken(
        {
            "fresh": (starts, _fresh),
            "warm": (calls, lambda: python(_call({"code": CODE}, {}))),
            "thread": (calls, lambda: python(_call({"code": BLOCKING, "isolation": "inline"}, {}))),
            "inline": (calls, lambda: python(_call({"code": CODE, "isolation": "inline"}, {}))),
            "bare": (calls, _bare),
            "shell": (calls, lambda: shell(_call({}, {"command": PROGRAM}))),
        }
    )
    await isolated.close()
    await inline.close()
    return ProcessCost(**{name: statistics.median(times) for name, times in taken.items()})


async def _taken(ways: dict[str, tuple[int, Callable[[], Awaitable[Any]]]]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _, call in ways.values():
        await call()
    for _ in range(CHUNKS):
        for name, (times, call) in ways.items():
            for _ in range(max(times // CHUNKS, 1)):
                began = perf_counter()
                await call()
                taken[name].append(perf_counter() - began)
    return taken


def _call(settings: dict[str, Any], config: dict[str, Any]) -> ToolCall:
    given = {"input": {"n": 1}, "config": config}
    return ToolCall("run", Command(id="a/1", step="a", visit=1, attempt=1, input=given), settings)


async def _fresh() -> None:
    subprocess.run([sys.executable, "-c", FRESH], input=b'{"n": 1}', capture_output=True, check=True)


async def _bare() -> None:
    subprocess.run(PROGRAM, capture_output=True, check=True, stdin=subprocess.DEVNULL)


def show(cost: ProcessCost) -> None:
    print("one call of a tool, median")
    for name in ProcessCost.__struct_fields__:
        print(f"{name:14}{1e3 * getattr(cost, name):9.3f} ms")
    for name, ratio in cost.ratios().items():
        bound = "at most" if name == "shell / bare" else "at least"
        print(f"{name:14}{ratio:9.2f}, {bound} {WANTED[name]:g}")


if __name__ == "__main__":
    show(asyncio.run(measure()))
