"""Answers checked against the JSON Schema of their form."""

from typing import Any

from refold.errors import InvalidValue
from refold.schemas import WORK_UNDER_LOCK, flaw, misfits, said


def check_form(form: dict[str, Any], answers: Any) -> None:
    """Raises InvalidValue with what is wrong, or OverBound: this is done while others wait."""
    wrong = flaw(form, WORK_UNDER_LOCK)
    if wrong is not None:
        raise InvalidValue("form", f"it is no JSON Schema that can be used: {wrong[1]}")
    found = misfits(form, answers, WORK_UNDER_LOCK)
    if found and found[0].of_schema:
        raise InvalidValue("form", f"it is no JSON Schema that can be used: {found[0].message}")
    if found:
        raise InvalidValue("the form", said(found, "feedback"))
