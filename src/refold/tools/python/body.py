"""Runs the code of a python step, in a warm process, in a thread or on the event loop: each call has names of its own.

The code is the author's, and trusted. What it raises is told with the lines of its source.
What it returns becomes JSON data: values with an obvious form take it, others are refused with their path.
"""

import builtins
import dataclasses
import datetime
import decimal
import enum
import inspect
import io
import linecache
import logging
import math
import os
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import msgspec
from msgspec import Struct, structs

from refold.core.codec import DEPTH_LIMIT, check_value
from refold.core.faults import fault_from_exception
from refold.core.outcomes import Fault
from refold.errors import InvalidValue, ToolFailed
from refold.tools.python.compile import END, InvalidCode, Prepared, prepare
from refold.tools.python.noetl import Overheard, modules, scope_of, with_statements

AS_TEXT = (uuid.UUID, decimal.Decimal, os.PathLike)
BYTES = (bytes, bytearray, memoryview)
TIMES = (datetime.datetime, datetime.date, datetime.time)


def plain(value: Any, path: str = "result") -> Any:
    """Return the value itself if it is JSON data already. Raises InvalidValue."""
    try:
        check_value(value, path)
    except InvalidValue:
        value = _plain(value, path, 0)
        check_value(value, path)
    return value


def as_json(value: Any) -> Any:
    """Return the value as `plain` does, and text for a value without an obvious form.

    Raises InvalidValue if it is nested without end.
    """
    try:
        check_value(value, "result")
    except InvalidValue:
        return _forced(value, 0)
    return value


def _forced(value: Any, depth: int) -> Any:
    if depth > DEPTH_LIMIT:
        raise InvalidValue("result", f"nested deeper than {DEPTH_LIMIT}, or in a circle")
    try:
        value = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else _simpler(value, "")
    except Exception:
        return _text(value)  # its own way to be simple has failed
    if isinstance(value, Mapping):
        return {_text(_key(key)): _forced(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_forced(each, depth + 1) for each in value]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _text(value)


def _text(value: Any) -> str:
    text = bytes(value).decode(errors="backslashreplace") if isinstance(value, BYTES) else str(value)
    return text.encode(errors="backslashreplace").decode()


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > DEPTH_LIMIT:
        raise InvalidValue(path, f"nested deeper than {DEPTH_LIMIT}, or in a circle")
    value = _simpler(value, path)
    if isinstance(value, Mapping):
        return {_key(key): _plain(each, f"{path}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
    return value


def _simpler(value: Any, path: str) -> Any:
    """Return the value one step closer to JSON; unknown values are left to the check that follows."""
    if isinstance(value, BYTES):
        raise InvalidValue(path, "bytes are not a JSON value: decode them, or encode them as base64")
    if isinstance(value, (set, frozenset)):
        return _sorted(value, path)
    for fits, form in FORMS:
        if fits(value):
            return form(value)
    return value


def _sorted(value: set[Any] | frozenset[Any], path: str) -> list[Any]:
    """Return a set as a sorted list, so that its order is the same each time."""
    try:
        return sorted(value)
    except TypeError:
        raise InvalidValue(path, "a set of values that cannot be sorted has no order to keep") from None


def _key(key: Any) -> Any:
    return key.value if isinstance(key, enum.Enum) else key


FORMS: Sequence[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = (
    (lambda value: isinstance(value, enum.Enum), lambda value: value.value),
    (lambda value: isinstance(value, TIMES), lambda value: value.isoformat()),
    (lambda value: isinstance(value, AS_TEXT), str),
    (lambda value: isinstance(value, msgspec.Struct), msgspec.structs.asdict),
    (lambda value: dataclasses.is_dataclass(value) and not isinstance(value, type), lambda value: _fields(value)),
    (lambda value: callable(getattr(value, "tolist", None)), lambda value: value.tolist()),  # numpy and its kin
)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


MODULE = "__step__"  # where classes of a step say they come from
KEPT = 256  # signatures
WHOLE_INPUT = ("input", "input_data", "args")
REFOLD = (__name__, prepare.__module__, "refold.sources.iterating", "asyncio.runners", "asyncio.base_events")
USAGE, RESULT = "usage", "result"  # what every call gives back: the result is data, and what it has used up beside it

_known_parameters: dict[Any, Sequence[inspect.Parameter]] = {}

sys.modules.setdefault(MODULE, ModuleType(MODULE, "The code of a step."))


class CodeCall(Struct, omit_defaults=True):
    """One call, with exactly one of `code`, `script` and `entry`."""

    step: str
    input: dict[str, Any]
    context: dict[str, Any]
    code: str | None = None
    script: str | None = None  # a path
    entry: str | None = None  # package.module:function
    takes: str = "names"  # how the function of `entry` gets the input
    libs: Any = None
    cwd: str | None = None
    env: dict[str, str] = {}
    scope: dict[str, Any] | None = None  # what the code of a NoETL file sees as `context`; None: of another file
    overheard: Overheard | None = None  # only within this process, as is
    say: Callable[[str, str], None] | None = None


def run(order: CodeCall) -> Any:
    """Run a call in a thread of its own."""
    with _errors_told(order):
        return _finished(order, _value(order, _loop))


def made(order: dict[str, Any], wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
    """Return what the code returns, unconverted, for a caller that iterates over it. `wait` runs coroutines."""
    known = CodeCall(**order)
    with _errors_told(known):
        return _value(known, wait)


@contextmanager
def errors_told(order: dict[str, Any]) -> Iterator[None]:
    """Report errors of the code while its iterator runs, as for a call."""
    with _errors_told(CodeCall(**order)):
        yield


def run_alone(order: dict[str, Any]) -> Any:
    """Run a call in a process of its own, one at a time."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")  # unless a body has done so
    known = CodeCall(**order)
    with _place(known):
        if known.scope is None:
            return run(known)
        known.overheard = Overheard()
        with known.overheard.listening():
            return run(known)


async def run_async(order: CodeCall) -> Any:
    """Run a call on the event loop of the caller."""
    with _errors_told(order):
        return _finished(order, await _value_async(order))


def _value(order: CodeCall, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
    if is_async(order):
        return wait(_value_async(order))
    value = _chosen(order, *_begun(order))
    return wait(_awaited(value)) if inspect.isawaitable(value) else value


async def _value_async(order: CodeCall) -> Any:
    names, returned = _begun(order)
    if inspect.iscoroutine(returned):
        returned = await returned
    value = _chosen(order, names, returned)
    return await value if inspect.isawaitable(value) else value


def _finished(order: CodeCall, value: Any) -> Any:
    if order.overheard is None:
        value = plain(None if value is END else value)
    else:
        value = as_json(order.overheard.told() if value is END else value)
    return {RESULT: value, USAGE: _usage(order.context.get("usage"))}


def _usage(told: Any) -> dict[str, int | float]:
    """Return the usage that the code has reported. Raises InvalidValue."""
    if not told:
        return {}
    told = plain(told, "context.usage")
    if not isinstance(told, dict):
        given = type(told).__name__
        why = f"it must be a map of amounts, such as {{'tokens': 120}}, and not of type {given}"
        raise InvalidValue("context.usage", why)
    for unit, amount in told.items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0:
            raise InvalidValue(f"context.usage.{unit}", f"{amount!r} is not an amount that can be used up")
    return told


def _loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """On an event loop of its own; asyncio is loaded by name, because that takes half of the start of a process."""
    return _function("asyncio:run")(coroutine)


async def _awaited(value: Any) -> Any:
    return await value


def may_share_a_loop(order: CodeCall) -> bool:
    """Whether it can run on the event loop of others: it is async, or cannot block. Raises ToolFailed."""
    return is_async(order) or (order.entry is None and not order.libs and _prepared(order).computes)


def is_async(order: CodeCall) -> bool:
    """Whether it needs an event loop, as far as its text shows. Raises ToolFailed."""
    if order.entry is not None:
        return inspect.iscoroutinefunction(_function(order.entry))
    return _prepared(order).is_async


def _begun(order: CodeCall) -> tuple[dict[str, Any], Any]:
    """Return the names that the code has bound, and what it has returned, or a coroutine of that."""
    if order.entry is not None:
        return {"main": _function(order.entry)}, END
    prepared = _prepared(order)
    linecache.cache[prepared.file] = (sum(map(len, prepared.lines)), None, prepared.lines, prepared.file)
    names = _names(order)
    return names, prepared.run(names)


def _names(order: CodeCall) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": MODULE, "__builtins__": builtins, END: END, "context": order.context}
    if order.scope is not None:
        order.scope = scope_of(order.scope)
        order.input = {name: with_statements(value) for name, value in order.input.items()}
        names.update(modules(), context=order.scope, execution_id=order.context["run"])
    if order.script is not None:
        names["__file__"] = order.script
    if order.say is not None:
        names["print"] = _printer(order.say, order.overheard)
    names.update(_imported(order.libs))
    names.update(dict.fromkeys(WHOLE_INPUT, order.input))
    names.update(order.input)
    return names


def _chosen(order: CodeCall, names: dict[str, Any], returned: Any) -> Any:
    """Return the result: of `return` first, then `result`, then `main`; END if there is none of them."""
    if returned is not END:
        return returned
    if order.entry is None and _prepared(order).sets_result and "result" in names:
        return names["result"]
    main = names.get("main")
    if callable(main) and order.takes != "names":
        whole = order.input if order.takes == "whole" else next(iter(order.input.values()), None)
        return main(whole) if _parameters(main) else main()
    if callable(main):
        return main(**_arguments(main, order))
    return END


def _arguments(main: Callable[..., Any], order: CodeCall) -> dict[str, Any]:
    """Return the arguments of a function by name: from the input, then from the context."""
    context = order.context if order.scope is None else order.scope
    offered = {**context, "context": context, **dict.fromkeys(WHOLE_INPUT, order.input), **order.input}
    arguments: dict[str, Any] = {}
    name = getattr(main, "__name__", "main")
    for each in _parameters(main):
        if each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY):
            raise _refused(f"{name}() takes parameters by name, and {each} has none", "no_argument")
        if each.kind == each.VAR_KEYWORD:
            arguments = {**order.input, **arguments}
        elif each.name in offered:
            arguments[each.name] = offered[each.name]
        elif each.default is each.empty:
            known = ", ".join(order.input) or "nothing"
            raise _refused(f"{name}() needs {each.name!r}, and the input of the step has {known}", "no_argument")
    return arguments


def _parameters(main: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """Return the parameters of a function, looked up once for the same code, which makes it again in each call."""
    if not isinstance(main, FunctionType) or vars(main):
        return list(inspect.signature(main).parameters.values())
    key = main.__code__, len(main.__defaults__ or ()), frozenset(main.__kwdefaults__ or ())
    if key not in _known_parameters:
        if len(_known_parameters) > KEPT:
            _known_parameters.clear()
        _known_parameters[key] = list(inspect.signature(main).parameters.values())
    return _known_parameters[key]


def _prepared(order: CodeCall) -> Prepared:
    try:
        if order.script is None:
            return prepare(order.code or "", f"<step {order.step}>")
        found = os.stat(order.script)
        return _prepared_file(order.script, found.st_mtime_ns, found.st_size)
    except InvalidCode as error:
        file = order.script or f"<step {order.step}>"
        fault = Fault("invalid_code", f"{file}, {error}", retryable=False, data={"line": error.line})
        raise ToolFailed(fault) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"the script {order.script} cannot be read: {error}", "no_script") from None


@lru_cache(maxsize=64)
def _prepared_file(path: str, _changed: int, _size: int) -> Prepared:
    with open(path, encoding="utf-8") as file:
        return prepare(file.read(), path)


def _imported(libs: Any) -> Iterator[tuple[str, Any]]:
    """Return the modules of `{alias: module}`, `{alias: {from: module, import: name}}`, or a list of modules."""
    if isinstance(libs, list):
        libs = {name: name for name in libs if not _is_package(name) and _module(name) and "." not in name}
    for alias, what in (libs or {}).items():
        if isinstance(what, Mapping):
            yield alias, _attribute(_module(what.get("from")), what.get("import"))
        else:
            yield alias, _module(what)


def _is_package(name: Any) -> bool:
    """Whether a package is installed under this name although no module has it."""
    if find_spec(str(name).partition(".")[0]) is not None:
        return False
    from importlib.metadata import distribution  # slow to load, and rarely needed

    try:
        return bool(distribution(str(name)))
    except ModuleNotFoundError:
        return False


def _function(entry: str) -> Callable[..., Any]:
    module, _, path = entry.partition(":")
    found: Any = _module(module)
    for part in path.split("."):
        found = _attribute(found, part)
    if not callable(found):
        raise _refused(f"{entry!r} is a {type(found).__name__} and cannot be called", "no_function")
    function: Callable[..., Any] = found
    return function


def _module(name: Any) -> ModuleType:
    try:
        if os.getcwd() not in sys.path:  # the program `refold` does not look where it was started
            sys.path.append(os.getcwd())
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _refused(f"there is no module {name!r}", "no_module") from None
        raise


def _module_below(owner: Any, name: Any) -> ModuleType | None:
    """Return the module of this name in a package that has not imported it yet; None if there is none."""
    if not isinstance(owner, ModuleType) or not hasattr(owner, "__path__"):
        return None
    full = f"{owner.__name__}.{name}"
    return import_module(full) if find_spec(full) is not None else None


def _attribute(owner: Any, name: Any) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        below = _module_below(owner, name)
        if below is not None:
            return below
        raise _refused(f"{getattr(owner, '__name__', owner)!r} has no {name!r}", "no_function") from None


def _refused(why: str, kind: str) -> ToolFailed:
    return ToolFailed(Fault(kind, why, retryable=False))


@contextmanager
def _place(order: CodeCall) -> Iterator[None]:
    """Set the folder and the environment for one call, and restore both afterwards."""
    folder, environment, path, streams = os.getcwd(), os.environ.copy(), sys.path[:], (sys.stdout, sys.stderr)
    if order.cwd is not None:
        try:
            os.chdir(order.cwd)
        except OSError as error:
            raise _refused(f"`cwd`: {error}", "no_folder") from None
    try:
        os.environ.update(order.env)
        yield
    finally:
        os.chdir(folder)
        sys.path[:] = path
        sys.stdout, sys.stderr = streams
        if os.environ.copy() != environment:
            os.environ.clear()
            os.environ.update(environment)


@contextmanager
def _errors_told(order: CodeCall) -> Iterator[None]:
    """Report errors of the author's code without the frames of Refold, and with the last line of its own."""
    try:
        yield
    except ToolFailed:
        raise
    except InvalidValue as error:
        raise _refused(str(error), "invalid_value") from None
    except Exception as error:
        own = [each for each in _frames(error.__traceback__) if not _is_refold(each.tb_frame)]
        if not own:
            raise
        fault = fault_from_exception(error.with_traceback(own[0]))
        if fault.data is None:
            last = [each for each in own if _is_of(each.tb_frame, order)] or own
            fault = structs.replace(fault, data=_where(last[-1]))
        raise ToolFailed(fault) from None


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_refold(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in REFOLD


def _is_of(frame: FrameType, order: CodeCall) -> bool:
    return frame.f_code.co_filename == (order.script or f"<step {order.step}>")


def _where(traceback: TracebackType) -> dict[str, Any]:
    file, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
    return {"file": file, "line": line, "source": linecache.getline(file, line).strip()}


def _printer(say: Callable[[str, str], None], overheard: Overheard | None) -> Callable[..., None]:
    """Return a `print` for code that shares its process, so that its lines reach the log of its run."""

    def say_lines(*values: Any, file: Any = None, **how: Any) -> None:
        if file not in (None, sys.stdout, sys.stderr):
            print(*values, file=file, **how)
            return
        text, stream = io.StringIO(), "stdout" if file is None or file is sys.stdout else "stderr"
        print(*values, file=text, **how)
        if overheard is not None:
            overheard.hear(stream, text.getvalue())
        for line in text.getvalue().removesuffix("\n").split("\n"):
            say(stream, line)

    return say_lines
