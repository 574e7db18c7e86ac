"""The rows of the matrix: which faults, how many of them in ten minutes, and what must hold."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import psycopg

from refold.doorbells.nats import NatsBell
from refold.errors import RefoldError
from refold.ports import Abilities, Lease, Limit, Ring
from refold.rings import token
from refold.stores.postgres.store import PostgresStore
from tests.chaos.fleet import Fleet
from tests.chaos.history import OK, UNKNOWN, History, Hold, violations
from tests.chaos.pgbouncer import pgbouncer
from tests.chaos.proxy import Proxy
from tests.contracts.stores import change, issue, note, order, put
from tests.doorbells.nats_server import nats_server
from tests.postgres_server import USER, Server, free_port, server

FULL = 600.0
DURABLE = ("fsync=on", "synchronous_commit=on", "max_connections=200", "shared_buffers=64MB", "log_min_messages=panic")


@dataclass
class Verdict:
    numbers: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    name: str
    about: str
    run: Callable[["Stage"], None]
    least: dict[str, int]  # faults in ten minutes
    settled: int = 0  # steps in ten minutes
    settings: tuple[str, ...] = DURABLE
    bodies: bool = True  # whether a body must not begin again when it was settled; zombies may


class Stage:
    """What a row has: a server, the time, and a fleet when it has made one."""

    def __init__(self, row: Row, pg: Server, seconds: float, stack: ExitStack) -> None:
        self.row, self.pg, self.seconds, self.stack = row, pg, seconds, stack
        self.verdict, self.chance = Verdict(), random.Random(11)
        self.faults = Counter[str]()
        self.fleets: list[Fleet] = []
        self.until = 0.0

    def fleet(self, url: str = "", direct: str = "", **options: Any) -> Fleet:
        start = {name: options.pop(name) for name in ("workers", "rate", "most", "tail") if name in options}
        direct = direct or self.pg.url
        PostgresStore(direct).close()  # makes the tables
        fleet = Fleet(url or direct, direct, **options)
        self.stack.callback(fleet.close)
        self.fleets.append(fleet)
        fleet.start(**start)
        self.until = time.monotonic() + self.seconds
        return fleet

    def times(self, every: float) -> Iterator[int]:
        """One turn after the other, `every` seconds apart, until the time is over."""
        number = 0
        while time.monotonic() < self.until:
            began = time.monotonic()
            yield number
            number += 1
            time.sleep(max(0.0, every - (time.monotonic() - began)))

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.pg.url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def check(self, is_so: bool, text: str) -> None:
        if not is_so:
            self.verdict.wrong.append(text)


def run_row(row: Row, seconds: float) -> Verdict:
    with ExitStack() as stack:
        pg = stack.enter_context(server(18, row.settings))
        stage = Stage(row, pg, seconds, stack)
        row.run(stage)
        verdict, share = stage.verdict, seconds / FULL
        for fleet in stage.fleets:
            stage.faults.update(fleet.faults)
            verdict.numbers["seconds to heal"] = round(fleet.heal(), 1)
            history = fleet.judged(row.bodies)
            verdict.wrong += violations(history)
            results = Counter(call.result for call in history.calls)
            settled = sum(entry.kind == "step_settled" for log in history.logs.values() for entry in log)
            verdict.numbers |= {"runs": len(history.logs), "steps settled": settled}
            verdict.numbers |= {"acknowledged": results[OK], "unknown": results[UNKNOWN], "reads": len(history.reads)}
            verdict.numbers["facts in the feed"] = len(history.feed) if history.feed is not None else "no"
            verdict.numbers["reports refused"] = results["failed"]
            stage.check(
                settled >= int(row.settled * share), f"{settled} steps, and {int(row.settled * share)} are needed"
            )
        for kind, least in row.least.items():
            found = stage.faults[kind]
            stage.check(found >= int(least * share), f"{found} x {kind}, and {int(least * share)} are needed")
        verdict.numbers |= dict(stage.faults)
        with suppress(psycopg.Error):
            deadlocks = int(stage.ask("select sum(deadlocks) from pg_stat_database")[0][0])
            verdict.numbers["deadlocks"] = deadlocks
            stage.check(deadlocks == 0, f"{deadlocks} deadlocks")
        return verdict


# ---- the rows


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("PgBouncer does not answer")


def restarts_behind_a_pooler(stage: Stage) -> None:
    port = stage.stack.enter_context(pgbouncer(stage.pg))
    wait_for_port(port)
    restart_often(stage, stage.fleet(stage.pg.url.replace(f":{stage.pg.port}/", f":{port}/")))


def restarts(stage: Stage) -> None:
    restart_often(stage, stage.fleet())


def restart_often(stage: Stage, fleet: Fleet) -> None:
    for _ in stage.times(4.5):
        settled = fleet.count_over()[1]
        stage.pg.restart("immediate")
        stage.faults["immediate restart"] += 1
        began = time.monotonic()
        while time.monotonic() - began < 30:
            with suppress(psycopg.Error):
                if fleet.count_over()[1] > settled:
                    break
            time.sleep(0.1)
        back = time.monotonic() - began
        stage.verdict.numbers["slowest return"] = max(round(back, 1), stage.verdict.numbers.get("slowest return", 0.0))
    stage.check(stage.verdict.numbers["slowest return"] <= 10, "runs did not continue within 10 s of a restart")


BACKENDS = """
    select pg_terminate_backend(pid), state = 'active' and query like '%%close_turn%%' from pg_stat_activity
    where application_name = 'refold' and pid <> pg_backend_pid()
        and (not %s or (state = 'active' and query like '%%close_turn%%')) order by random() limit 1"""


def backends_killed(stage: Stage) -> None:
    stage.fleet()
    with psycopg.connect(stage.pg.url, autocommit=True) as connection:
        for _ in stage.times(0.4):
            found = list[tuple[Any, ...]]()
            for _ in range(100):  # looks for a turn that is being committed
                found = found or connection.execute(BACKENDS, (True,)).fetchall()
            for is_done, is_inside in found or connection.execute(BACKENDS, (False,)).fetchall():
                stage.faults["backend killed"] += is_done
                stage.faults["inside a close"] += is_done and is_inside
    lost = stage.ask("select coalesce(max(losses), 0) from refold.commands")[0][0]
    stage.check(lost == 0, "a lease of a living worker was counted as lost")


def through(stage: Stage, **options: Any) -> tuple[Proxy, Fleet]:
    proxy = Proxy(stage.pg.port)
    stage.stack.callback(proxy.close)
    url = stage.pg.url.replace(f":{stage.pg.port}/", f":{proxy.port}/")
    return proxy, stage.fleet(url, **options)


def answers_lost(stage: Stage) -> None:
    proxy, _ = through(stage)
    proxy.rates = {"swallow": 0.01}
    for _ in stage.times(1.0):
        pass
    proxy.rates = {}
    stage.faults["answer lost"] += proxy.faults["swallow"]


def network(stage: Stage) -> None:
    proxy, _ = through(stage)
    proxy.rates = {"delay": 0.01, "slow": 0.001, "reset": 0.004, "cut": 0.002, "silence": 0.0007}
    for number in stage.times(2.0):
        if number % 5 == 4:
            proxy.reset_all()
    proxy.rates = {}
    proxy.reset_all()  # what is silent would be noticed by keepalives only on a real network
    stage.faults["reset"] += proxy.faults["reset"] + proxy.faults["cut"]
    stage.faults["half-open"] += proxy.faults["silence"]
    stage.faults["delay"] += proxy.faults["delay"]


@contextmanager
def replica_of(primary: Server, synchronous: bool, stack: ExitStack) -> Iterator[Server]:
    """A second server that follows the first one."""
    port = free_port()
    data = primary.data.parent / f"replica{port}"
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(data, USER)
    primary.run(
        "pg_basebackup",
        "-D",
        str(data),
        "-R",
        "-X",
        "stream",
        "-c",
        "fast",
        "-h",
        "127.0.0.1",
        "-p",
        str(primary.port),
        "-U",
        "refold",
    )
    with open(data / "postgresql.auto.conf", "a", encoding="utf-8") as file:
        file.write(f"port={port}\nunix_socket_directories='{data}'\n")
    replica = Server(f"postgresql://refold@127.0.0.1:{port}/postgres", data, primary.bin, port)
    replica.start()
    try:
        if synchronous:
            with psycopg.connect(primary.url, autocommit=True) as connection:
                connection.execute("alter system set synchronous_standby_names = '*'")
                connection.execute("select pg_reload_conf()")
        yield replica
    finally:
        replica.run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop", check=False)


def failovers(stage: Stage) -> None:
    """Each time with a new pair of servers; nothing that was acknowledged may be missing on the one that takes over."""
    end = time.monotonic() + stage.seconds
    while time.monotonic() < end:
        with ExitStack() as stack:
            primary = stack.enter_context(server(18, (*DURABLE, "wal_level=replica")))
            replica = stack.enter_context(replica_of(primary, True, stack))
            both = f"postgresql://refold@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
            PostgresStore(primary.url).close()
            fleet = Fleet(both, both, lease_for=5.0)
            stack.callback(fleet.close)
            fleet.start()
            time.sleep(4)
            primary.stop("immediate")
            replica.run("pg_ctl", "-D", str(replica.data), "-w", "promote")
            with psycopg.connect(replica.url, autocommit=True) as connection:
                connection.execute("alter system set synchronous_standby_names = ''")
                connection.execute("select pg_reload_conf()")
            stage.faults["failover"] += 1
            time.sleep(4)
            fleet.heal()
            history = fleet.judged()
            stage.verdict.wrong += violations(history)
            acknowledged = sum(call.result == OK for call in history.calls)
            stage.verdict.numbers["acknowledged"] = stage.verdict.numbers.get("acknowledged", 0) + acknowledged


def split_brain(stage: Stage) -> None:
    """The old primary comes back beside the new one. Nobody who has seen the new timeline writes on the old one."""
    end = time.monotonic() + stage.seconds
    while time.monotonic() < end:
        with ExitStack() as stack:
            primary = stack.enter_context(server(18, (*DURABLE, "wal_level=replica")))
            replica = stack.enter_context(replica_of(primary, False, stack))
            both = f"postgresql://refold@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
            PostgresStore(primary.url).close()
            fleet = Fleet(both, both, lease_for=5.0)
            stack.callback(fleet.close)
            fleet.start(tail=False)
            time.sleep(3)
            primary.stop("immediate")
            replica.run("pg_ctl", "-D", str(replica.data), "-w", "promote")
            time.sleep(3)
            primary.start()
            facts = "select count(*) from refold.facts"
            with psycopg.connect(primary.url, autocommit=True) as old:
                before = old.execute(facts).fetchone()
                with psycopg.connect(replica.url, autocommit=True) as new:
                    new.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'refold'"
                    )
                time.sleep(3)
                after = old.execute(facts).fetchone()
            fleet.over.set()
            stage.check(before == after, f"the server that was left behind has {after} facts and had {before}")
            stage.faults["split brain"] += 1


def workers_killed(stage: Stage) -> None:
    fleet = stage.fleet(workers=4, lease_for=1.0, sweep_every=0.2, poll=0.2)
    stopped: list[tuple[float, int]] = []
    for number in stage.times(0.5):
        fleet.kill_worker(stage.chance.choice(fleet.workers))
        fleet.add_worker()
        if number % 2:
            pid = stage.chance.choice(fleet.workers)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append((time.monotonic() + 1.5, pid))
                stage.faults["SIGSTOP"] += 1
        for due, pid in [each for each in stopped if each[0] <= time.monotonic()]:
            stopped.remove((due, pid))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


RUNS, KILL_EVERY = 10_000, 5.0


def ten_thousand_runs(stage: Stage) -> None:
    """Three workers, one of which is killed every 5 s, until all runs are over, or the time is."""
    most = max(300, round(RUNS * min(stage.seconds / FULL, 1.0)))
    fleet = stage.fleet(workers=3, rate=40.0, clients=3, most=most, seconds=0.0)
    stage.until = time.monotonic() + max(stage.seconds, 60) * 2
    for _ in stage.times(KILL_EVERY):
        fleet.kill_worker(stage.chance.choice(fleet.workers))
        fleet.add_worker()
        if fleet.count_over() == (most, most):
            break
    stage.faults["runs"] += fleet.count_over()[1]


CLAIM = "select extract(epoch from clock_timestamp())"


def bystanders(stage: Stage) -> None:
    """A pinned snapshot, a transaction that does nothing, and a long writer, while the fleet works."""
    stage.fleet(rate=30.0)
    with psycopg.connect(stage.pg.url) as pinned:
        pinned.execute("set transaction isolation level repeatable read")
        pinned.execute("select count(*) from refold.facts")
        stage.faults["pinned snapshot"] += 1
        first = _steps_in(stage, stage.seconds / 3)
        with psycopg.connect(stage.pg.url) as writer:
            writer.execute("create table bystander (x int)")
            stage.faults["long writer"] += 1
            middle = _steps_in(stage, stage.seconds / 3)
            writer.rollback()
        last = _steps_in(stage, stage.seconds / 3)
    stage.verdict.numbers["steps a second"] = f"{first:.0f}, {middle:.0f}, {last:.0f}"
    stage.check(last >= first / 2, "steps became more than twice as slow under a pinned snapshot")


def _steps_in(stage: Stage, seconds: float) -> float:
    count = "select count(*) from refold.facts where kind = 'step_settled'"
    before = stage.ask(count)[0][0]
    time.sleep(seconds)
    return float(stage.ask(count)[0][0] - before) / seconds


def shortages(stage: Stage) -> None:
    """A server that takes no writes, and one whose connections are all taken."""
    stage.fleet()
    for number in stage.times(4.0):
        if number % 2:
            stage.ask("alter system set default_transaction_read_only = on")
            stage.ask("select pg_reload_conf()")
            stage.faults["read-only"] += 1
            time.sleep(1.0)
            with psycopg.connect(stage.pg.url, autocommit=True) as connection:
                connection.execute("set default_transaction_read_only = off")
                connection.execute("alter system set default_transaction_read_only = off")
                connection.execute("select pg_reload_conf()")
        else:
            with ExitStack() as stack:
                taken = 0
                with suppress(psycopg.Error):
                    while taken < 200:
                        stack.enter_context(psycopg.connect(stage.pg.url, connect_timeout=2))
                        taken += 1
                stage.faults["too many connections"] += 1
                time.sleep(1.0)


def disk_full(stage: Stage) -> None:
    """A tablespace on a small file system; without the right to mount one, the row fails and says so."""
    folder = stage.pg.data.parent / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(folder)], check=False)
    stage.check(mounted.returncode == 0, "this user cannot mount a small file system")
    if mounted.returncode:
        return
    stage.stack.callback(lambda: subprocess.run(["umount", "-l", str(folder)], check=False))
    space = folder / "space"
    space.mkdir()
    if os.geteuid() == 0:
        shutil.chown(space, USER)
    PostgresStore(stage.pg.url).close()
    stage.ask(f"create tablespace small location '{space}'")
    stage.ask("alter table refold.facts_0 set tablespace small")
    stage.fleet(rate=20.0)
    ballast = folder / "ballast"
    for _ in stage.times(4.0):
        with suppress(OSError), open(ballast, "wb") as file:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        stage.faults["disk full"] += 1
        time.sleep(1.5)
        ballast.unlink()


def rings(stage: Stage) -> None:
    """Rings through NATS that is paused and killed, with foreign and garbled ones besides."""
    nats = stage.stack.enter_context(nats_server())
    fleet = stage.fleet(doorbell=nats.url)
    noise = NatsBell(nats.url, "default")
    stage.stack.callback(noise.close)
    over = Event()

    def shout() -> None:
        while not over.wait(0.05):
            noise.ring([Ring("work", f"of others {time.time()}"), Ring("ended", "nobody"), Ring("withdrawn", "r0-1")])
            stage.faults["foreign ring"] += 3
            with suppress(OSError), socket.create_connection(("127.0.0.1", nats.port), 1) as raw:
                subject = f"refold.{token('default')}.x!.{stage.chance.random()}"
                raw.sendall(f'CONNECT {{"verbose":false}}\r\nPUB {subject} 3\r\n]]]\r\n'.encode())
                stage.faults["garbled ring"] += 1

    thread = Thread(target=shout, daemon=True)
    thread.start()
    for number in stage.times(3.0):
        if number % 2:
            nats.kill()
            nats.start()
            stage.faults["NATS killed"] += 1
        else:
            nats.send(signal.SIGSTOP)
            time.sleep(1.0)
            nats.send(signal.SIGCONT)
            stage.faults["NATS paused"] += 1
    over.set()
    thread.join()
    fleet.faults["pending"] = 0


def clocks(stage: Stage) -> None:
    """Every second worker is ten minutes ahead, the others ten minutes behind."""
    fleet = stage.fleet(workers=4, skew=600.0)
    for _ in stage.times(3.0):
        fleet.kill_worker(stage.chance.choice(fleet.workers))
        fleet.add_worker()
        stage.faults["worker with a wrong clock"] += 1


def feed(stage: Stage) -> None:
    """Sixteen writers with random delays before their commits; the reader begins again every few seconds."""
    PostgresStore(stage.pg.url).close()
    end, written = time.monotonic() + stage.seconds, list[tuple[str, int]]()

    def write(number: int) -> None:
        chance, store = random.Random(number), PostgresStore(stage.pg.url)
        turn_number, run = 0, f"w{number}"
        while time.monotonic() < end:
            turn_number += 1
            both = [run] if chance.random() < 0.7 else sorted({run, f"shared{chance.randrange(4)}"})
            with suppress(RefoldError), store.turn(both) as turn:
                for each in both:
                    put(turn, each, note(), note(), turn=f"{number}-{turn_number}-{each}")
                if chance.random() < 0.3:
                    turn.claimed(both[0])  # sends what is written, and keeps the transaction open
                    time.sleep(chance.uniform(0, 0.01))
        store.close()

    threads = [Thread(target=write, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    seen, cursor, begun = list[tuple[str, int]](), "", 0
    while True:
        is_last = not any(thread.is_alive() for thread in threads)
        store = PostgresStore(stage.pg.url)
        begun += 1
        while facts := store.views.feed(cursor):
            kept = facts if is_last else facts[: stage.chance.randint(1, len(facts))]  # killed in the middle of a page
            seen += [(each.run, each.number) for each in kept]
            cursor = kept[-1].cursor
        store.close()
        if is_last:
            break
    rows = stage.ask("select r.run, f.number from refold.facts f join refold.runs r using (rid)")
    written = [(run, number) for run, number in rows]
    stage.faults["facts"], stage.faults["reader begun again"] = len(written), begun
    stage.check(
        Counter(seen) == Counter(written), f"{len(written)} facts, of which {len(set(seen))} came, {len(seen)} times"
    )
    last: dict[str, int] = {}
    for run, number in seen:
        stage.check(number == last.get(run, 0) + 1, f"fact {number} of {run} came behind {last.get(run, 0)}")
        last[run] = number


SLOTS, CLAIMERS = 5, 4


def limits(stage: Stage) -> None:
    """Four claimers under one limit, some of which forget what they hold: at no instant are there more leases than
    slots, neither in the table nor by what the claimers had for certain."""
    with suppress(RefoldError):
        PostgresStore(stage.pg.url).close()
    first = PostgresStore(stage.pg.url)
    stage.stack.callback(first.close)
    first.set_limit(Limit(name="K", slots=SLOTS))
    end, holds, made = time.monotonic() + stage.seconds, list[Hold](), 0

    def claim_on(number: int) -> None:
        chance, store, name = random.Random(number), PostgresStore(stage.pg.url), f"w{number}"
        while time.monotonic() < end:
            try:
                with store.turn([]) as turn:
                    leases = turn.claim(Abilities(name), 1.0, chance.randint(1, 3))
                claimed_at = time.time()
                for lease in leases:
                    _settle(store, (lease, claimed_at), chance, holds, stage.faults)
                if not leases:
                    time.sleep(0.01)
                if chance.random() < 0.02:
                    store.expire(1000)
            except RefoldError:
                time.sleep(0.05)
        store.close()

    def count() -> None:
        with psycopg.connect(stage.pg.url, autocommit=True) as connection:
            while time.monotonic() < end:
                row = connection.execute("select count(*) from refold.commands where state = 'h'").fetchone()
                stage.faults["looks"] += 1
                stage.check(row is not None and row[0] <= SLOTS, f"{row} leases at a time")
                time.sleep(0.005)

    threads = [Thread(target=claim_on, args=(number,)) for number in range(CLAIMERS)] + [Thread(target=count)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        made += 1
        issue(first, f"r{made % 50}-{made}", *(order(f"a{n}/1", limit="K", share=f"s{made % 3}") for n in range(10)))
        first.expire(1000)
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    stage.faults["claims"] += len(holds)
    stage.verdict.wrong += violations(History(holds=holds, limits={"K": SLOTS}))


def _settle(
    store: PostgresStore, held: tuple[Lease, float], chance: random.Random, holds: list[Hold], faults: Counter[str]
) -> None:
    lease, claimed_at = held
    command, ends = lease.command.id, lease.until / 1e6
    if chance.random() < 0.03:
        faults["lease forgotten"] += 1
    else:
        time.sleep(chance.uniform(0, 0.01))
        ends = min(time.time(), ends)  # before the commit that frees the slot
        change(store, lease.run, command, None)
    holds.append(Hold(lease.run, command, lease.generation, claimed_at, max(ends, claimed_at), "K"))


def load(stage: Stage) -> None:
    """No faults: as much as it can, for the deadlocks and the plans."""
    stage.fleet(workers=4, rate=200.0, clients=4, seconds=0.0)
    for _ in stage.times(5.0):
        stage.faults["looks"] += 1


ROWS = {
    row.name: row
    for row in (
        Row("T1", "immediate restarts", restarts, {"immediate restart": 120}, 20_000),
        Row("T2", "killed backends", backends_killed, {"backend killed": 400, "inside a close": 100}),
        Row("T3", "answers that are lost behind a commit", answers_lost, {"answer lost": 300}),
        Row("T4", "a bad network, by a proxy", network, {"reset": 500, "half-open": 60}),
        Row("T5", "failovers to a synchronous replica", failovers, {"failover": 20}),
        Row("T6", "two primaries", split_brain, {"split brain": 10}),
        Row("T7", "kill -9 and SIGSTOP of workers", workers_killed, {"kill -9": 1000, "SIGSTOP": 300}, bodies=False),
        Row(
            "KILLS",
            "10,000 runs of three steps, one of three workers killed every 5 s",
            ten_thousand_runs,
            {"runs": 10_000},
        ),
        Row("T8", "bystanders that hold old snapshots and transactions", bystanders, {"pinned snapshot": 1}),
        Row(
            "T9",
            "a server without writes, without connections",
            shortages,
            {"read-only": 50, "too many connections": 50},
        ),
        Row("T9-DISK", "a full disk", disk_full, {"disk full": 50}),
        Row("T10", "immediate restarts behind PgBouncer", restarts_behind_a_pooler, {"immediate restart": 60}, 5_000),
        Row("T11", "rings that are lost, foreign and garbled", rings, {"foreign ring": 10_000, "NATS killed": 50}),
        Row("T12", "workers whose clocks are wrong", clocks, {"worker with a wrong clock": 20}),
        Row("T13", "sixteen writers and a reader of the feed", feed, {"facts": 100_000}),
        Row("T14", "limits", limits, {"claims": 20_000, "lease forgotten": 200}),
        Row("T17", "as much load as there is room for", load, {"looks": 100}),
    )
}
