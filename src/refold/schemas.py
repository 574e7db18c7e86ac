"""Values held against JSON Schemas. What checks them is loaded with the first schema, and fetches nothing."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, json

SHOWN = 5  # faults that are told

ENDLESS = "the schema refers to itself without an end (look at its `$ref`), or the value is nested too deeply for it"

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


class Misfit(Struct, frozen=True):
    """Where a value does not fit, as a path such as `$.items[0].price`, and why not."""

    path: str
    message: str
    rule: str = ""  # the keys that lead to what it does not fit: `properties.price.type`


def misfits(schema: Mapping[str, Any], value: Any) -> list[Misfit]:
    """In the order of their paths; none if the value fits."""
    from referencing.exceptions import Unresolvable

    try:
        found = sorted(_validator(json.encode(schema)).iter_errors(value), key=lambda each: each.json_path)
    except Unresolvable as error:
        return [Misfit("$", f"the schema has a reference that leads nowhere: {error}", "$ref")]
    except RecursionError:
        return [Misfit("$", ENDLESS, "$ref")]
    except Exception as error:  # a schema is the user's: whatever is wrong with it, the value is not known to fit
        return [Misfit("$", f"the schema cannot be used: {type(error).__name__}: {error}", "$")]
    return [Misfit(each.json_path, each.message, ".".join(map(str, each.absolute_schema_path))) for each in found]


def unfit(schema: Mapping[str, Any], value: Any) -> str:
    """Where in the schema a value does not fit, in words that show nothing of the value; empty if it fits."""
    return ", ".join(dict.fromkeys(f"`{each.rule}`" for each in misfits(schema, value)[:SHOWN]))


def flaw(schema: Mapping[str, Any]) -> tuple[list[Any], str] | None:
    """What makes a map no JSON Schema: the keys that lead there, and why; None if it is one."""
    import jsonschema

    try:
        _kind(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        return list(error.absolute_path), str(error.message)
    except RecursionError:
        return [], "it is nested too deeply"
    except Exception as error:  # such as a regular expression that no library reads
        return [], f"it cannot be used: {type(error).__name__}: {error}"
    return None


def said(found: list[Misfit], root: str) -> str:
    """A few of them in one line; the path begins with the name of the value."""
    told = "; ".join(f"{each.path.replace('$', root, 1)}: {each.message}" for each in found[:SHOWN])
    return told + (f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def _kind(schema: Mapping[str, Any]) -> Any:
    import jsonschema

    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    from referencing import Registry

    read = json.decode(schema)
    return _kind(read)(read, registry=Registry())
