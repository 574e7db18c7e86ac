"""All that runs in processes of its own for one engine: warm interpreters and programs, under the same wardens."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from refold.executors.limits import Limits
from refold.ports import Say

if TYPE_CHECKING:
    from refold.executors.interpreter_pool import Processes
    from refold.executors.programs import Programs
    from refold.executors.supervised import Wardens


class Isolated:
    """Nothing of it is loaded, made or started before a step needs it."""

    def __init__(self, size: int, grace: float, limits: Limits, env: Mapping[str, str]) -> None:
        self.size, self.grace, self.limits, self.env = size, grace, limits, env

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        return await self.processes.run(call, input, say)

    async def close(self) -> None:
        for part in ("programs", "processes", "wardens"):
            if part in vars(self):
                await getattr(self, part).close()

    @cached_property
    def wardens(self) -> "Wardens":
        from refold.executors.supervised import Wardens

        return Wardens(self.limits)

    @cached_property
    def processes(self) -> "Processes":
        from refold.executors.interpreter_pool import Processes

        return Processes(self.size, grace=self.grace, wardens=self.wardens, env=self.env)

    @cached_property
    def programs(self) -> "Programs":
        from refold.executors.programs import Programs

        return Programs(self.grace, wardens=self.wardens, env=self.env)
