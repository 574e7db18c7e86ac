"""Records a run of a database without a server that listens, for the command line."""

import time

from refold.ports import Views
from refold.server.access import DEFAULT_NAMESPACE, Credential, permissions_of
from refold.server.process import open_service, read_only
from refold.server.recording import LARGEST, Recording, recorded
from refold.server.routes import NAMESPACE, Call
from refold.server.service import ServerOptions
from refold.server.table import TABLE


async def record_run(views: Views, run: str, largest: int = LARGEST) -> Recording:
    """Record a run as somebody who may see everything."""
    found = TABLE.find("GET", f"{NAMESPACE}/runs/{run}/export".format(ns=DEFAULT_NAMESPACE).encode())
    assert found.route is not None
    who = Credential("", "", "admin", frozenset(permissions_of("admin")))
    async with open_service(read_only(views), ServerOptions(read_only=True), "", {}, time.monotonic) as service:
        return await recorded(Call(service, found.route, found.path, None, None, {}, who, ""), largest)
