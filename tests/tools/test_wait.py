"""The kind `wait`, as its documentation says, as a step of its own and in a pipeline."""

import asyncio
from typing import Any

import pytest

from refold import Engine
from refold.playbooks.playbook import read
from refold.tools.catalog import CATALOG
from tests.tools.calls import engine

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: play}\nworkflow:\n"
ALONE = "  - step: a\n    tool: {kind: wait, KEYS}\n"
IN_PIPELINE = '  - step: a\n    tool: [{name: nap, kind: wait, KEYS}, {name: out, kind: noop, result: "{{ nap }}"}]\n'


async def ended(opened: Engine, text: str, keys: str, signal: Any = None) -> Any:
    plan = read(HEAD + text.replace("KEYS", keys), "play.yaml", CATALOG).plan
    run = (await opened.start(plan)).id
    if signal is not None:
        await opened.signal(run, "paid", signal)
    async with asyncio.timeout(60):
        shown = await opened.wait(run)
    assert shown.error is None, shown.error
    return shown.result if text is ALONE else shown.result["out"]


@pytest.mark.parametrize("text", [ALONE, IN_PIPELINE], ids=["alone", "in a pipeline"])
async def test_a_wait_ends_by_time_or_by_a_signal_and_says_which(text: str) -> None:
    async with engine() as opened:
        for keys in ("seconds: 0.05", "seconds: 50ms", 'until: "2020-01-01T00:00:00Z"', "until: 5"):
            assert await ended(opened, text, keys) == {"by": "timer", "value": None}, keys
        for keys in ("signal: paid", "signal: paid, seconds: 1h"):
            assert await ended(opened, text, keys, {"by": "ann"}) == {
                "by": "signal",
                "signal": "paid",
                "value": {"by": "ann"},
            }
        assert await ended(opened, text, "signal: paid, seconds: 0.05") == {"by": "timer", "value": None}


async def test_a_step_waits_for_the_first_of_several_signals() -> None:
    async with engine() as opened:
        result = await ended(opened, ALONE, "signal: [refused, paid]", 7)
        assert result == {"by": "signal", "signal": "paid", "value": 7}
