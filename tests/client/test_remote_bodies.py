"""Python workflows behave the same in a remote worker: the tests of bodies, each with an engine behind HTTP."""

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from tests.client.remote import remote_engine
from tests.python import test_cancelling, test_parking, test_resources

Test = Callable[..., Awaitable[None]]
NEXT_TO_THE_STORE = {"test_a_child_run_has_the_resources_of_its_own_workflow_beside_those_of_its_parent"}
"""What only the process that starts a child knows: which run is its parent, and so its live objects."""


def those_of(*modules: ModuleType) -> list[Any]:
    found = []
    for module in modules:
        for name, test in vars(module).items():
            if (
                name.startswith("test_")
                and name not in NEXT_TO_THE_STORE
                and test.__code__.co_flags & 0x80
                and not test.__code__.co_argcount
            ):
                found.append(pytest.param(module, test, id=f"{module.__name__.rpartition('.')[2]}::{name}"))
    return found


@pytest.mark.parametrize(("module", "test"), those_of(test_parking, test_cancelling, test_resources))
async def test_a_body_in_a_remote_worker(module: ModuleType, test: Test, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "open_engine", remote_engine)
    for name in ("lines", "LOG"):  # what the fixtures of the module empty
        getattr(module, name, []).clear()
    await test()
