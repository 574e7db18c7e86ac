"""Mail of a run with much of it does not hold up that of others."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from refold.doorbells.local import LocalDoorbell
from refold.runtime.mail import Look
from refold.runtime.mailroom import COMPANY, SHARE, Mailroom
from refold.runtime.turn import TurnResult


class Noting:
    """Takes turns, and notes whose mail was in each."""

    def __init__(self) -> None:
        self.turns: list[Counter[str]] = []

    def commit(self, posts: Any, offer: Any = None) -> TurnResult:
        self.turns.append(Counter(post.run for post in posts))
        return TurnResult()


async def inline(work: Any) -> Any:
    return work()


def put(room: Mailroom, *runs: str) -> None:
    for run in runs:
        room.drop(run, Look())


def mailroom() -> tuple[Mailroom, Noting]:
    noting = Noting()
    return Mailroom(noting, inline, LocalDoorbell()), noting  # type: ignore[arg-type]


async def through(room: Mailroom) -> None:
    while room._work is not None and not room._work.done():
        await asyncio.sleep(0)


async def test_mail_of_one_run_alone_is_one_turn() -> None:
    room, noting = mailroom()
    put(room, *["large"] * 100)
    await through(room)
    assert noting.turns == [{"large": 100}]


async def test_of_several_runs_each_has_its_share_in_a_turn() -> None:
    room, noting = mailroom()
    put(room, *["large"] * (3 * SHARE), "small")
    await through(room)
    assert noting.turns[0] == {"large": SHARE, "small": 1}
    assert sum(noting.turns, Counter()) == {"large": 3 * SHARE, "small": 1}


@pytest.mark.parametrize(
    ("company", "turns"),
    [(3600.0, [{"large": SHARE}, {"large": SHARE}]), (0.001, [{"large": 2 * SHARE}])],
    ids=["a moment ago", "long ago"],
)
async def test_who_had_mail_a_moment_ago_is_expected_to_have_more(
    monkeypatch: pytest.MonkeyPatch, company: float, turns: list[dict[str, int]]
) -> None:
    assert 0 < COMPANY < 1
    monkeypatch.setattr("refold.runtime.mailroom.COMPANY", company)
    room, noting = mailroom()
    put(room, "large", "small")
    await through(room)
    await asyncio.sleep(0.01)
    put(room, *["large"] * (2 * SHARE))
    await through(room)
    assert noting.turns[1:] == turns


async def test_one_look_is_enough_however_many_letters_came() -> None:
    room, noting = mailroom()
    room.nudge(["parent"] * 50)
    room.nudge(["parent", "other"])
    await through(room)
    assert noting.turns == [{"parent": 1, "other": 1}]
    room.nudge(["parent"])
    await through(room)
    assert noting.turns[1:] == [{"parent": 1}]
