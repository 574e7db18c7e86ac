"""Bodies that run on a Ray cluster."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from refold import Context, Ray, StartEvent, StopEvent, Workflow, step


def where(input: Any) -> Any:
    import ray

    print("one line")
    util: Any = ray.util
    return {"input": input, "node": util.get_node_ip_address(), "pid": os.getpid()}


def fails(input: Any) -> Any:
    raise LookupError(f"no {input}")


def long(input: Any) -> Any:
    Path(input["file"]).write_text(str(os.getpid()))
    time.sleep(600)


def dies(input: Any) -> Any:
    """Kills its own process the first time."""
    mark = Path(input["file"])
    if not mark.exists():
        mark.write_text("once")
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


class Heavy(Workflow[dict[str, Any]]):
    @step(isolation="ray", ray=Ray(custom={"special": 1}))
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=where(ev.n))
