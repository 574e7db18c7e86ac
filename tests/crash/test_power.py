"""The power is cut before each write and sync: whatever arrived on the disk, no acknowledged fact is missing."""

import os
import time

import pytest

from tests.crash.power import Verdicts, add, cut, told
from tests.crash.processes import scratch
from tests.crash.recording import record

OFF, NORMAL, AS_IT_IS = 0, 1, None

SECONDS = 120.0  # of a processor, for one half of the proof
TARGET = 50_000  # disks in it


def cut_power(synchronous: int | None, variants: int, seed: int, share: tuple[int, int] = (0, 1)) -> Verdicts:
    with scratch() as folder:
        recording = record(folder, synchronous)
        (folder / "disk").mkdir()
        return cut(recording, folder / "disk", variants, seed, share)


def test_no_power_cut_loses_what_was_acknowledged() -> None:
    verdicts = cut_power(AS_IT_IS, 7, 1, (0, 2))
    print(told(verdicts))
    assert (verdicts.lost, verdicts.damaged) == (0, 0), verdicts.first
    assert verdicts.states >= 2000
    assert verdicts.with_facts >= 1800
    assert min(verdicts.kinds.get(kind, 0) for kind in ("dropped", "kept", "subset", "torn", "garbage")) >= 20


def test_the_oracle_sees_what_a_lower_synchronous_loses() -> None:
    """An oracle that is content with NORMAL would be content with anything."""
    verdicts = cut_power(NORMAL, 3, 2, (0, 5))
    print(told(verdicts))
    assert verdicts.lost >= 20
    assert verdicts.damaged == 0  # NORMAL forgets, and does not break the file


def test_the_oracle_sees_the_damage_of_a_disk_that_is_never_synced() -> None:
    verdicts = cut_power(OFF, 4, 3, (0, 5))
    print(told(verdicts))
    assert verdicts.lost >= 20
    assert verdicts.damaged >= 5


@pytest.mark.proof
@pytest.mark.parametrize("half", [0, 1])
def test_no_power_cut_at_any_operation_loses_what_was_acknowledged(half: int) -> None:
    """Recording after recording, until there were enough disks or the time is over."""
    first = 1000 * int(os.environ.get("REFOLD_FIRST_SEED", "1"))
    began, total, rounds = time.process_time(), Verdicts(), 0
    while total.states < TARGET and time.process_time() - began < SECONDS:
        add(total, cut_power(AS_IT_IS, 8, first + 2 * rounds + half))
        rounds += 1
    seconds = time.process_time() - began
    print(
        f"{rounds} recordings, {seconds:.0f} s, {total.states / seconds:.0f} disks/s, first seed {first}: {told(total)}"
    )
    assert (total.lost, total.damaged) == (0, 0), total.first
    assert total.states >= 5000
