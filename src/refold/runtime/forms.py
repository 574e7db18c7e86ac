"""Answers held against the JSON Schema of their form; what checks them is loaded with the first form."""

from typing import Any

from refold.errors import InvalidValue
from refold.schemas import ENDLESS

SHOWN = 5  # faults that are told


def check_form(form: dict[str, Any], answers: Any) -> None:
    """Raises InvalidValue with what is wrong. No schema is fetched from anywhere."""
    import jsonschema
    import referencing

    kind = jsonschema.validators.validator_for(form, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(form)
        found = kind(form, registry=referencing.Registry()).iter_errors(answers)
        faults = sorted(found, key=lambda each: each.json_path)
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable) as error:
        raise InvalidValue("form", f"it is no JSON Schema that can be used: {error}".splitlines()[0]) from None
    except RecursionError:
        raise InvalidValue("form", ENDLESS) from None
    except Exception as error:
        why = f"it is no JSON Schema that can be used: {type(error).__name__}: {error}"
        raise InvalidValue("form", why.splitlines()[0]) from None
    if faults:
        told = "; ".join(f"{each.json_path.replace('$', 'feedback', 1)}: {each.message}" for each in faults[:SHOWN])
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise InvalidValue("the form", told + more)
