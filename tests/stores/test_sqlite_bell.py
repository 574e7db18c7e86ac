"""A commit of one process wakes the others that use the same file, at once; without commits nobody wakes."""

import threading
from pathlib import Path

import pytest

from refold.ports import Abilities
from refold.stores.sqlite import bell
from tests.stores.sqlite_files import opened

WAIT = 60.0


def test_a_commit_wakes_those_who_listen_after_it_can_be_seen(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as other:
        before, called = one.foreign_writes(), threading.Event()
        seen: list[int] = []

        def heard(rings: object) -> None:
            seen.append(one.foreign_writes())
            called.set()

        assert one.listen(heard) is True
        other.enrol(Abilities(worker="w"))
        assert called.wait(WAIT)
        assert seen[-1] != before


def test_reading_wakes_nobody_and_a_store_that_is_closed_hears_nothing(tmp_path: Path) -> None:
    calls: list[object] = []
    ended = threading.Event()
    with opened(tmp_path) as other:
        with opened(tmp_path) as one:
            assert one.listen(calls.append)
            other.foreign_writes()
            other.due(10)
            list(other.views.runs().rows)
            assert other.listen(lambda rings: ended.set())
            other.enrol(Abilities(worker="w"))  # the first commit: it wakes, and nothing before it does
            assert ended.wait(WAIT)
        heard = len(calls)
        assert heard <= 1
        ended.clear()
        other.enrol(Abilities(worker="v"))
        assert ended.wait(WAIT) and len(calls) == heard


def test_where_the_kernel_cannot_watch_a_file_the_store_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: str) -> int:
        raise OSError("no watches are left")

    monkeypatch.setattr(bell, "_watching", refuses)
    with opened(tmp_path) as one, opened(tmp_path) as other:
        before = one.foreign_writes()
        assert one.listen(lambda rings: None) is False
        other.enrol(Abilities(worker="w"))
        assert one.foreign_writes() != before
