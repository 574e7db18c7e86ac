"""Plays NoETL files: read by the public reader, run by the public engine with its real tools, and told in full."""

import asyncio
from collections.abc import Coroutine, Mapping
from threading import Thread
from typing import Any, TypeVar

from msgspec import Struct

from refold.core.expressions import Missing
from refold.core.facts import Fact, StepFault
from refold.core.plan import Plan
from refold.core.read.fact_text import fact_text
from refold.core.read.loaded import Loaded
from refold.core.read.template_scope import step_value
from refold.errors import NotFound
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.runtime.engine import Engine, RunReport
from refold.settings import Settings
from refold.tools.catalog import CATALOG
from refold.wiring import Process, open_process

T = TypeVar("T")
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: played}\n"
LONGEST = 60.0  # seconds that a run may take on a busy machine


class Played(Struct):
    """How a run went."""

    id: str
    status: str
    result: Any
    steps: dict[str, dict[str, Any]]
    error: StepFault | None
    ctx: dict[str, Any]
    facts: list[Fact]
    times: list[int]  # of the facts
    results: dict[str, Any]
    warnings: tuple[Problem, ...]

    @property
    def lives(self) -> dict[str, str]:
        return {name: step["status"] for name, step in self.steps.items()}

    @property
    def history(self) -> str:
        return "\n".join(map(fact_text, self.facts))

    @property
    def fault(self) -> Any:
        assert self.error is not None and self.error.fault is not None
        return self.error.fault


def whole(text: str) -> str:
    """A file; most tests write what stands below the name."""
    return text if text.lstrip().startswith("apiVersion") else HEAD + text


def reading(text: str, files: Mapping[str, str] | None = None, file: str = "play.yaml") -> Playbook:
    others = files or {}

    def load(name: str) -> bytes:
        if name not in others:
            raise NotFound(f"there is no {name}")
        return whole(others[name]).encode()

    return read(whole(text), file, CATALOG, load)


def problems(text: str, files: Mapping[str, str] | None = None) -> list[Problem]:
    """All that is said about a file, errors and warnings."""
    try:
        return list(reading(text, files).warnings)
    except InvalidPlaybook as error:
        return list(error.problems)


def errors(text: str, files: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    return [(each.code, each.message) for each in problems(text, files) if each.severity == "error"]


def warnings(text: str, files: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Of a file that is good."""
    return [(each.code, each.message) for each in reading(text, files).warnings]


class House:
    """One engine in a thread of its own, for all tests of a session."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="noetl-house")
        self._thread.start()
        settings = Settings(private_addresses=True, processes=2, sweep_every=0.2, poll=0.2, process_grace=0.5)
        self._opened = open_process(settings=settings)
        self.process: Process = self.do(self._opened.__aenter__())

    @property
    def engine(self) -> Engine:
        return self.process.engine

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LONGEST + 10)

    def close(self) -> None:
        self.do(self._opened.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def play(self, text: str, input: dict[str, Any] | None = None, *, files: Mapping[str, str] | None = None) -> Played:
        playbook = reading(text, files)
        return self.do(self._play(playbook, input))

    def start(self, text: str, input: dict[str, Any] | None = None) -> str:
        """Without waiting for its end."""
        return self.do(self.engine.start(reading(text).plan, input)).id

    async def run(self, plan: Plan, input: dict[str, Any] | None = None) -> RunReport:
        return await asyncio.wait_for(self.engine.wait((await self.engine.start(plan, input)).id), LONGEST)

    async def _play(self, playbook: Playbook, input: dict[str, Any] | None) -> Played:
        for child in playbook.children:
            await self.engine.register(child.plan)
        run = (await self.engine.start(playbook.plan, input)).id
        shown = await asyncio.wait_for(self.engine.wait(run), LONGEST)
        return await self._told(shown, playbook)

    async def _told(self, shown: RunReport, playbook: Playbook) -> Played:
        records = await self.engine.history(shown.id)
        facts = {number: fact for number, _, fact in records}
        return Played(
            id=shown.id,
            status=shown.status,
            result=shown.result,
            steps=shown.steps,
            error=shown.error,
            ctx=dict(shown.state.ctx),
            facts=list(facts.values()),
            times=[at for _, at, _ in records],
            results=self._results(shown, playbook, Loaded(facts)),
            warnings=playbook.warnings,
        )

    def _results(self, shown: RunReport, playbook: Playbook, loaded: Loaded) -> dict[str, Any]:
        found = {}
        for s, step in enumerate(playbook.plan.steps):
            while shown.state.steps[s].done_at:
                try:
                    found[step.name] = step_value(shown.state, loaded, s)
                    break
                except Missing as missing:
                    for hash in missing.blobs:
                        loaded.blobs[hash] = self.engine._stored_value(shown.id, hash)
        return found
