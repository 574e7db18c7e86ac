"""Database files as somebody hostile could send them: a real one with every feature in use, changed by a seed.

`original` makes the real one. `craft` changes it: values of every type, JSON inside of rows, forged seals, rows that
contradict each other, the schema, the bytes of the file, and the files beside it. The same seed makes the same file.
"""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from msgspec import DecodeError, json, msgpack

from refold.core.commands import Letter, LetterPause
from refold.ports import Limit
from refold.stores.sqlite.store import SqliteStore
from tests.cli.program import playbook, refold

PAUSE = "\x1b]0;owned\x07\x9b31m\u202e"  # what a terminal would obey

CHILD = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: small}
workflow:
  - step: only
    tool: {kind: noop, result: small}
"""

ASKING = """
from refold import Context, StartEvent, StopEvent, Workflow, step


class Asking(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.ask("which", "Which one?", {"of": [1, 2]}))
"""


def original(folder: Path) -> Path:
    """A file in which every table has rows and every kind of run is there; `trap` would touch `pwned` if it ran."""

    def play(name: str, *steps: str) -> None:
        playbook(folder, *steps, name=f"{name}.yaml")

    (folder / "small.yaml").write_text(CHILD)
    (folder / "asking.py").write_text(ASKING)
    play("done", "step: one\ntool: {kind: noop, result: {a: [1, 2, {b: text}]}}")
    play(
        "loop",
        "step: list\nloop: {in: [1, 2, 3], iterator: n}\ntool: {kind: noop, result: '{{ iter.n }}'}\nnext: big",
        'step: big\ntool: {kind: noop, result: \'{{ ["xyz" * 20000, "abc" * 20000] }}\'}\nnext: say',
        "step: say\ntool: {kind: shell, script: 'echo hello; echo bad >&2'}\nnext: child",
        "step: child\ntool: {kind: playbook, path: small.yaml}",
    )
    play("bad", "step: one\ntool: {kind: shell, script: 'exit 3'}")
    play("gate", "step: ask\ntool: {kind: gate, prompt: 'go on?', timeout: 90d}")
    play("wait", "step: wait\ntool: {kind: wait, signal: go, seconds: 90d}")
    play("trap", f"step: one\ntool: {{kind: shell, script: 'touch {folder.parent}/pwned'}}")
    for name, expected in (("done", 0), ("loop", 0), ("bad", 1)):
        done = refold(folder, "run", f"{name}.yaml", "--name", name, "-q")
        assert done.code == expected, done
    for name in ("gate", "wait", "trap"):
        assert refold(folder, "run", f"{name}.yaml", "--name", name, "--detach", "-q").code == 0
    done = refold(folder, "run", "asking:Asking", "--name", "asking", "--detach", "-q", PYTHONPATH=_path(folder))
    assert done.code == 0, done
    path = folder / "refold.db"
    _add_rest(path)
    return path


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def _add_rest(path: Path) -> None:
    """What is there only for a moment: a lease, a letter, a worker, a snapshot."""
    store = SqliteStore(path, lambda: 1_800_000_000_000_000)
    rows = {row.name: row for row in store.views.runs().rows}
    store.put_snapshot(rows["done"].run, b"\x00 of another format")
    store.set_weight("a", 3)
    store.set_limit(Limit(name="K", slots=2, rate=0.5, burst=3))
    store.close()
    db = sqlite3.connect(path)
    letter = json.encode(Letter("key", "nobody", rows["wait"].run, LetterPause()))
    db.execute(
        "insert into letters (namespace, run, key, data, seal) values ('default', ?, 'key', ?, 0)",
        (rows["wait"].run, letter),
    )
    db.execute("insert into workers values ('default', 'worker-gone', '1-00000000.lock', '[\"shell\"]', null)")
    db.execute("update commands set state = 'leased', worker = 'worker-gone', turn = null where tool = 'shell'")
    for table in SEALED:
        _reseal(db, table)
    db.commit()
    db.close()


SEALED: dict[str, tuple[str, ...]] = {  # what the seal of each table is over
    "facts": ("run", "number", "at", "data", "turn"),
    "runs": ("run", "head", "status", "created_at", "summary"),
    "commands": (
        *("run", "id", "queue", "priority", "tool", "place", "not_before", "plan", "state", "generation", "losses"),
        *("worker", "until", "deadline", "beat_at", "claimed_at", "data"),
    ),
    "timers": ("run", "key", "due"),
    "letters": ("run", "key", "data"),
    "blobs": ("run", "hash", "data"),
    "snapshots": ("run", "data"),
    "streams": ("run", "n", "data"),
    "dead": ("run", "n", "fingerprint", "at", "data"),
    "documents": ("kind", "id", "version", "due", "data"),
    "weights": ("share", "weight"),
    "limits": ("name", "slots", "rate", "burst", "tokens", "at"),
}
KEYS = {
    "facts": ("namespace", "run", "number"),
    "runs": ("namespace", "run"),
    "commands": ("namespace", "run", "id"),
    "timers": ("namespace", "run", "key"),
    "letters": ("number",),
    "blobs": ("namespace", "run", "hash"),
    "snapshots": ("namespace", "run"),
    "streams": ("namespace", "run", "n"),
    "dead": ("namespace", "run", "n"),
    "plans": ("namespace", "hash"),
    "workers": ("namespace", "worker"),
    "generations": ("namespace",),
    "documents": ("namespace", "kind", "id"),
    "weights": ("namespace", "share"),
    "limits": ("namespace", "name"),
}
JSON = {
    "facts": "data",
    "runs": "summary",
    "commands": "data",
    "letters": "data",
    "streams": "data",
    "dead": "data",
    "plans": "data",
    "workers": "tools",
    "blobs": "data",
}


def _reseal(db: sqlite3.Connection, table: str) -> None:
    """Forge every seal of a table."""
    keys = KEYS[table]
    where = " and ".join(f"{key} is ?" for key in keys)
    db.text_factory = bytes
    for row in db.execute(f"select {', '.join((*keys, *SEALED[table]))} from {table}").fetchall():
        try:
            values = [_as_read(each, kind) for each, kind in zip(row[len(keys) :], SEALED[table], strict=True)]
            found = [_as_read(each, kind) for each, kind in zip(row[: len(keys)], keys, strict=True)]
        except UnicodeDecodeError:
            continue
        db.execute(f"update {table} set seal = ? where {where}", (crc32(msgpack.encode(values)), *found))
    db.text_factory = str


def _as_read(value: Any, column: str) -> Any:
    return value.decode() if isinstance(value, bytes) and column not in ("data", "summary") else value


class Craft:
    """One crafted file; `outside` is a folder that nothing may touch."""

    def __init__(self, path: Path, outside: Path, seed: int) -> None:
        self.path, self.outside, self.chance = path, outside, random.Random(seed)
        self.done: list[str] = []  # what was changed, to be shown with a failure

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def numbers(self) -> int:
        return self.chance.choice((0, -1, 1, 7, 2**31, 2**53, 2**62, 4_600_000_000_000_000_000, 2**63 - 1, -(2**63)))

    def texts(self) -> str:
        paths = ("../../x", "../outside/canary", str(self.outside / "canary"), "/dev/null", "1-00000000.lock/../x")
        words = ("", PAUSE, "a\x00b", "x" * 100_000, "true", "completed", "running", "\u2028", "'; drop table runs; --")
        return self.chance.choice((*paths, *words))

    def blobs(self) -> bytes:
        broken = (
            b"",
            b"\x00" * 9,
            b"{",
            b"null",
            b"[]",
            b"7",
            b'"text"',
            b"\xff\xfe",
            b"[" * 5000,
            b"[" * 5000 + b"]" * 5000,
        )
        return self.chance.choice((*broken, b'{"type":"RunStarted"}', b"1" * 5000, json.encode(PAUSE)))

    def value(self, like: Any) -> Any:
        """Most often of the same type, so that more than the first check is tried."""
        if self.chance.random() < 0.8:
            if isinstance(like, int):
                return self.numbers()
            if isinstance(like, bytes):
                return self.blobs()
        return self.texts()


def craft(original: Path, folder: Path, outside: Path, seed: int) -> list[str]:
    """Make `refold.db` in the folder; returns what was done to it."""
    made = Craft(folder / "refold.db", outside, seed)
    shutil.copy(original, made.path)
    for _ in range(made.chance.choice((1, 1, 1, 2, 3))):
        change = made.chance.choices([each for each, _ in CHANGES], [weight for _, weight in CHANGES])[0]
        try:
            change(made)
        except (sqlite3.Error, OverflowError, IndexError, OSError, UnicodeDecodeError) as error:
            made.done.append(f"{change.__name__}: {error}")  # what an earlier change has made impossible
    return made.done


def _tables(db: sqlite3.Connection) -> list[str]:
    found = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table'")]
    return [name for name in found if name in KEYS and db.execute(f"select 1 from {name}").fetchone()]


def _row(craft: Craft, db: sqlite3.Connection, table: str) -> tuple[str, tuple[Any, ...]]:
    keys = KEYS[table]
    row = craft.chance.choice(db.execute(f"select {', '.join(keys)} from {table} order by 1, 2").fetchall())
    return " and ".join(f"{key} is ?" for key in keys), row


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"pragma table_info({table})")]


def change_value(craft: Craft, loosely: bool = False) -> None:
    """One column of one row, with or without a forged seal."""
    db = craft.connect()
    table = craft.chance.choice(_tables(db))
    where, key = _row(craft, db, table)
    column = craft.chance.choice(_columns(db, table))
    like = db.execute(f"select {column} from {table} where {where}", key).fetchone()[0]
    value = craft.texts() if loosely and isinstance(like, int) else craft.value(like)
    if loosely and isinstance(like, str):
        value = craft.blobs()
    craft.done.append(f"{table} {key!r}.{column} = {value!r:.80}")
    db.execute(f"update or ignore {table} set {column} = ? where {where}", (value, *key))
    _forge(craft, db, table)
    db.close()


def change_type(craft: Craft) -> None:
    """A value of a type that its column does not allow: the rule is taken out of the schema for a moment."""
    db = craft.connect()
    db.execute("pragma writable_schema = on")
    before = db.execute("select name, sql from sqlite_schema where type = 'table'").fetchall()
    db.execute("update sqlite_schema set sql = replace(sql, ') strict, without', ') without') where type = 'table'")
    db.execute("update sqlite_schema set sql = replace(sql, ') strict', ')') where type = 'table'")
    db.execute("pragma user_version = 99")  # the schema is read again
    db.close()
    change_value(craft, loosely=True)
    db = craft.connect()
    version = original_version(db)
    db.execute("pragma writable_schema = on")
    for name, sql in before:
        db.execute("update sqlite_schema set sql = ? where name = ?", (sql, name))
    db.execute(f"pragma user_version = {version}")
    db.close()


def original_version(db: sqlite3.Connection) -> int:
    from refold.stores.sqlite.migrate import migrations

    return max(migrations())


def change_text_to_no_text(craft: Craft) -> None:
    """Text that is not UTF-8."""
    db = craft.connect()
    table = craft.chance.choice(_tables(db))
    where, key = _row(craft, db, table)
    types = {row[1]: row[2] for row in db.execute(f"pragma table_info({table})")}
    column = craft.chance.choice([each for each, kind in types.items() if kind == "TEXT" and each != "namespace"])
    craft.done.append(f"{table} {key!r}.{column} is not UTF-8")
    db.execute(f"update {table} set {column} = cast(x'ff2f80' as text) where {where}", key)
    _forge(craft, db, table)
    db.close()


def _forge(craft: Craft, db: sqlite3.Connection, table: str) -> None:
    if table in SEALED and craft.chance.random() < 0.8:
        _reseal(db, table)
        craft.done.append("sealed")


def change_json(craft: Craft) -> None:
    """Something inside of the data of a row, which is sealed again; a plan gets the name of what it is now."""
    db = craft.connect()
    table = craft.chance.choice([each for each in _tables(db) if each in JSON])
    where, key = _row(craft, db, table)
    data = db.execute(f"select {JSON[table]} from {table} where {where}", key).fetchone()[0]
    try:
        document = json.decode(data)
    except (DecodeError, TypeError):
        db.close()
        return
    for _ in range(craft.chance.choice((1, 1, 2, 4))):
        document = _mutated(craft, document)
    encoded: Any = json.encode(document)
    craft.done.append(f"{table} {key!r} {encoded.decode()[:200]!r}")
    encoded = encoded.decode() if table == "workers" else encoded
    db.execute(f"update {table} set {JSON[table]} = ? where {where}", (encoded, *key))
    if table == "plans":
        _rename_plan(db, key[1], sha256(encoded).hexdigest())
    if table == "runs":
        told = [document.get(name) if isinstance(document, dict) else None for name in ("status", "created_at")]
        if type(told[0]) is str and type(told[1]) is int and abs(told[1]) < 2**63:
            db.execute(f"update runs set status = ?, created_at = ? where {where}", (*told, *key))
    for each in SEALED:
        _reseal(db, each)
    db.close()


def _rename_plan(db: sqlite3.Connection, old: str, new: str) -> None:
    db.execute("update plans set hash = ? where hash = ?", (new, old))
    for table, column in (("facts", "data"), ("runs", "summary"), ("commands", "data"), ("commands", "plan")):
        kind = "text" if column == "plan" else "blob"
        db.execute(f"update {table} set {column} = cast(replace(cast({column} as text), ?, ?) as {kind})", (old, new))


def _mutated(craft: Craft, value: Any) -> Any:
    """One place in it: another value, one less, one more, or a name that is misspelt."""
    chance = craft.chance
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(sorted(value))
        if chance.random() < 0.8:
            return {**value, key: _mutated(craft, value[key])}
        rest = {each: value[each] for each in value if each != key}
        return rest if chance.random() < 0.5 else {**rest, chance.choice(("x", "run", "steps", PAUSE)): value[key]}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        kept = value[:at] if chance.random() < 0.2 else [*value[:at], _mutated(craft, value[at])]
        return [*kept, *value[at + 1 :], *([value[at]] if chance.random() < 0.2 else [])]
    plain: list[Any] = [None, True, 0, -1, 1.5, 2**62, 10**30, "", PAUSE, "../../x", [], {}, [[]], {"$x": 1}, "{{ 1 }}"]
    return chance.choice(plain)


def remove_rows(craft: Craft) -> None:
    db = craft.connect()
    table = craft.chance.choice(_tables(db))
    if craft.chance.random() < 0.3:
        db.execute(f"delete from {table}")
        craft.done.append(f"no {table}")
    else:
        where, key = _row(craft, db, table)
        db.execute(f"delete from {table} where {where}", key)
        craft.done.append(f"no {table} {key!r}")
    db.close()


def confuse_runs(craft: Craft) -> None:
    """Rows of one run under the name of another, or a row twice."""
    db = craft.connect()
    runs = [run for (run,) in db.execute("select run from runs order by run")]
    table = craft.chance.choice([each for each in _tables(db) if "run" in KEYS[each]])
    one, other = craft.chance.choice(runs), craft.chance.choice([*runs, "nobody", PAUSE])
    db.execute(f"update or ignore {table} set run = ? where run = ?", (other, one))
    craft.done.append(f"{table} of {one} are those of {other!r}")
    _forge(craft, db, table)
    db.close()


def point_locks_outside(craft: Craft) -> None:
    """A worker whose lock is a file of somebody else; it holds a command, so that a sweep wants to know of it."""
    db = craft.connect()
    canary = craft.outside / "canary"
    names = (
        str(canary),
        "../outside/canary",
        "../../outside/canary",
        f"1-00000000.lock/../../../{canary.name}",
        "/dev/null",
    )
    name = craft.chance.choice(names)
    worker = f"worker-{craft.chance.randrange(1000)}"
    db.execute("insert or replace into workers values ('default', ?, ?, null, null)", (worker, name))
    db.execute("update commands set worker = ?, state = 'leased', until = 1, turn = null", (worker,))
    _reseal(db, "commands")
    craft.done.append(f"a lock {name}")
    db.close()


def change_schema(craft: Craft) -> None:
    db = craft.connect()
    tables = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table'") if name in KEYS]
    table = craft.chance.choice(tables)
    evil = craft.outside / "attached.db"
    statement = craft.chance.choice(
        (
            f"drop table {table}",
            f"alter table {table} rename to was",
            "alter table runs rename column head to hat",
            "alter table workers drop column tools",
            f"create trigger evil after insert on {table} begin delete from runs; end",
            f"create trigger evil before update on {table} begin select raise(abort, 'evil'); end",
            f"create trigger evil after delete on {table} begin select load_extension('{evil}'); end",
            f"create view evil as select * from {table}",
            f"create index evil on {table} (length(hex(zeroblob(1000))))",
            "create table mine (a check (a > 1))",
            "create virtual table evil using fts5(a)",
            "drop index runs_by_age",
            "drop index commands_leased",
            "pragma user_version = 1",
            "pragma user_version = 99",
            "pragma user_version = 0",
            "pragma application_id = 7",
            "pragma journal_mode = delete",
        )
    )
    craft.done.append(statement)
    db.execute(statement)
    db.close()
    if craft.chance.random() < 0.2:
        _replace_by_view(craft, table)


def _replace_by_view(craft: Craft, table: str) -> None:
    """A view under the name of a table, with the functions that only a trusted schema may use."""
    db = craft.connect()
    db.execute(f"alter table {table} rename to hidden")
    file = craft.outside / "written"
    db.execute(f"create view {table} as select *, writefile('{file}', 'x'), load_extension('{file}') from hidden")
    craft.done.append(f"{table} is a view")
    db.close()


def change_bytes(craft: Craft) -> None:
    """Cut off, flipped, zeroed."""
    data = bytearray(craft.path.read_bytes())
    kind = craft.chance.choice(("cut", "flip", "flip", "zero", "header"))
    if kind == "cut":
        data = data[: craft.chance.choice((0, 1, 100, 4096, len(data) // 2, len(data) - 1))]
    elif kind == "zero":
        page = craft.chance.randrange(len(data) // 4096) * 4096
        data[page : page + 4096] = bytes(4096)
    else:
        for _ in range(craft.chance.choice((1, 10, 200))):
            data[craft.chance.randrange(100 if kind == "header" else len(data))] ^= 1 << craft.chance.randrange(8)
    craft.done.append(f"bytes: {kind}")
    craft.path.write_bytes(data)


def change_files_beside(craft: Craft) -> None:
    """Files beside the database that SQLite or Refold would open: links that lead outside, and journals."""
    end = craft.chance.choice(("-wal", "-shm", "-journal", "-lock", "-door", "-workers", "-artifacts"))
    beside = Path(f"{craft.path}{end}")
    canary = craft.outside / craft.chance.choice(("canary", "not there"))
    if craft.chance.random() < 0.5 or end in ("-workers", "-artifacts"):
        beside.symlink_to(craft.outside if end in ("-workers", "-artifacts") else canary)
        craft.done.append(f"{end} leads to {canary}")
        return
    craft.done.append(f"{end} is made up")
    if end != "-journal":
        beside.write_bytes(craft.chance.choice((b"x" * 100, b"", bytes(40_000), json.encode({"boot": 1}))))
        return
    name = str(canary).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + (1).to_bytes(4) + bytes(4) + (10).to_bytes(4) + (512).to_bytes(4) + (4096).to_bytes(4)
    tail = name + len(name).to_bytes(4) + sum(name).to_bytes(4) + magic
    beside.write_bytes(head.ljust(512, b"\x00") + bytes(4) + tail)


CHANGES: tuple[tuple[Callable[[Craft], None], int], ...] = (
    (change_value, 8),
    (change_type, 4),
    (change_text_to_no_text, 3),
    (change_json, 10),
    (remove_rows, 3),
    (confuse_runs, 3),
    (point_locks_outside, 2),
    (change_schema, 4),
    (change_bytes, 4),
    (change_files_beside, 2),
)
