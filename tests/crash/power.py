"""Every disk that a power cut may leave behind, rebuilt from a recording, and what plain SQLite finds on each."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from tests.crash.evidence import Fact, folded
from tests.crash.recording import Operation, Recording

SECTOR = 512
FILES = ("refold.db", "refold.db-wal", "refold.db-journal")
KINDS = ("dropped", "kept", "prefix", "subset", "torn", "garbage", "one file")

Image = bytearray | None  # None: there is no such file
Choice = tuple[int, int]  # of a pending operation: its number, and how it fared (see _Fate)


class _Fate:
    """How a write that was not synced fared; other numbers are seeds of which sectors of it arrived."""

    WHOLE = -1
    GARBAGE = -2  # the file has grown, and what is there is not what was written


class Disk(Struct):
    """The files as they surely are, and what was written since and may or may not have arrived."""

    images: dict[str, Image]
    pending: list[tuple[int, Operation]] = []
    unsynced_names: set[str] = set()  # new files whose folder has not been synced

    def take(self, number: int, operation: Operation) -> None:
        if operation.kind == "sync":
            self._sync(operation.file)
            return
        self.pending.append((number, operation))
        if operation.kind == "write" and self.images.get(operation.file) is None:
            self.unsynced_names.add(operation.file)
        if operation.kind == "delete" and operation.place:  # with its folder
            self._apply(lambda each: each.file == operation.file)

    def _sync(self, file: str) -> None:
        folder_too = file in self.unsynced_names  # SQLite syncs the folder with the first sync of a new file
        self.unsynced_names.discard(file)
        self._apply(lambda each: each.file == file or (folder_too and each.kind == "delete"))

    def _apply(self, arrived: Callable[[Operation], bool]) -> None:
        for _, operation in self.pending:
            if arrived(operation):
                self.images[operation.file] = applied(self.images.get(operation.file), operation, _Fate.WHOLE)
        self.pending = [each for each in self.pending if not arrived(each[1])]


def applied(image: Image, operation: Operation, fate: int) -> Image:
    """In place."""
    if operation.kind == "delete":
        return None
    if image is None:
        image = bytearray()
    place, data = operation.place, operation.data
    image.extend(bytes(max(0, place + len(data) - len(image))))
    if operation.kind == "truncate":
        del image[place:]
        return image
    chance = random.Random(fate)
    if fate in (_Fate.WHOLE, _Fate.GARBAGE):
        image[place : place + len(data)] = data if fate == _Fate.WHOLE else chance.randbytes(len(data))
        return image
    for at in _sectors(place, len(data)):
        if chance.random() < 0.5:
            start, end = max(at, place), min(at + SECTOR, place + len(data))
            image[start:end] = data[start - place : end - place]
    return image


def _sectors(place: int, length: int) -> range:
    return range(place - place % SECTOR, place + length, SECTOR)


class Verdicts(Struct):
    states: int = 0
    lost: int = 0  # states in which an acknowledged fact is gone
    most_lost: int = 0  # facts, in one state
    damaged: int = 0  # states that SQLite cannot read, or that are not state the log ever had
    with_facts: int = 0
    kinds: dict[str, int] = {}
    first: str = ""  # what was wrong first


class Referee:
    """Knows each state the log ever had; folds each of them once."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self.folder = folder
        self.verdicts = Verdicts()
        heads: dict[str, int] = {}
        self.moments = {frozenset[tuple[str, int]]()}
        for commit in recording.commits:
            for run, number in commit:
                assert number == heads.get(run, 0) + 1, "a commit leaves a gap"
                heads[run] = number
            self.moments.add(frozenset(heads.items()))
        self.log: dict[tuple[str, int], bytes] = {}
        self._folded: set[frozenset[tuple[str, int]]] = set()

    def judge(self, images: dict[str, Image], heard_of: dict[str, int], kind: str) -> None:
        verdicts = self.verdicts
        verdicts.states += 1
        verdicts.kinds[kind] = verdicts.kinds.get(kind, 0) + 1
        self._put(images)
        try:
            heads = self._look()
        except (apsw.Error, AssertionError) as error:
            verdicts.damaged += 1
            verdicts.first = verdicts.first or f"state {verdicts.states} ({kind}): {error!r}"
            return
        verdicts.with_facts += bool(heads)
        missing = sum(max(0, number - heads.get(run, 0)) for run, number in heard_of.items())
        verdicts.most_lost = max(verdicts.most_lost, missing)
        if missing:
            verdicts.lost += 1
            verdicts.first = (
                verdicts.first or f"state {verdicts.states} ({kind}): {missing} acknowledged facts are gone"
            )

    def _put(self, images: dict[str, Image]) -> None:
        for name in FILES:
            path, image = self.folder / name, images.get(name)
            if image is None:
                path.unlink(missing_ok=True)
                continue
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(descriptor, image)
            os.close(descriptor)

    def _look(self) -> dict[str, int]:
        db = apsw.Connection(str(self.folder / "refold.db"))
        try:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            db.pragma("locking_mode", "exclusive")  # nobody else is here, and so no shared memory is needed
            cursor: Any = db.cursor()
            integrity = cursor.execute("pragma integrity_check").fetchall()
            assert integrity == [("ok",)], integrity
            if not cursor.execute("select 1 from sqlite_schema where name = 'facts'").fetchall():
                return {}
            rows = cursor.execute("select run, number, at, data, turn from facts order by run, number").fetchall()
            heads = dict(cursor.execute("select run, head from runs").fetchall())
            moment = self._moment(rows)
            assert heads == dict(moment), "the list of runs and the logs do not agree"
            if moment not in self._folded:
                self._folded.add(moment)
                plans = dict(cursor.execute("select hash, data from plans").fetchall())
                for run in heads:
                    folded(run, [Fact(*row[1:]) for row in rows if row[0] == run], plans)
            return heads
        finally:
            db.close()

    def _moment(self, rows: list[tuple[str, int, int, bytes, str | None]]) -> frozenset[tuple[str, int]]:
        """The rows are, fact for fact, what was there after one of the commits."""
        heads: dict[str, int] = {}
        for run, number, _, data, _ in rows:
            assert number == heads.get(run, 0) + 1, f"run {run} has a gap before {number}"
            heads[run] = number
            assert self.log.setdefault((run, number), data) == data, f"fact {number} of run {run} is another one"
        moment = frozenset(heads.items())
        assert moment in self.moments, "a part of a commit"
        return moment


def cut(recording: Recording, folder: Path, variants: int, seed: int, share: tuple[int, int] = (0, 1)) -> Verdicts:
    """Cut the power before each operation, and judge up to so many different disks for each that may be left."""
    referee, chance = Referee(recording, folder), random.Random(seed)
    disk = Disk({"refold.db": bytearray()})
    heard_of: dict[str, int] = {}
    seen: set[tuple[int, int, tuple[Choice, ...]]] = set()
    heard, durable = 0, 0
    for number, operation in enumerate([*recording.operations, Operation("end", "")]):
        if number % share[1] == share[0]:
            for kind, choices in _choices(disk.pending, variants, chance):
                state = (heard, durable, choices)
                if state not in seen:
                    seen.add(state)
                    referee.judge(_left_behind(disk, choices), heard_of, kind)
        if operation.kind == "ack":
            heard_of[operation.file] = max(heard_of.get(operation.file, 0), operation.place)
            heard += 1
        elif operation.kind != "end":
            before = len(disk.pending)
            disk.take(number, operation)
            if len(disk.pending) <= before:
                durable = number
    return referee.verdicts


def _left_behind(disk: Disk, choices: tuple[Choice, ...]) -> dict[str, Image]:
    """Files that no pending operation reaches are not copied."""
    images, mine, fates = dict(disk.images), set[str](), dict(choices)
    undeleted = set[str]()
    for number, operation in disk.pending:
        name = operation.file
        if number not in fates:
            undeleted.update([name] if operation.kind == "delete" else [])
            continue
        if name in undeleted:
            continue  # of a file that has taken the name, which was never freed
        if name not in mine:
            mine.add(name)
            image = images.get(name)
            images[name] = None if image is None else bytearray(image)
        images[name] = applied(images.get(name), operation, fates[number])
    return images


def _choices(
    pending: list[tuple[int, Operation]], variants: int, chance: random.Random
) -> Iterator[tuple[str, tuple[Choice, ...]]]:
    numbers = [number for number, _ in pending]
    yield "dropped", ()
    if not numbers:
        return
    yield "kept", tuple((number, _Fate.WHOLE) for number in numbers)
    for _ in range(variants - 2):
        kind = chance.choice(KINDS[2:])
        match kind:
            case "prefix":
                chosen = [(number, _Fate.WHOLE) for number in numbers[: chance.randrange(len(numbers) + 1)]]
            case "subset":
                share = chance.random()
                chosen = [(number, _Fate.WHOLE) for number in numbers if chance.random() < share]
            case "torn":
                chosen = [(number, _Fate.WHOLE) for number in numbers[: chance.randrange(len(numbers)) + 1]]
                torn = chance.randrange(len(chosen))
                chosen[torn] = (numbers[torn], chance.randrange(1 << 30))
            case "garbage":
                last = chance.randrange(len(numbers))
                chosen = [(number, _Fate.WHOLE) for number in numbers[: last + 1]]
                chosen[-1] = (numbers[last], _Fate.GARBAGE)
            case _:
                name = chance.choice(pending)[1].file
                chosen = [(number, _Fate.WHOLE) for number, operation in pending if operation.file == name]
        yield kind, tuple(sorted(dict(chosen).items()))


def told(verdicts: Verdicts) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(verdicts.kinds).most_common())
    return (
        f"{verdicts.states} different disks ({kinds}), {verdicts.with_facts} with facts: {verdicts.damaged} damaged, "
        f"{verdicts.lost} without a fact that was acknowledged (at most {verdicts.most_lost}); {verdicts.first}"
    )


def add(total: Verdicts, one: Verdicts) -> None:
    for field in ("states", "lost", "damaged", "with_facts"):
        setattr(total, field, getattr(total, field) + getattr(one, field))
    total.most_lost = max(total.most_lost, one.most_lost)
    total.first = total.first or one.first
    total.kinds = dict(Counter(total.kinds) + Counter(one.kinds))
