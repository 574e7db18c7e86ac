"""Which code a Python workflow is: its name, the arguments of its instance, and whether two objects are the same code.

A workflow is known by `module:qualname` or by the name that its author gave, together with the arguments of its
constructor if they are plain data. Nothing is imported because of a stored name: an instance is built again only from
a class that the process has registered itself.
"""

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from os.path import basename, splitext
from types import CodeType, FunctionType, MethodType
from typing import Any

from msgspec import Struct

from refold.core.plan import CodeIdentity
from refold.errors import InvalidValue
from refold.python.values import ValueCodec
from refold.python.workflow import ARGUMENTS, FLOW, GIVEN_NAME, Flow, Workflow

OWN = "refold.python."  # modules of Refold, whose classes are not code of a user
SCALARS = (str, int, float, complex, bool, bytes, frozenset, type(None))
Kind = inspect.Parameter
ANY_NUMBER = (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)


def identity_of(workflow: Workflow[Any]) -> CodeIdentity:
    """Return the identity of an instance. Arguments that are not plain data are not part of it."""
    return CodeIdentity(
        name=_given_name(workflow) or place_of(workflow),
        arguments=stored_arguments(workflow) or {},
    )


def _given_name(workflow: Workflow[Any]) -> str:
    flow = _flow_body(workflow)
    return workflow.name if flow is None else getattr(flow, GIVEN_NAME, "")


def _flow_body(workflow: Workflow[Any]) -> Callable[..., Any] | None:
    return next((each for each in getattr(workflow, "functions", ()) if hasattr(each, FLOW)), None)


def place_of(workflow: Workflow[Any]) -> str:
    """Return where the code is, as `module:qualname`: of a class, of a flow, or of the functions of a workflow."""
    return ",".join(map(_place, _sources(workflow)))


def _sources(workflow: Workflow[Any]) -> list[Any]:
    """Return what the user has written: a class, or functions."""
    if not type(workflow).__module__.startswith(OWN):
        return [type(workflow)]
    return [getattr(each, FLOW, each) for each in workflow.functions]


def _place(source: Any) -> str:
    return f"{module_name(source.__module__)}:{getattr(source, '__qualname__', source.__name__)}"


def module_name(module: str) -> str:
    """Return the name of a module; of the main program the name by which `refold run` would import it."""
    if module not in ("__main__", "__mp_main__"):
        return module
    main = sys.modules.get(module)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return splitext(basename(file))[0] if file else "__main__"


def source_place(workflow: Workflow[Any]) -> str:
    """Return where the code is, with the file and the line: for people."""
    first = _sources(workflow)[0]
    code = next(_codes(first), None)
    return _place(first) if code is None else f"{_place(first)} ({code.co_filename}:{code.co_firstlineno})"


def _codes(source: Any) -> Iterator[CodeType]:
    """Yield the code of a function, or of the methods of a class."""
    if isinstance(source, type):
        for member in vars(source).values():
            if isinstance(member, FunctionType) and member.__module__ == source.__module__:
                yield from _codes(member)
    elif isinstance(code := getattr(inspect.unwrap(source), "__code__", None), CodeType):
        yield code


# Arguments


def constructor(cls: type) -> inspect.Signature | None:
    """Return the parameters of the constructor of a class; None if it is the one of Refold, which takes options."""
    init = vars(next(each for each in cls.__mro__ if "__init__" in vars(each)))["__init__"]
    if getattr(init, "__module__", "").startswith(OWN):
        return None
    _, *parameters = inspect.signature(init).parameters.values()
    return inspect.Signature(parameters)


def missing_arguments(workflow: Any) -> list[str]:
    """Return the arguments without which a class cannot be instantiated; none for anything but a class."""
    parameters = constructor(workflow) if isinstance(workflow, type) else None
    if parameters is None:
        return []
    needed = (each for each in parameters.parameters.values() if each.kind not in ANY_NUMBER)
    return [each.name for each in needed if each.default is Kind.empty]


def given_arguments(workflow: Workflow[Any]) -> dict[str, Any]:
    """Return the arguments of an instance by name, with defaults; of Refold's own constructors the steps alone."""
    parameters = constructor(type(workflow))
    if parameters is None:
        functions = getattr(workflow, "functions", ())
        return {"steps": functions} if functions and not type(workflow).__module__.startswith(OWN) else {}
    given, named = vars(workflow)[ARGUMENTS]
    bound = parameters.bind(*given, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def stored_arguments(workflow: Workflow[Any]) -> dict[str, Any] | None:
    """Return the arguments of an instance in their stored form; None if they are not plain data."""
    codec = _codec(type(workflow))
    try:
        return {name: codec.put(each, name) for name, each in given_arguments(workflow).items()}
    except InvalidValue:
        return None


def rebuilt(cls: type[Workflow[Any]], stored: dict[str, Any]) -> Workflow[Any]:
    """Build an instance again from its stored arguments. Raises what the constructor raises."""
    parameters, codec = constructor(cls), _codec(cls)
    if parameters is None:
        return cls()
    bound = parameters.bind_partial()
    for name in parameters.parameters:
        if name in stored:
            bound.arguments[name] = codec.get(stored[name], name)
    return cls(*bound.args, **bound.kwargs)


def _codec(cls: type[Workflow[Any]]) -> ValueCodec:
    return ValueCodec({f"{each.__module__}.{each.__qualname__}": each for each in cls.types if isinstance(each, type)})


# Comparing


def is_same_code(one: Workflow[Any], other: Workflow[Any]) -> bool:
    """Whether two workflows of one identity would do the same, as far as that can be seen.

    Code is compared, and what it closes over. Objects that may change are the same only if they are one object.
    """
    if one is other:
        return True
    same = _Comparison()
    if not same(type(one), type(other)):
        return False
    if stored_arguments(one) is None or stored_arguments(other) is None:
        given, others = given_arguments(one), given_arguments(other)
        if given.keys() != others.keys() or not all(same(given[name], others[name]) for name in given):
            return False
    functions = [getattr(each, FLOW, each) for each in getattr(one, "functions", ())]
    return same(tuple(functions), tuple(getattr(each, FLOW, each) for each in getattr(other, "functions", ())))


class _Comparison:
    """Compares objects, each pair once, so that objects that refer to each other end the comparison."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], Any] = {}  # the objects are kept, or their ids might be used again

    def __call__(self, one: Any, other: Any) -> bool:
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if (id(one), id(other)) in self._seen:
            return True
        self._seen[id(one), id(other)] = one, other
        return self._is_same(one, other)

    def _is_same(self, one: Any, other: Any) -> bool:
        match one:
            case FunctionType():
                return self._is_same_function(one, other)
            case type():
                return self._is_same_class(one, other)
            case MethodType():
                return self(one.__func__, other.__func__) and self(one.__self__, other.__self__)
            case staticmethod() | classmethod():
                return self(one.__func__, other.__func__)
            case property():
                return self((one.fget, one.fset, one.fdel), (other.fget, other.fset, other.fdel))
            case partial():
                parts = (one.func, one.args, tuple(one.keywords.items()))
                return self(parts, (other.func, other.args, tuple(other.keywords.items())))
            case Flow():
                return self(one.function, other.function)
            case Workflow():
                return is_same_code(one, other)
            case tuple():
                return len(one) == len(other) and all(map(self, one, other))
            case Struct() if one.__struct_config__.frozen:
                return all(self(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
            case _:
                return isinstance(one, SCALARS) and bool(one == other)

    def _is_same_function(self, one: FunctionType, other: FunctionType) -> bool:
        code = one.__code__
        if code != other.__code__ or code.co_filename != other.__code__.co_filename:
            return False
        if one.__globals__ is not other.__globals__ and code.co_filename.startswith("<"):
            return False  # a text that was executed twice
        defaults = (one.__defaults__, tuple((one.__kwdefaults__ or {}).items()))
        if not self(defaults, (other.__defaults__, tuple((other.__kwdefaults__ or {}).items()))):
            return False
        written = frozenset(_written(code))
        cells = zip(code.co_freevars, one.__closure__ or (), other.__closure__ or (), strict=True)
        return all(a is b or (name not in written and self(_content(a), _content(b))) for name, a, b in cells)

    def _is_same_class(self, one: type, other: type) -> bool:
        if (one.__module__, one.__qualname__) != (other.__module__, other.__qualname__):
            return False
        return self(one.__bases__, other.__bases__) and self(_members(one), _members(other))


def _members(cls: type) -> tuple[tuple[str, Any], ...]:
    """Return the names and values of what a class defines, without what Python itself writes into it."""
    return tuple((name, each) for name, each in sorted(vars(cls).items()) if _is_defined(name, each))


def _is_defined(name: str, member: Any) -> bool:
    is_special = name.startswith("__") and name.endswith("__")
    return isinstance(member, FunctionType) or not (is_special or inspect.isgetsetdescriptor(member))


def _written(code: CodeType) -> Iterator[str]:
    """Yield the variables of an outer function that a function changes, as `nonlocal` allows."""
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_DEREF", "DELETE_DEREF"):
            yield each.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _written(constant)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # the variable has no value yet


def is_current(workflow: Workflow[Any]) -> bool:
    """Whether its code is what its module defines now: no cell of a notebook and no reload has replaced it."""
    return any(map(_is_current, _sources(workflow)))


def _is_current(source: Any) -> bool:
    outer, local, _ = source.__qualname__.partition(".<locals>.")
    found: Any = sys.modules.get(source.__module__)
    for part in outer.split("."):
        found = getattr(found, part, None)
    if not local:
        found = found.function if isinstance(found, Flow) else found
        return found is source or (callable(found) and inspect.unwrap(found) is inspect.unwrap(source))
    within = getattr(inspect.unwrap(found) if callable(found) else None, "__code__", None)
    return isinstance(within, CodeType) and any(_contains(within, code) for code in _codes(source))


def _contains(code: CodeType, wanted: CodeType) -> bool:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return any(each is wanted or _contains(each, wanted) for each in inner)
