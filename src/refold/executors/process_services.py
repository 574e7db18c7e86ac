"""Everything that runs in other processes for one engine: warm interpreters and programs, with common supervisors."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from refold.executors.limits import Limits
from refold.ports import Say

if TYPE_CHECKING:
    from refold.executors.interpreter_pool import InterpreterPool
    from refold.executors.programs import Programs
    from refold.executors.supervised import Supervisors

IDLE_FOR = 60.0  # seconds after which an interpreter without work ends


class ProcessServices:
    """No part of it is imported, created or started before a step needs it."""

    def __init__(
        self, size: int, grace: float, limits: Limits, env: Mapping[str, str], idle_for: float = IDLE_FOR
    ) -> None:
        self.size, self.grace, self.limits, self.env, self.idle_for = size, grace, limits, env, idle_for

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        return await self.interpreters.run(call, input, say)

    async def close(self) -> None:
        for part in ("programs", "interpreters", "supervisors"):
            if part in vars(self):
                await getattr(self, part).close()

    @cached_property
    def supervisors(self) -> "Supervisors":
        from refold.executors.supervised import Supervisors

        return Supervisors(self.limits)

    @cached_property
    def interpreters(self) -> "InterpreterPool":
        from refold.executors.interpreter_pool import InterpreterPool

        return InterpreterPool(
            self.size, grace=self.grace, supervisors=self.supervisors, env=self.env, idle_for=self.idle_for
        )

    @cached_property
    def programs(self) -> "Programs":
        from refold.executors.programs import Programs

        return Programs(self.grace, supervisors=self.supervisors, env=self.env)
