"""The Python workflows of a process: their bodies become tools of its worker, and the store knows their plans."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import json

from refold.core.faults import text_of
from refold.core.plan import BODY, Plan
from refold.errors import NameTaken
from refold.logs import INFO, WARNING, event, logger
from refold.ports import Abilities, Cluster, Executor, Tool
from refold.queries.reading import stored_plan
from refold.registry import LazyRegistry
from refold.wiring.world import InThread
from refold.worker.loop import Worker

if TYPE_CHECKING:
    from refold.executors.inline import Threads
    from refold.playbooks.playbook import Playbook
    from refold.python.body_call import BodyServices, ChildRun
    from refold.python.body_tool import RaisedErrors
    from refold.python.definition import Definition
    from refold.python.session import Session
    from refold.python.workflow import Workflow

log = logger("engine")

Register = Callable[["Plan | Playbook"], Awaitable[str]]
"""Stores a workflow and all that it starts; returns the hash of its plan."""


class StoredRuns(Protocol):
    """What the code of a process asks about the runs of the store."""

    async def child(self, run: str) -> "ChildRun":
        """Return how far a child run is; one that has not started yet has no times."""

    async def open_plans(
        self, workflows: Collection[str], known: Collection[str], newest: int | None
    ) -> Mapping[str, bytes]:
        """Return the plans that unfinished runs of these workflows follow, by their hashes, except the known ones.
        `newest`: only so many runs are looked at."""


class PythonCode:
    """The Python workflows of a process. Nothing is loaded before the first workflow is registered."""

    def __init__(
        self,
        stored: StoredRuns,
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
        cluster: Cluster | None = None,
    ) -> None:
        self.stored, self.worker, self.tools, self.read_value = stored, worker, tools, read_value
        self.register, self.enrol, self.in_thread, self.isolated = register, enrol, in_thread, isolated
        self.cluster = cluster
        self.chance, self.new_id = chance, new_id
        self.adopted: dict[str, Definition] = {}  # by the hashes of their plans
        self._named: dict[bytes, Definition] = {}  # by their identities
        self._former: dict[str, dict[bytes, Definition]] = {}  # by their former hashes and identities
        self._classes: dict[str, type[Workflow[Any]]] = {}  # of instances with arguments, by their names
        self._looked_at: set[str] = set()  # stored plans that were compared with these classes
        self.sessions: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()  # sessions of runs that have ended
        self._parents: dict[str, str] = {}
        self._saved: dict[str, dict[str, tuple[str, str]]] = {}
        self._arriving: dict[str, asyncio.Future[None]] = {}  # by the hashes of definitions that are being stored
        self._services: BodyServices | None = None
        self._threads: Threads | None = None
        self._originals: RaisedErrors | None = None

    async def known(self, workflow: Any) -> "Definition":
        """From now on this process runs the bodies of a workflow and of all that it starts. Raises NameTaken."""
        from refold.python.definition import define, with_children

        definition = define(workflow)
        while definition.hash in self._arriving:  # many starts at once register their workflow once
            await asyncio.wait([self._arriving[definition.hash]])
        served = self.adopted.get(definition.hash)
        if served is None or served.workflow is not definition.workflow:
            found = [each for each in with_children(definition) if self._is_new(each)]
            if found:
                await self._adopt(definition.hash, found)
        return definition

    async def _adopt(self, hash: str, found: "Sequence[Definition]") -> None:
        """Store these workflows and serve them. `hash` is that of the one that starts the others."""
        arriving = self._arriving[hash] = asyncio.get_running_loop().create_future()
        try:
            for each in found:
                await self.register(each.plan)
            for each in found:
                self._serve(each)
                self._note_classes(each)
        finally:
            del self._arriving[hash]
            arriving.set_result(None)
        await self.enrol(self.worker.can)
        await self.adopt_stored()

    def isolation_of(self, plan: str, step: str) -> str:
        """Return where the body of a step runs; `inline` too if the code is not in this process."""
        definition = self.adopted.get(plan)
        return "inline" if definition is None else definition.bodies[step].policy.isolation

    async def registered(self, workflow: Any) -> str:
        """Make a workflow known and return its hash. A class that needs arguments has none: its instances are built
        again from stored plans."""
        from refold.python.definition import class_name
        from refold.python.identity import missing_arguments

        if not missing_arguments(workflow):
            return (await self.known(workflow)).hash
        self._classes[class_name(workflow)] = workflow
        await self.adopt_stored()
        return ""

    def _is_new(self, definition: "Definition") -> bool:
        """Whether a definition is to be served, instead of none or of one that it replaces. Raises NameTaken."""
        from refold.python.identity import is_current, is_same_code, place_of

        served = self.adopted.get(definition.hash)
        known = served or self._named.get(_key(definition))
        if known is None or (served is None and place_of(known.workflow) == place_of(definition.workflow)):
            return True
        if served is not None and is_same_code(served.workflow, definition.workflow):
            return False
        if place_of(known.workflow) != place_of(definition.workflow) or is_current(known.workflow):
            raise _name_taken(known, definition)
        at = {"workflow": definition.plan.name, "plan": definition.hash, "code": definition.identity.name}
        event(log, INFO, "workflow was defined again; bodies that start from now on are those of the new code", at)
        return True

    def _note_classes(self, definition: "Definition") -> None:
        """Remember the classes of which other instances may be asked for: by bodies, or by runs in the store."""
        from refold.python.definition import child_workflows, class_name
        from refold.python.identity import constructor, missing_arguments

        cls = type(definition.workflow)
        if constructor(cls) is not None and definition.identity.arguments:
            self._classes[class_name(cls)] = cls
        for each in child_workflows(definition):
            if missing_arguments(each):
                self._classes[class_name(each)] = each

    async def adopt_stored(self, newest: int | None = None) -> None:
        """Serve the instances that unfinished runs in the store need, if their classes are here.

        `newest`: only so many runs are looked at.
        """
        if not self._classes:
            return
        from refold.python.definition import define_stored

        names = {cls.name or cls.__name__ for cls in self._classes.values()}
        plans = await self.stored.open_plans(names, self._looked_at, newest)
        for hash, data in plans.items():
            plan = stored_plan(hash, data)
            cls = self._classes.get(plan.code.name) if plan.code is not None else None
            if cls is None:
                continue
            self._looked_at.add(hash)
            try:
                definition = define_stored(cls, plan)
            except Exception as error:
                at = {"workflow": plan.name, "plan": hash}
                event(log, WARNING, "instance of a workflow could not be built again", at, why=text_of(error))
                continue
            if definition is not None:
                await self.known(definition.workflow)

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
        key, former = _key(definition), definition.former
        self._named[key] = definition
        self._add_bodies(definition)
        others = self._former.setdefault(former.hash, {})
        others[key] = former
        if len(others) == 1:
            self._add_bodies(former)
        elif self.adopted.pop(former.hash, None) is not None:
            self.worker.remove_tool(f"{BODY}:{former.hash}")  # nothing says whose runs these are
            at = {"workflow": definition.plan.name, "plan": former.hash}
            event(log, WARNING, "several workflows may be that of older runs; migrate these runs", at)

    def _add_bodies(self, definition: "Definition") -> None:
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
        from refold.python.body_call import BodyServices
        from refold.python.call_records import TaskNumbers

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
                look=self.stored.child,
                in_thread=in_thread,
                task_numbers=TaskNumbers(),
                chance=self.chance,
                new_id=self.new_id,
                isolated=self.isolated,
                cluster=self.cluster,
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


def _key(definition: "Definition") -> bytes:
    """Return the identity of a workflow as a key."""
    return json.encode(definition.identity, order="sorted")


def _name_taken(known: "Definition", new: "Definition") -> NameTaken:
    from refold.python.identity import is_current, source_place, stored_arguments

    if type(known.workflow) is type(new.workflow) and stored_arguments(new.workflow) is None:
        advice = "their arguments are not plain data, so give each instance a `name` of its own"
    elif "<locals>" not in new.identity.name and not is_current(new.workflow):
        advice = "the second was replaced by the first, which was defined later: use that one, or name one of them"
    else:
        advice = "give one of them another `name`"
    return NameTaken(new.identity.name, (source_place(known.workflow), source_place(new.workflow)), advice)
