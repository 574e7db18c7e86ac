"""300 graphs that were made by chance end as a small interpreter says, in each form that can say them."""

from collections import Counter
from typing import Any

import pytest

from refold.errors import NotFound
from tests.jamjet.house import play, read_text
from tests.jamjet.interpreter import Interpreter
from tests.jamjet.programs import CHILD, CHILD_ANSWER, program, written

COUNT = 300
PARTS = 10
LEAST = 20  # graphs with each construct
JUDGED = ("eval_results", "eval_feedback")  # words of ours, not of the interpreter


def load(file: str) -> bytes:
    if file != "child.yaml":
        raise NotFound(file)
    return CHILD.encode()


def flat(visits: list[Any]) -> Counter[str]:
    return Counter(name for each in visits for name in ([each] if isinstance(each, str) else each))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_graph_ends_as_the_interpreter_says(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        made = program(seed)
        text = written(made)
        given = {**made.given, "answers": {**made.given["answers"], "inner": [CHILD_ANSWER]}}
        played = play(read_text(text, load=load), made.state, given)
        wanted = Interpreter(made)
        wanted.run()
        story = f"seed {seed}: print(written(program({seed})))\n{played.story}"
        assert (played.status, played.error) == (wanted.status, wanted.error), story
        assert flat(played.visits) == +wanted.visits, story
        if wanted.status == "completed":
            state = {key: value for key, value in played.result.items() if key not in JUDGED}
            assert state == wanted.state, story
            assert {name for name in played.skipped if "." not in name} <= wanted.skipped, story


def test_each_construct_is_in_many_of_them() -> None:
    uses = Counter(use for seed in range(COUNT) for use in program(seed).uses)
    assert {use: count for use, count in uses.items() if count < LEAST} == {}
    assert len(uses) >= 51
