"""The route that gives a whole run away: as an archive to import, or as a page to look at."""

from typing import Literal

from msgspec import Struct

from refold.server.recording import one_file, recorded
from refold.server.routes import Answer, Call
from refold.server.runs import run_row


class ExportQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"form": "as"}):
    form: Literal["json", "html", "size"] = "json"


async def export_run(call: Call) -> Answer:
    """The whole run as one file, with everything that it waits for. Pause it first.

    As `html` it is a page to look at, which needs no server; `size` says how large that would be and what is left out.
    """
    query: ExportQuery = call.query
    row = await run_row(call)
    if query.form != "json":
        recording = await recorded(call)
        page = await call.service.read(lambda: one_file(recording))
        if query.form == "size":
            return Answer({"bytes": len(page), "left_out": list(recording.left_out)})
        name = f'attachment; filename="run-{row.run[:32]}.html"'
        headers = {"content-disposition": name, "content-security-policy": "sandbox"}
        return Answer(raw=page, media="application/octet-stream", headers=headers)
    data = await call.service.engine.export(row.run)
    name = f'attachment; filename="run-{row.run[:32]}.json"'
    return Answer(raw=data, headers={"content-disposition": name, "content-security-policy": "sandbox"})
