"""What a worker reads from its own store: large values, beside the turns and without one."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from refold.errors import Corrupt, NotFound
from refold.ports import Store
from refold.wiring.process import StoredData
from tests.contracts.stores import commit, note


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


def test_a_large_value_is_read_without_a_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store, "r", note(), blobs={"h": b'["large"]'})
    data = StoredData(store, cast(Any, None), _at_once)
    with monkeypatch.context() as patch:
        patch.setattr(store, "turn", None)
        assert asyncio.run(data.blob("r", "h")) == b'["large"]'
        assert asyncio.run(data.value("r", "h")) == ["large"]
        with pytest.raises(NotFound):
            asyncio.run(data.blob("r", "other"))
        with pytest.raises(Corrupt, match="the row is missing"):
            asyncio.run(data.value("other", "h"))
