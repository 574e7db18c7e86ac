"""One interruption: a process dies, another one finishes, and a referee compares with an uninterrupted run."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

import refold.stores.sqlite.file as file
from refold.settings import Settings
from tests.crash.evidence import Evidence, acked, effects, ending, read
from tests.crash.processes import emptied, ended, fork, kill
from tests.crash.reference import QUICK, RESULT, work

PATIENCE = 60.0
CHECKPOINT_AT, TRUNCATE_AT = 60, 120  # pages, so that a short life sees both kinds of checkpoint


class Figures(Struct):
    """What a harness did; one that did nothing proves nothing."""

    kills: int = 0  # or faults of another kind
    refusals: int = 0  # turns that could not be taken because of it
    facts_acked: int = 0
    bodies_repeated: int = 0  # not finished when the process died, so they had to
    finished_at_once: int = 0  # the whole workflow was done before the kill


def uninterrupted(folder: Path) -> dict[str, Any]:
    """How the reference workflow and its children end if nothing happens; by run."""
    emptied(folder)
    live(folder, armed(folder), 0)
    found = read(folder / "refold.db")
    found.check()
    expected = endings(found)
    assert len(expected) == 3
    assert any(each["result"] == RESULT for each in expected.values())
    return expected


def interrupt(folder: Path, arm: Callable[[], object], expected: dict[str, Any], figures: Figures) -> bool:
    """False if the process ended before what it was armed with could kill it."""
    emptied(folder)
    if live(folder, armed(folder, arm), -signal.SIGKILL, 0) == 0:
        return False
    figures.kills += 1
    before = copied(folder)
    finish(folder, before, expected, figures)
    return True


def finish(
    folder: Path, before: Evidence, expected: dict[str, Any], figures: Figures, settings: Settings = QUICK
) -> Evidence:
    """`before`: what the first process left. Another one comes, and all ends as if there had been only one."""
    before.check()
    assert_acked(folder, before, figures)
    done, began = before.successes(), effects(folder)
    live(folder, armed(folder, settings=settings), 0)
    after = read(folder / "refold.db")
    after.check()
    for run, log in before.logs.items():
        assert after.logs[run][: len(log)] == log, f"the log of {run} was changed"
    assert endings(after) == expected
    again = effects(folder)[len(began) :]
    repeated = [command for _, _, command, _ in again if command in done]
    assert not repeated, f"finished bodies ran again: {repeated}"
    first = {(command, attempt) for _, _, command, attempt in began}
    figures.bodies_repeated += sum((command, attempt) in first for _, _, command, attempt in again)
    figures.finished_at_once += not again
    assert_each_success_had_a_body(after, folder)
    return after


def endings(found: Evidence) -> dict[str, Any]:
    return {run: ending(state) for run, state in found.states().items()}


def assert_acked(folder: Path, found: Evidence, figures: Figures) -> None:
    heads = {run: len(log) for run, log in found.logs.items()}
    lost = {run: number for run, number in acked(folder).items() if heads.get(run, 0) < number}
    figures.facts_acked += sum(acked(folder).values())
    assert not lost, f"facts were acknowledged and are gone: {lost}, of {heads}"


def assert_each_success_had_a_body(after: Evidence, folder: Path) -> None:
    began = {(command, attempt) for _, _, command, attempt in effects(folder)}
    bodiless = ("sum/1",)  # a noop
    for each in after.settled():
        if each.outcome == "succeeded" and each.command not in bodiless and each.generation:
            assert ((each.run, each.command), each.attempt) in began, each


def armed(
    folder: Path,
    arm: Callable[[], object] = lambda: None,
    tell: Callable[[str, int], object] | None = None,
    settings: Settings = QUICK,
) -> Callable[[], None]:
    """The life of a process that runs the reference workflow."""

    def life() -> None:
        file.CHECKPOINT_AT, file.TRUNCATE_AT = CHECKPOINT_AT, TRUNCATE_AT
        arm()
        work(folder, tell, settings)

    return life


def live(
    folder: Path, life: Callable[[], object], *codes: int, meanwhile: Callable[[int], object] = lambda pid: None
) -> int:
    """A process from its beginning to its end, which must be one of these; `meanwhile` something happens to it."""
    output = folder / "output"
    pid = fork(life, output)
    try:
        meanwhile(pid)
    except BaseException:
        kill(pid)
        raise
    code = ended(pid, PATIENCE, output)
    said = output.read_text()
    assert code in codes, f"ended with {code}\n{said}"
    assert "locked" not in said and "Traceback" not in said, said
    return code


def copied(folder: Path) -> Evidence:
    """A look would change the file: whoever opens it first recovers its write-ahead log."""
    copy = emptied(folder / "copy")
    for name in ("refold.db", "refold.db-wal", "refold.db-journal"):
        if (folder / name).exists():
            shutil.copy(folder / name, copy / name)
    return read(copy / "refold.db")
