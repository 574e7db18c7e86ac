"""The shelf of tools, what they are given, and the tool that does nothing."""

from typing import Any

import pytest

from refold import open_engine
from refold.errors import ToolFailed
from refold.plan import Call, Plan, Step
from refold.ports import Tool, ToolCall
from refold.registry import LazyRegistry
from refold.tool_api import Keys, ToolInfo, ToolKey
from refold.tools.simple import noop
from tests.tools.calls import call, engine, fault_of_run, one_step

INFO = ToolInfo(
    kind="kind",
    about="",
    keys=(
        ToolKey(name="text", type="text"),
        ToolKey(name="number", type="number"),
        ToolKey(name="count", type="integer"),
        ToolKey(name="truth", type="bool"),
        ToolKey(name="map", type="map"),
        ToolKey(name="list", type="list"),
        ToolKey(name="any", type="any"),
        ToolKey(name="time", type="duration"),
        ToolKey(name="fixed", type="text", static=True, choices=("a", "b")),
    ),
)


class Closing:
    def __init__(self) -> None:
        self.closed = False

    async def __call__(self, call: ToolCall) -> Any:
        return "made"

    async def close(self) -> None:
        self.closed = True


async def test_a_tool_is_made_when_it_is_first_used_and_closed_with_the_shelf() -> None:
    made: list[Closing] = []

    def make() -> Tool:
        made.append(Closing())
        return made[-1]

    given = Closing()
    shelf = LazyRegistry[Tool]({"given": given, "both": given}, {"late": make, "both": make})
    assert (set(shelf), len(shelf), "late" in shelf, "never" in shelf) == ({"given", "late", "both"}, 3, True, False)
    assert made == []
    assert shelf["late"] is shelf["late"] is made[0]
    assert shelf["both"] is given
    assert shelf.get("never") is None
    await shelf.close()
    assert (made[0].closed, given.closed) == (True, False)


async def test_a_tool_that_cannot_be_made_fails_its_step() -> None:
    def broken() -> Tool:
        raise ImportError("no module named 'httpx2'")

    async with engine() as opened:
        opened.mailroom.worker().tools._makers["http"] = broken  # type: ignore[union-attr]
        fault = await fault_of_run(opened, one_step("http", None, {"url": "http://x.test"}))
        assert (fault.type, fault.message) == ("ImportError", "no module named 'httpx2'")


async def test_a_tool_of_ones_own_takes_the_place_of_refolds() -> None:
    async with open_engine({"http": Closing()}) as opened:
        assert await opened.run(one_step("http")) == "made"


@pytest.mark.parametrize(
    ("settings", "config", "keys"),
    [
        (
            {"fixed": "a"},
            {"text": "x", "number": 1.5, "count": 2},
            {"fixed": "a", "text": "x", "number": 1.5, "count": 2},
        ),
        ({"text": "x"}, {"text": "y", "any": None}, {"text": "y"}),
        ({"fixed": None}, {"fixed": None}, {}),
        ({}, {"time": 5}, {"time": 5.0}),
        ({}, {"time": "1m30s"}, {"time": 90.0}),
        ({}, {"time": "250ms"}, {"time": 0.25}),
        ({}, {"truth": False, "map": {}, "list": []}, {"truth": False, "map": {}, "list": []}),
    ],
)
def test_keys_come_from_what_is_written_and_what_is_rendered(
    settings: dict[str, Any], config: dict[str, Any], keys: dict[str, Any]
) -> None:
    given = Keys(INFO).read(call(settings, config, {"x": 1}))
    assert (given.keys, given.input) == (keys, {"x": 1})


@pytest.mark.parametrize(
    ("settings", "config", "why"),
    [
        ({}, {"fixed": "a"}, "`fixed` of kind cannot be computed: it is taken as it is written"),
        ({"fixed": "c"}, {}, "`fixed` must be one of a, b, not 'c'"),
        ({}, {"txet": "a"}, "kind has no key `txet`; it has text, number, count, truth, map, list, any, time, fixed"),
        ({}, {"text": 1}, "`text` must be text, not a number"),
        ({}, {"number": True}, "`number` must be a number, not true or false"),
        ({}, {"count": 1.5}, "`count` must be a whole number, not a number"),
        ({}, {"truth": "yes"}, "`truth` must be true or false, not text"),
        ({}, {"map": []}, "`map` must be a map, not a list"),
        ({}, {"list": {}}, "`list` must be a list, not a map"),
        ({}, {"time": "5 parsecs"}, "`time` must be a span of time such as 30s or 1m30s, not '5 parsecs'"),
        ({}, {"time": -1}, "`time` must be a span of time such as 30s or 1m30s, not -1"),
    ],
)
def test_a_key_that_does_not_fit_is_refused_by_name(settings: dict[str, Any], config: dict[str, Any], why: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        Keys(INFO).read(call(settings, config))
    fault = caught.value.fault
    assert (fault.kind, fault.message, fault.retryable) == ("invalid_settings", why, False)


@pytest.mark.parametrize("input", [5, "x", [], {"x": 1}, {"input": [], "config": {}}, {"input": {"a": 1}, "config": 5}])
async def test_what_is_no_input_of_a_tool_is_refused(input: Any) -> None:
    async with engine() as opened:
        work = Call(tool="python", settings={"code": "result = 1"})
        fault = await fault_of_run(opened, Plan(name="p", steps=(Step(name="a", work=work, input=input),)))
        assert (fault.kind, fault.retryable) == ("invalid_settings", False)


async def test_the_tool_that_does_nothing_gives_its_result_or_its_input() -> None:
    assert await noop(call({}, {}, {"a": 1})) == {"a": 1}
    assert await noop(call({}, {"result": [5]}, {"a": 1})) == [5]
    assert await noop(call({}, {"result": None}, {"a": 1})) is None
    async with engine() as opened:
        for input in (5, None, {"a": 1}, {"input": 5, "config": {}}):
            assert await opened.run(Plan(name="p", steps=(Step(name="a", input=input),))) == input
