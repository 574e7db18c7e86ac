"""Which recorded durable call is which: a body that starts over finds each of its calls again.

A key says what was called and where. A call that `ctx.options` gives a key has `kind:key`. Every other key names its
place, that is the task that made the call and how many calls of the same name this task had made before:

    sleep/PLACE    signal/PLACE/NAME    child/PLACE/INPUT/NAME    map/PLACE/INPUT/NAME
    call/PLACE/ARGUMENTS/FUNCTION(short text of the arguments)

PLACE is a number in the body itself and `TASK:number` in a task that the body has created; INPUT and ARGUMENTS are
hashes. A task is numbered by its creation within the task that has created it, so that the places of tasks that run at
the same time do not depend on which of them is faster.

One rule finds a record: that of this place, else another one that is equal and unused. Waits are equal by their name
(child runs also by their input), calls by function and arguments. A call at a place whose record is unused and has
other arguments raises Diverged. A body whose first records have keys of the former form, `kind:HASH:number`, is
matched by the former rule: hash and number of equal calls.
"""

import asyncio
import dis
import hashlib
import re
import sys
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, lru_cache, partial
from os.path import basename, splitext
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from refold.core.outcomes import Cancelled, Outcome
from refold.errors import Diverged, InvalidValue
from refold.python.workflow import Workflow

FORMER = re.compile(r"(call:.*|sleep|signal|child|map):[0-9a-f]{12}:[0-9]+", re.DOTALL)
UNKNOWN = "?"  # the task of a call that was made outside of all numbered tasks, such as in a thread of the user
INSIDE = "~"  # ends the task of calls that were made inside of another durable call
SHOWN = 60  # characters of an argument; a longer one is described, because a secret must not be cut in two
ALL_SHOWN = 240  # characters of all arguments


class TaskPlace:
    """A task of a body: its number among the tasks of the body, and what it has asked for so far."""

    __slots__ = ("asked", "is_new", "owner", "path", "tasks")

    def __init__(self, owner: object, path: str) -> None:
        self.owner, self.path = owner, path  # the owner is what one try of a body is known by
        self.tasks = 0  # that it has created
        self.is_new = False  # its task is being created; a second factory must not number it again
        self.asked: dict[str, int] = {}  # calls by what they are calls of

    def new_task(self) -> "TaskPlace":
        self.tasks += 1
        task = TaskPlace(self.owner, f"{self.path}.{self.tasks}" if self.path else str(self.tasks))
        task.is_new = True
        return task


TASK: ContextVar[TaskPlace | None] = ContextVar("refold_task", default=None)


class TaskNumbers:
    """Numbers the tasks that bodies create, by a task factory of their event loop. Other tasks are left alone."""

    def __init__(self) -> None:
        self._loop: AbstractEventLoop | None = None
        self._before: Any = None
        self._factory: Any = None

    def begin(self, loop: AbstractEventLoop) -> None:
        """Install the factory around the one that is there, unless that numbers tasks too, as of another engine."""
        before = loop.get_task_factory()
        if isinstance(before, _NumberingFactory):
            return
        self._loop, self._before, self._factory = loop, before, _NumberingFactory(before or _new_task)
        loop.set_task_factory(self._factory)

    def end(self) -> None:
        """Put back the factory that was there, unless another one has been installed since."""
        if self._loop is not None and self._loop.get_task_factory() is self._factory:
            self._loop.set_task_factory(self._before)
        self._loop = None


class _NumberingFactory:
    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, loop: AbstractEventLoop, coroutine: Any, /, **options: Any) -> Any:
        context = options.get("context")
        place = TASK.get() if context is None else context.get(TASK)
        if place is None or (context is not None and place.is_new):
            return self._make(loop, coroutine, **options)
        options["context"] = context = copy_context() if context is None else context
        new = place.new_task()
        context.run(TASK.set, new)
        task = self._make(loop, coroutine, **options)
        new.is_new = False
        return task


def _new_task(loop: AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
    return asyncio.Task(coroutine, loop=loop, **options)


@contextmanager
def unnumbered() -> Iterator[None]:
    """Around what the engine does in the task of a body: tasks that it creates are not tasks of the body."""
    token = TASK.set(None)
    try:
        yield
    finally:
        TASK.reset(token)


class Record(NamedTuple):
    key: str
    number: int  # of its place within its task
    text: str  # its arguments, for people


class Group:
    """Records of one function, or of one kind of wait and one name, that the body has not asked for yet."""

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, str], Record] = {}  # by place and hash
        self.by_hash: dict[str, dict[str, Record]] = {}  # by hash, then by key
        self.by_task: dict[str, deque[Record]] = {}  # in the order of their places

    def add(self, place: str, hash: str, key: str, text: str) -> None:
        task, _, number = place.rpartition(":")
        record = Record(key, int(number.rstrip("+")), text)
        self.by_place[place, hash] = record
        self.by_hash.setdefault(hash, {})[key] = record
        self.by_task.setdefault(task, deque()).append(record)


class CallRecords:
    """The recorded calls of one body, and which of them it has asked for in this pass.

    `recorded` are calls that have an outcome, `awaited` those that the run still waits for.
    """

    def __init__(self, recorded: Mapping[str, Outcome], awaited: frozenset[str] = frozenset()) -> None:
        owner = object()  # not this object itself: the two would keep each other alive until the garbage is collected
        self.body, self._unknown = TaskPlace(owner, ""), TaskPlace(owner, UNKNOWN)
        self._recorded, self._awaited = recorded, awaited
        self.diverged: Diverged | None = None  # it fails the body, also if the body has swallowed it
        self._used: set[str] = set()
        self._groups: dict[str, Group] = {}
        self._times: dict[str, int] = {}  # of equal calls, by the former rule
        self.by_former_rule = self._read(recorded) or self._read(awaited)

    def named(self, kind: str, key: str) -> str:
        """Return the key of a call that has a key of its own. Raises InvalidValue if it is used twice."""
        name = f"{kind}:{key}"
        if name in self._used:
            raise InvalidValue(key, "two durable calls of one step have this key; each needs its own")
        self._used.add(name)
        return name

    def sleep(self, span: float) -> str:
        """Return the key of a sleep: it is found by its order among the sleeps of its task."""
        if self.by_former_rule:
            return self._formerly("sleep", span)
        return self._wait("sleep", "")

    def signal(self, name: str) -> str:
        """Return the key of a wait for a signal."""
        if self.by_former_rule:
            return self._formerly("signal", name)
        return self._wait("signal", name, or_any=True)

    def child(self, kind: str, name: str, plan: str, input: Any) -> str:
        """Return the key of a child run, or of a fan-out; the input tells equal ones apart if tasks have changed."""
        if self.by_former_rule:
            return self._formerly(kind, [plan, input])
        return self._wait(kind, name, hash_of(input))

    def question(self, command: str) -> str:
        """Return the id of a question that has none of its own."""
        self._times["ask"] = self._times.get("ask", 0) + 1
        id, formerly = f"{command}/{self._place('ask')}", f"{command}/{self._times['ask']}"
        return formerly if not self._knows(f"ask:{id}") and self._knows(f"ask:{formerly}") else id

    def call(self, work: "CalledFunction", inputs: list[Any], named: dict[str, Any]) -> str:
        """Return the key of a call of a function. Raises Diverged if the record of this place is another call."""
        if self.by_former_rule:
            return self._formerly(f"call:{work.former_name}", [inputs, named])
        place = self._place(f"call/{work.name}")
        parts = [msgspec.json.encode(each, order="sorted") for each in (*inputs, *named.items())]
        hash = hashlib.sha256(b"\0".join((b"%d" % len(inputs), *parts))).hexdigest()[:12]
        group = self._groups.get(f"call/{work.name}")
        if group is not None:
            record = group.by_place.get((place, hash))
            if record is None or record.key in self._used:
                record = self._first_unused(group.by_hash.get(hash))
            if record is not None:
                return self._use(record.key)
            self._check_same(work, place, group, parts, len(inputs))
        return self._new(f"call/{place}", f"/{hash}/{work.name}({arguments_text(parts, len(inputs))})")

    def unasked(self) -> list[str]:
        """Return the recorded calls that the body has not asked for in this pass."""
        left = [key for key in self._recorded if key not in self._used]
        return [key for key in left if not isinstance(self._recorded[key], Cancelled) and not _is_inside(key)]

    def inside(self) -> TaskPlace:
        """Return the place of whatever a durable call does while it runs: another pass may not run it."""
        here = self._here()
        return here if here.path.endswith(INSIDE) else TaskPlace(here.owner, here.path + INSIDE)

    def _here(self) -> TaskPlace:
        place = TASK.get()
        return place if place is not None and place.owner is self.body.owner else self._unknown

    def _place(self, group: str) -> str:
        here = self._here()
        number = here.asked[group] = here.asked.get(group, 0) + 1
        return f"{here.path}:{number}" if here.path else str(number)

    def _wait(self, kind: str, name: str, hash: str = "", or_any: bool = False) -> str:
        place, group = self._place(f"{kind}/{name}"), self._groups.get(f"{kind}/{name}")
        if group is not None:
            record = group.by_place.get((place, ""))
            if record is None or record.key in self._used:
                record = self._first_unused(group.by_hash.get(hash)) if hash or or_any else None
            if record is not None:
                return self._use(record.key)
        return self._new(f"{kind}/{place}", "".join(f"/{each}" for each in (hash, name) if each))

    def _first_unused(self, records: dict[str, Record] | None) -> Record | None:
        while records:
            key = next(iter(records))
            record = records.pop(key)
            if key not in self._used:
                return record
        return None

    def _check_same(
        self, work: "CalledFunction", place: str, group: Group, parts: list[bytes], positional: int
    ) -> None:
        """Raise Diverged if this task has passed a record of the function, or is at one, without asking for it.

        A record of a later place, or of another task, may still be asked for.
        """
        task, _, number = place.rpartition(":")
        left = group.by_task.get(task)
        while left and left[0].key in self._used:
            left.popleft()
        if left and task.partition(".")[0] != UNKNOWN and left[0].number <= int(number):
            self.diverged = Diverged(work.name, arguments_text(parts, positional), left[0].text)
            raise self.diverged

    def _use(self, key: str) -> str:
        self._used.add(key)
        return key

    def _new(self, place: str, rest: str) -> str:
        while f"{place}{rest}" in self._used or self._knows(f"{place}{rest}"):
            place += "+"  # an equal record of this place was taken by another call
        return self._use(f"{place}{rest}")

    def _knows(self, key: str) -> bool:
        return key in self._recorded or key in self._awaited

    def _formerly(self, kind: str, what: Any) -> str:
        name = f"{kind}:{hash_of(what)}"
        self._times[name] = self._times.get(name, 0) + 1
        return self._use(f"{name}:{self._times[name]}")

    def _read(self, keys: Iterable[str]) -> bool:
        """Sort the keys by what they are keys of. Return whether they are those of the former rule."""
        for key in keys:
            kind, slash, rest = key.partition("/")
            if not slash or ":" in kind:
                if FORMER.fullmatch(key):
                    return True
                continue
            place, _, rest = rest.partition("/")
            hash, text = "", ""
            if kind in ("child", "map", "call"):
                hash, _, rest = rest.partition("/")
            if kind == "call":
                rest, _, text = rest.partition("(")
            group = self._groups.setdefault(f"{kind}/{rest}", Group())
            group.add(place, hash if kind == "call" else "", key, text.removesuffix(")"))
            if kind in ("child", "map"):
                group.by_hash.setdefault(hash, {})[key] = group.by_place[place, ""]
        for group in self._groups.values():
            for task, records in group.by_task.items():
                group.by_task[task] = deque(sorted(records, key=lambda each: each.number))
        return False


def _is_inside(key: str) -> bool:
    kind, _, rest = key.partition("/")
    return ":" not in kind and INSIDE in rest.partition("/")[0]


def hash_of(value: Any) -> str:
    """Return a short hash of JSON data."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:12]


def arguments_text(parts: list[bytes], positional: int) -> str:
    """Return encoded arguments as a short text for people; an argument is shown whole, or described by its size."""
    shown = [_argument_text(each) for each in parts[:positional]]
    for each in parts[positional:]:  # ["name",value]
        name, _, value = each[1:-1].partition(b",")
        shown.append(f"{name.decode()[1:-1]}={_argument_text(value)}")
    text = ", ".join(shown)
    while len(text) > ALL_SHOWN:
        shown = shown[:-1]
        text = ", ".join((*shown, "…"))
    return text


def _argument_text(part: bytes) -> str:
    if len(part) <= SHOWN:
        return part.decode()
    what = {b'"': "text", b"[": "list", b"{": "map"}.get(part[:1], "number")
    return f"<{what} of {len(part)} bytes>"


class CalledFunction(NamedTuple):
    """The function of a durable call, as it is matched."""

    name: str  # `module:qualified name`, and a hash of the plain data of its object or closure if there is any
    former_name: str
    inputs: tuple[Any, ...] = ()  # that it is bound to, as a `functools.partial`
    named: Mapping[str, Any] = {}


def called_function(work: Any) -> CalledFunction:
    """Return what identifies a function among the durable calls of a body."""
    if type(work) is FunctionType and work.__closure__ is None:
        return CalledFunction(f"{_module(work.__module__)}:{work.__qualname__}", work.__qualname__)
    former_name = getattr(work, "__qualname__", type(work).__name__)
    if isinstance(work, partial):
        bound = called_function(work.func)
        named = {**bound.named, **work.keywords}
        return CalledFunction(bound.name, former_name, (*bound.inputs, *work.args), named)
    owner, name, data = getattr(work, "__self__", None), getattr(work, "__qualname__", ""), {}
    if owner is not None and not isinstance(owner, type):
        data = _data_of_object(owner)
    elif getattr(work, "__closure__", None):
        variables = zip(work.__code__.co_freevars, work.__closure__, strict=True)
        data = {name: _content(cell) for name, cell in variables if name not in _rebound(work.__code__)}
    elif not name:  # an object that can be called
        name, data = type(work).__qualname__, _data_of_object(work)
    plain = {name: text for name, each in data.items() if (text := _plain(each)) is not None}
    module = getattr(work, "__module__", None) or type(work).__module__
    suffix = f"@{hash_of(plain)[:8]}" if plain else ""
    return CalledFunction(f"{_module(module)}:{name}{suffix}", former_name)


@cache
def _module(name: str) -> str:
    """Return the name of a module; for a script, the name by which other processes import it."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return spec.name if spec is not None else splitext(basename(getattr(main, "__file__", None) or name))[0]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return cell  # it is not assigned yet


def _data_of_object(owner: Any) -> dict[str, Any]:
    """Return the attributes of an object that its methods do not assign after it was made: what tells two clients
    apart, and not what they count."""
    if isinstance(owner, Workflow):
        return {}  # its arguments identify the run already
    slots = [name for cls in type(owner).__mro__ for name in getattr(cls, "__slots__", ()) if isinstance(name, str)]
    found = {name: getattr(owner, name) for name in slots if hasattr(owner, name)} | getattr(owner, "__dict__", {})
    changing = _assigned(owner.__class__)
    return {name: each for name, each in found.items() if name not in changing}


_VALUES = (bool, int, float, str, bytes, Decimal, Fraction, UUID, date, datetime, time, timedelta, Enum, type(None))


def _plain(value: Any) -> str | None:
    """Return a value that cannot change as text. All else is None, because it may change between two passes."""
    if isinstance(value, tuple | frozenset):
        texts = [_plain(each) for each in value]
        return None if None in texts else repr(sorted(map(str, texts)) if isinstance(value, frozenset) else texts)
    return repr(value) if isinstance(value, _VALUES) else None


@lru_cache(maxsize=1024)
def _rebound(code: CodeType) -> frozenset[str]:
    """Return the variables around a function that it assigns itself."""
    return frozenset(each.argval for each in dis.get_instructions(code) if each.opname == "STORE_DEREF")


@lru_cache(maxsize=1024)
def _assigned(cls: Any) -> frozenset[str]:
    """Return the attributes that methods of a class assign, those that make the object left out."""
    found: set[str] = set()
    for each in cls.__mro__:
        for name, member in vars(each).items():
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and name not in ("__init__", "__post_init__", "__new__"):
                instructions = dis.get_instructions(function.__code__)
                found.update(each.argval for each in instructions if each.opname == "STORE_ATTR")
    return frozenset(found)
