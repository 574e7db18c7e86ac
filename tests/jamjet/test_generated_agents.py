"""390 agents that were made by chance do what a plain procedure for their strategy says, in each of their forms."""

from collections import Counter

import pytest

from tests.jamjet.agents import MADE, STRATEGIES, Walk, agent, written
from tests.jamjet.house import play, read_text

COUNT = 390
LEAST = 20  # agents with each construct


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_agent_does_what_its_strategy_says(strategy: str) -> None:
    for seed in (seed for seed in range(COUNT) if MADE[seed % len(MADE)] == strategy):
        made = agent(seed)
        unit = made.name if made.form == "fleet" else ""
        played = play(read_text(written(made), unit=unit), made.state, {"answers": made.answers})
        wanted = Walk(made)
        story = f"seed {seed}: print(written(agent({seed})))\n{played.story}"
        assert played.visits == wanted.visits, story
        assert (played.status, played.error) == (wanted.status, wanted.error), story
        if wanted.status == "completed":
            assert played.result == wanted.state, story
            assert played.skipped == wanted.skipped, story


def test_each_construct_is_in_many_of_them() -> None:
    made = [agent(seed) for seed in range(COUNT)]
    uses = Counter(use for each in made for use in each.uses | Walk(each).seen)
    assert {use: count for use, count in uses.items() if count < LEAST} == {}
    assert len(uses) >= 28
