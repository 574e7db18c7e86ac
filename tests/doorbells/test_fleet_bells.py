"""Doorbells between processes: NOTIFY of PostgreSQL and NATS. Each bell here is another process, or as good as."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from refold.doorbells.nats import NatsBell, nats_bell
from refold.errors import InvalidValue
from refold.plan import Call, Plan, Step
from refold.ports import ANYTHING, FleetBell, Ring
from refold.settings import Settings
from refold.stores.postgres.address import read_address
from refold.stores.postgres.bell import Bell
from refold.stores.postgres.store import PostgresStore
from refold.wiring import open_process
from tests.contracts.stores import issue, note, order, postgres_url, put
from tests.doorbells.nats_server import NatsServer, nats_server
from tests.postgres_server import server_url

WORK = Plan(name="work", steps=(Step(name="work", work=Call(tool="note"), input="done"),))


class Ears:
    """What one bell has heard."""

    def __init__(self, bell: FleetBell) -> None:
        self.rings: list[Ring] = []
        bell.listen(self.hear)

    def hear(self, rings: Collection[Ring]) -> None:
        self.rings += rings


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    with nats_server() as server:
        yield server


@pytest.fixture(params=["notify", "nats"])
def new_bell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., FleetBell]]:
    """Makes bells of one kind and one namespace, each as in a process of its own."""
    made: list[FleetBell] = []

    def make(namespace: str = "ours") -> FleetBell:
        if request.param == "nats":
            bell: FleetBell = NatsBell(request.getfixturevalue("nats").url, f"{tmp_path} {namespace}")
        else:
            bell = Bell(read_address(f"{postgres_url(tmp_path)}{namespace}"))
        made.append(bell)
        return bell

    yield make
    for bell in made:
        bell.close()


def connected(*bells: FleetBell) -> bool:
    return all(not isinstance(bell, NatsBell) or bell.is_connected for bell in bells)


def test_a_ring_says_which_queue_and_which_run_and_is_not_heard_by_its_own_process(
    new_bell: Callable[..., FleetBell],
) -> None:
    one, two, elsewhere = new_bell(), new_bell(), new_bell("of others")
    own, heard, foreign = Ears(one), Ears(two), Ears(elsewhere)
    assert within(30, lambda: connected(one, two, elsewhere))
    assert within(30, lambda: isinstance(two, Bell) or ANYTHING in heard.rings)
    rung = {Ring("work", "a queue. of > mine\n"), Ring("ended", "r"), Ring("withdrawn", "")}

    def all_heard() -> bool:
        one.ring(rung)  # the first one may come before the other side has subscribed
        return rung <= set(heard.rings)

    assert within(30, all_heard)
    assert not rung & set(own.rings) and not rung & set(foreign.rings)


def test_rings_within_ten_milliseconds_are_sent_together(tmp_path: Path) -> None:
    with closing(Bell(read_address(postgres_url(tmp_path)))) as one, closing(Bell(one.address)) as two:
        heard = Ears(two)
        one.start()
        began = time.monotonic()
        for n in range(2000):
            one.ring([Ring("work", f"q{n % 3}")])
        assert within(30, lambda: {f"q{n}" for n in range(3)} == {ring.key for ring in heard.rings})
        assert one.sent <= 1 + (time.monotonic() - began) / 0.01


def test_garbled_and_foreign_rings_are_passed_over(tmp_path: Path, nats: NatsServer) -> None:
    """On both channels; a real ring after them is still heard."""
    notify = Bell(read_address(postgres_url(tmp_path)))
    by_nats = NatsBell(nats.url, str(tmp_path))
    other_nats = NatsBell(nats.url, str(tmp_path))
    with closing(notify), closing(by_nats), closing(other_nats):
        heard, heard_too = Ears(notify), Ears(by_nats)
        assert within(30, lambda: connected(by_nats) and ANYTHING in heard_too.rings)
        rubbish = ["", " ", "x", "a b c", "a work !!!", "a work YQ== extra", "a any", "a nothing -", "\x01 \x02 \x03"]
        with psycopg.connect(server_url(), autocommit=True) as connection:
            for each in rubbish:
                connection.execute("select pg_notify(%s, %s)", (notify.channel, each))
            connection.execute("select pg_notify(%s, %s)", (notify.channel, "other work YQ"))
        with socket.create_connection(("127.0.0.1", nats.port)) as raw:
            raw.recv(4096)
            subjects = ["x", "work", "work.!", "a.b.c", "nothing.-", "work.YQ.YQ"]
            text = "".join(f"PUB {by_nats.subject}.{each} 3\r\n{{}}]\r\n" for each in subjects)
            raw.sendall(f'CONNECT {{"verbose":false}}\r\n{text}PUB {by_nats.subject}.work.YQ 0\r\n\r\n'.encode())
            assert within(30, lambda: Ring("work", "a") in heard_too.rings)
        assert within(30, lambda: Ring("work", "a") in heard.rings)
        assert set(heard.rings) == {Ring("work", "a")} and set(heard_too.rings) == {ANYTHING, Ring("work", "a")}


def test_a_bell_whose_session_is_ended_listens_again_and_looks_at_everything(tmp_path: Path) -> None:
    with closing(Bell(read_address(postgres_url(tmp_path)))) as one, closing(Bell(one.address)) as two:
        heard = Ears(one)
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute("select pg_terminate_backend(%s)", (one._session.pid,))
        assert within(30, lambda: heard.rings == [ANYTHING])

        def is_heard() -> bool:
            two.ring([Ring("work", "q")])
            return Ring("work", "q") in heard.rings

        assert within(30, is_heard)


def test_nats_that_is_killed_paused_and_started_again_is_heard_again_and_never_waited_for() -> None:
    with (
        nats_server() as server,
        closing(NatsBell(server.url, "n")) as one,
        closing(NatsBell(server.url, "n")) as two,
    ):
        heard = Ears(two)
        one.ring([])
        assert within(30, lambda: connected(one, two))
        for stop in (signal.SIGSTOP, signal.SIGKILL):
            server.send(stop)
            began = time.monotonic()
            for n in range(1000):
                one.ring([Ring("ended", f"lost {n}")])
            assert time.monotonic() - began < 5, "to ring is to note, and no more"
            if stop is signal.SIGSTOP:
                server.send(signal.SIGCONT)
            else:
                server.kill()
                server.start()

            def is_heard(stop: signal.Signals = stop) -> bool:
                one.ring([Ring("work", stop.name)])
                return Ring("work", stop.name) in heard.rings

            assert within(60, is_heard)


def test_a_process_that_closes_while_nats_is_away_does_not_wait() -> None:
    with socket.socket() as silent:  # it takes connections and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        bell = NatsBell(f"nats://127.0.0.1:{silent.getsockname()[1]}", "n")
        bell.listen(lambda rings: None)
        bell.ring([Ring("work", "q")])
        began = time.monotonic()
        bell.close()
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("address", ["localhost:4222", "http://h:1", "nats://", "nats://h /x"])
def test_an_address_that_is_not_one_of_nats_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue, match="nats://host:4222"):
        nats_bell(address, "n")


@pytest.mark.parametrize("kind", ["notify", "nats"])
async def test_a_worker_hears_of_a_run_without_a_poll(
    tmp_path: Path, nats: NatsServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything else that would find the run switched off."""
    deaf = Settings(lease_for=3600.0, sweep_every=3600.0, poll=3600.0, doorbell=nats.url if kind == "nats" else "")
    db = postgres_url(tmp_path)

    async def note(call: Any) -> Any:
        return call.input

    async with (
        asyncio.timeout(120),
        open_process({"note": note}, db=db, settings=deaf),
        open_process(db=db, settings=deaf, works=False) as front,
    ):
        for n in range(3):
            await front.engine.options(run=f"r{n}").start(WORK)
            assert (await front.engine.wait(f"r{n}")).result == "done"


def faulty(bell: FleetBell, hurt: Callable[[list[Ring]], Collection[Ring]]) -> FleetBell:
    """A bell whose rings are changed on the way."""
    ring = bell.ring
    bell.ring = lambda rings: ring(hurt(list(rings)))  # type: ignore[method-assign]
    return bell


FAULTS: dict[str, Callable[[list[Ring]], Collection[Ring]]] = {
    "lost": lambda rings: [],
    "foreign": lambda rings: [Ring("work", "of others"), Ring("ended", "nobody's run"), Ring("documents", "?")],
    "wrong": lambda rings: [Ring("withdrawn", ring.key) for ring in rings],
    "doubled": lambda rings: [*rings, ANYTHING, *rings[::-1]],
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_rings_that_are_lost_wrong_or_doubled_change_nothing_but_latency(tmp_path: Path, fault: str) -> None:
    """The poll of the worker finds what was not heard."""
    quick = Settings(sweep_every=0.2, poll=0.2)
    db = postgres_url(tmp_path)
    seen: list[Any] = []

    async def note(call: Any) -> Any:
        seen.append(call.run)
        return call.input

    def store() -> PostgresStore:
        made = PostgresStore(db)
        made.bell = faulty(made.bell, FAULTS[fault])  # type: ignore[assignment]
        return made

    front_store = await asyncio.to_thread(store)
    async with asyncio.timeout(120), open_process({"note": note}, db=db, settings=quick):
        with closing(front_store):
            front_store.listen(lambda rings: None)
            async with open_process(store=front_store, settings=quick, works=False) as front:
                for n in range(5):
                    await front.engine.options(run=f"r{n}").start(WORK)
                for n in range(5):
                    assert (await front.engine.wait(f"r{n}")).status == "completed"
    assert sorted(seen) == [f"r{n}" for n in range(5)]


def test_a_turn_says_what_it_has_changed(tmp_path: Path) -> None:
    """Work by its queue, runs that begin and end, and documents, also those of a turn that writes nothing else."""
    heard: list[Ring] = []
    with closing(PostgresStore(postgres_url(tmp_path))) as store:
        store._is_listening = True
        store.bell.ring = lambda rings: heard.extend(rings)  # type: ignore[method-assign]
        issue(store, "r", order("a/1", queue="big"))
        assert set(heard) == {Ring("runs", "r"), Ring("work", "big")}
        heard.clear()
        with store.turn([]) as turn:
            turn.put_document("schedule", "s", b"{}")
        assert heard == [Ring("documents")]
        heard.clear()
        with store.turn(["s"]) as turn:
            put(turn, "s", note())
            turn.claimed("s")  # what is written so far is sent before the end of the turn
        assert heard == [Ring("runs", "s")]
