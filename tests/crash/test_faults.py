"""A process is asked to stop while it is busy, or its disk is full for a while: nothing acknowledged is lost."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from refold.cli.commands.execute import in_foreground
from refold.errors import Stopped
from refold.testing.core import Scripted
from refold.wiring import open_process
from tests.alive import within
from tests.crash.evidence import effects, lines, read
from tests.crash.failpoints import be_full
from tests.crash.interrupted import (
    Figures,
    armed,
    assert_acked,
    assert_each_success_had_a_body,
    copied,
    endings,
    finish,
    live,
    uninterrupted,
)
from tests.crash.processes import emptied, scratch
from tests.crash.reference import QUICK, Bodies, Diary, Witness, drive

FULL_FOR = 0.15  # seconds
PATIENT = structs.replace(QUICK, lease_for=60.0)  # a machine that stands still for a moment is no lost worker

Tell = Callable[[str, int], object]


def at_fact(n: int, note: Tell, act: Callable[[], object]) -> Tell:
    """Notes what is done, and acts once so many facts are: the process knows the moment better than a watcher."""
    done: dict[str, int] = {}
    acted: list[bool] = []

    def tell(run: str, number: int) -> None:
        note(run, number)
        done[run] = number
        if not acted and sum(done.values()) >= n:
            acted.append(True)
            act()

    return tell


async def stoppable(folder: Path, arm: Callable[[Tell], Tell]) -> None:
    db, acks = folder / "refold.db", Diary(folder / "acks")
    async with open_process(Bodies(folder).tools(), evaluate=Scripted(), db=db, settings=PATIENT) as process:
        Witness(process, arm(acks.note))
        (folder / "busy").touch()
        await in_foreground(drive(process.engine), process.stop, grace=0.02, resume="the other process", say=print)


def live_until_stopped(folder: Path, arm: Callable[[Tell], Tell] = lambda note: note) -> None:
    try:
        asyncio.run(stoppable(folder, arm))
    except Stopped as stopped:
        os._exit(stopped.code)


def stop_myself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def stop_after(folder: Path, seconds: float, pid: int) -> None:
    while not (folder / "busy").exists():
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(pid, signal.SIGTERM)


def stop_politely(lives: Callable[[Path], Iterator[Callable[[], int]]]) -> Figures:
    figures = Figures()
    with scratch() as scratched:
        folder = scratched / "run"
        expected = uninterrupted(folder)
        for lived in lives(folder):
            emptied(folder)
            if lived() != TERM:
                continue  # it had just finished
            figures.kills += 1
            assert "to continue: the other process" in (folder / "output").read_text()
            after = finish(folder, copied(folder), expected, figures, PATIENT)
            assert not [each for each in after.settled() if each.losses], "work was lost instead of handed back"
    print(f"asked to stop: {figures}")
    return figures


TERM = 128 + signal.SIGTERM


def test_a_process_that_is_asked_to_stop_loses_nothing() -> None:
    facts = (4, 12, 25, 40, 55)

    def lives(folder: Path) -> Iterator[Callable[[], int]]:
        for n in facts:
            arm = partial(at_fact, n, act=stop_myself)
            yield partial(live, folder, partial(live_until_stopped, folder, arm), TERM)

    figures = stop_politely(lives)
    assert figures.kills == len(facts)
    assert figures.facts_acked >= 50


@pytest.mark.proof
def test_a_process_that_is_asked_to_stop_at_any_moment_loses_nothing() -> None:
    def lives(folder: Path) -> Iterator[Callable[[], int]]:
        for n in range(100):
            stopping = partial(stop_after, folder, n / 400)
            life = partial(live_until_stopped, folder)
            yield partial(live, folder, life, TERM, 0, -signal.SIGTERM, meanwhile=stopping)

    figures = stop_politely(lives)
    assert figures.kills >= 60
    assert figures.facts_acked >= 1000


def check_alone(folder: Path, expected: object, figures: Figures) -> None:
    """One process did it all, and no finished body began again."""
    after = read(folder / "refold.db")
    after.check()
    assert endings(after) == expected
    assert_acked(folder, after, figures)
    assert_each_success_had_a_body(after, folder)
    done_at = {(each.run, each.command): each.at for each in after.settled() if each.outcome == "succeeded"}
    assert not [command for at, _, command, _ in effects(folder) if at > done_at[command]]


def fill_disk(first: int, step: int, last: int) -> Figures:
    figures = Figures()
    with scratch() as scratched:
        folder = scratched / "run"
        expected = uninterrupted(folder)
        for n in range(first, last, step):
            emptied(folder)
            began = time.monotonic()
            live(folder, armed(folder, partial(be_full, n, FULL_FOR)), 0)
            assert time.monotonic() - began > FULL_FOR
            figures.refusals += len(list(lines(folder / "failures")))
            figures.kills += 1
            check_alone(folder, expected, figures)
    print(f"disk full from writes {first}, {first + step} ... on: {figures}")
    return figures


OPENED = 140  # writes after which the file is open: before, a full disk is a reason not to start


def test_a_full_disk_stops_a_run_until_there_is_room_again() -> None:
    figures = fill_disk(OPENED, 120, 850)
    assert figures.kills >= 5
    assert figures.refusals >= 5
    assert figures.facts_acked >= 300


@pytest.mark.proof
def test_a_full_disk_at_any_write_stops_a_run_until_there_is_room_again() -> None:
    figures = fill_disk(OPENED, 4, 850)
    assert figures.kills >= 150
    assert figures.refusals >= 150
    assert figures.facts_acked >= 10_000


LIMIT = 8192  # bytes


def limit_my_files() -> None:
    """The kernel lets this process write nothing beyond the first few pages of a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))


def lift_limit(folder: Path, pid: int) -> None:
    """After a while: it has been refused, and has tried again in vain."""
    assert within(60, lambda: len(list(lines(folder / "failures"))) >= 2), "the limit came too late"
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("facts", [3, 12, 30])
def test_a_file_that_cannot_grow_for_a_while_stops_a_run_for_a_while(facts: int) -> None:
    figures = Figures()
    with scratch() as scratched:
        folder = scratched / "run"
        expected = uninterrupted(folder)
        emptied(folder)
        acks = Diary(folder / "acks")
        life = armed(folder, tell=at_fact(facts, acks.note, limit_my_files))
        live(folder, life, 0, meanwhile=partial(lift_limit, folder))
        check_alone(folder, expected, figures)
        failures = list(lines(folder / "failures"))
    print(f"{len(failures)} turns could not be taken, such as: {failures[:1]}")
    assert failures
    assert figures.facts_acked >= 50
