"""What is run again or taken back, runs and single items of loops: judged under the lock of the run."""

from collections.abc import Iterable

from msgspec import structs

from refold.core.dead import tolerated
from refold.core.decision import Decision
from refold.core.facts import ItemsCancelled, ItemsReopened
from refold.core.fanout import failed_items
from refold.core.reopening import reopening
from refold.core.state import DONE, ISSUED, OPEN, TERMINAL, WAITS, FanOut
from refold.errors import Conflict, NotFound
from refold.runtime.mail import CancelItems, Migrate, Reopen, RetryItems
from refold.runtime.migrating import move
from refold.runtime.reopen import reopen


def change(d: Decision, mail: Reopen | RetryItems | CancelItems | Migrate) -> None:
    """Say what is run again or taken back, or which plan is followed, or raise why not."""
    match mail:
        case Reopen():
            reopen(d, mail.step, mail.by, mail.budget)
        case RetryItems():
            _retry(d, mail)
        case CancelItems():
            _cancel(d, mail)
        case Migrate():
            move(d, mail)


def _retry(d: Decision, mail: RetryItems) -> None:
    """While the loop goes on, or after the end of the run, which goes on then; nothing that follows is run again."""
    if not mail.step:
        _retry_tolerated(d, mail.by)
        return
    s, fan = _loop(d, mail.step)
    chosen = mail.items or tuple(item for item, life in enumerate(fan.status) if life not in (DONE, OPEN, WAITS))
    if d.state.life in TERMINAL:
        chosen = mail.items or tuple(item for item, life in enumerate(fan.status) if life != DONE)
        _check(fan, chosen, (DONE,), "has completed")
        _need(chosen, mail.step)
        _check_stops(d, s, fan, chosen)
        _go_on(d, [mail.step], mail.by, {mail.step: chosen})
        return
    if d.state.steps[s].life != ISSUED or d.state.outcome:
        raise Conflict(f"step {mail.step!r} is over, but run {d.state.run} is not: its items are retried after its end")
    _check(fan, chosen, (DONE,), "has completed")
    _check(fan, chosen, (OPEN, WAITS), "is not over yet")
    _need(chosen, mail.step)
    _check_stops(d, s, fan, chosen)
    d.say(ItemsReopened(mail.step, fan.visit, chosen, mail.by))


def _retry_tolerated(d: Decision, by: str) -> None:
    failed = [each.step for each in tolerated(d.graph, d.state)]
    if d.state.life not in TERMINAL or not failed:
        raise Conflict(f"run {d.state.run} has tolerated no failure")
    _go_on(d, failed, by, {})


def _go_on(d: Decision, loops: list[str], by: str, items: dict[str, tuple[int, ...]]) -> None:
    if d.state.parent is not None:
        raise Conflict(f"run {d.state.run} was started by run {d.state.parent.run}: retry that one")
    d.say(structs.replace(reopening(d.graph, d.state, by=by, loops=loops), items=items))


def _cancel(d: Decision, mail: CancelItems) -> None:
    s, fan = _loop(d, mail.step)
    if d.state.life in TERMINAL or d.state.steps[s].life != ISSUED:
        raise Conflict(f"step {mail.step!r} is over: there is nothing to cancel")
    _check(fan, mail.items, (DONE,), "has completed")
    chosen = tuple(item for item in dict.fromkeys(mail.items) if fan.status[item] in (OPEN, WAITS))
    if len(chosen) < len(set(mail.items)):
        raise Conflict(f"item {min(set(mail.items) - set(chosen))} of {mail.step!r} is over already")
    _need(chosen, mail.step)
    d.say(ItemsCancelled(mail.step, fan.visit, chosen, mail.by))


def _loop(d: Decision, step: str) -> tuple[int, FanOut]:
    s = d.graph.index.get(step)
    if s is None:
        raise NotFound(f"{d.graph.plan.name!r} has no step {step!r}; it has {', '.join(d.graph.index)}")
    fan = d.state.steps[s].fan
    if fan is None:
        raise Conflict(f"step {step!r} has no items" + ("" if d.graph.step(s).loop is None else " yet"))
    return s, fan


def _check(fan: FanOut, items: Iterable[int], refused: tuple[int, ...], why: str) -> None:
    for item in items:
        if not 0 <= item < fan.count:
            raise NotFound(f"there is no item {item}; there are {fan.count}, and the first is 0")
        if fan.status[item] in refused:
            raise Conflict(f"item {item} {why}")


def _check_stops(d: Decision, s: int, fan: FanOut, chosen: tuple[int, ...]) -> None:
    """A loop that begins nothing after a failure would not begin these while another stays failed."""
    loop = d.graph.step(s).loop
    left = sorted(set(failed_items(fan)) - set(chosen))
    if left and loop is not None and loop.failures in ("stop", "halt"):
        why = f"item {left[0]} failed too, and step {d.graph.name(s)!r} begins nothing after a failure"
        raise Conflict(f"{why}: choose it as well, or choose none")


def _need(items: tuple[int, ...], step: str) -> None:
    if not items:
        raise Conflict(f"no item of {step!r} has failed or was cancelled")
