"""A real server on loopback, with a worker, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from refold.core.outcomes import Instant
from refold.server.access import AccessToken, permissions_of
from refold.server.process import ServedStore, WebServer, listen, open_service, with_port
from refold.server.service import ServerFacts, ServerOptions, Service, ShownSetting
from refold.settings import Settings
from refold.wiring import Process, open_process

NS = "/api/v1/ns/default"

PLAYBOOKS = {
    "greet": "inputs: {name: {type: string}}\nworkload: {name: world}\nworkflow:\n"
    '  - step: hello\n    tool: {kind: noop, result: "hello {{ workload.name }}"}\n',
    "ask": "workflow:\n  - step: ok\n    tool: {kind: gate, prompt: go on?, options: {approve: Yes, reject: No}}\n"
    "    next: {arcs: [{step: done}]}\n  - step: done\n    tool: {kind: noop, result: 1}\n",
    "listen": "workflow:\n  - step: wait\n    tool: {kind: wait, signal: go}\n",
    "broken": "workflow:\n  - step: bad\n    tool: {kind: python, code: '1 / 0'}\n",
    "prints": "workflow:\n  - step: say\n    tool:\n      kind: python\n      code: |\n"
    "        print('one')\n        print('two')\n        print('three')\n        result = {'until': 5}\n",
    "parts": "workflow:\n  - step: each\n    loop: {in: [1, 2, 3, 4], iterator: n, tolerate: 4}\n"
    "    tool: {kind: python, input: {n: '{{ n }}'}, code: 'result = 1 / (n % 2)'}\n    next:\n      arcs:\n"
    "        - {step: few, when: '{{ each.stats.failed > 2 }}'}\n        - {step: rest}\n"
    "  - step: few\n    tool: {kind: noop}\n  - step: rest\n    tool: {kind: noop, result: 7}\n",
    "many": "workflow:\n  - step: each\n    loop: {in: [1, 2, 3], iterator: n}\n"
    "    tool: {kind: noop, result: '{{ n * 10 }}'}\n",
}


class Clock:
    """What the limits of refused credentials go by."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Server(Struct):
    service: Service
    process: Process
    address: str
    clock: Clock

    async def token(self, role: str = "admin", name: str = "", minus: tuple[str, ...] = (), **more: Any) -> str:
        wanted = AccessToken("", "", name or role, role, permissions_of(role, minus=minus), **more)
        return (await self.service.credentials.create(wanted))[1]

    def client(self, token: str = "", **headers: str) -> httpx2.AsyncClient:
        if token:
            headers["authorization"] = f"Bearer {token}"
        return httpx2.AsyncClient(base_url=self.address, headers=headers, timeout=60, trust_env=False)

    async def until(self, client: httpx2.AsyncClient, run: str, status: str) -> dict[str, Any]:
        """The run, as soon as it has this status."""
        head = -1
        while True:
            shown = (await client.get(f"{NS}/runs/{run}", params={"after": head, "wait": 5})).json()
            if shown["status"] == status:
                found: dict[str, Any] = shown
                return found
            head = shown["head"]

    async def start(self, client: httpx2.AsyncClient, workflow: str, **more: Any) -> str:
        answer = await client.post(f"{NS}/runs", json={"workflow": workflow, **more})
        assert answer.status_code == 201, answer.text
        run: str = answer.json()["id"]
        return run


def write_playbooks(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in PLAYBOOKS.items():
        head = f"apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name}}}\n"
        (folder / f"{name}.yaml").write_text(head + text)
    return folder


@asynccontextmanager
async def served(
    folder: Path,
    now: Instant = 0,
    read_only: bool = False,
    claims: bool = True,
    public: str = "",
    lease_for: float = 30.0,
    works: bool = True,
) -> AsyncIterator[Server]:
    options = ServerOptions(port=0, read_only=read_only, public_address=public)
    bound = listen(options)
    options = with_port(options, bound)
    quick = Settings(poll=0.1, sweep_every=0.1, processes=1, lease_for=lease_for)
    async with open_process(db=folder / "refold.db", settings=quick, claims=claims, works=works) as process:
        engine, clock = process.engine, Clock()
        facts = ServerFacts("a file of SQLite", "refold.db", (ShownSetting("lease_for", lease_for, "default"),))
        kept = ServedStore(
            engine.store.views, engine, engine.store, engine.advance, late_loops=process.late_loops, facts=facts
        )
        if read_only:
            kept = ServedStore(engine.store.views)
        async with open_service(kept, options, str(write_playbooks(folder / "playbooks")), {}, clock) as service:
            began = asyncio.Event()
            serving = asyncio.create_task(WebServer(service, bound).run(began.set))
            await began.wait()
            try:
                yield Server(service, process, f"http://127.0.0.1:{options.port}", clock)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path) as opened:
        yield opened


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    """As an administrator."""
    async with server.client(await server.token()) as opened:
        yield opened
