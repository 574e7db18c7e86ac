"""Delivers mail to runs. Mail that arrives while a turn is committed waits and forms the batch of the next turn."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from refold.body_tasks import outside_of_bodies
from refold.core import codec
from refold.core.faults import text_of
from refold.core.graph import prepare
from refold.core.outcomes import NO_QUEUEING, Instant, Queueing
from refold.core.plan import Plan
from refold.errors import Conflict, EngineClosed, NotFound, Unavailable
from refold.logs import DEBUG, ERROR, WARNING, event, logger
from refold.ports import Advance, AtOnce, Doorbell, Lease, Offer
from refold.runtime.children import fits
from refold.runtime.mail import Look, Mail, Settle, Start
from refold.runtime.turn import Delivery, Rider, RunSnapshot, TurnResult, Turns

log = logger("runtime")

BATCH = 1000  # deliveries in one commit
SHARE = 4  # deliveries of one run in a commit while other runs have mail too
COMPANY = 0.05  # seconds for which other runs that had mail are expected to get more
AT_ONCE = 16  # reports in a row that are committed before `send` returns; then other tasks get their turn


Waiting = list[tuple[Delivery, asyncio.Future[Delivery] | None]]
"""Mail, each with the future of the sender, if the sender waits for the answer."""


class LocalWorker(Protocol):
    """A worker of this process: what a turn issues is leased to it in the same commit, as far as it has room."""

    def offer(self) -> Offer | None: ...

    def accept(self, offer: Offer, leases: Sequence[Lease]) -> None:
        """Take the leases that the offer has brought; called once for each offer."""

    def is_alone(self) -> bool:
        """Whether the worker runs one command, so that no other report can arrive."""


class LazyOffer(Struct):
    """The slots that the worker offers; it is asked when the turn needs them. `close` must be called afterwards."""

    worker: LocalWorker | None
    made: Offer | None = None

    def __call__(self) -> Offer | None:
        if self.made is None and self.worker is not None:
            self.made = self.worker.offer()
        return self.made

    def close(self, result: TurnResult | None) -> None:
        if self.worker is not None and self.made is not None:
            self.worker.accept(self.made, () if result is None else result.leases)


def _ignore(*_: Any) -> None:
    return None


class TurnObserver(Struct, frozen=True):
    """What a process does after a commit, for each thing that the turn has brought about."""

    run_ended: Callable[[RunSnapshot], None] = _ignore
    children_started: Callable[[Sequence[tuple[str, str]]], None] = _ignore  # parents and their children
    alarm_set: Callable[[Instant, str], None] = _ignore  # a run must be looked at again at this moment
    limit_opens: Callable[[Instant], None] = _ignore  # commands that a limit keeps back can be claimed then
    command_withdrawn: Callable[[str, str], None] = _ignore  # its run and its id
    body_interrupted: Callable[[str, str], None] = _ignore  # the run is cancelled, and this command may clean up


class Mailroom:
    def __init__(
        self,
        turns: Turns,
        advance: Advance,
        doorbell: Doorbell,
        *,
        worker: Callable[[], LocalWorker | None] = lambda: None,
        observer: TurnObserver | None = None,
        at_once: AtOnce = lambda work: (False, None),
    ) -> None:
        """`worker` is asked at each turn, because the worker itself needs the mailroom to report to."""
        self.turns, self.advance, self.doorbell = turns, advance, doorbell
        self.worker, self.observer, self.at_once = worker, observer or TurnObserver(), at_once
        self._waiting: Waiting = []
        self._work: asyncio.Task[None] | None = None
        self._in_a_row = 0
        self._company_until = 0.0
        self._nudged: set[str] = set()  # runs for which a look is waiting

    async def send(self, run: str, mail: Mail, rider: Rider | None = None) -> Delivery:
        """Return when the mail is committed. Raises the reason for which the run refuses it."""
        post = Delivery(run, mail, rider=rider)
        if not self._report_at_once(post):
            self._in_a_row = 0
            reply: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
            self._put(post, reply)
            await reply
        if post.error is not None:
            raise post.error
        return post

    def _report_at_once(self, post: Delivery) -> bool:
        """Commit a report now if no other report can arrive: then there is no batch to wait for."""
        if self._waiting or not isinstance(post.mail, Settle) or self._in_a_row >= AT_ONCE:
            return False
        worker = self.worker()
        if worker is None or not worker.is_alone() or not (self._work is None or self._work.done()):
            return False
        offering = LazyOffer(worker)
        try:
            done, turned = self.at_once(partial(self.turns.commit, [post], offering))
        except Exception as error:  # a defect, but the senders must not wait for ever because of it
            event(log, ERROR, "turn ended with an internal error", run=post.run, error=error)
            post.error, done, turned = error, True, None
        offering.close(turned)
        if turned is not None:
            self._in_a_row += 1
            self._tell(turned)
            for run in turned.grown:
                with suppress(Unavailable):  # a snapshot is a cache: the next one will do
                    self.at_once(partial(self.turns.snapshot, run))
        return done

    def nudge(self, runs: Sequence[str]) -> None:
        """Let these runs read their letters and due timers. The caller does not wait for it."""
        for run in runs:
            if run not in self._nudged:  # one look finds everything that has arrived until then
                self._nudged.add(run)
                self._put(Delivery(run, Look()), None)

    def wake(self, run: str) -> None:
        """A timer of this run is due, or a command of it may start now."""
        self.nudge([run])
        self.doorbell.ring()

    def drop(self, run: str, mail: Mail) -> None:
        """Send mail without waiting for the answer."""
        self._put(Delivery(run, mail), None)

    def _put(self, post: Delivery, reply: asyncio.Future[Delivery] | None) -> None:
        self._waiting.append((post, reply))
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._deliver(), context=outside_of_bodies())

    async def _deliver(self) -> None:
        while self._waiting:
            batch = self._batch()
            if self._nudged:
                self._nudged.difference_update(post.run for post, _ in batch if isinstance(post.mail, Look))
            turned = await self._turn(batch)
            self._tell(turned)
            for run in turned.grown:
                with suppress(Unavailable):  # as above
                    await self.advance(partial(self.turns.snapshot, run))
            if self._waiting:
                await asyncio.sleep(0)  # senders that were answered run before the next turn, which may block

    def _batch(self) -> Waiting:
        """Take at most SHARE deliveries per run when several runs have mail, so that a busy run cannot delay the
        others."""
        now = asyncio.get_running_loop().time()
        runs = Counter(post.run for post, _ in self._waiting)
        if len(runs) > 1:
            self._company_until = now + COMPANY
        if now > self._company_until or max(runs.values()) <= SHARE:
            whole, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            return whole
        batch: Waiting = []
        rest: Waiting = []
        taken = Counter[str]()
        for each in self._waiting:
            run = each[0].run
            fits = taken[run] < SHARE and len(batch) < BATCH
            taken[run] += fits
            (batch if fits else rest).append(each)
        self._waiting = rest
        return batch

    async def _turn(self, batch: Waiting) -> TurnResult:
        """Answer the senders first and accept the offer then, so that work begins in the order in which it was
        claimed."""
        posts = [post for post, _ in batch]
        offering, turned = LazyOffer(self.worker()), None
        offering()  # a turn on another thread cannot ask the worker
        try:
            try:
                turned = await self.advance(partial(self.turns.commit, posts, offering))
            except Exception as error:  # a defect, but the senders must not wait for ever because of it
                if not isinstance(error, EngineClosed):
                    event(
                        log, ERROR, "turn ended with an internal error", run=posts[0].run, runs=len(posts), error=error
                    )
                for post in posts:
                    post.error = error
            for post, reply in batch:
                if reply is not None and not reply.done():
                    reply.set_result(post)
                elif reply is None and post.error is not None:
                    _log_dropped(post, post.error)
        finally:
            offering.close(turned)
        return turned if turned is not None else TurnResult()

    def _tell(self, turned: TurnResult) -> None:
        if turned.issued > 0 or turned.freed:
            self.doorbell.ring()
        if turned.births:
            self.observer.children_started(turned.births)
        if turned.sent_to:
            self.nudge(turned.sent_to)
        for due, run in turned.alarms:
            self.observer.alarm_set(due, run)
        if turned.again is not None:
            self.observer.limit_opens(turned.again)
        for run, command in turned.withdrawn:
            self.observer.command_withdrawn(run, command)
        for run, command in turned.interrupted:
            self.observer.body_interrupted(run, command)
        for seen in turned.ended:
            self.observer.run_ended(seen)


def _log_dropped(post: Delivery, error: Exception) -> None:
    """Log a refusal that no sender waits for. What is still due is found again by the sweep."""
    level = DEBUG if isinstance(error, NotFound) else WARNING
    event(log, level, "mail was refused", run=post.run, mail=type(post.mail).__name__.lower(), why=text_of(error))


class Intake:
    """Delivers mail to runs where no engine runs: a start, a pause, a cancellation, each as one commit. It is
    synchronous and executes nothing; the processes that serve the store find what has changed."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def register(self, plan: Plan) -> None:
        """Store a workflow, so that other runs can start it as their child."""
        prepared = prepare(plan)
        self.turns.store.put_plan(prepared.hash, prepared.data)

    def start(
        self,
        plan: Plan,
        input: dict[str, Any],
        run: str,
        name: str = "",
        key: str = "",
        code: str = "",
        labels: Mapping[str, str] | None = None,
        folder: str = "",
        file: str = "",
        queueing: Queueing = NO_QUEUEING,
    ) -> bool:
        """Return False if the key has its run already."""
        codec.check_value(input, "input")
        try:
            fit = bool(fits(plan, input))  # before the lock is taken, because it may take long
            start = Start(
                prepare(plan),
                input,
                name,
                key,
                code=code,
                labels=dict(labels or {}),
                fits=fit,
                folder=folder,
                queueing=queueing,
                file=file,
            )
            self.send(run, start)
        except Conflict:
            if not key:
                raise
            return False
        return True

    def send(self, run: str, mail: Mail, rider: Rider | None = None) -> None:
        """Deliver mail, and let the receivers of the letters that follow read them. Raises the reason for a refusal."""
        post = Delivery(run, mail, rider=rider)
        receivers = self.turns.commit([post]).sent_to
        if post.error is not None:
            raise post.error
        while receivers:
            receivers = self.turns.commit([Delivery(each, Look()) for each in dict.fromkeys(receivers)]).sent_to
