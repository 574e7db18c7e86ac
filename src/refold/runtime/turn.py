"""One turn of the engine: lock runs, fold their mail, decide, write, commit. One commit serves many runs."""

import os
import traceback
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol

from msgspec import Struct, field, structs

from refold.core import codec
from refold.core.commands import HELD, Command, Held, Letter, LetterReport, LetterStart
from refold.core.decide.decision import Decision
from refold.core.expressions import Contained, Evaluate, Languages, unknown
from refold.core.faults import text_of
from refold.core.graph import Graph, PreparedPlan
from refold.core.outcomes import SECOND, Failed, Fault, Instant
from refold.core.plain_values import escape_inputs
from refold.core.plan import Child, Step, hash_of
from refold.core.queueing import executor_of
from refold.core.read.loaded import Loaded
from refold.core.read.summary import summarize
from refold.core.state import ENDING, RUNNING, TERMINAL, RunState
from refold.errors import Ambiguous, Conflict, Corrupt, LeaseLost, NotFound, Outdated, RefoldError, Unavailable
from refold.logs import DEBUG, ERROR, INFO, WARNING, event, logger
from refold.ports import ClaimRequest, Hint, Lease, Memory, Offer, Place, Store, StoreTurn, Writes
from refold.queries.reading import replayed, stored_graph
from refold.runtime.accept import MailReader, reported
from refold.runtime.children import DEPTH, ChildLimits
from refold.runtime.loading import dead_of, decided, memory_of, with_memory
from refold.runtime.mail import Expect, Expire, Look, Mail, Note, Settle, Start, Wake
from refold.runtime.schedule_writes import wake_schedule
from refold.runtime.turn_log import LogLine, turn_lines, write_lines

TRIES = 3  # attempts to commit a turn
FIRST_PAUSE, LONGEST_PAUSE = 1, 300  # seconds before a run that is stuck is decided again

log = logger("runtime")

_OWN = (Start, Settle, Note)  # mail that concerns its run alone
_OF_BODIES = (Note, Expect, Wake)  # mail of bodies that are running or parked; they ask again
_PATIENT = (Settle, *_OF_BODIES, Expire, Look)  # mail that can wait until a run that is stuck is tried again


class Rider(Protocol):
    """Changes documents in the commit that takes a piece of mail. A turn that is tried again calls it again."""

    def admit(self, turn: StoreTurn) -> None:
        """Raises Conflict if the documents are not what the sender has seen: then the mail is not taken."""

    def write(self, turn: StoreTurn, error: Exception | None) -> None:
        """Write the documents; the error is the reason for which the run has refused the mail."""


class Delivery(Struct):
    """A piece of mail, and what came of it: the reason for a refusal, or the next lease of the sender."""

    run: str
    mail: Mail
    error: Exception | None = None
    next: Lease | None = None  # claimed in the same commit
    rider: Rider | None = None


class CachedRun(Struct):
    """A run in memory, as folded so far."""

    graph: Graph
    state: RunState
    snapshot_at: int = 0
    kept: Loaded = field(default_factory=Loaded)  # values that the run is expected to need again soon


class Stuck(Struct, frozen=True):
    """A run that cannot be advanced because of an error that the user did not cause; its reports are kept next to its
    log."""

    why: str
    tries: int
    until: Instant  # the next attempt


class RunSnapshot(Struct, frozen=True):
    """A run at one moment, for readers."""

    graph: Graph
    state: RunState
    now: Instant
    blobs: Mapping[str, Any] = {}  # values that are in memory and need not be read from the store


class TurnResult(Struct):
    """What a commit has brought about, for the other parts of the process."""

    ended: list[RunSnapshot] = []
    issued: int = 0  # commands that wait for a worker now
    freed: bool = False  # commands of other runs may be free to claim too
    leases: list[Lease] = []  # for the worker that made an offer
    sent_to: list[str] = []  # runs that have letters now
    births: list[tuple[str, str]] = []  # runs, and the children they have started
    grown: list[str] = []  # runs whose log has outgrown their snapshot
    alarms: list[tuple[Instant, str]] = []  # when a run must be looked at again
    again: Instant | None = None  # when a limit that kept commands back allows more
    withdrawn: list[tuple[str, str]] = []  # commands that have ended without a report of their holder
    interrupted: list[tuple[str, str]] = []  # commands whose bodies are running and get CancelledError
    lines: list[tuple[str, LogLine]] = []  # for the log, each with its run


class TurnOptions(Struct, frozen=True, kw_only=True):
    lease_for: float = 30.0  # seconds
    languages: Languages = unknown  # for plans that name theirs
    keep: int = 1000  # states in memory
    kept_run: str = ""  # stays in memory after its end: a process that serves one run looks at it again
    snapshot_every: int = 4000  # facts
    depth_limit: int = DEPTH  # runs above a run
    executor_of: Callable[[str, Step], str] = executor_of  # where the body of a step runs, by plan and step
    decision: type[Decision] = Decision  # a simulation uses a class that raises in the middle of a turn


class Turns:
    """Commits the turns of one process. Plain synchronous code, used by one thread at a time."""

    def __init__(
        self,
        store: Store,
        evaluate: Evaluate,
        chance: Callable[[], float],
        new_id: Callable[[], str],
        options: TurnOptions | None = None,
    ) -> None:
        options = options or TurnOptions()
        self.store, self.evaluate, self.chance, self.lease_for = store, evaluate, chance, options.lease_for
        self.languages, self.keep, self.snapshot_every = options.languages, options.keep, options.snapshot_every
        self.decision, self.executor_of, self.kept_run = options.decision, options.executor_of, options.kept_run
        self._contained = Contained(evaluate)
        self._process, self._turns = new_id(), count()  # a turn is named by its process and a number
        self.child_limits = ChildLimits(
            store, lambda plan: (self.graph(plan), self._language(self.graph(plan))), options.depth_limit
        )
        self.known: OrderedDict[str, CachedRun] = OrderedDict()
        self.graphs: dict[str, Graph] = {}
        self.broken: dict[str, Corrupt] = {}  # runs whose log cannot be folded; other runs are not affected
        self.stuck: dict[str, Stuck] = {}

    def commit(self, posts: Sequence[Delivery], offer: Callable[[], Offer | None] = lambda: None) -> TurnResult:
        """Deliver mail to its runs in one commit. Each delivery gets its own error; a refusal does not affect the
        others."""
        by_run: dict[str, list[Delivery]] = {}
        for post in posts:
            by_run.setdefault(post.run, []).append(post)
        failure: RefoldError | None = None
        hinted = self.store.takes_hints
        for _ in range(TRIES):
            turned, turn_id = TurnResult(), f"{self._process}-{next(self._turns):x}"
            heads: dict[str, int] = {}
            try:
                self._commit(by_run, turn_id, heads, turned, offer, self._hints(by_run) if hinted else {})
            except Outdated as error:
                for run in by_run:
                    self.known.pop(run, None)
                failure = Unavailable(str(error))
                hinted = False
                event(log, DEBUG, "turn is taken again", turn=turn_id, runs=len(by_run), why=text_of(error))
            except Unavailable as error:
                hinted = False
                failure = self._after_error(error, by_run, turn_id, heads)
                what = "turn failed" if failure is not None else "turn failed after its commit was carried out"
                event(log, WARNING, what, turn=turn_id, runs=len(by_run), run=min(by_run), why=text_of(error))
                if failure is None:
                    write_lines(turn_id, turned.lines)
                    return turned
                if isinstance(failure, Ambiguous):
                    break
            else:
                self._tidy(by_run, turned)
                if turned.lines:
                    write_lines(turn_id, turned.lines)
                return turned
        for post in posts:
            post.error, post.next = failure, None
        return TurnResult()

    def _after_error(
        self, error: Unavailable, by_run: Iterable[str], turn_id: str, heads: dict[str, int]
    ) -> Unavailable | None:
        """Return None if the commit was carried out in spite of the error; Ambiguous if the store cannot tell, so that
        it must not be tried again."""
        for run in by_run:
            self.known.pop(run, None)  # the state in memory may be ahead of the log
        try:
            return None if self._was_applied(turn_id, heads) else Unavailable(str(error))
        except Unavailable:
            return Ambiguous("the store failed during a commit and cannot say whether it was carried out")

    def put_plan(self, plan: PreparedPlan) -> None:
        """Store a plan, so that runs of others can start it as their child."""
        self.store.put_plan(plan.hash, plan.data)
        self.graphs.setdefault(plan.hash, plan.graph)

    def snapshot(self, run: str) -> None:
        """Store the state of a run, so that loading it does not fold its whole log."""
        known = self.known.get(run)
        if known is not None:
            self.store.put_snapshot(run, codec.encode_snapshot(known.state))
            known.snapshot_at = known.state.seq

    def look(self, run: str) -> RunSnapshot:
        """Return the run as it is now, for readers; the copy does not change."""
        with self.store.turn([run]) as turn:
            known = self._know(turn, run, (), ())
        if known is None:
            raise NotFound(f"there is no run {run}")
        if known.state.life in TERMINAL and run != self.kept_run:
            del self.known[run]
            return RunSnapshot(known.graph, known.state, turn.now)
        copied = codec.decode_snapshot(codec.encode_snapshot(known.state))
        assert copied is not None
        return RunSnapshot(known.graph, copied, turn.now)

    def states(self, runs: Collection[str]) -> list[RunState]:
        """Return the newest states of these runs. Read them now and do not keep them: the next turn changes them. A run
        that has not started, or whose log cannot be folded, is left out; the process that serves it logs the error."""
        found: list[RunState] = []
        with self.store.turn(sorted(runs)) as turn:
            for run in sorted(runs):
                try:
                    known = self._know(turn, run, (), ())
                except Unavailable:
                    raise
                except RefoldError:
                    continue  # the process that serves it logs the error
                if known is None:
                    continue
                if known.state.life in TERMINAL and run != self.kept_run:
                    del self.known[run]
                found.append(known.state)
        return found

    def interrupted(self, leases: Sequence[Lease]) -> Collection[Place]:
        """Return those of these leases whose run was cancelled while their body was running."""
        cleaning = {
            (state.run, command)
            for state in self.states({lease.run for lease in leases})
            for command, opened in state.open.items()
            if opened.grace is not None
        }
        places = [(lease.run, lease.command.id, lease.generation) for lease in leases]
        return [place for place in places if place[:2] in cleaning]

    def _was_applied(self, turn_id: str, heads: dict[str, int]) -> bool:
        """A commit is atomic, so one fact with the id of this turn shows that it was applied."""
        for _ in range(TRIES):
            with suppress(Unavailable):  # asked once more; the last time it is raised
                return any(self.store.was_applied(run, head + 1, turn_id) for run, head in heads.items())
        return any(self.store.was_applied(run, head + 1, turn_id) for run, head in heads.items())

    def _commit(
        self,
        by_run: dict[str, list[Delivery]],
        turn_id: str,
        heads: dict[str, int],
        turned: TurnResult,
        offer: Callable[[], Offer | None],
        hints: Mapping[str, Hint],
    ) -> None:
        asked: list[tuple[Delivery, ClaimRequest]] = []
        offered = None
        with self.store.turn_from(hints) if hints else self.store.turn(sorted(by_run)) as turn:
            for run in by_run:  # in the order of their mail, so that the run that was due first continues first
                ridden = [post for post in by_run[run] if post.rider is not None]
                posts = _admitted(turn, by_run[run]) if ridden else by_run[run]
                if posts:
                    self._advance_or_keep(turn, run, posts, turn_id, heads, turned)
                for post in ridden:
                    if post in posts and post.rider is not None:
                        post.rider.write(turn, post.error)
            for posts in by_run.values():
                asked += self._ask_next(turn, posts)
            made = offer() if turned.issued > len(asked) or turned.freed else None
            if made is not None:
                offered = turn.ask(made.can, self.lease_for, made.slots)
        for post, request in asked:
            turned.again = request.again or turned.again
            if request.leases:
                post.next = with_memory(request.leases, partial(self._of_events, request.heads))[0]
                turned.issued -= 1
        if offered is not None:
            turned.leases.extend(with_memory(offered.leases, partial(self._of_events, offered.heads)))
            turned.issued -= len(turned.leases)
            turned.again = offered.again or turned.again

    def _hints(self, by_run: Mapping[str, Sequence[Delivery]]) -> dict[str, Hint]:
        """What is remembered of runs whose mail concerns them alone: reports of their bodies, or a start."""
        hints: dict[str, Hint] = {}
        for run, posts in by_run.items():
            known, first = self.known.get(run), posts[0].mail
            if run in self.stuck or run in self.broken or any(post.rider is not None for post in posts):
                return {}
            if known is not None and known.state.schedule is not None:
                return {}  # its end may change documents
            if known is None and len(posts) == 1 and isinstance(first, Start) and first.is_fresh:
                hints[run] = Hint(0, is_fresh=True)
            elif known is not None and all(isinstance(post.mail, (Settle, Note)) for post in posts):
                leases = [post.mail.lease for post in posts if isinstance(post.mail, (Settle, Note))]
                held = {lease.command.id: lease.generation for lease in leases}
                if any(held[lease.command.id] != lease.generation for lease in leases):
                    return {}
                hints[run] = Hint(known.state.seq, held)
            else:
                return {}
        return hints

    def _advance_or_keep(
        self, turn: StoreTurn, run: str, posts: list[Delivery], turn_id: str, heads: dict[str, int], turned: TurnResult
    ) -> None:
        """Advance a run. If that fails, the other runs of the turn are still committed, and reports of its workers are
        kept."""
        stuck = self.stuck.get(run)
        if stuck is not None and turn.now < stuck.until and all(isinstance(post.mail, _PATIENT) for post in posts):
            row = self.store.summary(run)
            if row is not None and row.stuck == stuck.why:  # else another process has advanced it
                self._keep(turn, run, posts, turn_id, stuck)
                return
        try:
            self._advance(turn, run, posts, turn_id, heads, turned)
            if stuck is not None:
                self.stuck.pop(run, None)
        except (Unavailable, KeyboardInterrupt):
            raise
        except BaseException as error:  # of any class: a rule that raises SystemExit does not end the process
            self._leave_out(run, posts, error)
            stuck = self.stuck[run] = _stuck(run, error, stuck.tries + 1 if stuck is not None else 1, turn.now)
            turned.alarms.append((stuck.until, run))
            self._keep(turn, run, posts, turn_id, stuck)

    def _keep(self, turn: StoreTurn, run: str, posts: list[Delivery], turn_id: str, stuck: Stuck) -> None:
        """Commit the reports of a stuck run next to its log, so that no body runs again: the run reads them as letters
        to itself in the turn in which it continues. Other senders get the error."""
        row = self.store.summary(run)
        if row is None or row.status in TERMINAL:
            return  # it was to start, or has ended: there is nothing to keep
        settled = {post.mail.lease.command.id: post for post in posts if isinstance(post.mail, Settle)}
        held = turn.generations(run, settled) if settled else {}
        letters: list[Letter] = []
        lines: list[Any] = []
        for post in posts:
            mail = post.mail
            if isinstance(mail, Settle):
                command = mail.lease.command.id
                if settled[command] is not post or held.get(command) != mail.lease.generation:
                    post.error = LeaseLost(f"{command} of run {run} is no longer held under {mail.lease.generation}")
                    continue
                post.error = None
                letters.append(_kept(run, mail))
                lines.extend(mail.done.lines)
            elif isinstance(mail, _OF_BODIES):
                post.error = Unavailable(f"run {run} is stuck: {stuck.why}")
            elif isinstance(mail, _PATIENT):
                post.error = None
        if letters or row.stuck != stuck.why:
            turn.write(
                Writes(
                    run=run,
                    turn=turn_id,
                    expected=turn.head(run),
                    at=turn.now,
                    facts=(),
                    summary=structs.replace(row, stuck=stuck.why),
                    commands={letter.body.command: HELD for letter in letters if isinstance(letter.body, LetterReport)},
                    letters=letters,
                    lines=lines,
                )
            )

    def _advance(
        self, turn: StoreTurn, run: str, posts: list[Delivery], turn_id: str, heads: dict[str, int], turned: TurnResult
    ) -> None:
        if run in self.broken:
            raise self.broken[run]
        letters = turn.letters(run)
        known = self._know(turn, run, posts, letters)
        if known is None:
            for post in posts:
                post.error = NotFound(f"there is no run {run}")
            return
        d = self.decision(known.graph, known.state, turn.now, self._language(known.graph), self.chance)
        d.claimed, d.held = partial(turn.claimed, run), partial(turn.generations, run)
        d.refuses, d.misfit = partial(self.child_limits.refuses, known.graph, known.state), self.child_limits.misfit
        d.executor_of = self.executor_of
        expected = known.state.seq
        reported = {post.mail.lease.command.id for post in posts if isinstance(post.mail, Settle)}
        self._fold_mail(turn, d, posts, letters, reported if len(reported) == len(posts) else reported | _noted(posts))
        known.graph = d.graph  # it may have migrated
        commands = decided(turn, d, known.kept)
        if not d.facts and not letters and run not in self.stuck:
            return
        heads[run] = expected
        plan, dead = None if expected else _plan_of(posts), dead_of(turn, d)
        timers = d.timers()
        turn.write(
            Writes(
                run=run,
                turn=turn_id,
                expected=expected,
                at=d.now,
                facts=d.facts,
                summary=summarize(known.graph, known.state),
                commands=commands,
                new=d.new,
                timers=timers,
                letters=escape_inputs(d.letters, known.graph, self.graph) if d.letters else (),
                read_letters=[letter.key for letter in letters] if letters else (),
                blobs=d.blobs,
                plan=plan,
                dead=dead,
                lines=d.lines,
            )
        )
        if dead or log.isEnabledFor(INFO) or (len(reported) < len(posts) and _expires(posts)):
            mails = [post.mail for post in posts if post.error is None]
            turned.lines.extend((run, line) for line in turn_lines(d, mails, commands, dead or ()))
        if len(reported) < len(posts):
            turned.freed = turned.freed or _frees(posts)
        _note_orders(turned, run, commands, timers, reported)
        if d.interrupted:
            turned.interrupted.extend((run, command) for command in d.interrupted)
        if d.restarted:
            turned.withdrawn.extend((run, command) for command in d.restarted)
        if d.letters:
            turned.sent_to.extend(letter.to for letter in d.letters)
            turned.births.extend((run, letter.to) for letter in d.letters if isinstance(letter.body, LetterStart))
        if known.state.life in TERMINAL:
            if known.state.schedule is not None:
                wake_schedule(turn, known.state.schedule)
            turned.ended.append(RunSnapshot(known.graph, known.state, d.now, _result_blob(d)))

    def _fold_mail(
        self, turn: StoreTurn, d: Decision, posts: list[Delivery], letters: Sequence[Letter], reported: set[str]
    ) -> None:
        accepting = MailReader(d, turn, turn.generations(d.state.run, reported) if reported else {}, graph=self.graph)
        for letter in letters:
            if isinstance(letter.body, LetterReport):
                accepting.read(letter)  # it came first
        for post in posts:
            post.error = post.next = None
            if not isinstance(post.mail, Settle):
                accepting.flush()  # the reports before it count, whether or not this mail is refused
            before = d.state.seq
            try:
                accepting.accept(post.mail)
            except (Corrupt, Unavailable):
                raise
            except RefoldError as refusal:
                if d.state.seq != before:
                    raise RuntimeError("mail was refused after it had changed the run") from refusal
                post.error = refusal
        for letter in letters:
            if not isinstance(letter.body, LetterReport):
                accepting.read(letter)
        for key in turn.due_timers(d.state.run):
            event(log, DEBUG, "timer fired", run=d.state.run, timer=key)
            accepting.ring(key)
        accepting.flush()

    def _leave_out(self, run: str, posts: list[Delivery], error: BaseException) -> None:
        self.known.pop(run, None)
        if isinstance(error, Corrupt):
            self.broken[run] = error
        for post in posts:
            post.error = error if isinstance(error, Exception) else _as_exception(error)

    def _of_events(self, heads: Mapping[str, int], run: str) -> RunState | None:
        """The state of a run of a Python workflow, if the one in memory has every fact of its log."""
        known = self.known.get(run)
        if known is None or not known.graph.by_events or known.state.seq != heads.get(run):
            return None
        return known.state

    def is_open(self, run: str) -> bool:
        """Whether the run has begun and has not ended, as far as this process knows; any thread may ask. False may
        also mean that the run is not in memory."""
        known = self.known.get(run)
        return known is not None and known.state.life in (RUNNING, ENDING)

    def recall(self, run: str, command: str) -> Memory:
        with self.store.turn([run]) as turn:
            known = self._know(turn, run, (), ())
        if known is None or command not in known.state.open:
            raise LeaseLost(f"{command} of run {run} is over")
        return memory_of(known.state, command)

    def _ask_next(self, turn: StoreTurn, posts: list[Delivery]) -> list[tuple[Delivery, ClaimRequest]]:
        """Ask for one command for each worker that reported and can take another."""
        return [
            (post, turn.ask(post.mail.then, self.lease_for, 1))
            for post in posts
            if isinstance(post.mail, Settle) and post.mail.then is not None and post.error is None
        ]

    def _know(
        self, turn: StoreTurn, run: str, posts: Sequence[Delivery], letters: Sequence[Letter]
    ) -> CachedRun | None:
        head = turn.head(run)
        known = self.known.get(run)
        if known is not None and known.state.seq > head:
            known = None  # the log is shorter than the state in memory: it lost its last facts
        if known is None:
            known = self._load(turn, run, head) if head else self._begin(run, posts, letters)
        elif known.state.seq < head:
            known.graph = replayed(self.graph, turn.facts(run, known.state.seq), known.state)
        if known is not None:
            self.known[run] = known
            self.known.move_to_end(run)
        return known

    def _load(self, turn: StoreTurn, run: str, head: int) -> CachedRun:
        data = self.store.snapshot(run)
        state = codec.decode_snapshot(data) if data is not None else None
        if state is None or state.seq > head:
            state = RunState(run=run)
        snapshot_at = state.seq
        return CachedRun(replayed(self.graph, turn.facts(run, snapshot_at), state), state, snapshot_at)

    def _begin(self, run: str, posts: Sequence[Delivery], letters: Sequence[Letter]) -> CachedRun | None:
        for post in posts:
            if isinstance(post.mail, Start):
                graph = self.graphs.setdefault(post.mail.plan.hash, post.mail.plan.graph)
                for step in graph.plan.steps:
                    if isinstance(step.work, Child) and step.work.plan:
                        self._language(self.graph(step.work.plan))  # else it could never start
                return CachedRun(graph, RunState(run=run))
        for letter in letters:
            if isinstance(letter.body, LetterStart):
                return CachedRun(self.graph(letter.body.plan), RunState(run=run))
        return None

    def _language(self, graph: Graph) -> Evaluate:
        return Contained(self.languages(graph.plan.language)) if graph.plan.language else self._contained

    def graph(self, hash: str) -> Graph:
        """Return the graph of a stored plan. The hash names its content, so it is read and analysed once."""
        if hash not in self.graphs:
            data = self.store.plan(hash)
            if data is None:
                raise NotFound(f"there is no workflow {hash}")
            if hash_of(data) != hash:
                raise Corrupt(f"workflow {hash} is not what its name says")
            self.graphs[hash] = stored_graph(hash, data)
        return self.graphs[hash]

    def _tidy(self, by_run: dict[str, list[Delivery]], turned: TurnResult) -> None:
        """Drop ended runs from memory, and the oldest others when there are too many."""
        for run in by_run:
            known = self.known.get(run)
            if known is None:
                continue
            if (known.state.life in TERMINAL and run != self.kept_run) or known.state.seq == 0:
                del self.known[run]
                continue
            grown = known.state.seq - known.snapshot_at
            if grown >= self.snapshot_every and grown >= known.snapshot_at:
                turned.grown.append(run)
        while len(self.known) > self.keep:
            self.known.popitem(last=False)


def _admitted(turn: StoreTurn, posts: list[Delivery]) -> list[Delivery]:
    """Return the mail whose riders find the documents as they expect them."""
    admitted: list[Delivery] = []
    for post in posts:
        try:
            if post.rider is not None:
                post.rider.admit(turn)
        except Conflict as error:
            post.error = error
        else:
            admitted.append(post)
    return admitted


def _stuck(run: str, error: BaseException, tries: int, now: Instant) -> Stuck:
    """An internal error is logged each time, with its traceback; an error with a name is a warning."""
    pause = min(FIRST_PAUSE << min(tries - 1, 20), LONGEST_PAUSE)
    why = text_of(error)
    if not isinstance(error, RefoldError):
        why = f"internal error: {_of_class(error)}{_place(error)}"
        told = f"run {run} is stuck: {why}. What its steps report is kept; it is tried again in {pause} s (try {tries})"
        asked = "This is a defect of Refold: please report it with the lines below"
        event(log, ERROR, f"{told}. {asked}", run=run, pause=pause, tries=tries, error=error)
    else:
        event(log, WARNING, "run is stuck", run=run, pause=pause, tries=tries, why=why)
    return Stuck(why, tries, now + pause * SECOND)


def _as_exception(error: BaseException) -> Exception:
    """Wrap an error such as SystemExit, which would end the process of the sender."""
    told = RuntimeError(_of_class(error))
    told.__cause__ = error
    return told


def _of_class(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"


def _place(error: BaseException) -> str:
    """Name the function that raised the error: a rule of `decide`, or what it has called."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (in {frames[-1].name}, {os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def _kept(run: str, mail: Settle) -> Letter:
    """Return a report as a letter of the run to itself. A report that cannot be stored becomes a failure."""
    command, report = mail.lease.command.id, reported(mail.lease, mail.done)
    key = f"{command}/{mail.lease.generation}/report"
    letter = Letter(key, run, run, LetterReport(command, report))
    try:
        codec.decode_letter(codec.encode_letter(letter))
    except Exception as error:
        fault = Fault("invalid_value", f"the report cannot be stored: {_of_class(error)}", retryable=False)
        failed = structs.replace(report, outcome=Failed(fault), writes=(), usage={}, events=())
        letter = Letter(key, run, run, LetterReport(command, failed))
    return letter


def _note_orders(
    turned: TurnResult,
    run: str,
    commands: Mapping[str, Command | Held | None],
    timers: Mapping[str, Instant | None],
    reported: Collection[str],
) -> None:
    """Note when the run must be looked at again, how many commands workers may claim, and which they should drop."""
    moments = {due for due in timers.values() if due is not None} if timers else set()
    for key, order in commands.items():
        if order is None:
            if key not in reported:
                turned.withdrawn.append((run, key))
        elif isinstance(order, Command):
            if order.not_before:
                moments.add(order.not_before)
            else:
                turned.issued += 1
    if moments:
        turned.alarms.extend((due, run) for due in sorted(moments))


def _result_blob(d: Decision) -> dict[str, Any]:
    """Return a large result of a run that ends with the value it came from, so that it is not read back."""
    blob = d.state.blob
    return {blob.hash: d.loaded.blobs[blob.hash]} if blob is not None and blob.hash in d.loaded.blobs else {}


def _noted(posts: Sequence[Delivery]) -> set[str]:
    """Commands whose bodies report durable calls before they end."""
    return {post.mail.lease.command.id for post in posts if isinstance(post.mail, (Note, Expect))}


def _plan_of(posts: Sequence[Delivery]) -> bytes | None:
    """The plan that a start brings with it."""
    return next((post.mail.plan.data for post in posts if isinstance(post.mail, Start)), None)


def _expires(posts: Sequence[Delivery]) -> bool:
    """Whether the mail says that a command has run out of time or workers, which is a warning."""
    return any(isinstance(post.mail, Expire) for post in posts)


def _frees(posts: Sequence[Delivery]) -> bool:
    """Whether the mail may free commands of other runs, for example by ending a pause."""
    return any(not isinstance(post.mail, _OWN) for post in posts)
