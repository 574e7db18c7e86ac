"""Progress as rows: what is drawn of a run, and how it fits where there is little room."""

import pytest
from msgspec import structs

from refold.cli import output
from refold.cli.tree import PLAIN, PRETTY, Canvas, Meter, PlaybookLines, drawn, painted
from refold.core.outcomes import SECOND, Fault
from refold.core.read.summary import Progress, StepProgress
from refold.core.read.why import Reason

NOON = 1_800_000_000 * SECOND


def of(*rows: StepProgress, status: str = "running", after: float = 3.2) -> Progress:
    return Progress("0123", "orders-calm-otter", "orders", status, 7, rows, NOON, NOON + round(after * SECOND))


def lines(progress: Progress, meter: Meter | None = None, **canvas: object) -> list[str]:
    shown = drawn(progress, meter or Meter(), Canvas(**canvas))  # type: ignore[arg-type]
    return painted(shown, colour=False).splitlines()


def test_the_head_has_name_status_and_time() -> None:
    assert lines(of())[0] == "orders-calm-otter  running  3.2 s"


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (StepProgress("fetch", "completed", 1, 1), "✓ fetch"),
        (StepProgress("fetch", "pending"), "· fetch"),
        (StepProgress("fetch", "skipped"), "- fetch  skipped"),
        (StepProgress("fetch", "bypassed", 1), "- fetch  bypassed"),
        (StepProgress("fetch", "cancelled", 1), "- fetch  cancelled"),
        (StepProgress("fetch", "issued", 1, 2), "⠴ fetch  try 3"),
        (StepProgress("fetch", "issued", 4, 9), "⠴ fetch  visit 4"),
        (
            StepProgress("fetch", "issued", 1, reason=Reason("fetch", "signal", signal="go")),
            "◌ fetch  waits for signal 'go'",
        ),
    ],
)
def test_a_step_is_one_row(row: StepProgress, line: str) -> None:
    assert lines(of(row))[1:] == [line]


def test_a_loop_is_one_row_with_bar_and_counts() -> None:
    row = StepProgress("check", "issued", 1, 31, count=100, done=60, failed=2, open=16, retried=1)
    assert lines(of(row))[1] == "⠴ check  ████████████░░░░░░░░ 62/100 · 16 running · 1 retried · 2 failed"
    assert lines(of(row), glyphs=PLAIN)[1].endswith("############-------- 62/100 , 16 running , 1 retried , 2 failed")


def test_a_loop_shows_its_rate_and_when_it_will_be_over() -> None:
    meter = Meter()
    row = StepProgress("check", "issued", 1, count=1000, done=0, open=16)
    for passed, done in ((0, 0), (1, 40), (2, 82)):
        row = structs.replace(row, done=done)
        meter.note(of(row, after=passed))
    assert meter.rate(row) == 41
    assert lines(of(row), meter)[1].endswith("82/1000 · 16 running · 41/s · eta 22 s")


def test_the_rate_is_that_of_the_last_seconds() -> None:
    meter = Meter()
    row = StepProgress("check", "issued", 1, count=1000)
    for second in range(20):
        meter.note(of(structs.replace(row, done=10 * second if second < 10 else 100), after=second))
    assert meter.rate(row) == 0


def test_a_failure_expands_with_its_message_and_its_place_in_the_playbook() -> None:
    source = PlaybookLines("play.yaml", ["workflow:", "  - step: load"], {"steps.load": (2, 11)})
    row = StepProgress("load", "failed", 1, 3, fault=Fault("exit", "no such file\nsecond line\x1b[2J"))
    assert lines(of(row, status="failed"), source=source)[1:] == [
        "✗ load",
        "    no such file",
        "    second line\\x1b[2J",
        "    play.yaml:2:11",
        "    2 |   - step: load",
    ]
    assert lines(of(StepProgress("load", "failed", fault=Fault("lost"))))[2:] == ["    lost"]


@pytest.mark.parametrize("width", [4, 10, 20, 33, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = (
        StepProgress("a_step_with_quite_a_long_name", "completed", 1),
        StepProgress("check", "issued", 1, count=1000, done=812, failed=1, open=16, retried=3),
        StepProgress("日本語の名前", "issued", 1, reason=Reason("x", "gate", note="ship it? 日本語")),
        StepProgress(
            "load", "failed", 1, fault=Fault("error", "a message that is much longer than the terminal is wide")
        ),
    )
    assert [line for line in lines(of(*rows), width=width) if output.cells(line) > width] == []


def test_on_twenty_columns_the_counts_of_a_loop_stay() -> None:
    row = StepProgress("check", "issued", 1, count=100, done=62)
    assert lines(of(row), width=20)[1] == "⠴ check  62/100"


def test_where_there_is_no_room_failures_and_work_come_first_and_the_rest_is_counted() -> None:
    done = [StepProgress(f"done{n}", "completed", 1) for n in range(30)]
    to_come = [StepProgress(f"next{n}", "pending") for n in range(40)]
    rows = (*done, StepProgress("bad", "failed", 1), StepProgress("busy", "issued", 1), *to_come)
    shown = lines(of(*rows), height=10)
    assert len(shown) <= 9
    assert [line.split()[1] for line in shown[1:-1]][-2:] == ["bad", "busy"]
    assert "done29" in shown[-4], "of what is done, the last"
    assert shown[-1] == "  … 25 completed, 40 pending"


def test_everything_is_shown_where_there_is_room() -> None:
    rows = [StepProgress(f"s{n}", "completed", 1) for n in range(100)]
    assert len(lines(of(*rows))) == 101


def test_the_spinner_turns() -> None:
    row = StepProgress("a", "issued", 1)
    assert {lines(of(row, after=n / 8))[1][0] for n in range(10)} == set(PRETTY.busy)


def test_colours_are_only_there_when_they_are_wanted() -> None:
    shown = drawn(of(StepProgress("a", "completed", 1)), Meter(), Canvas())
    assert "\x1b[32m✓\x1b[0m" in output.spelt_out(painted(shown, colour=True))
    assert "\x1b" not in painted(shown, colour=False)
