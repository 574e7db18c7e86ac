"""Eight processes, one file, a kill -9 every few milliseconds: each command counts once, and nobody waits for ever."""

from pathlib import Path

import pytest

from tests.crash.soak import soak


def test_each_command_counts_once_however_many_workers_are_killed(tmp_path: Path) -> None:
    soaked = soak(tmp_path, seconds=3.0, every=0.05, kills=30, least=1000, seed=1)
    print(soaked)
    assert soaked.kills >= 30
    assert soaked.commands >= 1000
    assert soaked.bodies > soaked.commands  # some died with their process and began anew


@pytest.mark.proof
def test_twenty_thousand_commands_count_once_in_a_minute_of_kills(tmp_path: Path) -> None:
    soaked = soak(tmp_path, seconds=60.0, every=0.05, kills=0, least=20_000, seed=2)
    print(soaked)
    assert soaked.kills >= 600
    assert soaked.commands >= 20_000
    assert soaked.bodies > soaked.commands
    assert soaked.p999 <= 10 * soaked.median
