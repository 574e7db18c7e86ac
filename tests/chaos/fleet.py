"""A fleet under test: worker processes, clients that note what they were told, readers, and what the logs say in the
end."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import psycopg

from refold.errors import Ambiguous, InvalidValue, RefoldError, Unavailable, Unusable
from refold.plan import Arc, Plan, Step, Wait
from refold.plan import Call as Work
from refold.runtime.mail import Signal
from refold.stores.postgres.views import open_postgres_views
from refold.wiring.store import open_intake
from tests.chaos.history import FAILED, OK, UNKNOWN, Call, Entry, History, Hold, Read, Settled, settled_of

ROOT = Path(__file__).parents[2]
MICRO = 1e6


def chain(seconds: float) -> Plan:
    steps = [
        Step(name=name, work=Work(tool="mark"), input=seconds, arcs=(Arc(to=then),) if then else ())
        for name, then in (("one", "two"), ("two", "three"), ("three", ""))
    ]
    return Plan(name="chain", steps=tuple(steps))


def asking(seconds: float) -> Plan:
    steps = (
        Step(name="one", work=Work(tool="mark"), input=seconds, arcs=(Arc(to="wait"),)),
        Step(name="wait", work=Wait(signal="go"), arcs=(Arc(to="three"),)),
        Step(name="three", work=Work(tool="mark"), input=seconds),
    )
    return Plan(name="asking", steps=steps)


class Fleet:
    """`url` is what workers and clients use, which may lead through a proxy; `direct` is the way of the judge."""

    def __init__(self, url: str, direct: str, seconds: float = 0.02, clients: int = 2, **settings: Any) -> None:
        self.url, self.direct, self.body_seconds = url, direct, seconds
        self._folder = tempfile.TemporaryDirectory(prefix="refold-chaos-", ignore_cleanup_errors=True)
        self.folder = self._folder.name
        self.history, self.lock = History(feed=[]), Lock()
        self.over = Event()
        self.faults = Counter[str]()
        self.claims: dict[tuple[str, str, int], float] = {}
        self.errors = Counter[str]()
        self.cursor = ""  # of the reader of the feed
        options = {"lease_for": 10.0, "sweep_every": 0.5, "poll": 0.5, **settings, "db": url}
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.worker", self.folder, json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.workers: list[int] = []
        self._names = iter(range(10**9))
        self._clients = clients
        self._threads: list[Thread] = []

    # ---- processes

    def add_worker(self) -> int:
        assert self.zygote.stdin is not None and self.zygote.stdout is not None
        self.zygote.stdin.write(f"{next(self._names)}\n")
        self.zygote.stdin.flush()
        pid = int(self.zygote.stdout.readline())
        self.workers.append(pid)
        return pid

    def kill_worker(self, pid: int) -> None:
        self.workers.remove(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.faults["kill -9"] += 1

    def close(self) -> None:
        self.over.set()
        for pid in self.workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.zygote.kill()
        with self.zygote:  # closes its pipes
            self.zygote.wait()
        for thread in self._threads:
            thread.join(30)
        self._folder.cleanup()

    # ---- clients and observers

    def start(self, workers: int = 3, rate: float = 15.0, most: int = 10**9, tail: bool = True) -> None:
        for _ in range(workers):
            self.add_worker()
        self.most, self.started = most, 0
        for n in range(self._clients):
            self._begin(lambda n=n: self._client(n, rate / self._clients))  # type: ignore[misc]
        self._begin(self._observer)
        if tail:
            self._begin(self._tailer)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _note(self, kind: str, run: str, key: Any, ask: Callable[[], object]) -> str:
        began, result = time.time(), UNKNOWN
        try:
            ask()
            result = OK
        except (Ambiguous, Unusable):
            result = UNKNOWN
        except Unavailable:
            result = FAILED
        except RefoldError as error:
            self.errors[type(error).__name__] += 1
            result = FAILED
        with self.lock:
            self.history.calls.append(Call(kind, run, key, began, time.time(), result))
        return result

    def _client(self, number: int, rate: float) -> None:
        chance, plans = random.Random(number), (chain(self.body_seconds), asking(self.body_seconds))
        while not self.over.is_set():
            with suppress(RefoldError), open_intake(self.url) as (intake, _):
                while not self.over.wait(1 / rate):
                    with self.lock:
                        if self.started >= self.most:
                            return
                        self.started += 1
                        run = f"r{number}-{self.started}"
                    plan = plans[chance.random() < 0.2]

                    def begin(plan: Plan = plan, run: str = run) -> None:
                        intake.start(plan, {}, run, key=f"key of {run}")

                    for _ in range(200):
                        if self._note("start", run, f"key of {run}", begin) == OK or self.over.wait(0.1):
                            break
                    if plan is plans[1]:
                        for id in range(200):  # each try is a signal of its own

                            def send(id: int = id, run: str = run) -> None:
                                intake.send(run, Signal("go", {"id": id}))

                            if self._note("signal", run, id, send) == OK or self.over.wait(0.1):
                                break

    def _observer(self) -> None:
        """Reads logs and leases again and again, past all faults if it can."""
        chance = random.Random(7)
        while not self.over.is_set():
            try:
                with psycopg.connect(self.direct, autocommit=True, connect_timeout=3) as connection:
                    while not self.over.wait(0.1):
                        self._look(connection, chance)
            except (psycopg.Error, OSError):
                self.over.wait(0.2)

    def _look(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        held = connection.execute(
            "select r.run, c.id, c.generation, c.claimed_at from refold.commands c join refold.runs r using (rid)"
            " where c.state = 'h'"
        ).fetchall()
        for run, id, generation, claimed_at in held:
            self.claims.setdefault((run, id, generation), claimed_at / MICRO)
        with self.lock:
            acknowledged = [call.run for call in self.history.calls[-50:] if call.result == OK]
        if acknowledged:
            run, began = chance.choice(acknowledged), time.time()
            seen = connection.execute(
                "select number, kind from refold.facts where rid = (select rid from refold.runs where run = %s)"
                " order by number",
                (run,),
            ).fetchall()
            self.history.reads.append(Read("observer", run, began, tuple(seen)))

    def _tailer(self) -> None:
        """A reader of the feed that begins again and again, at the cursor that it has stored."""
        while not self.over.is_set():
            try:
                views = open_postgres_views(self.direct)
                try:
                    for _ in range(20):
                        self._take_feed(views)
                        if self.over.wait(0.2):
                            return
                finally:
                    views.close()
            except InvalidValue:
                self.history.feed = None  # a failover: what is behind the cursor may be other facts
                return
            except RefoldError:
                self.over.wait(0.2)

    def _take_feed(self, views: Any) -> None:
        feed = self.history.feed
        while feed is not None and (facts := views.feed(self.cursor)):
            feed += [(each.run, each.number) for each in facts]
            self.cursor = facts[-1].cursor

    # ---- the end

    def count_over(self) -> tuple[int, int]:
        with psycopg.connect(self.direct, connect_timeout=5) as connection:
            row = connection.execute(
                "select count(*), count(*) filter (where status = 'completed') from refold.runs where status <> ''"
            ).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def heal(self, within: float = 90.0) -> float:
        """Wait until every run is over; return how long it took. The clients have stopped."""
        self.over.set()
        for thread in self._threads:
            thread.join(60)
        began = time.monotonic()
        while time.monotonic() - began < within:
            with suppress(psycopg.Error):
                every, completed = self.count_over()
                if every == completed:
                    break
            time.sleep(0.5)
        return time.monotonic() - began

    def judged(self, bodies: bool = True) -> History:
        history = self.history
        with psycopg.connect(self.direct) as connection:
            rows = connection.execute(
                "select r.run, f.number, f.at, f.kind, f.data, f.turn from refold.facts f"
                " join refold.runs r using (rid) order by f.rid, f.number"
            )
            for run, number, at, kind, data, turn in rows:
                entry = Entry(number, at / MICRO, kind, json.loads(data), turn)
                history.logs.setdefault(run, []).append(entry)
        if history.feed is not None:
            views = open_postgres_views(self.direct)
            try:
                self._take_feed(views)
            finally:
                views.close()
        history.holds = self._holds(history)
        self._read_marks(history, bodies)
        return history

    def _holds(self, history: History) -> list[Hold]:
        ends = {
            (run, f"{done.step}/{done.visit}", done.generation): entry.at
            for run, log in history.logs.items()
            for entry in log
            if entry.kind == "step_settled"
            for done in [settled_of(entry)]
        }
        claims = sorted(self.claims.items(), key=lambda each: (each[0][:2], each[0][2]))
        holds: list[Hold] = []
        for at, ((run, command, generation), began) in enumerate(claims):
            after = claims[at + 1] if at + 1 < len(claims) and claims[at + 1][0][:2] == (run, command) else None
            end = ends.get((run, command, generation), after[1] if after is not None else began)
            holds.append(Hold(run, command, generation, began, end))
        return holds

    def _read_marks(self, history: History, bodies: bool) -> None:
        path = Path(self.folder) / "marks"
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(ValueError):
                words = json.loads(line)
                if words[0] == "report":
                    _, run, which, began, ended, result = words
                    history.calls.append(Call("report", run, Settled(*which), began, ended, result))
                elif bodies:
                    what, run, step, at = words
                    history.bodies.append((run, step, what, at))
