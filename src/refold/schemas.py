"""Values checked against JSON Schemas, within bounds of time and memory.

What checks them is loaded with the first schema, and fetches nothing. Every keyword that is applied to a value costs
at least one unit of work; a check that needs more units than it was given ends with OverBound. Patterns are matched by
`refold.patterns`, which never takes longer than pattern and text are long.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from msgspec import Struct, json

from refold.errors import OverBound
from refold.patterns import BadPattern, compiled

SHOWN = 5  # misfits that are reported

ENDLESS = "the schema refers to itself without an end (look at its `$ref`), or the value is nested too deeply for it"

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")

WORK = 1_000_000  # units of one check; a unit is a few microseconds
WORK_UNDER_LOCK = 100_000  # the same for a check that other runs have to wait for
QUICK = 2_000  # the same for a check that runs on the event loop
DEEPEST = 250  # keywords inside each other
MOST_NODES = 20_000  # maps, lists and values of a schema
LONGEST_MESSAGE = 2_000  # characters of a message that are kept
MOST_FAULTS = 1_000  # misfits; then a check ends

_MATCHED = 256  # instructions of a pattern times bytes of a text: one unit
_WRITTEN = 256  # characters of a message: one unit
_NAMES = 16  # names that a keyword lists: one unit

_ONE = ("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_SOME = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_SAME_VALUE = ("allOf", "anyOf", "else", "if", "not", "oneOf", "then")  # apply to the value itself, not to a part of it


class Misfit(Struct, frozen=True):
    """Where a value does not fit, as a path such as `$.items[0].price`, and why not."""

    path: str
    message: str
    rule: str = ""  # the keys that lead to the keyword that it does not fit: `properties.price.type`
    of_schema: bool = False  # whether it is the schema that cannot be used


def misfits(schema: Mapping[str, Any], value: Any, work: int = WORK) -> list[Misfit]:
    """Where the value does not fit, in the order of paths. Raise OverBound if the check takes more than this work."""
    from referencing.exceptions import Unresolvable

    found: list[Misfit] = []
    meter = _METER.set(_Meter(work))
    try:
        for each in _validator(json.encode(schema)).iter_errors(value):
            rule = ".".join(map(str, each.absolute_schema_path))
            found.append(Misfit(each.json_path, _cut(_as_json(each.instance, each.message)), rule))
            if len(found) == MOST_FAULTS:
                break
    except Unresolvable as error:
        return [Misfit("$", f"the schema has a reference to nothing: {_cut(str(error))}", "$ref", of_schema=True)]
    except _Unusable as error:
        return [Misfit("$", f"the schema has a pattern that cannot be used: {error}", "pattern", of_schema=True)]
    except RecursionError:
        raise _too_deep() from None
    except OverBound:
        raise
    except Exception as error:  # whatever is wrong with the user's schema, the value does not fit
        why = f"the schema cannot be used: {type(error).__name__}: {_cut(str(error))}"
        return [Misfit("$", why, "$", of_schema=True)]
    finally:
        _METER.reset(meter)
    return sorted(found, key=lambda each: each.path)


def unfit(schema: Mapping[str, Any], value: Any) -> str:
    """Where in the schema a value does not fit, in words that show no part of the value; empty if it fits."""
    return ", ".join(dict.fromkeys(f"`{each.rule}`" for each in misfits(schema, value)[:SHOWN]))


def schema_flaw(schema: Mapping[str, Any], work: int = WORK) -> tuple[list[Any], str] | None:
    """Why a map is not a usable JSON Schema: the keys that lead to the problem, and why; None if it is usable."""
    meter = _METER.set(_Meter(work, crawls=False))
    try:
        if _nodes(schema, MOST_NODES) > MOST_NODES:
            return [], f"it has more than {MOST_NODES} parts; make it smaller"
        plain = _plain_kind(schema)
        against = plain.META_SCHEMA
        checked = _metered(_plain_kind(against))(against)
        for error in checked.iter_errors(schema):
            return list(error.absolute_path), _cut(str(error.message))
        return next(_bad_patterns(schema), None) or _endless_reference(schema)
    except (OverBound, RecursionError):
        return (
            [],
            f"it takes too much work to read, or is nested too deep ({DEEPEST} keywords at most); make it simpler",
        )
    except Exception as error:  # a schema that the library itself cannot read
        return [], f"it cannot be used: {type(error).__name__}: {_cut(str(error))}"
    finally:
        _METER.reset(meter)


def misfits_text(misfits: list[Misfit], root: str) -> str:
    """The first misfits in one line; each path begins with the name of the value."""
    text = "; ".join(f"{misfit.path.replace('$', root, 1)}: {misfit.message}" for misfit in misfits[:SHOWN])
    others = "many" if len(misfits) == MOST_FAULTS else len(misfits) - SHOWN
    return text + (f"; and {others} more" if len(misfits) > SHOWN else "")


def _as_json(value: Any, message: str) -> str:
    """The message about a value, which begins with `null` or `true` where Python would write None or True."""
    written = {None: "null", True: "true", False: "false"}
    if value is None or value is True or value is False:
        return written[value] + message.removeprefix(repr(value)) if message.startswith(repr(value)) else message
    return message


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


class _Unusable(Exception):
    """A pattern that was not checked with the schema."""


class _Meter:
    """How much work a check may still do, and how deeply it is nested."""

    __slots__ = ("allowed", "crawls", "depth", "left", "sets")

    def __init__(self, work: int, crawls: bool = True) -> None:
        self.allowed = self.left = work
        self.crawls = crawls  # whether each reference by name searches the whole schema
        self.depth = 0
        self.sets: dict[int, frozenset[Any]] = {}  # the values of an `enum`, by its identity

    def charge(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            why = f"checking it takes more than {self.allowed} units of work; make the value or the schema smaller"
            raise OverBound("the schema", why)

    def matches(self, pattern: str, text: str) -> bool:
        try:
            found = compiled(pattern)
        except BadPattern as error:
            raise _Unusable(f"{_cut(repr(pattern))}: {error}") from None
        self.charge(1 + found.size * len(text) // _MATCHED)
        return found.is_in(text)


_METER: ContextVar[_Meter] = ContextVar("meter")


def _too_deep() -> OverBound:
    return OverBound("the schema", f"{ENDLESS} (more than {DEEPEST} keywords inside each other)")


def _plain_kind(schema: Any) -> Any:
    import jsonschema

    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    from referencing import Registry

    read = json.decode(schema)
    return _metered(_plain_kind(read))(read, registry=Registry())


Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


@lru_cache(maxsize=32)
def _metered(kind: Any) -> Any:
    """A validator class in which every keyword costs work; a part that names another draft gets its class."""
    import jsonschema

    keywords = {name: _metering(name, _BOUNDED.get(name, check)) for name, check in kind.VALIDATORS.items()}
    extend: Any = jsonschema.validators.extend
    made = extend(kind, keywords)
    fields = [(field.name, field.alias) for field in made.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        schema = changes.setdefault("schema", self.schema)
        for name, alias in fields:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        other = isinstance(schema, Mapping) and "$schema" in schema
        return (_metered(_plain_kind(schema)) if other else type(self))(**changes)

    made.evolve = evolve
    return made


def _metering(name: str, check: Keyword) -> Keyword:
    """The names that a keyword lists cost work, except those of `enum`, which become a set once."""
    lists = name != "enum"

    def metered(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        meter = _METER.get()
        meter.charge(1 + (len(wanted) // _NAMES if lists and isinstance(wanted, (dict, list)) else 0))
        meter.depth += 1
        try:
            if meter.depth > DEEPEST:
                raise _too_deep()
            for error in check(validator, wanted, instance, schema) or ():
                meter.charge(1 + len(error.message) // _WRITTEN)
                error.message = _cut(error.message)
                error.args = ()  # they have the whole message
                yield error
        finally:
            meter.depth -= 1

    return metered


def _fault(message: str) -> Any:
    import jsonschema

    return jsonschema.ValidationError(message)


def _reference(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    meter = _METER.get()
    if meter.crawls and not str(wanted).startswith("#/"):
        meter.charge(_nodes(validator._resolver.lookup("#").contents, MOST_NODES))
    yield from validator._validate_reference(ref=wanted, instance=instance)


def _pattern(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _METER.get().matches(wanted, instance):
        yield _fault(f"{instance!r} does not match {wanted!r}")


def _pattern_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, inside in wanted.items():
        for key, value in instance.items():
            if _METER.get().matches(pattern, key):
                yield from validator.descend(value, inside, path=key, schema_path=pattern)


def _is_named(key: str, schema: Any) -> bool:
    """Whether `properties` or `patternProperties` mention this key."""
    meter = _METER.get()
    return key in schema.get("properties", ()) or any(
        meter.matches(pattern, key) for pattern in schema.get("patternProperties", ())
    )


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    _METER.get().charge(len(instance))
    extras = [key for key in instance if not _is_named(key, schema)]
    if isinstance(wanted, dict):
        for key in extras:
            yield from validator.descend(instance[key], wanted, path=key)
    elif not wanted and extras:
        listed = ", ".join(map(repr, sorted(extras)))
        if "patternProperties" in schema:
            verb = "does" if len(extras) == 1 else "do"
            patterns = ", ".join(map(repr, sorted(schema["patternProperties"])))
            yield _fault(f"{listed} {verb} not match any of the regexes: {patterns}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield _fault(f"Additional properties are not allowed ({listed} {verb} unexpected)")


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list):
        seen = {_comparable(each) for each in instance}
        if len(seen) < len(instance):
            yield _fault(f"{instance!r} has non-unique elements")


def _enum(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    meter = _METER.get()
    if id(wanted) not in meter.sets:  # made once for a check, not for each value
        meter.sets[id(wanted)] = frozenset(map(_comparable, wanted))
    if _comparable(instance) not in meter.sets[id(wanted)]:
        yield _fault(f"{instance!r} is not one of {wanted!r}")


def _const(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if _comparable(wanted) != _comparable(instance):
        yield _fault(f"{wanted!r} was expected")


def _comparable(value: Any) -> Any:
    """A key that is equal for equal JSON: 1 and 1.0 are equal, 1 and true are not."""
    _METER.get().charge(1)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, Mapping):
        return ("map", frozenset((key, _comparable(each)) for key, each in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(map(_comparable, value)))
    return value


def _unevaluated_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    known = _evaluated(validator, instance, schema, _keys_of)
    left = [
        key
        for key in instance
        if key not in known
        and next(validator.descend(instance[key], wanted, path=key, schema_path=key), None) is not None
    ]
    if left:
        listed, verb = ", ".join(map(repr, sorted(left))), "was" if len(left) == 1 else "were"
        if wanted is False:
            yield _fault(f"Unevaluated properties are not allowed ({listed} {verb} unexpected)")
        else:
            yield _fault(
                f"Unevaluated properties are not valid under the given schema ({listed} {verb} unevaluated and invalid)"
            )


def _unevaluated_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, list):
        return
    known = _evaluated(validator, instance, schema, _places_of)
    left = [
        each
        for place, each in enumerate(instance)
        if place not in known and next(validator.descend(each, wanted, path=place), None) is not None
    ]
    if left:
        verb = "was" if len(left) == 1 else "were"
        yield _fault(f"Unevaluated items are not allowed ({', '.join(map(repr, left))} {verb} unexpected)")


Own = Callable[[Any, Any, Any], set[Any]]


def _evaluated(validator: Any, instance: Any, schema: Any, own: Own) -> set[Any]:
    """The keys or indexes that a schema evaluates, including those of schemas that it applies to the same value."""
    meter = _METER.get()
    meter.charge(1 + len(instance))
    if not isinstance(schema, dict):
        return set()
    meter.depth += 1
    try:
        if meter.depth > DEEPEST:
            raise _too_deep()
        found = own(validator, instance, schema)
        for name in ("$ref", "$dynamicRef"):
            if name in schema:
                to = validator._resolver.lookup(schema[name])
                there = validator.evolve(schema=to.contents, _resolver=to.resolver)
                found |= _evaluated(there, instance, to.contents, own)
        for inside in _applied(validator, instance, schema):
            found |= _evaluated(validator, instance, inside, own)
        return found
    finally:
        meter.depth -= 1


def _applied(validator: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """The parts of a schema that apply to the value itself and that the value fits."""

    def fits(inside: Any) -> bool:
        return next(validator.descend(instance, inside), None) is None

    for name in ("allOf", "anyOf", "oneOf"):
        yield from (inside for inside in schema.get(name, ()) if fits(inside))
    if isinstance(instance, dict):
        yield from (inside for key, inside in schema.get("dependentSchemas", {}).items() if key in instance)
    if "if" in schema:
        if fits(schema["if"]):
            yield schema["if"]
            if "then" in schema:
                yield schema["then"]
        elif "else" in schema:
            yield schema["else"]


def _keys_of(validator: Any, instance: Any, schema: Any) -> set[Any]:
    found = {key for key in instance if _is_named(key, schema)}
    for name in ("additionalProperties", "unevaluatedProperties"):
        if name in schema:
            found |= {
                key for key, each in instance.items() if next(validator.descend(each, schema[name]), None) is None
            }
    return found


def _places_of(validator: Any, instance: Any, schema: Any) -> set[Any]:
    if "items" in schema and not isinstance(schema["items"], list):
        return set(range(len(instance)))
    first = schema.get("prefixItems", schema.get("items", ()))
    found = set(range(min(len(first), len(instance))))
    if "additionalItems" in schema and "items" in schema:
        return set(range(len(instance)))
    for name in ("contains", "unevaluatedItems"):
        if name in schema:
            found |= {
                place
                for place, each in enumerate(instance)
                if next(validator.descend(each, schema[name]), None) is None
            }
    return found


_BOUNDED: Mapping[str, Keyword] = {
    "$dynamicRef": _reference,
    "$ref": _reference,
    "additionalProperties": _additional_properties,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
"""Own versions of keywords that are slow in jsonschema, or that match patterns."""


def _nodes(value: Any, most: int) -> int:
    """The number of parts of a value, counted up to `most`."""
    count, todo = 0, [value]
    while todo and count <= most:
        each = todo.pop()
        count += 1
        if isinstance(each, Mapping):
            todo.extend(each.values())
        elif isinstance(each, (list, tuple)):
            todo.extend(each)
    return count


def _parts(schema: Any) -> Iterator[tuple[list[Any], Any]]:
    """The schema itself and every schema inside it, with the keys that lead there."""
    todo: list[tuple[list[Any], Any]] = [([], schema)]
    while todo:
        path, each = todo.pop()
        if not isinstance(each, Mapping):
            continue
        yield path, each
        todo += [([*path, name], each[name]) for name in _ONE if isinstance(each.get(name), Mapping)]
        for name in _SOME:
            if isinstance(each.get(name), list):
                todo += [([*path, name, place], inside) for place, inside in enumerate(each[name])]
        for name in _NAMED:
            if isinstance(each.get(name), Mapping):
                todo += [([*path, name, key], inside) for key, inside in each[name].items()]


def _bad_patterns(schema: Any) -> Iterator[tuple[list[Any], str]]:
    meter = _METER.get()
    for path, each in _parts(schema):
        found = [([*path, "pattern"], each["pattern"])] if isinstance(each.get("pattern"), str) else []
        if isinstance(each.get("patternProperties"), Mapping):
            found += [([*path, "patternProperties", pattern], pattern) for pattern in each["patternProperties"]]
        for where, pattern in found:
            try:
                meter.charge(1 + compiled(pattern).size // 8)
            except BadPattern as error:
                yield where, f"the pattern {_cut(repr(pattern))} cannot be used: {error}"


def _endless_reference(schema: Any) -> tuple[list[Any], str] | None:
    """A `$ref` that leads back to itself without going into the value: checking it would never end."""
    over: set[int] = set()
    for path, start in _parts(schema):
        way: dict[int, Iterator[Any]] = {}
        if id(start) not in over:
            way[id(start)] = _same_value(schema, start)
        while way:
            here = next(reversed(way))
            inside = next(way[here], None)
            if inside is None:
                over.add(here)
                del way[here]
            elif id(inside) in way:
                return path, "a `$ref` leads back to itself without going into the value, so a check would never end"
            elif id(inside) not in over:
                way[id(inside)] = _same_value(schema, inside)
    return None


def _same_value(root: Any, schema: Any) -> Iterator[Any]:
    """The schemas that a schema applies to the same value."""
    found: list[Any] = []
    for name in _SAME_VALUE:
        inside = schema.get(name)
        found += inside if isinstance(inside, list) else [inside]
    if isinstance(schema.get("dependentSchemas"), Mapping):
        found += schema["dependentSchemas"].values()
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        found.append(_pointed(root, reference))
    yield from (each for each in found if isinstance(each, Mapping))


def _pointed(root: Any, reference: str) -> Any:
    """The value at a JSON pointer, or None."""
    from urllib.parse import unquote

    here = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and key.isdecimal() and len(key) < 9 and int(key) < len(here):
            here = here[int(key)]
        elif isinstance(here, Mapping):
            here = here.get(key)
        else:
            return None
    return here
