"""Operations on runs: reopen, migrate, retry and cancel items. They are checked under the lock of the run."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from refold.core.codec import decode_snapshot, encode_snapshot
from refold.core.decide.decision import Decision
from refold.core.decide.migrate import Refusal, migrate, refusals
from refold.core.facts import ItemsCancelled, ItemsReopened, RunMigrated, RunReopened
from refold.core.fold.apply import fold, life_of
from refold.core.fold.fanout import failed_items
from refold.core.fold.reopen import reopening, undone
from refold.core.graph import Graph
from refold.core.read.budget import PAUSED_BY_BUDGET, over_budget, over_budget_text
from refold.core.read.dead_letters import tolerated
from refold.core.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    ISSUED,
    ITEM_COMPLETED,
    ITEM_RUNNING,
    ITEM_WAITING,
    RUNNING,
    TERMINAL,
    FanOut,
    RunState,
)
from refold.errors import CannotMigrate, Conflict, InvalidValue, NotFound
from refold.runtime.children import check_inputs
from refold.runtime.mail import CancelItems, Migrate, Reopen, RetryItems
from refold.schemas import WORK_UNDER_LOCK

SHORT = 12  # characters by which a plan is named


def move(d: Decision, mail: Migrate) -> None:
    """Record that the run follows the new plan, or raise the reason for which it cannot."""
    refuse(d.graph, mail.graph, d.state, mail.plan)
    migrate(d, mail.graph, RunMigrated(mail.plan, mail.by))


def refuse(old: Graph, new: Graph, state: RunState, plan: str) -> None:
    """Raises Conflict, or CannotMigrate with every step that prevents it."""
    if state.life in TERMINAL:
        how = f"; `refold runs retry {state.name or state.run} --with FILE` reopens it"
        hint = how if state.life != COMPLETED else ""
        raise Conflict(f"run {state.run} is {state.life}, and only one that is under way is migrated{hint}")
    if state.life != RUNNING:
        raise Conflict(f"run {state.run} is {life_of(state)}, and needs no other plan for that")
    if state.kept is not None:
        raise Conflict(f"items of run {state.run} are run again, by the plan by which the run had ended")
    if state.plan == plan:
        raise Conflict(f"run {state.run} follows plan {plan[:SHORT]} already")
    found = refusals(old, new, state) or list(_inputs(new, state))
    if found:
        raise CannotMigrate(state.run, plan, [(each.step, each.why) for each in found])


def _inputs(new: Graph, state: RunState) -> Sequence[Refusal]:
    try:
        check_inputs(new.plan, {**new.plan.defaults, **state.input}, WORK_UNDER_LOCK)
    except InvalidValue as error:
        return (Refusal("", str(error)),)
    return ()


def refuse_spent(state: RunState, budget: Mapping[str, int | float]) -> None:
    """Refuse to resume a run that its budget paused unless the budget grows: it would be paused again immediately."""
    over = over_budget(state, budget) if state.paused_by == PAUSED_BY_BUDGET else None
    if over is not None:
        raise Conflict(
            f"{over_budget_text(*over)}: raise it, as in `refold runs resume RUN --budget {over[0]}={2 * over[1]:g}`"
        )


def reopen(d: Decision, mail: Reopen) -> None:
    """Record that the run resumes, by another plan if the mail says so, or raise the reason for which it cannot."""
    state, step = d.state, mail.step
    name = state.name or state.run
    if state.life == COMPLETED and not step:
        raise Conflict(
            f"run {name} is completed, so nothing is left to do; --from STEP runs that step and what follows"
        )
    if state.life not in (FAILED, CANCELLED, COMPLETED):
        raise Conflict(f"run {name} is {state.life}: only one that has ended is retried")
    if state.parent is not None:
        raise Conflict(f"run {state.run} was started by run {state.parent.run}: retry that one")
    if step:
        _check_step(d, step)
    fact = structs.replace(reopening(d.graph, state, step, mail.by), budget=mail.budget)
    if mail.to is None or mail.to.plan == state.plan:
        d.record_fact(fact)
        return
    refuse(d.graph, mail.to.graph, _state_after(d, fact), mail.to.plan)
    d.record_fact(fact)
    migrate(d, mail.to.graph, RunMigrated(mail.to.plan, mail.by))


def _state_after(d: Decision, fact: RunReopened) -> RunState:
    """Return a copy of the state in which the fact is folded: a refusal must not have changed the run."""
    state = decode_snapshot(encode_snapshot(d.state))
    assert state is not None
    fold(d.graph, [(state.seq + 1, d.now, fact)], state)
    return state


def _check_step(d: Decision, step: str) -> None:
    if d.graph.by_events:
        raise Conflict("steps of this workflow follow events: it continues with what was lost, and not from a step")
    s = d.graph.index.get(step)
    if s is None:
        raise NotFound(f"{d.graph.plan.name!r} has no step {step!r}; it has {', '.join(d.graph.index)}")
    if s in d.graph.finalizers:
        raise Conflict(f"{step!r} runs when the run ends, and will do so again; nothing follows from it")
    if not d.state.steps[s].visits:
        raise Conflict(f"the run has never reached step {step!r}")


def apply_operation(d: Decision, mail: Reopen | RetryItems | CancelItems | Migrate) -> None:
    """Record the facts of an operation, or raise the reason for a refusal."""
    match mail:
        case Reopen():
            reopen(d, mail)
        case RetryItems():
            _retry(d, mail)
        case CancelItems():
            _cancel(d, mail)
        case Migrate():
            move(d, mail)


def _retry(d: Decision, mail: RetryItems) -> None:
    """Run items again while their loop runs, or after the end of the run, which then resumes. Later steps are not
    repeated."""
    if not mail.step:
        _retry_tolerated(d, mail)
        return
    s, fan = _loop(d, mail.step)
    chosen = mail.items or tuple(
        item for item, life in enumerate(fan.status) if life not in (ITEM_COMPLETED, ITEM_RUNNING, ITEM_WAITING)
    )
    if d.state.life in TERMINAL:
        chosen = mail.items or tuple(item for item, life in enumerate(fan.status) if life != ITEM_COMPLETED)
        _check(fan, chosen, (ITEM_COMPLETED,), "has completed")
        _need(chosen, mail.step)
        _check_stops(d, s, fan, chosen)
        _go_on(d, [mail.step], mail, {mail.step: chosen})
        return
    if d.state.steps[s].life != ISSUED or d.state.outcome:
        name = d.state.name or d.state.run
        raise Conflict(
            f"step {mail.step!r} is over and run {name} is not: wait for its end or cancel it; then"
            " `refold runs retry --item` runs items again, and --follow what comes after them"
        )
    _check(fan, chosen, (ITEM_COMPLETED,), "has completed")
    _check(fan, chosen, (ITEM_RUNNING, ITEM_WAITING), "is not over yet")
    _need(chosen, mail.step)
    _check_stops(d, s, fan, chosen)
    d.record_fact(ItemsReopened(mail.step, fan.visit, chosen, mail.by))


def _retry_tolerated(d: Decision, mail: RetryItems) -> None:
    failed = [each.step for each in tolerated(d.graph, d.state)]
    if d.state.life not in TERMINAL or not failed:
        raise Conflict(f"run {d.state.run} has tolerated no failure")
    _go_on(d, failed, mail, {})


def _go_on(d: Decision, loops: list[str], mail: RetryItems, items: dict[str, tuple[int, ...]]) -> None:
    """Run items of loops again. Of loops that had completed nothing else, unless the mail says to follow their arcs: no
    step behind them is visited again, and the run ends as it had ended."""
    graph, state = d.graph, d.state
    if d.state.parent is not None:
        raise Conflict(f"run {state.run} was started by run {d.state.parent.run}: retry that one")
    steps = [graph.index[name] for name in loops]
    if mail.follow or not undone(graph, state).isdisjoint(steps):
        fact = reopening(graph, state, by=mail.by, loops=loops, follow=mail.follow)
        d.record_fact(structs.replace(fact, items=items))
        return
    for s in steps:
        fan, step = state.steps[s].fan, state.steps[s]
        if step.life != COMPLETED or fan is None or fan.visit != step.visits:
            raise Conflict(
                f"step {graph.name(s)!r} has not completed its last visit: --from {graph.name(s)} repeats it"
            )
    d.record_fact(RunReopened(tuple(loops), by=mail.by, items=items, alone=True))


def _cancel(d: Decision, mail: CancelItems) -> None:
    s, fan = _loop(d, mail.step)
    if d.state.life in TERMINAL or d.state.steps[s].life != ISSUED:
        raise Conflict(f"step {mail.step!r} is over: there is nothing to cancel")
    _check(fan, mail.items, (ITEM_COMPLETED,), "has completed")
    chosen = tuple(item for item in dict.fromkeys(mail.items) if fan.status[item] in (ITEM_RUNNING, ITEM_WAITING))
    if len(chosen) < len(set(mail.items)):
        raise Conflict(f"item {min(set(mail.items) - set(chosen))} of {mail.step!r} is over already")
    _need(chosen, mail.step)
    d.record_fact(ItemsCancelled(mail.step, fan.visit, chosen, mail.by))


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
    """A loop that starts nothing after a failure would not start these items while another item stays failed."""
    loop = d.graph.step(s).loop
    left = sorted(set(failed_items(fan)) - set(chosen))
    if left and loop is not None and loop.on_item_error in ("stop", "halt"):
        why = f"item {left[0]} failed too, and step {d.graph.name(s)!r} begins nothing after a failure"
        raise Conflict(f"{why}: choose it as well, or choose none")


def _need(items: tuple[int, ...], step: str) -> None:
    if not items:
        raise Conflict(f"no item of {step!r} has failed or was cancelled")
