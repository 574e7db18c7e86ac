"""What others want of a run: signals, decisions, pauses, cancellations, another try; each becomes a piece of mail."""

from collections.abc import Iterable
from math import inf
from typing import Any

from refold.core import codec
from refold.core.loops import Graph
from refold.errors import InvalidValue
from refold.runtime.mail import Cancel, CancelItems, DecideGate, Migrate, Pause, Reopen, Resume, RetryItems, Signal
from refold.runtime.mailroom import Mailroom


class Steering:
    mailroom: Mailroom

    async def signal(self, run: str, name: str, value: Any = None, sender: str = "") -> None:
        codec.check_value(value, "value")
        await self.mailroom.send(run, Signal(name, value, sender))

    async def decide(
        self, run: str, step: str, option: str, *, by: str = "", feedback: Any = None, visit: int | None = None
    ) -> None:
        """A person's decision at a gate, for the last visit or for this one; the first counts, later ones conflict."""
        codec.check_value(feedback, "feedback")
        await self.mailroom.send(run, DecideGate(step, option, by, feedback, visit))

    async def pause(self, run: str, by: str = "") -> None:
        await self.mailroom.send(run, Pause(by))

    async def resume(self, run: str, by: str = "", budget: dict[str, int | float] | None = None) -> None:
        """Lift a pause, perhaps with new limits of its budget."""
        await self.mailroom.send(run, Resume(by, _checked(budget)))

    async def retry(self, run: str, step: str = "", by: str = "", budget: dict[str, int | float] | None = None) -> None:
        """A run that has failed or was cancelled goes on with what did not come to its end, or from a step on."""
        await self.mailroom.send(run, Reopen(by, step, _checked(budget)))

    async def retry_items(self, run: str, step: str, items: Iterable[int] = (), by: str = "") -> None:
        """Items of a loop that failed or were cancelled are run again, all of them or these; nothing else is."""
        await self.mailroom.send(run, RetryItems(step, tuple(items), by))

    async def cancel_items(self, run: str, step: str, items: Iterable[int], by: str = "") -> None:
        """Items of a loop that nobody wants any more; the others go on."""
        await self.mailroom.send(run, CancelItems(step, tuple(items), by))

    async def migrate(self, run: str, plan: str, by: str = "") -> None:
        """To a plan that the store knows, by its hash. What has happened stays as it is; what comes follows the plan.

        Raises CannotMigrate, with the steps that stand in the way.
        """
        turns = self.mailroom.turns
        graph: Graph = await self.mailroom.advance(lambda: turns.graph(plan))
        await self.mailroom.send(run, Migrate(plan, graph, by))

    async def cancel(self, run: str, reason: str = "", by: str = "", command: str = "") -> None:
        """The whole run, or one open command of it, which is then routed as a failure."""
        await self.mailroom.send(run, Cancel(reason, by, command))


def _checked(budget: dict[str, int | float] | None) -> dict[str, int | float]:
    for unit, limit in (budget or {}).items():
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < inf:
            raise InvalidValue(f"budget.{unit}", f"{limit!r} is no limit")
    return budget or {}
