"""What a worker logs of its leases, and of errors that nobody else is told of."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from refold.errors import LeaseLost, Unavailable
from refold.ports import Lease
from refold.worker.leases import Beat, LeaseKeeper, place
from refold.worker.output import TryOutput
from tests.worker.test_loop import Bodies, HandDesk, lease, until, working
from tests.worker.test_printed import LEASE, Now


class Veil:
    """Hides one text."""

    def __init__(self, hidden: str) -> None:
        self.hidden = hidden

    def text(self, text: str) -> str:
        return text.replace(self.hidden, "***")


def logged(caplog: pytest.LogCaptureFixture, words: str) -> logging.LogRecord:
    return next(each for each in caplog.records if each.getMessage() == words)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = record.fields  # type: ignore[attr-defined]
    return found


async def test_a_lost_lease_is_a_warning_with_its_run_step_command_and_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper, held = LeaseKeeper(HandDesk(), Now(), "w", 30.0), lease()
    keeper.hold(held)
    keeper.hear(Beat([place(held)], {}))
    record = logged(caplog, "lease lost: its body is stopped")
    assert record.levelno == logging.WARNING and record.name == "refold.worker"
    known = {"run": "r", "step": "a", "command": "a/1", "worker": "w", "attempt": 1, "generation": 1}
    assert fields(record) == known


async def test_a_command_that_is_settled_between_two_looks_is_no_lost_lease(caplog: pytest.LogCaptureFixture) -> None:
    keeper, held = LeaseKeeper(HandDesk(), Now(), "w", 30.0), lease()
    keeper.hold(held).reporting = True
    keeper.hear(Beat([place(held)], {}))
    assert not caplog.records


async def test_a_heartbeat_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    desk = HandDesk()

    def fail() -> None:
        raise Unavailable("away")

    desk.before["extend"] = fail
    async with working(desk, Bodies()):
        await until(lambda: desk.beats >= 1)
        await until(lambda: any(each.getMessage() == "heartbeat failed" for each in caplog.records))
    assert fields(logged(caplog, "heartbeat failed"))["why"] == "away"


async def test_a_command_that_a_defect_makes_a_worker_give_up_is_logged_with_a_traceback_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def settings(_: Lease) -> Mapping[str, Any]:
        raise KeyError("moon-and-stars")

    desk = HandDesk()
    desk.waiting = [lease()]
    async with working(desk, Bodies(), settings=settings, redaction=Veil("moon-and-stars")):
        await until(lambda: desk.lost)
    record = logged(caplog, "worker gives a command up; that counts as a loss")
    assert record.levelno == logging.ERROR and fields(record)["command"] == "a/1"
    assert record.exc_text is not None and "KeyError: '***'" in record.exc_text and "moon" not in caplog.text


@pytest.mark.parametrize("error", [LeaseLost("gone"), ValueError("bad")])
async def test_printed_lines_that_nobody_takes_are_dropped_with_a_line_in_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def publish(lease: Lease, lines: Sequence[Any]) -> None:
        raise error

    with caplog.at_level(logging.DEBUG, "refold"):
        printed = TryOutput(LEASE, publish, Now())
        printed.say("stdout", "one")
        await printed.close()
    record = logged(caplog, "1 printed lines are dropped")
    assert record.levelno == (logging.DEBUG if isinstance(error, LeaseLost) else logging.WARNING)
    assert fields(record)["run"] == "run" and fields(record)["why"] == f"{type(error).__name__}: {error}"
