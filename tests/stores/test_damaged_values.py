"""Large values stand in rows of their own: one that is missing or damaged is named by every command that needs it, and
harms no other run."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest
from msgspec import msgpack

from refold.cli import exits
from tests.cli import in_process
from tests.cli.program import Done, playbook, refold, started, until

CODED = """
from refold import Context, Event, StartEvent, StopEvent, Workflow, step


class Large(Event):
    text: str


def fetch() -> str:
    return "fetched" * 20000


class Coded(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Large:
        return Large(text=await ctx.call(fetch))

    @step
    async def ask(self, ctx: Context, ev: Large) -> StopEvent:
        return StopEvent(result=ev.text + await ctx.ask("Which one?"))
"""

PLAYBOOKS = {
    "plain": (
        "step: large\ntool: {kind: noop, result: '{{ [\"abc\" * 30000] }}'}\nnext: last",
        "step: last\ntool: {kind: noop, result: '{{ [\"xyz\" * 30000] }}'}",
    ),
    "items": (
        'step: list\ntool: {kind: noop, result: \'{{ ["one" * 30000, "two" * 30000] }}\'}\nnext: each',
        "step: each\nloop: {in: '{{ list }}', iterator: text, key: '{{ text[:3] }}', on_item_error: continue}\n"
        'tool: {kind: python, code: \'result = text * 2 if text[0] == "o" else 1 / 0\', input: {text: "{{ text }}"}}',
    ),
    "pages": (
        "step: each\nloop: {source: {kind: csv, path: rows.csv, page: 2}, iterator: row, key: '{{ row.id }}'}\n"
        "tool: {kind: noop, result: '{{ row.id }}'}\nnext: gate",
        "step: gate\ntool: {kind: gate, prompt: '{{ each.results }}'}",
    ),
    "small": ("step: one\ntool: {kind: noop, result: 7}",),
    "parent": ("step: child\ntool: {kind: playbook, path: plain.yaml}",),
}
BLOBS = 11

LOOKING: tuple[tuple[str, ...], ...] = (
    ("runs", "show"),
    ("runs", "show", "-o", "json"),
    ("runs", "show", "--graph"),
    ("runs", "history"),
    ("runs", "history", "-o", "jsonl"),
    ("runs", "why"),
    ("runs", "logs"),
    ("runs", "items"),
    ("runs", "items", "-o", "jsonl"),
    ("runs", "items", "--item", "one"),
    ("runs", "watch", "--timeout", "0"),
    ("runs", "record"),
    ("gates", "show"),
)
EVERYWHERE: tuple[tuple[str, ...], ...] = (
    ("runs", "list"),
    ("runs", "show", "small"),
    ("runs", "show", "small", "-o", "json"),
    ("gates", "list"),
    ("gates", "list", "-o", "json"),
    ("dlq", "list"),
    ("dlq", "list", "-o", "json"),
    ("runs", "prune", "--older-than", "0s", "--dry-run"),
)


Damage = Callable[[sqlite3.Connection, tuple[str, str], bytes], None]


def remove(db: sqlite3.Connection, key: tuple[str, str], data: bytes) -> None:
    db.execute("delete from blobs where (run, hash) = (?, ?)", key)


def break_seal(db: sqlite3.Connection, key: tuple[str, str], data: bytes) -> None:
    db.execute("update blobs set seal = seal + 1 where (run, hash) = (?, ?)", key)


def replaced(by: Callable[[bytes], bytes]) -> Damage:
    """Other data under a seal that fits it."""

    def replace(db: sqlite3.Connection, key: tuple[str, str], data: bytes) -> None:
        new = by(data)
        mark = crc32(msgpack.encode((*key, new)))
        db.execute("update blobs set data = ?, seal = ? where (run, hash) = (?, ?)", (new, mark, *key))

    return replace


DAMAGE = {
    "missing": remove,
    "wrong seal": break_seal,
    "no UTF-8": replaced(lambda data: data.replace(b"o", b"\xf8").replace(b"a", b"\xf8").replace(b"x", b"\xf8")),
    "no JSON": replaced(lambda data: data[:-1]),
    "too deep": replaced(lambda data: b"[" * 5000 + b"]" * 5000),
}
OTHER_SHAPES = ("null", "7", "[]", "{}", '"text"', '[{"items":7}]', '{"items":null}')


class Whole(NamedTuple):
    folder: Path
    blobs: dict[tuple[str, str], bytes]  # by run and hash
    answers: dict[tuple[str, ...], Done]  # what the commands say while nothing is damaged


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A file in which every kind of large value is there."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "rows.csv").write_text("id,text\n" + "".join(f"{n},{'abc' * 20000}\n" for n in range(4)))
    (folder / "coded.py").write_text(CODED)
    for name, steps in PLAYBOOKS.items():
        playbook(folder, *steps, name=f"{name}.yaml")
    for name in ("plain", "items", "parent", "small"):
        done = refold(folder, "run", f"{name}.yaml", "--name", name, "-q")
        assert done.code == (exits.FAILED if name == "items" else exits.OK), done
    for name, file in (("pages", "pages.yaml"), ("coded", "coded:Coded")):
        with started(folder, "run", file, "--name", name, "-q", PYTHONPATH=str(folder)):
            until(partial(is_at_gate, folder, name))
    with closing(sqlite3.connect(folder / "refold.db")) as db:
        blobs = {(run, hash): data for run, hash, data in db.execute("select run, hash, data from blobs")}
    assert len(blobs) == BLOBS
    with in_process.here(folder):
        runs = {run for run, _ in blobs}
        commands = {*EVERYWHERE, *(about(run, command) for run in runs for command in LOOKING)}
        return Whole(folder, blobs, {command: in_process.command(*command) for command in commands})


def is_at_gate(folder: Path, name: str) -> bool:
    return refold(folder, "gates", "show", name).code == exits.OK


def about(run: str, command: tuple[str, ...]) -> tuple[str, ...]:
    return (*command[:2], run, *command[2:])


def without_times(done: Done) -> tuple[int, str]:
    return done.code, re.sub(r"\d+(\.\d+)?( (s|min|ms)\b|µs)", "…", done.out)


@contextmanager
def damaged(whole: Whole, folder: Path, key: tuple[str, str], damage: Damage) -> Iterator[None]:
    """In a folder with a copy of the file, of which one row is damaged."""
    shutil.copytree(whole.folder, folder)
    with closing(sqlite3.connect(folder / "refold.db")) as db, db:
        damage(db, key, whole.blobs[key])
    with in_process.here(folder):
        yield
    shutil.rmtree(folder)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_large_value_that_is_missing_or_damaged_is_named_and_harms_no_other_run(
    tmp_path: Path, whole: Whole, damage: str
) -> None:
    named = 0
    for key in whole.blobs:
        run, hash = key
        with damaged(whole, tmp_path / "copy", key, DAMAGE[damage]):
            for command in EVERYWHERE:
                assert without_times(in_process.command(*command)) == without_times(whole.answers[command])
            for command in (about(run, each) for each in LOOKING):
                done = in_process.command(*command)
                if without_times(done) != without_times(whole.answers[command]):
                    assert done.code == exits.UNREACHABLE, (command, done)
                    assert "blobs" in done.err and run in done.err and hash in done.err, (command, done)
                    assert re.search("the row is missing|column (data|seal)", done.err), (command, done)
                    named += 1
    assert named >= 3 * len(whole.blobs)


@pytest.mark.parametrize("value", OTHER_SHAPES)
def test_a_large_value_of_another_shape_crashes_no_command(tmp_path: Path, whole: Whole, value: str) -> None:
    for key in whole.blobs:
        with damaged(whole, tmp_path / "copy", key, replaced(lambda _: value.encode())):
            for command in (*EVERYWHERE, *(about(key[0], each) for each in LOOKING)):
                done = in_process.command(*command)
                assert done.code in (whole.answers[command].code, exits.UNREACHABLE), (command, done)
