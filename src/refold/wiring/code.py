"""The Python workflows of a process: their bodies become tools of its worker, and the store knows their plans."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from refold.core import codec
from refold.core.plan import BODY, Plan
from refold.ports import Executor
from refold.runtime.engine import Engine
from refold.runtime.turn import Seen
from refold.tools.shelf import Shelf
from refold.worker.loop import Worker

if TYPE_CHECKING:
    from refold.authoring.definition import Definition
    from refold.executors.threads import Threads
    from refold.worker.bodies import Originals
    from refold.worker.session import Session
    from refold.worker.tries import House


class PythonCode:
    """Nothing of it is loaded before the first workflow is."""

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        tools: Shelf,
        read_blob: Callable[[str, str], Awaitable[bytes]],
        isolated: Executor | None = None,
    ) -> None:
        self.isolated = isolated
        self.engine, self.worker, self.tools, self.read_blob = engine, worker, tools, read_blob
        self.adopted: dict[str, Definition] = {}
        self.sessions: dict[str, Session] = {}
        self._house: House | None = None
        self._threads: Threads | None = None
        self._originals: Originals | None = None

    async def known(self, workflow: Any) -> "Definition":
        from refold.authoring.definition import define, mentioned

        definition = define(workflow)
        if definition.hash not in self.adopted:
            self.adopted[definition.hash] = definition
            await self.engine.register(definition.plan)
            self._serve(definition)
            for child in mentioned(definition):
                await self.known(child)
        return definition

    def original(self, run: str, step: str, visit: int) -> BaseException | None:
        return None if self._originals is None else self._originals.find(run, step, visit)

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _serve(self, definition: "Definition") -> None:
        from refold.worker.bodies import BodyTool, Originals

        if self._originals is None:
            self._originals = Originals()
            self._tell_ends()
        tool = BodyTool(definition, self._rooms(), self._session(definition), self._originals)
        name = f"{BODY}:{definition.hash}"
        self.tools.add(name, tool)
        can = self.worker.can
        self.worker.can = structs.replace(can, tools=(can.tools or frozenset()) | {name})
        self.worker.doorbell.ring()

    def _session(self, definition: "Definition") -> "Callable[[str], Session]":
        from refold.worker.session import Session

        def session(run: str) -> Session:
            return self.sessions.setdefault(run, Session(dict(definition.resources)))

        return session

    def _rooms(self) -> "House":
        from refold.executors.threads import Threads
        from refold.worker.tries import House

        async def read(run: str, hash: str) -> Any:
            return codec.unbox(await self.read_blob(run, hash))

        async def register(plan: Plan) -> str:
            return await self.engine.register(plan)

        if self._house is None:
            self._threads = Threads(self.worker.slots)
            self._house = House(self.worker.clock, read, self.known, register, self._threads.run, self.isolated)
        return self._house

    def _tell_ends(self) -> None:
        """The live objects of a run end with it."""
        tell = self.engine.mailroom.on_end

        def ended(seen: Seen) -> None:
            self.sessions.pop(seen.state.run, None)
            tell(seen)

        self.engine.mailroom.on_end = ended
