"""The Python workflows of a process: their bodies become tools of its worker, and the store knows their plans."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from refold.core.plan import BODY, Plan
from refold.errors import NotFound
from refold.ports import Abilities, Advance, Executor, Tool
from refold.registry import LazyRegistry
from refold.runtime.turn import Turns
from refold.wiring.world import InThread
from refold.worker.loop import Worker

if TYPE_CHECKING:
    from refold.executors.inline import Threads
    from refold.playbooks.playbook import Playbook
    from refold.python.body_call import BodyServices
    from refold.python.body_tool import RaisedErrors
    from refold.python.definition import Definition
    from refold.python.session import Session


Register = Callable[["Plan | Playbook"], Awaitable[str]]
"""Stores a workflow and all that it starts; returns the hash of its plan."""


class PythonCode:
    """The Python workflows of a process. Nothing is loaded before the first workflow is registered."""

    def __init__(
        self,
        turns: Turns,
        advance: Advance,
        worker: Worker,
        tools: LazyRegistry[Tool],
        read_value: Callable[[str, str], Awaitable[Any]],
        *,
        register: Register,
        enrol: Callable[[Abilities], Awaitable[None]],
        chance: Callable[[], float],
        new_id: Callable[[], str],
        in_thread: InThread | None = None,
        isolated: Executor | None = None,
    ) -> None:
        self.turns, self.advance, self.worker, self.tools, self.read_value = turns, advance, worker, tools, read_value
        self.register, self.enrol, self.in_thread, self.isolated = register, enrol, in_thread, isolated
        self.chance, self.new_id = chance, new_id
        self.adopted: dict[str, Definition] = {}
        self.sessions: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()  # sessions of runs that have ended
        self._parents: dict[str, str] = {}
        self._saved: dict[str, dict[str, tuple[str, str]]] = {}
        self._services: BodyServices | None = None
        self._threads: Threads | None = None
        self._originals: RaisedErrors | None = None

    async def known(self, workflow: Any) -> "Definition":
        from refold.python.definition import define, with_children

        definition = define(workflow)
        if definition.hash not in self.adopted:
            found = with_children(definition)
            for each in found:
                await self.register(each.plan)
            for each in found:
                self._serve(each)
            await self.enrol(self.worker.can)
        return definition

    def of(self, plan: str) -> "Definition | None":
        return self.adopted.get(plan)

    def original(self, run: str, step: str, visit: int) -> BaseException | None:
        return None if self._originals is None else self._originals.find(run, step, visit)

    async def close(self) -> None:
        """Close the resources of all runs, and the threads of bodies."""
        if self._closing:
            await asyncio.wait(self._closing)
        for session in self.sessions.values():
            await session.close()
        if self._threads is not None:
            self._threads.close()
        if self._services is not None:
            self._services.task_numbers.end()

    def _serve(self, definition: "Definition") -> None:
        from refold.python.body_tool import BodyTool, RaisedErrors

        self.adopted[definition.hash] = definition
        if self._originals is None:
            self._originals = RaisedErrors()
        tool = BodyTool(definition, self._rooms(), self._session(definition), self._originals)
        name = f"{BODY}:{definition.hash}"
        self.tools.add(name, tool)
        self.worker.add_tool(name)

    def _session(self, definition: "Definition") -> "Callable[[str], Session]":
        from refold.python.session import Session

        def session(run: str) -> Session:
            run = self._root(run)
            if run not in self.sessions:
                self.sessions[run] = Session(definition.resources, self._saved.pop(run, {}), definition.codec.classes)
            elif definition.resources:
                self.sessions[run].offer(definition.resources)
            return self.sessions[run]

        return session

    def live(self, run: str, definition: "Definition") -> dict[str, tuple[str, str]]:
        """Return what an export records about the live objects of a run. Raises Conflict."""
        session = self.sessions.get(run := self._root(run))
        if session is None:
            return self._saved.get(run, {})
        return session.saved(definition.workflow.live, definition.codec.names)

    def revive(self, run: str, saved: Mapping[str, tuple[str, str]]) -> None:
        """Take over exported live objects; each is created again when a body asks for it."""
        self._saved[run] = dict(saved)

    def _root(self, run: str) -> str:
        while run in self._parents:
            run = self._parents[run]
        return run

    def _rooms(self) -> "BodyServices":
        from refold.executors.inline import Threads
        from refold.python.body_call import BodyServices, ChildRun
        from refold.python.call_records import TaskNumbers

        async def look(run: str) -> ChildRun:
            def seen() -> ChildRun:
                try:
                    state = self.turns.look(run).state
                except NotFound:
                    return ChildRun(run)  # the letter that starts it is not delivered yet
                return ChildRun(run, state.started_at, state.ended_at, dict(state.usage))

            child: ChildRun = await self.advance(seen)
            return child

        if self._services is None:
            in_thread = self.in_thread
            if in_thread is None:
                self._threads = Threads(self.worker.slots)
                in_thread = self._threads.run
            self._services = BodyServices(
                clock=self.worker.clock,
                read_blob=self.read_value,
                adopt=self.known,
                register=self.register,
                look=look,
                in_thread=in_thread,
                task_numbers=TaskNumbers(),
                chance=self.chance,
                new_id=self.new_id,
                isolated=self.isolated,
            )
        return self._services

    def run_ended(self, run: str) -> None:
        """End the live objects of a run with it; those of a child belong to its parent."""
        if self._parents.pop(run, None) is not None or run not in self.sessions:
            return
        session = self.sessions[run]
        if session.has_resources:
            closing = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        if not session.end():
            del self.sessions[run]

    def children_started(self, births: Sequence[tuple[str, str]]) -> None:
        """Remember the parents of children, because a child uses the live objects of its parent."""
        if self._originals is not None:
            self._parents.update({child: parent for parent, child in births})
