"""Health, version and metrics."""

from refold.server.problems import HttpProblem
from refold.server.routes import Answer, Call
from refold.telemetry.metrics import MEDIA


async def is_alive(call: Call) -> Answer:
    return Answer({"status": "ok"})


async def is_ready(call: Call) -> Answer:
    """Whether the store answers and, unless the server only reads, can be written."""
    why = await call.service.read(call.service.is_ready)
    if why:
        raise HttpProblem(503, "not_ready", "The server is not ready", why, headers={"retry-after": "1"})
    return Answer({"status": "ok"})


async def show_metrics(call: Call) -> Answer:
    return Answer(raw=await call.service.read(call.service.metrics.text), media=MEDIA)


async def version(call: Call) -> Answer:
    return Answer({"name": "refold", "version": call.service.version})
