"""Keys of runs: which run a key means, and what a second start with the same key does."""

import hashlib
from typing import Any, Literal, get_args

from msgspec import Struct, json

from refold.core.facts import RunStarted
from refold.core.plan import Plan
from refold.core.read.summary import Summary
from refold.core.state import CANCELLED, COMPLETED, FAILED
from refold.errors import InvalidValue, KeyTaken
from refold.ports import RunFilter, Views

KeyPolicy = Literal["forever", "while_running"]
"""How long a key belongs to its run: always, or until the run has ended."""

OnTaken = Literal["return", "raise", "cancel_other"]
"""What a start does whose key belongs to a run: return that run, raise KeyTaken, or cancel it and start another."""

_OVER = (COMPLETED, FAILED, CANCELLED)  # a run that is continued by a successor is not over


class RunKey(Struct, frozen=True):
    """The key of a run that is to start."""

    text: str
    policy: KeyPolicy = "forever"
    on_taken: OnTaken = "return"

    def check(self) -> None:
        """Raises InvalidValue."""
        if self.policy not in get_args(KeyPolicy):
            raise InvalidValue("key_policy", f"{self.policy!r} is not one of {', '.join(get_args(KeyPolicy))}")
        if self.on_taken not in get_args(OnTaken):
            raise InvalidValue("on_taken", f"{self.on_taken!r} is not one of {', '.join(get_args(OnTaken))}")
        if self.on_taken == "cancel_other" and self.policy == "forever":
            why = 'a key that is taken forever cannot be taken over; give key_policy="while_running" too'
            raise InvalidValue("on_taken", why)
        if not self.text and (self.policy, self.on_taken) != ("forever", "return"):
            raise InvalidValue("key", "key_policy and on_taken need a key")


def run_of_key(key: str) -> str:
    """Derive the id of a run from its key, so that there is one run however many callers start it together."""
    return hashlib.sha256(f"key/{key}".encode()).hexdigest()[:32]


def next_run(run: str) -> str:
    """Derive the id of the next run of a key from the run before it, so that callers who start it together agree."""
    return hashlib.sha256(f"key/again/{run}".encode()).hexdigest()[:32]


def place_of(views: Views, key: RunKey) -> tuple[str, Summary | None]:
    """Return the run that a start with this key means, and its row if the key belongs to it already."""
    if key.policy == "forever":
        run = run_of_key(key.text)
        return run, views.summary(run)
    newest = views.runs(RunFilter(key=key.text), limit=1).rows
    run = newest[0].run if newest else run_of_key(key.text)
    row = views.summary(run)
    while row is not None and row.status in _OVER:
        run = next_run(run)
        row = views.summary(run)
    return run, row


def check_same_start(views: Views, key: str, run: str, plan: Plan, input: dict[str, Any]) -> list[str]:
    """Return the inputs that differ from those with which the run of this key was started.

    Raises KeyTaken if it is a run of another workflow.
    """
    row = views.summary(run)
    if row is not None and row.workflow != plan.name:
        why = f"key {key!r} belongs to run {run} of workflow {row.workflow!r}, and this is {plan.name!r}"
        raise KeyTaken(f"{why}: give this start another key", run)
    first = next((fact for _, _, fact in views.facts(run, 0, 1)), None)
    if not isinstance(first, RunStarted):
        return []
    asked, before = json.decode(json.encode(input)), first.input
    if plan.computed:  # the stored inputs were computed from the given ones, and maps were merged
        asked = {name: value for name, value in asked.items() if not isinstance(value, dict)}
    differ = [name for name, value in asked.items() if name not in before or before[name] != value]
    if not plan.computed:
        differ += [name for name in before if name not in asked and before[name] != plan.defaults.get(name)]
    return sorted(differ)
