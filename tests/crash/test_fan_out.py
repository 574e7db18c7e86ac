"""Very many items: a process that dies on the way repeats nothing that was recorded, and needs little for each."""

import sys

import pytest

from refold.core.codec import encode_snapshot
from tests.crash.fan_out import WINDOW, Life, completed, rows, state_of, survive
from tests.crash.processes import scratch

MEGABYTE = 1_000_000
STATE = 64  # bytes of state for an item


def killed(items: int, *kills: float, streamed: bool = False) -> Life:
    with scratch() as folder:
        seen = survive(folder, items, streamed, kills)
        print(seen)
        done = list(completed(folder))
        assert sorted(done) == list(range(items)), "each completion is recorded once"
        assert (seen.kills, [status for status in rows(folder, "select status from runs")]) == (
            len(kills),
            ["completed"],
        )
        assert rows(folder, "select id from commands") == []
    assert 0 <= seen.repeated <= len(kills) * WINDOW, "only what was under way is begun again"
    assert seen.peak < 300 * MEGABYTE
    return seen


@pytest.mark.parametrize("streamed", [False, True])
def test_five_thousand_items_survive_a_kill(streamed: bool) -> None:
    assert killed(5_000, 0.5, streamed=streamed).kills == 1


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_hundred_thousand_items_survive_three_kills_within_300_megabytes(streamed: bool) -> None:
    assert killed(100_000, 0.2, 0.5, 0.8, streamed=streamed).kills == 3


def streamed(items: int) -> tuple[Life, int, int]:
    """With the bytes of a snapshot of its state, and of what a process holds of the items."""
    with scratch() as folder:
        seen = survive(folder, items, streamed=True)
        state = state_of(folder)
    fan = state.steps[0].fan or state.steps[0].shown
    assert fan is not None and fan.pulls is not None and (fan.count, fan.done) == (items, items)
    parts = [
        fan.status,
        fan.report_facts,
        fan.pulls.pages,
        *fan.pulls.pages,
        *{id(each): each for each in fan.report_facts}.values(),
    ]
    return seen, len(encode_snapshot(state)), sum(map(sys.getsizeof, parts))


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_a_million_items_of_a_stream_need_at_most_64_bytes_each() -> None:
    few, _, _ = streamed(1_000)
    many, snapshot, held = streamed(1_000_000)
    told = {"snapshot": snapshot, "state": held, "memory": many.peak - few.peak}
    print({what: f"{size / many.items:.1f} bytes an item" for what, size in told.items()}, many)
    assert snapshot <= STATE * many.items
    assert held <= STATE * many.items
