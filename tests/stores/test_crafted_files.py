"""Whatever is in a database file, no command crashes, touches a file elsewhere, or runs what nobody named."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from refold.cli import exits
from refold.cli.output import OBEYED
from tests.cli import in_process
from tests.cli.program import refold
from tests.stores.crafted_files import craft, original

HARMFUL = re.compile(f"[{OBEYED}]")
FINE = {exits.OK, exits.FAILED, exits.USAGE, exits.NOT_FOUND, exits.CONFLICT, exits.UNREACHABLE, exits.TIMED_OUT}

LOOKING: tuple[tuple[str, ...], ...] = (
    ("runs", "list"),
    ("runs", "list", "-o", "json"),
    ("runs", "list", "--status", "waiting"),
    ("runs", "show"),
    *(("runs", "show", name) for name in ("done", "loop", "bad", "gate", "wait", "asking", "trap")),
    ("runs", "show", "loop", "-o", "json"),
    ("runs", "show", "loop", "--graph"),
    ("runs", "show", "nobody"),
    *(("runs", "history", name) for name in ("loop", "gate", "asking")),
    ("runs", "history", "bad", "-o", "jsonl"),
    *(("runs", "why", name) for name in ("loop", "gate", "wait", "asking", "trap")),
    ("runs", "logs", "loop"),
    ("runs", "logs", "bad", "-o", "json"),
    ("runs", "items", "loop"),
    ("runs", "items", "loop", "-o", "jsonl"),
    ("runs", "watch", "wait", "--timeout", "0", "--progress", "lines"),
    ("runs", "watch", "loop", "--timeout", "0"),
    ("runs", "record", "loop"),
    ("runs", "prune", "--older-than", "0s", "--dry-run"),
    ("gates", "list"),
    ("gates", "list", "-o", "json"),
    ("gates", "show", "gate"),
    ("gates", "show", "asking"),
    ("dlq", "list"),
    ("dlq", "list", "-o", "json"),
    ("dlq", "show", "0"),
    ("db", "info"),
    ("db", "check"),
    ("doctor",),
)
CHANGING: tuple[tuple[str, ...], ...] = (
    ("runs", "pause", "wait"),
    ("runs", "signal", "wait", "go", "1"),
    ("runs", "migrate", "wait", "--to", "gate.yaml"),
    ("gates", "approve", "gate"),
    ("gates", "answer", "asking", "which", "1"),
    ("runs", "cancel", "trap"),
    ("runs", "retry", "bad", "--detach"),
    ("dlq", "redrive", "--all"),
    ("run", "done.yaml", "--name", "mine", "-q"),
    ("run", "loop.yaml", "--name", "new", "--progress", "lines"),
    ("run", "done.yaml", "--name", "later", "--detach"),
    ("runs", "resume", "gate", "-q"),
    ("db", "rebuild"),
    ("runs", "prune", "--older-than", "0s"),
    ("db", "migrate"),
    ("runs", "list"),
)
DATA = ("record", "logs", "resume", "run", "retry")  # their stdout is data, and exact where it is not a terminal


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "inside"
    folder.mkdir()
    return original(folder)


class Place:
    """A folder with a crafted file, beside a folder that is watched."""

    def __init__(self, top: Path, real: Path, seed: int) -> None:
        self.inside, self.outside = top / "inside", top / "outside"
        for each in (self.inside, self.outside):
            each.mkdir(parents=True)
        (self.outside / "canary").write_text("alive")
        for name in (*real.parent.glob("*.yaml"), real.parent / "asking.py"):
            shutil.copy(name, self.inside)
        self.done = craft(real, self.inside, self.outside, seed)
        self.seed, self.top = seed, top
        self.before = self.seen()

    def seen(self) -> dict[str, tuple[object, ...]]:
        """Everything but what is inside: names, sizes and times."""
        found: dict[str, tuple[object, ...]] = {}
        for folder, _, names in os.walk(self.top):
            if not Path(folder).is_relative_to(self.inside):
                for each in (folder, *(os.path.join(folder, name) for name in names)):
                    about = os.lstat(each)
                    found[each] = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        return found

    def check(self, command: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        about = f"seed {self.seed}: {self.done}\nrefold {' '.join(command)}: exit {code}"
        about += f"\n{stdout[-2000:]}\n{stderr[-3000:]}"
        assert code in FINE or (in_process.may_wait(command) and code == exits.INTERRUPTED), about
        assert self.seen() == self.before, about
        assert HARMFUL.search(stderr) is None, about
        if not set(DATA) & set(command[:2]) and "-o" not in command:
            assert HARMFUL.search(stdout) is None, about


def attack(top: Path, real: Path, seed: int, looking: int, changing: int) -> None:
    """Every so many of the commands, each on the file that the ones before have left."""
    place = Place(top, real, seed)
    with in_process.here(place.inside):
        for command in (*LOOKING[seed % looking :: looking], *CHANGING[seed % changing :: changing]):
            place.check(command, *in_process.command(*command))
    shutil.rmtree(top)


@pytest.mark.parametrize("seed", range(24))
def test_a_crafted_file_crashes_no_command_and_reaches_nothing_outside(tmp_path: Path, real: Path, seed: int) -> None:
    attack(tmp_path / "place", real, seed, looking=4, changing=4)


@pytest.mark.parametrize("seed", [20261143, 20261367, 20264689])
def test_seeds_that_once_crashed_a_command_crash_none(tmp_path: Path, real: Path, seed: int) -> None:
    """Values under a forged seal that are not UTF-8, and a run whose id is none."""
    attack(tmp_path / "place", real, seed, looking=1, changing=16)


@pytest.mark.proof
@pytest.mark.parametrize("part", range(20))
def test_five_hundred_crafted_files_crash_no_command_and_reach_nothing_outside(
    tmp_path: Path, real: Path, part: int
) -> None:
    first = int(os.environ.get("REFOLD_FIRST_SEED", "0"))
    for seed in range(part * 25, part * 25 + 25):
        attack(tmp_path / str(seed), real, first + seed, looking=1, changing=1)


def without_times(text: str) -> str:
    """A run that is not over takes longer with every look."""
    return re.sub(r"\d+(\.\d+)? (s|min)\b", "…", text)


@pytest.mark.parametrize("seed", range(3))
def test_a_program_of_its_own_ends_like_the_command_in_this_process(tmp_path: Path, real: Path, seed: int) -> None:
    place = Place(tmp_path / "place", real, seed)
    for command in (("runs", "list"), ("runs", "show", "loop"), ("db", "check")):
        done = refold(place.inside, *command, HOME=str(place.inside))
        place.check(command, *done)
        with in_process.here(place.inside):
            code, stdout, _ = in_process.command(*command)
        assert (code, without_times(stdout)) == (done.code, without_times(done.out))
