"""The tool that insists."""

import asyncio
from typing import Any

import pytest

from refold.errors import ToolFailed
from refold.tools.simple import assert_that
from tests.tools.calls import call


def insisted(settings: dict[str, Any] | None = None, **keys: Any) -> Any:
    return asyncio.run(assert_that(call(settings, keys)))


@pytest.mark.parametrize("value", [True, 1, "yes", [0], {"a": 1}])
def test_what_holds_gives_its_result(value: Any) -> None:
    assert insisted(that=value, result={"n": 1}) == {"n": 1}
    assert insisted(that=value) is None


@pytest.mark.parametrize("value", [False, 0, "", "no", " False ", "[]", [], {}, None])
def test_what_does_not_hold_fails_for_good_in_the_words_that_are_given(value: Any) -> None:
    with pytest.raises(ToolFailed) as failed:
        insisted({"error": "too_few"}, that=value, message="there are none", data=[1], result=2)
    fault = failed.value.fault
    assert (fault.kind, fault.message, fault.data, fault.retryable) == ("too_few", "there are none", [1], False)


def test_without_words_it_still_says_something() -> None:
    with pytest.raises(ToolFailed) as failed:
        insisted(that=False)
    assert (failed.value.fault.kind, failed.value.fault.message) == ("assert", "the condition is not true")
