"""Inputs of a run that starts, held against what its workflow declares."""

from collections.abc import Container
from typing import Any

from refold.core.expressions import CannotEvaluate, Evaluate
from refold.core.inputs import started_with
from refold.core.outcomes import Fault
from refold.core.plan import Input, Plan
from refold.errors import InvalidValue, OverBound
from refold.schemas import WORK, WORK_UNDER_LOCK, misfits, said


def begun_with(plan: Plan, run: str, given: dict[str, Any], evaluate: Evaluate) -> tuple[dict[str, Any], Fault | None]:
    """What a child begins with, and why it cannot if its inputs cannot be computed or do not fit."""
    input, fault = given, None
    try:
        input = started_with(plan, run, given, evaluate)
        check_inputs(plan, input, WORK_UNDER_LOCK)
    except CannotEvaluate as error:
        fault = Fault("expression", str(error), retryable=False)
    except InvalidValue as error:
        fault = Fault("schema", str(error), retryable=False)
    return input, fault


def fits(plan: Plan, given: dict[str, Any], work: int = WORK) -> bool | None:
    """Whether each input that is given is as the workflow wants it; None if that takes more than this work."""
    try:
        for declared in plan.inputs:
            if declared.name in given:
                _check(plan, declared, given[declared.name], work // len(plan.inputs))
    except OverBound:
        return None
    except InvalidValue:
        return False
    return True


def check_inputs(plan: Plan, given: dict[str, Any], work: int = WORK, known: Container[str] = ()) -> None:
    """Raises InvalidValue, with the name of the first input that is missing or does not fit; or OverBound.

    All inputs together take no more than this work: while other runs wait, it is WORK_UNDER_LOCK. Those that are known
    to fit are not checked again.
    """
    for declared in plan.inputs:
        if declared.name in given and declared.name in known:
            continue
        if declared.name in given:
            _check(plan, declared, given[declared.name], work // len(plan.inputs))
        elif declared.name in plan.defaults:
            continue  # it was checked when the workflow was read
        elif declared.required:
            raise InvalidValue(f"input `{declared.name}`", f"`{plan.name}` needs it, and it is not given")


def _check(plan: Plan, declared: Input, value: Any, work: int) -> None:
    try:
        found = misfits(declared.schema, value, work) if declared.schema else []
    except OverBound as error:
        raise OverBound(f"input `{declared.name}`", f"it cannot be checked for `{plan.name}`: {error}") from None
    if found:
        raise InvalidValue(
            f"input `{declared.name}`", f"it is not as `{plan.name}` wants it: {said(found, declared.name)}"
        )
